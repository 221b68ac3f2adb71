"""The rules of the claims, applied to the numbers that the papers print.

`tests/rules/PAPER.py` has for each claim one of three entries: RULES (a function from the published tables
to the parts of the rule, with the printed numbers as intervals without width), CONTRADICTIONS (why the
paper's own numbers do not pass) or NO_NUMBERS (why nothing can be replayed)."""
import importlib.util
import re
from pathlib import Path

import pytest

from sentnb import results
from sentnb.results.verdicts import as_verdict

ROOT = Path(__file__).resolve().parent.parent
BULLETS = ("The paper", "Old rule", "New rule", "Why", "Verdict on the run at small")


def load(paper: str):
    "The module of a paper; None where it has none yet."
    path = ROOT/"tests"/"rules"/f"{paper}.py"
    if not path.exists(): return None
    spec = importlib.util.spec_from_file_location(f"rules_{paper}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAPERS = {paper: module for paper in results.PAPERS if (module := load(paper)) is not None}
REPLAYED = [(claim, module.RULES[claim]) for module in PAPERS.values() for claim in module.RULES]


@pytest.fixture(scope="module")
def tables(): return {name: results.published(name) for name in results.tables()}


@pytest.mark.parametrize("claim, rule", REPLAYED, ids=[claim for claim, _ in REPLAYED])
def test_the_paper_passes_its_own_rule(claim, rule, tables):
    verdict = as_verdict(rule(tables))
    assert verdict.verdict == "holds", verdict


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_has_one_entry(paper):
    module, claims = PAPERS[paper], {claim.id for claim in results.claims(paper)}
    entries = [*module.RULES, *module.CONTRADICTIONS, *module.NO_NUMBERS]
    assert sorted(entries) == sorted(claims)
    reasons = [*module.CONTRADICTIONS.values(), *module.NO_NUMBERS.values()]
    assert all(len(reason.split()) >= 4 for reason in reasons)


def test_changed_rules_are_documented():
    text = (ROOT/"data"/"paper"/"rules.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.M)[1:]
    names = [section.splitlines()[0].strip() for section in sections]
    assert len(set(names)) == len(names)
    for section, name in zip(sections, names):
        results.claim(name)
        for bullet in BULLETS: assert f"\n- {bullet}" in section, f"{name} lacks '- {bullet}: ...'"
