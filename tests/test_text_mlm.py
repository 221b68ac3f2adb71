"Masked language modelling: the loss of transformers, BERT's shares, the same masks on every run, folders."
import copy
import random

import numpy as np
import pytest
import torch
from tiny_text import TEXTS, tiny, tiny_roberta
from transformers import AutoModelForMaskedLM, BertForMaskedLM, RobertaForMaskedLM

from sentnb import recipes
from sentnb.encoders import MaskedLanguageModel, TextEncoder
from sentnb.encoders.text import train_wordpiece


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece(TEXTS, vocab_size=150, max_alphabet=60)


@pytest.mark.parametrize("make, kind", [(tiny, BertForMaskedLM), (tiny_roberta, RobertaForMaskedLM)])
def test_loss_and_gradient_are_those_of_transformers(tokenizer, tmp_path, make, kind):
    model = MaskedLanguageModel(make(tokenizer)).eval()
    ids, mask, labels = model.masked_batch(TEXTS, random.Random(0))
    loss = model(ids, mask, labels); loss.backward()
    model.save_pretrained(tmp_path/"m")
    reference, info = AutoModelForMaskedLM.from_pretrained(tmp_path/"m", output_loading_info=True)
    assert type(reference) is kind and not info["missing_keys"] and not info["unexpected_keys"]
    expected = reference.eval()(input_ids=ids, attention_mask=mask, labels=labels).loss; expected.backward()
    assert loss.dtype == torch.float32 and loss.shape == ()
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    ours, theirs = model.encoder.model.get_input_embeddings(), reference.get_input_embeddings()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, atol=1e-5, rtol=1e-3)
    assert reference.get_output_embeddings().weight is theirs.weight


def test_output_weights_are_the_input_embeddings(tokenizer):
    def size(module): return sum(parameter.numel() for parameter in module.parameters())
    def tied(model):
        return model.decoder.predictions.decoder.weight, model.encoder.model.get_input_embeddings().weight
    model = MaskedLanguageModel(tiny(tokenizer))
    output, embeddings = tied(model)
    assert output is embeddings
    names = [name for name, _ in model.named_parameters()]
    assert len(names) == len(set(names))
    assert size(model) < size(model.encoder) + 32*32 + 5*32 + 2*len(tokenizer)
    twin = copy.deepcopy(model)
    output_of_twin, embeddings_of_twin = tied(twin)
    assert output_of_twin is embeddings_of_twin is not embeddings
    twin.load_state_dict(model.state_dict())


def test_masking_is_seeded_and_has_berts_shares(tokenizer):
    model = MaskedLanguageModel(tiny(tokenizer))
    texts = TEXTS*20
    a, b, c = (model.masked_batch(texts, random.Random(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(x, y) for x, y in zip(a, b)) and not torch.equal(a[2], c[2])
    (ids, mask, labels), clean = a, model.collate(texts)[0]
    chosen = labels != -100
    assert torch.equal(clean[chosen], labels[chosen]) and torch.equal(clean[~chosen], ids[~chosen])
    assert not set(labels[chosen].tolist()) & set(tokenizer.all_special_ids)
    assert not (chosen & (mask == 0)).any()
    ordinary = (clean > 4).sum(1)
    expected = torch.tensor([max(1, round(.15*n)) for n in ordinary.tolist()])
    assert torch.equal(chosen.sum(1), expected), "of each text 15 %, at least one"
    n = int(chosen.sum())
    masked, kept = ((ids == expected)[chosen].double().mean() for expected in (4, clean))
    spread = 4*np.sqrt(.25/n)
    assert n > 3000 and abs(masked - .8) < spread and abs(kept - .1) < spread and kept > 0
    assert not set(ids[chosen & (ids != 4)].tolist()) & set(tokenizer.all_special_ids)


def test_masking_does_not_depend_on_neighbours_in_the_batch_beyond_the_draws(tokenizer):
    model = MaskedLanguageModel(tiny(tokenizer), mask_ratio=.5, mask_share=1., random_share=0.)
    texts = ["", "cat", "a cat sleeps on the sofa"]
    ids, mask, labels = model.masked_batch(texts, random.Random(0), max_length=6)
    assert ids.shape == (3, 6)
    assert (ids == 4).sum(1).tolist() == [0, 1, 2] and (labels != -100).sum(1).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="none of the .* texts has a token"):
        model.masked_batch(["", " "], random.Random(0))
    with pytest.raises(TypeError, match=r"texts\[1\]"): model.masked_batch(["a", 1], random.Random(0))


def test_the_loss_of_chunks_is_that_of_the_whole(tokenizer):
    model = MaskedLanguageModel(tiny(tokenizer)).eval()
    ids, mask, labels = model.masked_batch(TEXTS, random.Random(0))
    chosen = labels != -100
    with torch.no_grad():
        logits = model.logits(ids, mask, chosen)
        whole = torch.nn.functional.cross_entropy(logits, labels[chosen])
        torch.testing.assert_close(model(ids, mask, labels), whole, atol=1e-5, rtol=1e-5)
    assert logits.shape == (int(chosen.sum()), len(tokenizer))


def test_the_loss_is_float32_inside_autocast(tokenizer):
    model = MaskedLanguageModel(tiny(tokenizer)).eval()
    batch = model.masked_batch(TEXTS[:64], random.Random(0))
    with torch.autocast("cpu", torch.bfloat16): loss = model(*batch)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, model(*batch), atol=.05, rtol=.02)


def test_it_learns_and_a_saved_model_knows_the_same(tokenizer, tmp_path):
    model = MaskedLanguageModel(tiny(tokenizer, dropout=0.)).train()
    texts = ["the old cat sleeps on the sofa", "the small dog plays in the garden",
             "the a child sings under the table"]*20
    before, optimizer = model.accuracy(texts), torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(60):
        loss = model(*model.masked_batch(texts, random.Random(step)))
        loss.backward(); optimizer.step(); optimizer.zero_grad()
    assert model.training
    after = model.accuracy(texts)
    assert after["accuracy"] > before["accuracy"] + .4 and after["loss"] < before["loss"]/2
    assert after["accuracy"] <= after["top5"] <= 1
    assert model.fill("the old [MASK] sleeps on the [MASK]", k=2)[0][0][0] == "cat"
    model.save_pretrained(tmp_path/"m")
    again = MaskedLanguageModel.from_pretrained(tmp_path/"m")
    assert again.accuracy(texts) == after == model.eval().accuracy(texts, seed=0)
    assert again.settings() == model.settings()
    encoder = TextEncoder.from_pretrained(tmp_path/"m")
    np.testing.assert_array_equal(encoder.encode(texts[:3]), model.encoder.encode(texts[:3]))
    with pytest.raises(ValueError, match="has no \\[MASK\\]"): model.fill("nothing")
    with pytest.raises(ValueError, match="texts is empty"): model.accuracy([])


def test_a_guess_is_a_token_and_its_probability(tokenizer):
    guesses = MaskedLanguageModel(tiny(tokenizer)).eval().fill("a [MASK] on [MASK]", k=3)
    assert [len(each) for each in guesses] == [3, 3]
    for token, probability in guesses[0] + guesses[1]:
        assert token in tokenizer.get_vocab() and 0 < probability < 1
    with pytest.raises(ValueError, match="k=9999: expected an integer from 1 to"):
        MaskedLanguageModel(tiny(tokenizer)).fill("a [MASK]", k=9999)


def test_a_new_head_is_on_the_device_of_its_encoder(tokenizer):
    model = MaskedLanguageModel(tiny(tokenizer).to("meta"))
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


def test_a_masked_model_remembers_its_masking_and_its_head(tokenizer, tmp_path):
    encoder = TextEncoder(tiny(tokenizer).model, tokenizer, "cls", head=True).eval()
    MaskedLanguageModel(encoder, mask_ratio=.3, mask_share=1., random_share=0.).save_pretrained(tmp_path/"m")
    again = MaskedLanguageModel.from_pretrained(tmp_path/"m")
    assert (again.mask_ratio, again.mask_share, again.random_share) == (.3, 1., 0.)
    assert again.encoder.pooling == "cls"
    kept, expected = (each.encode(TEXTS[:3], head="keep") for each in (again.encoder, encoder))
    np.testing.assert_array_equal(kept, expected)
    assert MaskedLanguageModel.from_pretrained(tmp_path/"m", mask_ratio=.2).mask_ratio == .2
    with pytest.raises(TypeError, match="unknown arguments: ratio"):
        MaskedLanguageModel.from_pretrained(tmp_path/"m", ratio=.2)
    encoder.save_pretrained(tmp_path/"alone")
    with pytest.raises(ValueError, match="BertForMaskedLM are missing"):
        MaskedLanguageModel.from_pretrained(tmp_path/"alone")


@pytest.mark.parametrize("wrong", [
    dict(mask_ratio=0), dict(mask_ratio=1), dict(mask_share=.8, random_share=.3), dict(random_share=-.1)])
def test_impossible_shares_are_refused(tokenizer, wrong):
    with pytest.raises(ValueError, match="share|mask_ratio"): MaskedLanguageModel(tiny(tokenizer), **wrong)


def test_a_new_head_computes_as_its_encoder_does():
    "The shipped checkpoint is in half the bits, its encoder is loaded in all of them."
    encoder = recipes.load_initial_text_encoder("text-small-mlm")
    model = MaskedLanguageModel(encoder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
