"""The shipped encoders: they load by name, offline, are as small as promised, score what their cards say."""
import csv
import itertools
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from sentnb.results import prose_numbers

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = sorted(path.parent for path in (ROOT/"data"/"checkpoints").glob("*/config.json"))
ALLOWED = {"README.md", "SHA256SUMS", "config.json", "model.safetensors", "scores.csv", "sentnb.json",
           "training.csv",
           "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}

pytestmark = pytest.mark.skipif(not FOLDERS, reason="data/checkpoints holds no encoder")
each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def load(name: str):
    from sentnb.encoders import PixelEncoder, TextEncoder
    config = json.loads((ROOT/"data"/"checkpoints"/name/"config.json").read_text(encoding="utf-8"))
    kind = PixelEncoder if config.get("model_type") == "sentnb-pixel" else TextEncoder
    return kind.from_pretrained(name)


def scores(folder: Path) -> dict[tuple[str, str], dict]:
    with open(folder/"scores.csv", newline="", encoding="utf-8") as file:
        return {(row["table"], row["column"]): row for row in csv.DictReader(file)}


SENTENCE_ENCODERS = [folder for folder in FOLDERS if ("bitext", "mean, trained") in scores(folder)]


@each
def test_what_is_in_the_folder(folder):
    files = {path.name for path in folder.iterdir()}
    expected = {"README.md", "SHA256SUMS", "config.json", "model.safetensors", "scores.csv", "training.csv"}
    assert expected <= files <= ALLOWED
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 15e6
    card = (folder/"README.md").read_text(encoding="utf-8")
    assert card.startswith(f"# {folder.name}\n") and {"## Scores", "## Limits"} <= set(card.splitlines())
    for row in scores(folder).values():
        if row["table"].endswith("STS-B test"): assert f"{float(row['value']):.1f}" in card, row


@each
def test_it_loads_by_name_and_encodes(folder, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    vectors = load(folder.name).encode(["A dog runs.", "Ein Hund läuft.", ""], show_progress=False)
    assert vectors.dtype == np.float32 and np.isfinite(vectors).all()
    assert np.allclose((vectors**2).sum(1), 1, atol=1e-5)


STS_TABLES = "STS-B test", "STS-B test as a base"
# of each kind, and of each way to lay out a strip, the smallest: the others draw, cut and encode as these do,
# and loading compares their weights with the digest in their folder. SENTNB_CARDS=all: all of them
SCORED = {"pixel-small-mae", "pixel-small-mae-continuous", "text-small-mlm", "sentnb-small"}
ALL_CARDS = os.environ.get("SENTNB_CARDS") == "all"


def each_scored(folders):
    scored = [folder for folder in folders if ALL_CARDS or folder.name in SCORED]
    return pytest.mark.parametrize("folder", scored, ids=lambda folder: folder.name)


def test_encoders_that_are_scored_are_there():
    assert SCORED <= {folder.name for folder in FOLDERS}


@each_scored(FOLDERS)
def test_it_scores_what_its_card_says(folder, hub):
    "In English; a sentence encoder in Chinese, too."
    from sentnb.evaluation import sts
    languages = ["en", *(["zh"] if folder in SENTENCE_ENCODERS else [])]
    card = [(column, float(row["value"]))
            for (table, column), row in scores(folder).items() if table.endswith(STS_TABLES)]
    for language, score in sts.evaluate_languages(load(folder.name), languages=languages).items():
        (value_on_card,) = [value for column, value in card if column == language]
        assert score == pytest.approx(value_on_card, abs=0.02), language


@each_scored(SENTENCE_ENCODERS)
def test_a_sentence_encoder_scores_what_the_rest_of_its_card_says(folder, hub):
    """Of each table one: an unseen language of Tatoeba, a perturbation. With SENTNB_CARDS=all of one encoder
    a probe as well, for half a minute; the suite probes real tasks in test_transfer.py."""
    from sentnb import corpora
    from sentnb.evaluation import bitext, robustness, transfer
    encoder, card = load(folder.name), {language_name: float(row["value"])
                                        for language_name, row in scores(folder).items()}
    for language, result in bitext.tatoeba(encoder, ["swe"]).items(): # one sentence of 1000 is 0.1
        assert 100*result["accuracy"] == pytest.approx(card["bitext", language], abs=0.3), language
    pairs = robustness.Robustness(encoder, *corpora.sts_pairs("STS-B", "en", "test"), redraws=2)
    change = pairs.effect("char_swap").change.value
    assert change == pytest.approx(card["robustness, change", "char_swap"], abs=0.05)
    if folder.name != "sentnb-small" or not ALL_CARDS: return
    mpqa = 100*transfer.evaluate(encoder, "MPQA")["accuracy"]   # the quickest; one phrase of 10,606 is 0.01
    assert mpqa == pytest.approx(card["transfer", "MPQA"], abs=0.05)


@each
def test_the_training_log_went_down(folder):
    """From the first steps to the last.

    Of several stages, each of those that come again: another stage has another loss."""
    with open(folder/"training.csv", newline="", encoding="utf-8") as file:
        rows = [(row.get("stage", ""), float(row["loss"])) for row in csv.DictReader(file)]
    passes = [stage for stage, _ in itertools.groupby(stage for stage, _ in rows)]
    for stage in {stage for stage in passes if passes.count(stage) > 1} or set(passes):
        losses = [loss for name, loss in rows if name == stage]
        assert len(losses) >= 50 and np.mean(losses[-10:]) < 0.95*np.mean(losses[:10]), stage


def test_the_choices_were_asked_of_the_recipe_that_is_shipped():
    "22_choices builds on its `small`, 21_sentnb_small states its recipe in its settings: one recipe."
    runs = [ROOT/"figures"/name/"small"/"run.json" for name in ("22_choices", "21_sentnb_small")]
    requested, recorded = (json.loads(run.read_text(encoding="utf-8")) for run in runs)
    settings = recorded["settings"]   # the run of the choices is older, and has an s in normalization
    recipe = {name.replace("isation", "ization"): step
              for name, step in requested["notes"]["sentnb-small"].items()}
    shared = recipe.keys() & settings.keys()
    assert {"strategy", "normalization", "patch_features", "weighed", "hidden_size", "num_hidden_layers",
            "lr", "dropout", "anchored"} <= shared
    assert {name: recipe[name] for name in shared} == {name: settings[name] for name in shared}


@pytest.mark.parametrize("folder", SENTENCE_ENCODERS, ids=lambda folder: folder.name)
def test_a_card_tells_what_another_run_measured(folder):
    "Beside others, as 23_beside has it: of each of four encoders its speed and scores."
    card = (folder/"README.md").read_text(encoding="utf-8")
    assert card.count("<!--23_beside/") == 4*5 - 1, "n-grams have no weights"
    assert prose_numbers.fill(card, None) == card, (
        f"python -m sentnb.results.prose_numbers {folder / 'README.md'}"
    )


def test_the_readme_of_a_card_names_no_place_of_a_machine():
    for folder in FOLDERS:
        card = (folder/"README.md").read_text(encoding="utf-8")
        assert not re.search(r"/(home|root|work|tmp|Users)/", card), folder.name