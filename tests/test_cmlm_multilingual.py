"The published weights of CMLM: a folder as sentence-transformers lays one out, pooled by the mean."
import json

import fake_hub
import numpy as np
import pytest
import torch

from sentnb.encoders import TextEncoder

NAME = "sentence-transformers/use-cmlm-multilingual"
TEXTS = ["Two dogs run.", "A very long sentence about two dogs that run in the garden.", "Zwei Hunde laufen."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    folder_path = tmp_path_factory.mktemp("cmlm")
    fake_hub.MAKERS["models"][NAME](folder_path, NAME)
    return folder_path


def by_hand(folder):
    "What its modules say: the mean of the states that are no padding, at unit length."
    from transformers import AutoModel, AutoTokenizer
    pooling = json.loads((folder/"1_Pooling"/"config.json").read_text(encoding="utf-8"))
    assert pooling["pooling_mode_mean_tokens"] and not pooling["pooling_mode_cls_token"]
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad(): states = model(**inputs).last_hidden_state.double()
    mask = inputs["attention_mask"][..., None]
    vectors = (states*mask).sum(1)/mask.sum(1)
    return (vectors/vectors.norm(dim=1, keepdim=True)).numpy()


def test_the_published_layout_loads_and_encodes_as_its_modules_say(folder):
    vectors = TextEncoder.from_pretrained(folder, pooling="mean").encode(TEXTS, show_progress=False)
    assert np.abs(vectors - by_hand(folder)).max() < 1e-6
    other = TextEncoder.from_pretrained(folder, pooling="cls").encode(TEXTS, show_progress=False)
    assert np.abs(other - vectors).max() > 1e-3


def test_as_sentence_transformers_reads_it(folder):
    models = pytest.importorskip("sentence_transformers")
    theirs = models.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    vectors = TextEncoder.from_pretrained(folder, pooling="mean").encode(TEXTS, show_progress=False)
    assert np.abs(vectors - theirs).max() < 1e-6
