"TextEncoder: used as the pixel encoder is, read by transformers as its own, the same on every run."
import copy
import json
import os
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_text import TEXTS, tiny, tiny_roberta
from transformers import (
    BertConfig, BertForMaskedLM, BertForPreTraining, BertModel, ByT5Tokenizer, CanineConfig, CanineModel,
    CanineTokenizer, RobertaConfig, RobertaForMaskedLM, T5Config, T5ForConditionalGeneration)

from sentnb.encoders import MaskedLanguageModel, PixelConfig, PixelEncoder, TextEncoder
from sentnb.encoders.base import TextsTruncated, check_encoder, chunk_rows
from sentnb.encoders.text import POOLINGS, tokens, small_text_encoder, train_wordpiece
from sentnb.encoders.text.tokens import split_by_length
from sentnb.training import InfoNCE, Perturbed, Stage, fit

SIZES = dict(vocab_size=150, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece(TEXTS, vocab_size=150, max_alphabet=60)


# the encoder

@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_is_what_it_says(tokenizer, pooling):
    encoder = tiny(tokenizer, pooling)
    ids, mask = encoder.collate(TEXTS[:6])
    with torch.no_grad():
        vectors = encoder(ids, mask)
        out = encoder.model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    embedding, first, last = (layer.double() for layer in out.hidden_states)
    states = dict(first_last=(first + last)/2, embedding_last=(embedding + last)/2).get(pooling, last)
    rows = [row[:n] for row, n in zip(states, mask.sum(1).tolist())]
    ways = dict(cls=lambda row: row[0], max=lambda row: row.max(0).values)
    expected = torch.stack([ways.get(pooling, lambda row: row.mean(0))(row) for row in rows])
    torch.testing.assert_close(vectors.double(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("make", [tiny, tiny_roberta])
def test_neither_padding_nor_batch_nor_order_changes_a_row(tokenizer, make):
    encoder, texts = make(tokenizer), [*TEXTS[:150], "", "猫", "\ud800 lone", "nul \0 and\nnewline"]
    vectors = encoder.encode(texts)
    assert vectors.dtype == np.float32 and vectors.shape == (154, 32) and np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    backwards = encoder.encode((text for text in texts[::-1]), batch_size=7, window=40)
    np.testing.assert_allclose(backwards[::-1], vectors, atol=1e-5)
    with torch.no_grad():
        together = encoder(*encoder.collate(texts))
        whole = encoder.pool(*encoder.hidden_states(*encoder.collate(texts)))
    torch.testing.assert_close(together, whole, atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(torch.nn.functional.normalize(together, dim=1).numpy(), vectors, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(texts[:3], normalize=False), together[:3].numpy(), atol=1e-5)


def test_rows_are_computed_by_length_on_a_gpu_in_larger_chunks(tokenizer, monkeypatch):
    ids, mask = tiny(tokenizer).collate(TEXTS)
    chunks = list(split_by_length(mask.sum(1), ids, mask))
    assert [len(rows) for rows, _ in chunks] == [64, 64, 64, 18]
    for rows, (of_rows, seen) in chunks:
        assert seen.shape == of_rows.shape == (len(rows), mask[rows].sum(1).max())
        assert torch.equal(of_rows, ids[rows, :of_rows.shape[1]])
    gpu = torch.device("cuda")
    assert [chunk_rows(n, gpu) for n in (1, 210, 2_048, 6_144)] == [512, 512, 512, 1_536]
    monkeypatch.setattr(tokens, "chunk_rows", lambda n, device: chunk_rows(4*n, gpu))
    (rows, (of_rows, _)), = split_by_length(mask.sum(1), ids, mask)
    assert sorted(rows.tolist()) == list(range(len(TEXTS))) and torch.equal(of_rows, ids[rows])


def test_stream_is_lazy_and_errors_name_the_position(tokenizer):
    encoder, drawn = tiny(tokenizer).train(), []
    def texts():
        for i in range(50): drawn.append(i); yield f"cat {i}"
    stream = encoder.encode_batches(texts(), window=10)
    first = next(stream)
    assert len(drawn) <= 11 and first.shape == (10, 32)
    assert encoder.training, "the mode is restored between windows"
    whole = encoder.encode([f"cat {i}" for i in range(50)])
    np.testing.assert_allclose(np.concatenate([first, *stream]), whole, atol=1e-5)
    assert encoder.encode([]).shape == (0, 32)
    for wrong, message in (("text", "one str"), (["fine", 3], r"texts\[1\] is int"),
                           (["fine", None], r"texts\[1\] is NoneType")):
        with pytest.raises(TypeError, match=message): encoder.encode(wrong)
        with pytest.raises(TypeError, match=message): encoder.collate(wrong)
    with pytest.raises(ValueError, match="at least 1"): encoder.encode(["a"], batch_size=0)


def test_long_texts_are_cut_before_the_last_special_token_or_refused(tokenizer):
    encoder = tiny(tokenizer)
    long = "cat "*100
    row, = encoder.token_ids([long])
    assert len(row) == 24 and row[0] == tokenizer.cls_token_id and row[-1] == tokenizer.sep_token_id
    assert encoder.collate([long, "a"], max_length=8)[0].shape == (2, 8)
    strict = TextEncoder(encoder.model, tokenizer, long="error")
    assert strict.collate(["a cat"])[0].shape == (1, 4)
    with pytest.raises(ValueError, match=r"texts\[1\].*102 tokens, more than max_length=24"):
        strict.encode(["a cat", long])
    for wrong in (25, 2, 0):
        with pytest.raises(ValueError, match="max_length"): encoder.collate(["a"], max_length=wrong)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "byt5", "canine"])
def test_rows_are_truncated_as_by_the_tokeniser_which_keeps_its_state(tokenizer, kind, side):
    tokenizer = dict(wordpiece=copy.deepcopy(tokenizer), bytes=tokens.byte_tokenizer(),
                     byt5=ByT5Tokenizer(), canine=CanineTokenizer())[kind]
    tokenizer.truncation_side = side
    texts = [*TEXTS[:20], "", "[SEP]", "a [SEP] [CLS]", "[CLS] cat "*9, "cat "*99]
    rows = tokenizer(texts)["input_ids"]
    truncated = {limit: tokens.truncate_rows(tokenizer, rows, limit) for limit in (3, 4, 9, 24, 999)}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    assert backend is None or backend.truncation is None
    for limit, short in truncated.items():
        assert short == tokenizer(texts, truncation=True, max_length=limit)["input_ids"]


def test_what_is_cut_is_said_once_a_call(tokenizer, recwarn):
    warnings.simplefilter("always")
    encoder = tiny(tokenizer)
    texts = ["a cat", "cat "*22, "cat "*23, "cat "*99] # 4, 24, 25 and 101 tokens, of which 24 are read
    assert [len(row) for row in encoder.token_ids(texts)] == [4, 24, 24, 24] and not recwarn.list
    encoder.encode(texts, window=1)
    warning, = recwarn.list
    assert warning.category is TextsTruncated and warning.filename == __file__
    assert str(warning.message).startswith(
        "2 of 4 texts were truncated at 24 tokens, the maximum of this model"
    )
    TextEncoder(encoder.model, tokenizer, max_length=12).encode(texts)
    shorter = str(recwarn.list[1].message)
    assert (
        "3 of 4 texts were truncated at 12 tokens; load the encoder with from_pretrained(..., max_length=24)"
        in shorter
    )
    encoder.encode(texts[:2]); encoder.collate(texts)
    assert len(recwarn.list) == 2


def test_positions_of_roberta_start_behind_the_padding(tokenizer):
    encoder = tiny_roberta(tokenizer)
    assert encoder.max_length == 19, "20 positions, of which that of the padding is never used"
    assert encoder.encode(["cat "*100]).shape == (1, 32)
    with pytest.raises(ValueError, match="to 19"): TextEncoder(encoder.model, tokenizer, max_length=20)


def test_what_does_not_belong_together_is_refused(tokenizer):
    encoder = tiny(tokenizer)
    with pytest.raises(ValueError, match="pooling='middle'"): TextEncoder(encoder.model, tokenizer, "middle")
    with pytest.raises(ValueError, match="long='scroll'"):
        TextEncoder(encoder.model, tokenizer, long="scroll")
    with pytest.raises(ValueError, match="do not belong together"):
        TextEncoder(BertModel(BertConfig(**SIZES | dict(vocab_size=20))), tokenizer)
    other = copy.deepcopy(tokenizer); other.pad_token = None
    with pytest.raises(ValueError, match="no padding token"): TextEncoder(encoder.model, other)
    with pytest.raises(ValueError, match="not a multiple"):
        small_text_encoder(tokenizer, hidden_size=32, num_attention_heads=3)
    with pytest.raises(ValueError, match="no training head"): encoder(*encoder.collate(["a"]), head="keep")
    with pytest.raises(ValueError, match="head='maybe'"): encoder(*encoder.collate(["a"]), head="maybe")


def test_the_default_size_is_that_of_the_pixel_encoder(tokenizer):
    text, pixel = small_text_encoder(tokenizer).config, PixelConfig()
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        assert getattr(text, name) == getattr(pixel, name)


def test_the_mode_is_that_of_the_model(tokenizer):
    model = tiny(tokenizer).model
    assert not TextEncoder(model.eval(), tokenizer).training
    assert TextEncoder(model.train(), tokenizer).training


def test_it_has_what_training_asks_of_an_encoder(tokenizer):
    encoder = tiny(tokenizer)
    check_encoder(encoder, "training on texts")
    assert (encoder.width, encoder.max_length, encoder.num_layers) == (32, 24, 2)
    assert encoder.mask_token == "[MASK]" and encoder.renderer is None
    assert encoder.device == torch.device("cpu") and not encoder.has_head
    assert TextEncoder(encoder.model, tokenizer, head=True).has_head
    check_encoder(MaskedLanguageModel(encoder), "training")


def test_gradients_reach_every_weight(tokenizer):
    encoder = tiny(tokenizer).train()
    encoder(*encoder.collate(TEXTS)).square().sum().backward()
    assert [n for n, p in encoder.named_parameters() if p.grad is None] == []


# folders

def test_saving_and_loading_gives_the_same_encoder(tokenizer, tmp_path):
    encoder = TextEncoder(tiny(tokenizer).model, tokenizer, "cls", 12, "error", head=True).eval()
    vectors = encoder.encode(TEXTS[:9]), encoder.encode(TEXTS[:9], head="keep")
    assert not np.allclose(*vectors)
    encoder.save_pretrained(tmp_path/"m")
    again = TextEncoder.from_pretrained(tmp_path/"m")
    np.testing.assert_array_equal(again.encode(TEXTS[:9]), vectors[0])
    np.testing.assert_array_equal(again.encode(TEXTS[:9], head="keep"), vectors[1])
    assert (again.pooling, again.max_length, again.long) == ("cls", 12, "error") and not again.training
    assert again.settings() == encoder.settings() == json.loads(json.dumps(encoder.settings()))
    assert str(tmp_path) not in str(again.settings())
    other = TextEncoder.from_pretrained(tmp_path/"m", pooling="mean", max_length=20, long="truncate")
    assert (other.pooling, other.max_length, other.long) == ("mean", 20, "truncate")
    assert other.settings() != encoder.settings()


def test_settings_tell_tokenisers_apart_but_not_what_they_did_last(tokenizer):
    encoder = tiny(tokenizer)
    before = encoder.settings()
    encoder.encode(["cat "*100]); encoder.token_ids(["a cat"], max_length=5)
    assert encoder.settings() == before
    cased = train_wordpiece(TEXTS, vocab_size=150, max_alphabet=60, lowercase=False)
    assert tiny(cased).settings()["tokenizer"] != before["tokenizer"]


def test_saved_bytes_do_not_depend_on_what_was_encoded(tokenizer, tmp_path):
    encoder = tiny(tokenizer)
    encoder.save_pretrained(tmp_path/"a"); encoder.encode(["cat "*100]); encoder.save_pretrained(tmp_path/"b")
    for file in (tmp_path/"a").iterdir():
        assert file.read_bytes() == (tmp_path/"b"/file.name).read_bytes(), file.name
    assert str(tmp_path) not in "".join(f.read_text() for f in (tmp_path/"a").glob("*.json"))


def test_half_is_half_and_close(tokenizer, tmp_path):
    encoder = tiny(tokenizer)
    encoder.save_pretrained(tmp_path/"m"); whole = (tmp_path/"m"/"model.safetensors").stat().st_size
    encoder.save_pretrained(tmp_path/"m", half=True)
    assert (tmp_path/"m"/"model.safetensors").stat().st_size < .6*whole
    again = TextEncoder.from_pretrained(tmp_path/"m")
    assert {p.dtype for p in again.parameters()} == {torch.float32}
    np.testing.assert_allclose(again.encode(TEXTS[:9]), encoder.encode(TEXTS[:9]), atol=.02)


@pytest.mark.parametrize("kind, config", [
    (BertForMaskedLM, BertConfig(**SIZES)), (BertModel, BertConfig(**SIZES)),
    (RobertaForMaskedLM, RobertaConfig(**SIZES, pad_token_id=0)),
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
    with torch.no_grad():
        torch.testing.assert_close(encoder.hidden_states(ids, mask)[0], expected, atol=1e-6, rtol=1e-5)


def _spoil_weights(folder, change):
    state = load_file(folder/"model.safetensors")
    change(state)
    save_file(state, folder/"model.safetensors", metadata={"format": "pt"})


def _edit(path, **changes): path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("spoil, error, message", [
    (lambda f: (f/"config.json").unlink(), FileNotFoundError, "without a config.json"),
    (lambda f: (f/"config.json").write_text("{"), ValueError, "config.json is not JSON"),
    (lambda f: (f/"config.json").write_text("{}"), ValueError, "has no model_type"),
    (lambda f: _edit(f/"config.json", model_type="sentnb-pixel"), ValueError, "PixelEncoder.from_pretrained"),
    (lambda f: _edit(f/"config.json", model_type="no-such-kind"), ValueError, "is not supported"),
    (lambda f: _edit(f/"config.json", num_hidden_layers=3), ValueError,
     "are missing or of another shape, the first encoder.layer.2"),
    (lambda f: _edit(f/"config.json", vocab_size=151), ValueError, "does not fit"),
    (lambda f: _edit(f/"sentnb.json", pooling="middle"), ValueError, "pooling='middle'"),
    (lambda f: (f/"sentnb.json").write_text("["), ValueError, "sentnb.json is not JSON"),
    (lambda f: (f/"model.safetensors").unlink(), FileNotFoundError, "no model.safetensors"),
    (lambda f: (f/"model.safetensors").write_bytes((f/"model.safetensors").read_bytes()[:1000]), ValueError,
     "cannot be read"),
    (lambda f: _spoil_weights(f, lambda s: s.pop("embeddings.LayerNorm.bias")), ValueError,
     "1 weights of BertModel are missing"),
])
def test_broken_checkpoints_say_what_is_wrong(tokenizer, tmp_path, spoil, error, message):
    spoil(tiny(tokenizer).save_pretrained(tmp_path/"m"))
    with pytest.raises(error, match=message): TextEncoder.from_pretrained(tmp_path/"m")


def test_names_that_are_no_checkpoint(tokenizer, tmp_path, monkeypatch):
    (tmp_path/"file").write_text("")
    with pytest.raises(FileNotFoundError, match="is a file, not a checkpoint"):
        TextEncoder.from_pretrained(tmp_path/"file")
    message = "neither a folder nor a checkpoint in data/checkpoints.*nor a Hub id"
    with pytest.raises(FileNotFoundError, match=message):
        TextEncoder.from_pretrained("no such/name")
    import huggingface_hub
    def offline(*arguments, **options): raise ConnectionError("no network")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(OSError, match="download from the Hub failed.*with a network connection"):
        TextEncoder.from_pretrained("owner/name")
    tiny(tokenizer).save_pretrained(tmp_path/"snapshot"); seen = {}
    def online(name, **options):
        seen.update(options, name=name)
        return str(tmp_path/"snapshot")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", online)
    assert TextEncoder.from_pretrained("owner/name", revision="abc").config.hidden_size == 32
    assert seen["revision"] == "abc"
    assert not {p for p in seen["allow_patterns"] if p.endswith((".bin", ".py", "*"))}


def test_a_shipped_name_loads_from_the_project(tokenizer, tmp_path, monkeypatch):
    (tmp_path/"settings.ini").write_text("lib_name = sentnb\n")
    monkeypatch.setenv("SENTNB_ROOT", str(tmp_path))
    tiny(tokenizer).save_pretrained(tmp_path/"data"/"checkpoints"/"text-tiny")
    assert TextEncoder.from_pretrained("text-tiny").config.hidden_size == 32
    with pytest.raises(FileNotFoundError, match=r"data/checkpoints \(text-tiny\)"):
        TextEncoder.from_pretrained("text tiny")


def test_saving_is_atomic_and_keeps_or_refuses_what_else_is_there(tokenizer, tmp_path, monkeypatch):
    encoder = tiny(tokenizer)
    for name, file in (("notes", "mine.txt"), ("bert", "config.json")):
        (tmp_path/name).mkdir(); (tmp_path/name/file).write_text('{"model_type": "bert"}')
        with pytest.raises(FileExistsError, match="not a text checkpoint of this library"):
            encoder.save_pretrained(tmp_path/name)
        assert [p.name for p in (tmp_path/name).iterdir()] == [file]
    with pytest.raises(FileExistsError, match="is a file"):
        encoder.save_pretrained(tmp_path/"notes"/"mine.txt")
    folder = encoder.save_pretrained(tmp_path/"m")
    (folder/"README.md").write_text("card")
    (folder/"results").mkdir()
    (folder/"results"/"a.csv").write_text("1")
    (folder/"broken").symlink_to("nowhere")
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
    again = TextEncoder.from_pretrained(folder)
    assert torch.equal(again.model.embeddings.LayerNorm.bias, encoder.model.embeddings.LayerNorm.bias)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bert", "m", "notes"]


def test_push_to_hub_uploads_the_folder(tokenizer, monkeypatch):
    import huggingface_hub
    seen = []
    class Api:
        def create_repo(self, repo_id, **kwargs): seen.append(repo_id)
        def upload_folder(self, repo_id, folder_path, **kwargs):
            seen.append({path.name for path in folder_path.iterdir()})
            return "the address"
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    encoder = tiny(tokenizer)
    for model in (encoder, MaskedLanguageModel(encoder)):
        assert model.push_to_hub("owner/name") == "the address"
    assert seen[0] == "owner/name"
    assert {"config.json", "model.safetensors", "sentnb.json", "tokenizer.json"} <= seen[1] == seen[3]


# the package

def test_the_package_gathers_its_encoders_and_stays_light(python):
    code = """
import sys
import sentnb.encoders as package
print('torch' in sys.modules, 'transformers' in sys.modules)
print(package.TextEncoder.__name__, package.PixelEncoder.__name__)
print(set(package.__all__) <= set(dir(package)))"""
    assert python(code).splitlines() == ["False False", "TextEncoder PixelEncoder", "True"]
    import sentnb.encoders
    assert sentnb.encoders.pixel.PixelEncoder is PixelEncoder
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"): sentnb.encoders.Nothing


# the layouts of the published models: BERT, mBERT, CANINE, ByT5

def _layout(kind, folder):
    "A tiny checkpoint as its authors' library saves the published one, with all its heads."
    torch.manual_seed(0)
    two_layers = SIZES | dict(num_hidden_layers=2)
    if kind == "bert":
        train_wordpiece(TEXTS, vocab_size=150, max_alphabet=60).save_pretrained(folder)
        model = BertForPreTraining(BertConfig(**two_layers))
    elif kind == "canine":
        CanineTokenizer().save_pretrained(folder)
        model = CanineModel(CanineConfig(**two_layers, max_position_embeddings=2048, num_hash_buckets=2048))
    else:
        ByT5Tokenizer().save_pretrained(folder)
        model = T5ForConditionalGeneration(T5Config(
            vocab_size=384, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_decoder_layers=1, num_heads=2,
            feed_forward_proj="gated-gelu", tie_word_embeddings=False))
    with torch.no_grad():
        for parameter in model.parameters():
            # fresh biases are all zero: one that is not loaded would not be seen
            parameter.add_(torch.randn_like(parameter)*.05)
    model.eval().save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["bert", "canine", "byt5"])
def test_published_layouts_load_by_name_and_give_what_transformers_gives(kind, tmp_path):
    model = _layout(kind, tmp_path/"m")
    encoder = TextEncoder.from_pretrained(tmp_path/"m", dropout=.1)
    inner = dict(bert=lambda: model.bert, canine=lambda: model, byt5=lambda: model.encoder)[kind]()
    weights = [weight.numel() for name, weight in inner.named_parameters() if not name.startswith("pooler")]
    assert sum(weights) == sum(weight.numel() for weight in encoder.parameters())
    texts = ["a cat sleeps on the old sofa", "Кошка спит на диване", "猫 🙂", "x", ""]
    assert encoder.max_length == dict(bert=512, canine=2036, byt5=512)[kind]
    ids, mask = encoder.collate(texts[:1])
    if kind != "bert":
        bytes_ = [byte + 3 for byte in texts[0].encode()]
        assert ids[0].tolist() == dict(canine=[0xE000, *map(ord, texts[0]), 0xE001], byt5=[*bytes_, 1])[kind]
    # CANINE folds four characters into one, and drops the last fold
    room = -ids.shape[1] % 4 + 8 if kind == "canine" else 0
    wide_ids, wide_mask = (torch.nn.functional.pad(tensor, (0, room)) for tensor in (ids, mask))
    with torch.no_grad():
        states = inner(wide_ids, attention_mask=wide_mask).last_hidden_state
    expected = states[0, :ids.shape[1]].double().mean(0)
    np.testing.assert_allclose(encoder.encode(texts[:1])[0], (expected/expected.norm()).numpy(), atol=1e-5)
    vectors = encoder.encode(texts)
    for text, vector in zip(texts, vectors):
        in_batch = encoder.encode([text, "and a longer text beside it, which pads the batch"*3])
        np.testing.assert_allclose(in_batch[0], vector, atol=1e-5)


@pytest.mark.parametrize("kind", ["canine", "byt5"])
def test_published_layouts_train_and_are_saved(kind, tmp_path):
    _layout(kind, tmp_path/"m")
    encoder = TextEncoder.from_pretrained(tmp_path/"m", max_length=40, dropout=0.)
    options = dict(steps=3, batch_size=16, learning_rate=1e-3, warmup_steps=1)
    stage = Stage("visual", TEXTS, InfoNCE(Perturbed("char_swap")), **options)
    before = encoder.encode(TEXTS[:5])
    history = fit(encoder, [stage], tmp_path/"run", show_progress=False)
    assert len(history) == 3 and history[-1]["loss"] < history[0]["loss"]
    assert not np.allclose(encoder.encode(TEXTS[:5]), before)
    again = TextEncoder.from_pretrained(tmp_path/"run"/"00-visual")
    assert again.settings() == encoder.settings() and again.max_length == 40
    np.testing.assert_allclose(again.encode(TEXTS[:9]), encoder.encode(TEXTS[:9]), atol=1e-6)
    assert TextEncoder.from_pretrained(tmp_path/"run"/"00-visual", max_length=60).max_length == 60
    with pytest.raises(ValueError, match="no masked-language-model head|no mask token"):
        MaskedLanguageModel(encoder)
    for pooling in POOLINGS:
        assert np.isfinite(TextEncoder(encoder.model, encoder.tokenizer, pooling).encode(TEXTS[:3])).all()


def test_xlnet_reads_texts_of_any_length():
    "It has relative positions: no limit, and padding changes nothing."
    from transformers import XLNetConfig, XLNetModel
    tokenizer = train_wordpiece(["a small red cat", "two dogs run"], 60)
    model = XLNetModel(XLNetConfig(vocab_size=len(tokenizer), d_model=16, n_layer=2, n_head=2, d_inner=32))
    encoder = TextEncoder(model, tokenizer)
    alone = encoder.encode(["two dogs"])
    in_batch = encoder.encode(["two dogs", "a small red cat"*200])[:1]
    np.testing.assert_allclose(alone, in_batch, atol=1e-5)
