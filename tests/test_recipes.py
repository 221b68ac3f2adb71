"""Recipes: what each stage reads, what becomes of the weights, and that no test sentence is among the texts."""
import dataclasses

import pytest
import torch

from sentnb import corpora, recipes
from sentnb.recipes import CYCLE, PIXEL_LINGUIST, Recipe

TINY = Recipe(hidden_size=32, num_hidden_layers=1, head_size=16, max_patches=24, batch=8, lr=1e-3, lexical_texts=50, counted_texts=100)


@pytest.fixture(scope="module")
def data(): return recipes.training_data("microworld", ["de", "zh"])


def change(**changes): return dataclasses.replace(TINY, **changes)


def test_texts_of_each_language(data):
    drawn = list(data.in_each_language(700, seed=1))   # there are 600 translations of each
    assert [sum(l == language for l, _ in drawn) for language in ("en", "de", "zh")] == [1400, 700, 700]
    assert drawn == list(data.in_each_language(700, seed=1)) != list(data.in_each_language(700, seed=2))
    assert {text for l, text in drawn if l == "de"} <= {b for _, b in data.parallel["de"]}


def test_what_the_stages_read(data):
    for name, view in dict(visual="perturbed:mixture", topical="spans", reasoning="pair", lexical="pair", together="pair").items():
        found, how, groups = recipes.examples(name, TINY, data)
        assert found and (how, groups is None) == (view, name != "lexical"), name
    translations = {pair for pairs in data.parallel.values() for pair in pairs}
    rows = recipes.examples("cross-lingual", TINY, data)[0]
    assert sum(pair in translations for pair in rows)*2 == len(rows), "as many English pairs as translations"
    german = recipes.examples("cross-lingual", change(languages=("de",), parallel=.5), data)[0]
    assert len(german) == 600 and sum(pair in set(data.parallel["de"]) for pair in german) == 300
    assert all(len(row) == 3 for row in recipes.examples("reasoning", change(hard_negatives=True), data)[0])
    fewer = recipes.examples("together", change(languages=("zh",), parallel=.5), data)[0]
    assert sum(pair in translations for pair in fewer) == 300, "all at once keeps to the share and the languages as well"
    found, _, groups = recipes.examples("cross-lingual", change(one_source=True), data)
    assert len(groups) == len(found) and set(groups) == {"nli", "de", "zh"}
    first, second = recipes.examples("lexical", TINY, data)[0][0]
    assert first and second and first != second


def test_a_recipe_is_trained_by_its_shares(data, tmp_path):
    branch = recipes.train(TINY, 240, data, tmp_path, show_progress=False)
    assert [row["name"] for row in branch.history] == [name for name, share in PIXEL_LINGUIST for _ in range(round(share*30))]
    longer = recipes.train(change(stages=PIXEL_LINGUIST + CYCLE), 240, data, tmp_path, show_progress=False)
    assert longer.history[:len(branch.history)] == branch.history, "what two recipes begin with is trained once"
    assert len(longer.history) == len(branch.history) + 8 + 4
    negatives = recipes.train(change(stages=(("reasoning", 1.),), hard_negatives=True), 240, data, tmp_path, show_progress=False)
    assert len(negatives.history) == 20, "a hard negative costs as much as half a pair"


def test_averages_of_weights(data, tmp_path):
    one = change(stages=(("visual", .5), ("reasoning", .5)))
    start, end, mean = recipes.start_encoder(one, data), recipes.train(one, 80, data, tmp_path, show_progress=False), recipes.train(dataclasses.replace(one, anchored=True), 80, data, tmp_path, show_progress=False)
    for name, weight in mean.encoder.named_parameters():
        torch.testing.assert_close(weight, (start.get_parameter(name) + end.encoder.get_parameter(name))/2, msg=name)
    assert any(not torch.equal(weight, end.encoder.get_parameter(name)) for name, weight in mean.encoder.named_parameters())
    recipes.train(change(members=3, stages=(("visual", 1.),)), 240, data, tmp_path, show_progress=False)
    folders = {path.name.split("-")[1] for path in tmp_path.glob("visual-*")}
    assert folders == {"0", "1", "2"}


def test_the_start_is_decided_by_the_seed(data):
    white = change(normalisation="whiten", final_norm=False, patch_features=16, weighed="by language")
    one, again, other = (recipes.start_encoder(white, data, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], again[name]) for name in one) and not torch.equal(one["vit.embeddings.features.weight"], other["vit.embeddings.features.weight"])


@pytest.mark.parametrize("wrong, message", [(dict(stages=(("visual", 1.), ("mystery", 1.))), "no stage mystery"), (dict(stages=(("visual", 0.),)), "more than 0"), (dict(members=5), "1 to 4"), (dict(hidden_size=100), "not a multiple of head_size=32"), (dict(weighed="often"), "by language")])
def test_wrong_recipes(wrong, message):
    with pytest.raises(ValueError, match=message): Recipe(**wrong)


def test_no_test_sentence_is_read(hub, monkeypatch):
    "Captions of Multi30K hold sentences of STS-B and STS15: they are dropped, and the second look finds none."
    monkeypatch.setattr(corpora, "pretraining_texts", lambda *_, **__: ["Some text. More of it."])   # cleaned by itself, and tested with it
    monkeypatch.setattr(corpora, "pretraining_counts", lambda: [])
    found = recipes.training_data("public", ["fr"])
    assert found.notes["dropped from captions"]["dropped"] > 1000 and found.notes["dropped from stsb fr"]["dropped"] > 0
    banned = corpora.test_sentences()
    captions = [text for pair in found.english["captions"] for text in pair]
    assert len(captions) > 10_000 and not any(corpora.normalise(text) in banned for text in captions)
