"TextEncoder, WordPiece and masked language modelling: used as the pixel encoder is, read by transformers as its own, the same on every run."
import copy
import json
import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForMaskedLM, BertConfig, BertForMaskedLM, BertForPreTraining, BertModel, ByT5Tokenizer, CanineConfig, CanineModel, CanineTokenizer,
    RobertaConfig, RobertaForMaskedLM, RobertaModel, T5Config, T5ForConditionalGeneration)

from sentnb.encoders import MaskedLanguageModel, PixelConfig, PixelEncoder, TextEncoder
from sentnb.encoders.text import POOLINGS, SPECIAL_TOKENS, byte_tokenizer, small_text_encoder, train_characters, train_wordpiece
from sentnb.encoders.text.wordpiece import without_surrogates
from sentnb.training import Stage, fit

WORDS = "the a cat dog child sings sleeps plays on in under old small sofa garden table чашка кошка спит на диване é naïve".split()
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=2 + i % 9)) for i in range(200)] + ["猫在睡觉。", "A cat."]*5


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece(TEXTS, vocab_size=150, max_alphabet=60)


def _tiny(tokenizer, pooling="mean", **config):
    torch.manual_seed(0)
    return small_text_encoder(tokenizer, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, max_length=24, pooling=pooling, **config).eval()


def _roberta(tokenizer):
    torch.manual_seed(0)
    config = RobertaConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                           max_position_embeddings=20, pad_token_id=0, bos_token_id=2, eos_token_id=3, type_vocab_size=1)
    return TextEncoder(RobertaModel(config, add_pooling_layer=False).eval(), tokenizer)


# WordPiece

def test_the_vocabulary_is_the_same_in_every_process(python):
    code = """
import random
from sentnb.core import fingerprint
from sentnb.encoders.text import train_wordpiece
rng = random.Random(0); parts = "ka lo mi tu re zé po ñi sch ый на 睡".split()
texts = [" ".join("".join(rng.choices(parts, k=rng.randint(1, 5))) for _ in range(20)) for _ in range(300)]
print(fingerprint(train_wordpiece(texts, vocab_size=600).get_vocab()), fingerprint(train_wordpiece(iter(texts), vocab_size=300, max_alphabet=20).get_vocab()))
"""
    assert len({python(code, TOKENIZERS_PARALLELISM=parallel) for parallel in ("false", "true")}) == 1


def test_special_tokens_come_first_and_words_survive(tokenizer):
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3, 4]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id) == (0, 1, 2, 3, 4)
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer))) and len(tokenizer) <= 150
    ids = tokenizer("The OLD cat. Кошка спит")["input_ids"]
    assert tokenizer.decode(ids) == "[CLS] the old cat. кошка спит [SEP]" and 1 not in ids
    assert tokenizer("a [MASK] b")["input_ids"].count(4) == 1
    assert tokenizer.tokenize("cat ω dog") == ["cat", "[UNK]", "dog"]


def test_case_and_accents_are_arguments():
    texts = ["Naïve Katze und Älter Кошка"]*5
    def pieces(text, **options): return train_wordpiece(texts, vocab_size=120, **options).tokenize(text)
    assert pieces("Katze") == pieces("KATZE") == ["katze"]
    assert pieces("Katze", lowercase=False) == ["Katze"] != pieces("katze", lowercase=False)
    assert pieces("naive") != ["naive"] and pieces("naïve") == pieces("nai\u0308ve") == ["naïve"]
    assert pieces("naïve", strip_accents=True) == ["naive"]


def test_pieces_that_cannot_continue_a_word_take_no_place(tokenizer):
    vocabulary = tokenizer.get_vocab()
    assert "猫" in vocabulary and "##猫" not in vocabulary and "##." not in vocabulary and "##c" in vocabulary


def test_what_cannot_be_learned_is_refused():
    with pytest.raises(ValueError, match="do not fit"): train_wordpiece(TEXTS, vocab_size=30, max_alphabet=100)
    with pytest.raises(ValueError, match="no character"): train_wordpiece([])
    with pytest.raises(TypeError, match="one str"): train_wordpiece("text")


# the encoder

@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_is_what_it_says(tokenizer, pooling):
    encoder = _tiny(tokenizer, pooling)
    ids, mask = encoder.collate(TEXTS[:6])
    with torch.no_grad(): found, out = encoder(ids, mask), encoder.model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    layers = [h.double() for h in out.hidden_states]
    states = dict(mean=layers[-1], cls=layers[-1], first_last=(layers[1] + layers[-1])/2, embedding_last=(layers[0] + layers[-1])/2)[pooling]
    expected = torch.stack([s[0] if pooling == "cls" else s[:n].mean(0) for s, n in zip(states, mask.sum(1).tolist())])
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("make", [_tiny, _roberta])
def test_neither_padding_nor_batch_nor_order_changes_a_row(tokenizer, make):
    encoder, texts = make(tokenizer), [*TEXTS[:150], "", "猫", "\ud800 lone", "nul \0 and\nnewline"]
    vectors = encoder.encode(texts)
    assert vectors.dtype == np.float32 and vectors.shape == (154, 32) and np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(encoder.encode((t for t in texts[::-1]), batch_size=7, window=40)[::-1], vectors, atol=1e-5)
    with torch.no_grad():
        together = encoder(*encoder.collate(texts))
        whole = encoder.pool(*encoder.hidden_states(*encoder.collate(texts)))
    torch.testing.assert_close(together, whole, atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(torch.nn.functional.normalize(together, dim=1).numpy(), vectors, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(texts[:3], normalize=False), together[:3].numpy(), atol=1e-5)


def test_stream_is_lazy_and_errors_name_the_position(tokenizer):
    encoder, drawn = _tiny(tokenizer).train(), []
    def texts():
        for i in range(50): drawn.append(i); yield f"cat {i}"
    stream = encoder.encode_batches(texts(), window=10)
    first = next(stream)
    assert len(drawn) <= 11 and first.shape == (10, 32) and encoder.training, "the mode is restored between windows"
    np.testing.assert_allclose(np.concatenate([first, *stream]), encoder.encode([f"cat {i}" for i in range(50)]), atol=1e-5)
    assert encoder.encode([]).shape == (0, 32)
    for wrong, message in (("text", "one str"), (["fine", 3], r"texts\[1\] is int"), (["fine", None], r"texts\[1\] is NoneType")):
        with pytest.raises(TypeError, match=message): encoder.encode(wrong)
        with pytest.raises(TypeError, match=message): encoder.collate(wrong)
    with pytest.raises(ValueError, match="at least 1"): encoder.encode(["a"], batch_size=0)


def test_long_texts_are_cut_before_the_last_special_token_or_refused(tokenizer):
    encoder = _tiny(tokenizer)
    long = "cat "*100
    row, = encoder.token_ids([long])
    assert len(row) == 24 and row[0] == tokenizer.cls_token_id and row[-1] == tokenizer.sep_token_id
    assert encoder.collate([long, "a"], max_length=8)[0].shape == (2, 8)
    strict = TextEncoder(encoder.model, tokenizer, long="error")
    assert strict.collate(["a cat"])[0].shape == (1, 4)
    with pytest.raises(ValueError, match=r"texts\[1\].*102 tokens, more than max_length=24"): strict.encode(["a cat", long])
    for wrong in (25, 2, 0):
        with pytest.raises(ValueError, match="max_length"): encoder.collate(["a"], max_length=wrong)


def test_positions_of_roberta_start_behind_the_padding(tokenizer):
    encoder = _roberta(tokenizer)
    assert encoder.max_length == 19, "20 positions, of which that of the padding is never used"
    assert encoder.encode(["cat "*100]).shape == (1, 32)
    with pytest.raises(ValueError, match="to 19"): TextEncoder(encoder.model, tokenizer, max_length=20)


def test_what_does_not_belong_together_is_refused(tokenizer):
    encoder = _tiny(tokenizer)
    with pytest.raises(ValueError, match="pooling='max'"): TextEncoder(encoder.model, tokenizer, "max")
    with pytest.raises(ValueError, match="long='scroll'"): TextEncoder(encoder.model, tokenizer, long="scroll")
    with pytest.raises(ValueError, match="do not belong together"): TextEncoder(BertModel(BertConfig(vocab_size=20, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)), tokenizer)
    other = copy.deepcopy(tokenizer); other.pad_token = None
    with pytest.raises(ValueError, match="no padding token"): TextEncoder(encoder.model, other)
    with pytest.raises(ValueError, match="not a multiple"): small_text_encoder(tokenizer, hidden_size=32, num_attention_heads=3)
    with pytest.raises(ValueError, match="no training head"): encoder(*encoder.collate(["a"]), head="keep")
    with pytest.raises(ValueError, match="head='maybe'"): encoder(*encoder.collate(["a"]), head="maybe")


def test_the_default_size_is_that_of_the_pixel_encoder(tokenizer):
    text, pixel = small_text_encoder(tokenizer).config, PixelConfig()
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"): assert getattr(text, name) == getattr(pixel, name)


def test_the_mode_is_that_of_the_model(tokenizer):
    model = _tiny(tokenizer).model
    assert not TextEncoder(model.eval(), tokenizer).training and TextEncoder(model.train(), tokenizer).training


def test_gradients_reach_every_weight(tokenizer):
    encoder = _tiny(tokenizer).train()
    encoder(*encoder.collate(TEXTS)).square().sum().backward()
    assert [n for n, p in encoder.named_parameters() if p.grad is None] == []


# folders

def test_saving_and_loading_gives_the_same_encoder(tokenizer, tmp_path):
    encoder = TextEncoder(_tiny(tokenizer).model, tokenizer, "cls", 12, "error", head=True).eval()
    vectors = encoder.encode(TEXTS[:9]), encoder.encode(TEXTS[:9], head="keep")
    assert not np.allclose(*vectors)
    encoder.save_pretrained(tmp_path/"m")
    again = TextEncoder.from_pretrained(tmp_path/"m")
    np.testing.assert_array_equal(again.encode(TEXTS[:9]), vectors[0]); np.testing.assert_array_equal(again.encode(TEXTS[:9], head="keep"), vectors[1])
    assert (again.pooling, again.max_length, again.long) == ("cls", 12, "error") and not again.training
    assert again.settings() == encoder.settings() == json.loads(json.dumps(encoder.settings())) and str(tmp_path) not in str(again.settings())
    other = TextEncoder.from_pretrained(tmp_path/"m", pooling="mean", max_length=20, long="truncate")
    assert (other.pooling, other.max_length, other.long) == ("mean", 20, "truncate") and other.settings() != encoder.settings()


def test_settings_tell_tokenisers_apart_but_not_what_they_did_last(tokenizer):
    encoder = _tiny(tokenizer)
    before = encoder.settings()
    encoder.encode(["cat "*100]); encoder.token_ids(["a cat"], max_length=5)
    assert encoder.settings() == before
    assert _tiny(train_wordpiece(TEXTS, vocab_size=150, max_alphabet=60, lowercase=False)).settings()["tokenizer"] != before["tokenizer"]


def test_saved_bytes_do_not_depend_on_what_was_encoded(tokenizer, tmp_path):
    encoder = _tiny(tokenizer)
    encoder.save_pretrained(tmp_path/"a"); encoder.encode(["cat "*100]); encoder.save_pretrained(tmp_path/"b")
    for file in (tmp_path/"a").iterdir(): assert file.read_bytes() == (tmp_path/"b"/file.name).read_bytes(), file.name
    assert str(tmp_path) not in "".join(f.read_text() for f in (tmp_path/"a").glob("*.json"))


def test_half_is_half_and_close(tokenizer, tmp_path):
    encoder = _tiny(tokenizer)
    encoder.save_pretrained(tmp_path/"m"); whole = (tmp_path/"m"/"model.safetensors").stat().st_size
    encoder.save_pretrained(tmp_path/"m", half=True)
    assert (tmp_path/"m"/"model.safetensors").stat().st_size < .6*whole
    again = TextEncoder.from_pretrained(tmp_path/"m")
    assert {p.dtype for p in again.parameters()} == {torch.float32}
    np.testing.assert_allclose(again.encode(TEXTS[:9]), encoder.encode(TEXTS[:9]), atol=.02)


@pytest.mark.parametrize("kind, config", [
    (BertForMaskedLM, BertConfig(vocab_size=150, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)),
    (BertModel, BertConfig(vocab_size=150, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)),
    (RobertaForMaskedLM, RobertaConfig(vocab_size=150, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, pad_token_id=0)),
], ids=lambda x: getattr(x, "__name__", ""))
def test_folders_of_transformers_load_as_they_are(tokenizer, tmp_path, kind, config, capfd):
    torch.manual_seed(0)
    model = kind(config).eval(); model.save_pretrained(tmp_path/"m"); tokenizer.save_pretrained(tmp_path/"m")
    capfd.readouterr()
    encoder = TextEncoder.from_pretrained(tmp_path/"m")
    assert capfd.readouterr().err == "", "loading is silent"
    assert (encoder.pooling, encoder.max_length) == ("mean", 511 if "Roberta" in kind.__name__ else 512)
    ids, mask = encoder.collate(TEXTS[:4])
    base = getattr(model, model.base_model_prefix, model) if "MaskedLM" in kind.__name__ else model
    with torch.no_grad(): expected = base(input_ids=ids, attention_mask=mask).last_hidden_state
    with torch.no_grad(): torch.testing.assert_close(encoder.hidden_states(ids, mask)[0], expected, atol=1e-6, rtol=1e-5)


def _spoil_weights(folder, change):
    state = load_file(folder/"model.safetensors"); change(state); save_file(state, folder/"model.safetensors", metadata={"format": "pt"})


def _edit(path, **changes): path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("spoil, error, message", [
    (lambda f: (f/"config.json").unlink(), FileNotFoundError, "without a config.json"),
    (lambda f: (f/"config.json").write_text("{"), ValueError, "config.json is not JSON"),
    (lambda f: (f/"config.json").write_text("{}"), ValueError, "names no model_type"),
    (lambda f: _edit(f/"config.json", model_type="sentnb-pixel"), ValueError, "PixelEncoder.from_pretrained"),
    (lambda f: _edit(f/"config.json", model_type="no-such-kind"), ValueError, "not understood"),
    (lambda f: _edit(f/"config.json", num_hidden_layers=3), ValueError, "are missing or of another shape, the first encoder.layer.2"),
    (lambda f: _edit(f/"config.json", vocab_size=151), ValueError, "does not fit"),
    (lambda f: _edit(f/"sentnb.json", pooling="max"), ValueError, "pooling='max'"),
    (lambda f: (f/"sentnb.json").write_text("["), ValueError, "sentnb.json is not JSON"),
    (lambda f: (f/"model.safetensors").unlink(), FileNotFoundError, "no model.safetensors"),
    (lambda f: (f/"model.safetensors").write_bytes((f/"model.safetensors").read_bytes()[:1000]), ValueError, "cannot be read"),
    (lambda f: _spoil_weights(f, lambda s: s.pop("embeddings.LayerNorm.bias")), ValueError, "1 weights of BertModel are missing"),
])
def test_broken_checkpoints_say_what_is_wrong(tokenizer, tmp_path, spoil, error, message):
    spoil(_tiny(tokenizer).save_pretrained(tmp_path/"m"))
    with pytest.raises(error, match=message): TextEncoder.from_pretrained(tmp_path/"m")


def test_names_that_are_no_checkpoint(tokenizer, tmp_path, monkeypatch):
    (tmp_path/"file").write_text("")
    with pytest.raises(FileNotFoundError, match="is a file: not a checkpoint"): TextEncoder.from_pretrained(tmp_path/"file")
    with pytest.raises(FileNotFoundError, match="neither a folder, nor a checkpoint that is shipped.*nor a Hub id"): TextEncoder.from_pretrained("no such/name")
    import huggingface_hub
    def offline(*arguments, **options): raise ConnectionError("no network")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(OSError, match="could not be had from the Hub.*where there is a network"): TextEncoder.from_pretrained("owner/name")
    _tiny(tokenizer).save_pretrained(tmp_path/"snapshot"); seen = {}
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **options: seen.update(options, name=name) or str(tmp_path/"snapshot"))
    assert TextEncoder.from_pretrained("owner/name", revision="abc").config.hidden_size == 32
    assert seen["revision"] == "abc" and not {p for p in seen["allow_patterns"] if p.endswith((".bin", ".py", "*"))}


def test_a_shipped_name_loads_from_the_project(tokenizer, tmp_path, monkeypatch):
    (tmp_path/"settings.ini").write_text("lib_name = sentnb\n")
    monkeypatch.setenv("SENTNB_ROOT", str(tmp_path))
    _tiny(tokenizer).save_pretrained(tmp_path/"data"/"checkpoints"/"text-tiny")
    assert TextEncoder.from_pretrained("text-tiny").config.hidden_size == 32
    with pytest.raises(FileNotFoundError, match=r"shipped \(text-tiny\)"): TextEncoder.from_pretrained("text tiny")


def test_saving_is_atomic_keeps_what_else_is_there_and_refuses_foreign_folders(tokenizer, tmp_path, monkeypatch):
    import os
    encoder = _tiny(tokenizer)
    for name, file in (("notes", "mine.txt"), ("bert", "config.json")):
        (tmp_path/name).mkdir(); (tmp_path/name/file).write_text('{"model_type": "bert"}')
        with pytest.raises(FileExistsError, match="not a text checkpoint of ours"): encoder.save_pretrained(tmp_path/name)
        assert [p.name for p in (tmp_path/name).iterdir()] == [file]
    with pytest.raises(FileExistsError, match="is a file"): encoder.save_pretrained(tmp_path/"notes"/"mine.txt")
    folder = encoder.save_pretrained(tmp_path/"m")
    (folder/"README.md").write_text("card"); (folder/"results").mkdir(); (folder/"results"/"a.csv").write_text("1"); (folder/"broken").symlink_to("nowhere")
    names = sorted(p.name for p in folder.iterdir())
    replace, calls = os.replace, []
    def fails_at_the_second(source, target):
        calls.append(target)
        if len(calls) == 2: raise OSError("disk")
        replace(source, target)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk"):
        patch.setattr(os, "replace", fails_at_the_second); encoder.save_pretrained(folder)
    TextEncoder.from_pretrained(folder)
    with torch.no_grad(): encoder.model.embeddings.LayerNorm.bias += 1
    encoder.save_pretrained(folder)
    assert sorted(p.name for p in folder.iterdir()) == names and (folder/"results"/"a.csv").read_text() == "1"
    assert torch.equal(TextEncoder.from_pretrained(folder).model.embeddings.LayerNorm.bias, encoder.model.embeddings.LayerNorm.bias)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bert", "m", "notes"]


def test_push_to_hub_uploads_the_folder(tokenizer, monkeypatch):
    import huggingface_hub
    seen = []
    class Api:
        def create_repo(self, repo_id, **kwargs): seen.append(repo_id)
        def upload_folder(self, repo_id, folder_path, **kwargs): seen.append({p.name for p in folder_path.iterdir()}); return "the address"
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    encoder = _tiny(tokenizer)
    assert encoder.push_to_hub("owner/name") == MaskedLanguageModel(encoder).push_to_hub("owner/name") == "the address"
    assert seen[0] == "owner/name" and {"config.json", "model.safetensors", "sentnb.json", "tokenizer.json"} <= seen[1] == seen[3]


# masked language modelling

@pytest.mark.parametrize("make, kind", [(_tiny, BertForMaskedLM), (_roberta, RobertaForMaskedLM)])
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
    torch.testing.assert_close(model.encoder.model.get_input_embeddings().weight.grad, reference.get_input_embeddings().weight.grad, atol=1e-5, rtol=1e-3)
    assert reference.get_output_embeddings().weight is reference.get_input_embeddings().weight


def test_output_weights_are_the_input_embeddings(tokenizer):
    model = MaskedLanguageModel(_tiny(tokenizer))
    assert model.decoder.predictions.decoder.weight is model.encoder.model.get_input_embeddings().weight
    names = [n for n, _ in model.named_parameters()]
    assert len(names) == len(set(names)) and sum(p.numel() for p in model.parameters()) < sum(p.numel() for p in model.encoder.parameters()) + 32*32 + 5*32 + 2*len(tokenizer)
    twin = copy.deepcopy(model)
    assert twin.decoder.predictions.decoder.weight is twin.encoder.model.get_input_embeddings().weight is not model.encoder.model.get_input_embeddings().weight
    twin.load_state_dict(model.state_dict())


def test_masking_is_seeded_and_has_berts_shares(tokenizer):
    model = MaskedLanguageModel(_tiny(tokenizer))
    texts = TEXTS*20
    a, b, c = (model.masked_batch(texts, random.Random(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(x, y) for x, y in zip(a, b)) and not torch.equal(a[2], c[2])
    (ids, mask, labels), clean = a, model.collate(texts)[0]
    chosen = labels != -100
    assert torch.equal(clean[chosen], labels[chosen]) and torch.equal(clean[~chosen], ids[~chosen])
    assert not set(labels[chosen].tolist()) & set(tokenizer.all_special_ids) and not (chosen & (mask == 0)).any()
    ordinary = ((clean > 4)).sum(1)
    assert torch.equal(chosen.sum(1), torch.tensor([max(1, round(.15*n)) for n in ordinary.tolist()])), "of each text 15 %, at least one"
    n, masked, kept = int(chosen.sum()), (ids == 4)[chosen].double().mean().item(), (ids == clean)[chosen].double().mean().item()
    spread = 4*np.sqrt(.25/n)
    assert n > 3000 and abs(masked - .8) < spread and abs(kept - .1) < spread and kept > 0
    assert not set(ids[chosen & (ids != 4)].tolist()) & set(tokenizer.all_special_ids)


def test_masking_does_not_depend_on_neighbours_in_the_batch_beyond_the_draws(tokenizer):
    model = MaskedLanguageModel(_tiny(tokenizer), mask_ratio=.5, mask_share=1., random_share=0.)
    ids, mask, labels = model.masked_batch(["", "cat", "a cat sleeps on the sofa"], random.Random(0), max_length=6)
    assert ids.shape == (3, 6) and (ids == 4).sum(1).tolist() == [0, 1, 2] and (labels != -100).sum(1).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="none of them has a token"): model.masked_batch(["", " "], random.Random(0))
    with pytest.raises(TypeError, match=r"texts\[1\]"): model.masked_batch(["a", 1], random.Random(0))


def test_the_loss_of_chunks_is_that_of_the_whole(tokenizer):
    model = MaskedLanguageModel(_tiny(tokenizer)).eval()
    ids, mask, labels = model.masked_batch(TEXTS, random.Random(0))
    with torch.no_grad():
        logits = model.logits(ids, mask, labels != -100)
        torch.testing.assert_close(model(ids, mask, labels), torch.nn.functional.cross_entropy(logits, labels[labels != -100]), atol=1e-5, rtol=1e-5)
    assert logits.shape == (int((labels != -100).sum()), len(tokenizer))


def test_the_loss_is_float32_inside_autocast(tokenizer):
    model = MaskedLanguageModel(_tiny(tokenizer)).eval()
    batch = model.masked_batch(TEXTS[:64], random.Random(0))
    with torch.autocast("cpu", torch.bfloat16): loss = model(*batch)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, model(*batch), atol=.05, rtol=.02)


def test_it_learns_and_a_saved_model_knows_the_same(tokenizer, tmp_path):
    model = MaskedLanguageModel(_tiny(tokenizer, dropout=0.)).train()
    texts = [f"the {a} {b} {c} the {d}" for a, b, c, d in [("old", "cat", "sleeps on", "sofa"), ("small", "dog", "plays in", "garden"), ("a", "child", "sings under", "table")]]*20
    before, optimizer = model.accuracy(texts), torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(60):
        loss = model(*model.masked_batch(texts, random.Random(step))); loss.backward(); optimizer.step(); optimizer.zero_grad()
    assert model.training
    after = model.accuracy(texts)
    assert after["accuracy"] > before["accuracy"] + .4 and after["accuracy"] <= after["top5"] <= 1 and after["loss"] < before["loss"]/2
    assert model.fill("the old [MASK] sleeps on the [MASK]", k=2)[0][0][0] == "cat"
    model.save_pretrained(tmp_path/"m")
    again = MaskedLanguageModel.from_pretrained(tmp_path/"m")
    assert again.accuracy(texts) == after == model.eval().accuracy(texts, seed=0) and again.settings() == model.settings()
    np.testing.assert_array_equal(TextEncoder.from_pretrained(tmp_path/"m").encode(texts[:3]), model.encoder.encode(texts[:3]))
    with pytest.raises(ValueError, match="has no \\[MASK\\]"): model.fill("nothing")
    with pytest.raises(ValueError, match="no texts"): model.accuracy([])


def test_a_masked_model_remembers_its_masking_and_its_head(tokenizer, tmp_path):
    encoder = TextEncoder(_tiny(tokenizer).model, tokenizer, "cls", head=True).eval()
    MaskedLanguageModel(encoder, mask_ratio=.3, mask_share=1., random_share=0.).save_pretrained(tmp_path/"m")
    again = MaskedLanguageModel.from_pretrained(tmp_path/"m")
    assert (again.mask_ratio, again.mask_share, again.random_share, again.encoder.pooling) == (.3, 1., 0., "cls")
    np.testing.assert_array_equal(again.encoder.encode(TEXTS[:3], head="keep"), encoder.encode(TEXTS[:3], head="keep"))
    assert MaskedLanguageModel.from_pretrained(tmp_path/"m", mask_ratio=.2).mask_ratio == .2
    with pytest.raises(TypeError, match="unknown arguments: ratio"): MaskedLanguageModel.from_pretrained(tmp_path/"m", ratio=.2)
    encoder.save_pretrained(tmp_path/"alone")
    with pytest.raises(ValueError, match="BertForMaskedLM are missing"): MaskedLanguageModel.from_pretrained(tmp_path/"alone")


@pytest.mark.parametrize("wrong", [dict(mask_ratio=0), dict(mask_ratio=1), dict(mask_share=.8, random_share=.3), dict(random_share=-.1)])
def test_impossible_shares_are_refused(tokenizer, wrong):
    with pytest.raises(ValueError, match="share|mask_ratio"): MaskedLanguageModel(_tiny(tokenizer), **wrong)


# the package

def test_the_package_gathers_its_encoders_and_stays_light(python):
    code = "import sys, sentnb.encoders as e; print('torch' in sys.modules, 'transformers' in sys.modules); print(e.TextEncoder.__name__, e.PixelEncoder.__name__); print(set(e.__all__) <= set(dir(e)))"
    assert python(code).splitlines() == ["False False", "TextEncoder PixelEncoder", "True"]
    import sentnb.encoders
    assert sentnb.encoders.pixel.PixelEncoder is PixelEncoder
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"): sentnb.encoders.Nothing


# characters and bytes

@pytest.mark.parametrize("make", [lambda texts: train_characters(texts, 60), lambda texts: byte_tokenizer()], ids=["characters", "bytes"])
def test_characters_and_bytes_are_tokenisers_like_the_others(make, tmp_path):
    tokenizer = make(TEXTS)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3, 4] and sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))
    assert make(iter(TEXTS)).get_vocab() == tokenizer.get_vocab()
    ids = tokenizer("The OLD кошка. 猫", return_attention_mask=False)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the old кошка. 猫" and (ids[0], ids[-1]) == (2, 3) and 1 not in ids
    encoder = _tiny(tokenizer)
    MaskedLanguageModel(encoder).save_pretrained(tmp_path/"m")
    again = TextEncoder.from_pretrained(tmp_path/"m")
    assert again.settings() == encoder.settings() and again.token_ids(TEXTS[:5] + ["", "\ud800 lone", "a\0b\n"]) == encoder.token_ids(TEXTS[:5] + ["", "\ud800 lone", "a\0b\n"])
    np.testing.assert_array_equal(again.encode(TEXTS[:9]), encoder.encode(TEXTS[:9]))


def test_a_character_is_a_token_and_a_byte_is_one():
    characters, octets = train_characters(["abc ab a äß"], vocab_size=9), byte_tokenizer()
    assert set(characters.get_vocab()) == {*SPECIAL_TOKENS, "a", "b", " ", "c"}, "the most frequent four; of equal ones the first"
    assert characters.tokenize("a ä b") == ["a", " ", "[UNK]", " ", "b"]
    assert len(octets) == 261 and all(len(octets.tokenize(text)) == len(text.encode()) for text in ("a cat", "ß", "кошка", "猫", "🙂 "))
    assert octets.tokenize("A") == octets.tokenize("a") and byte_tokenizer(lowercase=False).tokenize("A") != octets.tokenize("a")
    assert octets("a[MASK]b")["input_ids"][2] == 4
    # one typo: all the tokens of a word, or one of them
    assert octets.tokenize("nai\u0308ve") == octets.tokenize("naïve")
    for wrong, error in ((lambda: train_characters("text"), TypeError), (lambda: train_characters([" ", ""][1:]), ValueError), (lambda: train_characters(["a"], 5), ValueError)):
        with pytest.raises(error): wrong()


# the layouts of the published models: BERT, mBERT, CANINE, ByT5

def _layout(kind, folder):
    "A tiny checkpoint as its authors' library saves the published one, with all its heads."
    torch.manual_seed(0)
    if kind == "bert":
        train_wordpiece(TEXTS, vocab_size=150, max_alphabet=60).save_pretrained(folder)
        model = BertForPreTraining(BertConfig(vocab_size=150, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64))
    elif kind == "canine":
        CanineTokenizer().save_pretrained(folder)
        model = CanineModel(CanineConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=2048, num_hash_buckets=2048))
    else:
        ByT5Tokenizer().save_pretrained(folder)
        model = T5ForConditionalGeneration(T5Config(vocab_size=384, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_decoder_layers=1, num_heads=2, feed_forward_proj="gated-gelu", tie_word_embeddings=False))
    with torch.no_grad():
        for parameter in model.parameters(): parameter.add_(torch.randn_like(parameter)*.05)   # fresh biases are all zero: one that is not loaded would not be seen
    model.eval().save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["bert", "canine", "byt5"])
def test_published_layouts_load_by_name_and_give_what_transformers_gives(kind, tmp_path):
    model = _layout(kind, tmp_path/"m")
    encoder = TextEncoder.from_pretrained(tmp_path/"m", dropout=.1)
    inner = dict(bert=lambda: model.bert, canine=lambda: model, byt5=lambda: model.encoder)[kind]()
    assert sum(p.numel() for n, p in inner.named_parameters() if not n.startswith("pooler")) == sum(p.numel() for p in encoder.parameters())
    texts = ["a cat sleeps on the old sofa", "Кошка спит на диване", "猫 🙂", "x", ""]
    assert encoder.max_length == dict(bert=512, canine=2036, byt5=512)[kind]
    ids, mask = encoder.collate(texts[:1])
    if kind != "bert": assert ids[0].tolist() == dict(canine=[0xE000, *map(ord, texts[0]), 0xE001], byt5=[*(b + 3 for b in texts[0].encode()), 1])[kind]
    room = -ids.shape[1] % 4 + 8 if kind == "canine" else 0   # CANINE folds four characters into one, and drops the last fold
    with torch.no_grad(): states = inner(torch.nn.functional.pad(ids, (0, room)), attention_mask=torch.nn.functional.pad(mask, (0, room))).last_hidden_state[0, :ids.shape[1]]
    expected = states.double().mean(0)
    np.testing.assert_allclose(encoder.encode(texts[:1])[0], (expected/expected.norm()).numpy(), atol=1e-5)
    vectors = encoder.encode(texts)
    for text, vector in zip(texts, vectors): np.testing.assert_allclose(encoder.encode([text, "and a longer text beside it, which pads the batch"*3])[0], vector, atol=1e-5)


@pytest.mark.parametrize("kind", ["canine", "byt5"])
def test_published_layouts_train_and_are_saved(kind, tmp_path):
    _layout(kind, tmp_path/"m")
    encoder = TextEncoder.from_pretrained(tmp_path/"m", max_length=40, dropout=0.)
    stage = Stage("visual", TEXTS, view="perturbed:char_swap", steps=3, batch_size=16, learning_rate=1e-3, warmup_steps=1)
    before = encoder.encode(TEXTS[:5])
    history = fit(encoder, [stage], tmp_path/"run", show_progress=False)
    assert len(history) == 3 and history[-1]["loss"] < history[0]["loss"] and not np.allclose(encoder.encode(TEXTS[:5]), before)
    again = TextEncoder.from_pretrained(tmp_path/"run"/"00-visual")
    assert again.settings() == encoder.settings() and again.max_length == 40
    np.testing.assert_allclose(again.encode(TEXTS[:9]), encoder.encode(TEXTS[:9]), atol=1e-6)
    assert TextEncoder.from_pretrained(tmp_path/"run"/"00-visual", max_length=60).max_length == 60
    with pytest.raises(ValueError, match="no masked-language-model head|no mask token"): MaskedLanguageModel(encoder)
    for pooling in POOLINGS: assert np.isfinite(TextEncoder(encoder.model, encoder.tokenizer, pooling).encode(TEXTS[:3])).all()
