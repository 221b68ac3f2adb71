"""Any encoder of ours in sentence-transformers and in MTEB: the same vectors, the same scores.

Both are extras; the module itself needs neither."""
import importlib.util
import json
import sys
import warnings
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image

from sentnb.corpora import Microworld
from sentnb.encoders import (
    ConditionalAutoencoder, ConditionalMaskedLanguageModel, Lens, LensConfig, MaskedAutoencoder,
    MaskedLanguageModel)
from sentnb.encoders.adapters import (
    CODES, EXTRAS, MtebEncoder, SentenceModule, import_extra, pairs_task, read_pictures, run_task,
    sentence_transformer, sts_task, weights_fingerprint)
from sentnb.encoders.base import TextsTruncated
from sentnb.encoders.pixel import PixelConfig, PixelEncoder
from sentnb.encoders.static import StaticEncoder
from sentnb.encoders.text import small_text_encoder, train_wordpiece
from sentnb.evaluation import sts
from sentnb.renderer import RenderConfig, TextRenderer

TEXTS = ["A cat sleeps.", "Die Katze schläft.", "猫在睡觉。",
         "A dog barks at three doctors in front of the old hospital, and nobody listens.",
         "", "a", "A cat sleeps."]
KINDS = ("pixel", "pixel scrolling", "pixel cls", "text", "static")


def needs(module: str):
    missing, (name, _) = importlib.util.find_spec(module) is None, EXTRAS[module]
    return pytest.mark.skipif(missing, reason=f"an extra: pip install 'sentnb[{name}]'")


needs_st, needs_mteb = needs("sentence_transformers"), needs("mteb")


@pytest.fixture(scope="module")
def world(): return Microworld().documents("en", 120) + Microworld().documents("ru", 120)


@pytest.fixture(scope="module")
def encoders(world):
    torch.manual_seed(0)
    small = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    pixel = dict(small, max_patches=48)
    plain = dict(pixel, pixel_normalization=False)
    scrolling = RenderConfig(strategy="continuous", max_patches=5, long="scroll")
    bigrams = RenderConfig(strategy="bigrams", max_patches=20)
    encoders = {"pixel": PixelEncoder(PixelConfig(**pixel, head=True)).fit_pixel_normalization(world[:50]),
                "pixel scrolling": PixelEncoder(PixelConfig(**plain), scrolling),
                "pixel cls": PixelEncoder(PixelConfig(**plain, pooling="cls"), bigrams),
                "text": small_text_encoder(train_wordpiece(world, 300), **small, max_length=40),
                "static": StaticEncoder.fit(world, dim=64, min_count=3)}
    for encoder in encoders.values():
        if isinstance(encoder, torch.nn.Module): encoder.eval()
    return encoders


def encode_texts(module: SentenceModule, texts: list, **options) -> np.ndarray:
    with torch.inference_mode():
        return module(module.preprocess(texts, **options))["sentence_embedding"].numpy()


def close(a, b, tolerance=1e-6) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and np.abs(a - b).max() <= tolerance*max(1, np.abs(b).max())


@pytest.mark.parametrize("kind", KINDS)
def test_the_module_gives_the_encoders_vectors_saves_and_loads(kind, encoders, tmp_path):
    encoder = encoders[kind]
    module = SentenceModule(encoder).eval()
    assert close(encode_texts(module, TEXTS), encoder.encode(TEXTS))
    as_they_are = encode_texts(SentenceModule(encoder, normalize=False).eval(), TEXTS)
    assert close(as_they_are, encoder.encode(TEXTS, normalize=False))
    assert close(encode_texts(module, ["cat"], prompt="the "), encoder.encode(["the cat"]))
    assert module.get_embedding_dimension() == encoder.width == encode_texts(module, ["a"]).shape[1]
    for _ in range(2): module.save(str(tmp_path/"saved"))
    files = {path.name for path in (tmp_path/"saved").iterdir()}
    assert {"sentnb_module.json", "config.json", "model.safetensors"} <= files
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pkl", ".py"))]
    again = SentenceModule.load(str(tmp_path/"saved"), subfolder="", trust_remote_code=False)
    assert (encode_texts(again, TEXTS) == encode_texts(module, TEXTS)).all() and not again.training
    assert (type(encoder).from_pretrained(tmp_path/"saved").encode(TEXTS) == encoder.encode(TEXTS)).all()
    assert weights_fingerprint(again.encoder) == weights_fingerprint(encoder)


def test_options_are_kept(encoders, tmp_path):
    module = SentenceModule(encoders["pixel"], normalize=False, head="keep", max_seq_length=6).eval()
    assert module.preprocess(TEXTS)["pixel_values"].shape[2] == 6*16
    expected = encoders["pixel"](*encoders["pixel"].collate(TEXTS, 6), head="keep").detach().numpy()
    assert close(encode_texts(module, TEXTS), expected)
    assert np.abs(expected - encoders["pixel"].encode(TEXTS, normalize=False)).max() > .01
    module.save(tmp_path)
    again = SentenceModule.load(tmp_path)
    assert (again.normalize, again.head, again.max_seq_length) == (False, "keep", 6)
    assert close(encode_texts(again, TEXTS), expected)
    text = SentenceModule(encoders["text"], max_seq_length=5)
    assert text.preprocess(TEXTS)["input_ids"].shape[1] == 5
    assert SentenceModule(encoders["static"]).max_seq_length is None
    for encoder, value in (("pixel", 49), ("pixel", 1), ("text", 41), ("text", 2), ("static", 10)):
        with pytest.raises(ValueError, match="max_seq_length"):
            SentenceModule(encoders[encoder], max_seq_length=value)


@pytest.mark.parametrize("kind, unit", [("pixel", "patches"), ("text", "tokens")])
def test_what_is_cut_is_said_once(kind, unit, encoders, recwarn):
    warnings.simplefilter("always")
    module, long = SentenceModule(encoders[kind], max_seq_length=9), "a text of many words "*20
    module.preprocess(["a", "b"])
    assert not recwarn.list
    for _ in range(2): module.preprocess(["a", long, "b", long])
    if kind == "pixel": module.preprocess([Image.fromarray(encoders[kind].renderer([long]).pixels[0])])
    warning, = recwarn.list
    assert warning.category is TextsTruncated
    assert f"2 of 4 texts of a batch were truncated at 9 {unit}; " in str(warning.message)
    if kind == "text":
        conditional = ConditionalMaskedLanguageModel(MaskedLanguageModel(encoders[kind]), 3)
        for wrapper in (Lens(encoders[kind], LensConfig("mean")), conditional):
            with pytest.warns(TextsTruncated, match="1 of 1 texts of a batch were truncated at"):
                SentenceModule(wrapper, max_seq_length=9).preprocess([long])
    for whole in ("pixel scrolling", "static"): SentenceModule(encoders[whole]).preprocess([long])
    assert len(recwarn.list) == 1
    MtebEncoder(encoders[kind]).encode([dict(text=["a", long]), dict(text=[long])])
    assert "2 of 3 texts were truncated" in str(recwarn.list[1].message) and len(recwarn.list) == 2


def test_gradients_reach_the_weights(encoders):
    for kind in ("pixel", "pixel scrolling", "text"):
        module = SentenceModule(encoders[kind])
        module(module.preprocess(TEXTS))["sentence_embedding"][:, 0].sum().backward()
        grads = [p.grad for p in encoders[kind].parameters() if p.grad is not None]
        assert grads and sum(float(g.abs().sum()) for g in grads) > 0
        encoders[kind].zero_grad()


def test_what_cannot_be_saved_or_loaded(encoders, tmp_path):
    class Mine:
        width = 2
        def encode(self, texts, **_): return np.ones((len(texts), 2), np.float32)
    with pytest.raises(TypeError, match="cannot be saved"): SentenceModule(Mine()).save(tmp_path/"mine")
    with pytest.raises(TypeError, match="cannot be used for encoding; it has no width"):
        SentenceModule("a name")
    module = SentenceModule(encoders["static"])
    with pytest.raises(ValueError, match="safetensors only"):
        module.save(tmp_path/"unsafe", safe_serialization=False)
    assert not (tmp_path/"unsafe").exists()
    module.save(tmp_path/"static")
    before = {path.name: path.read_bytes() for path in (tmp_path/"static").iterdir()}
    with pytest.raises(FileExistsError, match="sentnb-static.*sentnb-pixel"):
        SentenceModule(encoders["pixel"]).save(tmp_path/"static")
    assert {path.name: path.read_bytes() for path in (tmp_path/"static").iterdir()} == before
    with pytest.raises(FileNotFoundError, match="sentnb_module.json"):
        SentenceModule.load(str(encoders["static"].save_pretrained(tmp_path/"plain")))
    conditional = ConditionalAutoencoder(MaskedAutoencoder(encoders["pixel cls"], decoder_layers=1), 2)
    for unreadable in (Lens(encoders["text"], LensConfig("mean")), conditional):
        with pytest.raises(TypeError, match="needs only the folder"):
            SentenceModule(unreadable).save(tmp_path/"unreadable")
        assert not (tmp_path/"unreadable").exists()
    for name in ("os.path.join", "sentnb.encoders.nowhere.Encoder", "sentnb.encoders.pixel.Nothing",
                 "sentnb.core.pick", ""):
        (tmp_path/"static"/"sentnb_module.json").write_text(json.dumps(dict(encoder=name)))
        with pytest.raises(ValueError, match="no encoder class"): SentenceModule.load(tmp_path/"static")


@pytest.mark.parametrize("strategy", ["continuous", "words", "bigrams"])
@pytest.mark.parametrize("long", ["truncate", "scroll"])
def test_pictures_are_read_as_they_were_drawn(strategy, long):
    config = RenderConfig(strategy=strategy, max_patches=9, long=long)
    drawn = TextRenderer(config)(TEXTS)
    whole = TextRenderer(config)(TEXTS, max_patches=99, long="error")
    def with_paper(pixels, width): return np.pad(pixels, [(0, 0), (0, width)], constant_values=255)
    wide = [with_paper(strip.pixels, 16*(i % 3) + i) for i, strip in enumerate(whole)]
    images = [Image.fromarray(pixels) for pixels in wide]
    in_colours = [np.repeat(pixels[..., None], 3, 2) for pixels in wide]
    for pictures in (wide, images, in_colours, [image.convert("RGBA") for image in images]):
        read = read_pictures(iter(pictures), config)
        assert (read.pixels == drawn.pixels).all() and (read.num_patches == drawn.num_patches).all()
        assert (read.text_index == drawn.text_index).all() and (read.truncated == drawn.truncated).all()
    without = whole[5].pixels[:, :-16] # no black patch: one is put there
    assert (read_pictures([without], config).pixels == whole[5].pixels).all()


def test_what_is_no_picture_of_text():
    assert read_pictures([]).pixels.shape == (0, 16, 16)
    clear = Image.new("RGBA", (32, 16), (0, 0, 0, 0)) # transparent: paper, not ink
    assert read_pictures([clear]).num_patches.tolist() == [1]
    assert read_pictures([clear]).pixels[0, :, :16].min() == 255
    for bad, error, message in ((Image.new("L", (64, 20)), ValueError, r"pictures\[1\] is 64 x 20"),
                                ("text", TypeError, r"pictures\[1\] is str"),
                                (np.zeros((16, 16)), ValueError, "float64")):
        with pytest.raises(error, match=message): read_pictures([Image.new("L", (16, 16)), bad])


def test_a_batch_is_of_one_kind(encoders):
    module = SentenceModule(encoders["pixel"]).eval()
    picture = Image.fromarray(encoders["pixel"].renderer(["a"])[0].pixels)
    assert close(encode_texts(module, [dict(image=picture)]), encode_texts(module, [dict(text="a")]), 0)
    with pytest.raises(TypeError, match=r"inputs\[1\] is L?Image"): module.preprocess(["a", picture])
    with pytest.raises(TypeError, match=r"inputs\[0\] is L?Image"):
        SentenceModule(encoders["text"]).preprocess([picture])
    with pytest.raises(ValueError, match="prompt"): module.preprocess([picture], prompt="query: ")


@pytest.mark.parametrize("kind", KINDS)
def test_the_mteb_model_encodes_batches_in_order(kind, encoders):
    model, expected = MtebEncoder(encoders[kind]), encoders[kind].encode(TEXTS)
    vectors = model.encode([dict(text=TEXTS[:3]), dict(text=TEXTS[3:])], task_metadata=None, prompt_type=None)
    assert close(vectors, expected)
    assert model.encode([]).shape == (0, encoders[kind].width)
    assert close(model.similarity(expected, 3*expected), expected @ expected.T)
    assert close(model.similarity_pairwise(expected, 3*expected), np.ones(len(TEXTS)))
    if not kind.startswith("pixel"):
        with pytest.raises(ValueError, match="image"): model.encode([dict(image=[None])])


def test_without_the_extras(encoders):
    with mock.patch.dict(sys.modules, {name: None for name in EXTRAS}):
        for module, (name, _) in EXTRAS.items():
            with pytest.raises(ImportError, match=rf"pip install 'sentnb\[{name}\]'"): import_extra(module)
        pairs = dict(en=(["a", "b"], ["a", "b"], [1, 2]))
        encoder = encoders["text"]
        for call in (lambda: sentence_transformer(encoder), lambda: pairs_task(pairs, "Any"),
                     lambda: run_task(encoder, None), lambda: MtebEncoder(encoder).mteb_model_meta):
            with pytest.raises(ImportError, match="is not installed"): call()


def test_an_extra_that_is_too_old_or_broken(monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", mock.Mock())
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.39.7")
    with pytest.raises(ImportError, match="mteb 1.39.7 is too old, expected 2.0 or newer"):
        import_extra("mteb")
    lacking = ModuleNotFoundError("No module named 'polars'", name="polars")
    monkeypatch.setattr("importlib.import_module", mock.Mock(side_effect=lacking))
    with pytest.raises(ModuleNotFoundError, match="polars"):
        import_extra("mteb")  # not "mteb is not installed"


def test_importing_the_adapters_imports_neither_library(python):
    code = """
import sys
import sentnb.encoders.adapters
print([name for name in ('sentence_transformers', 'mteb', 'datasets') if name in sys.modules])"""
    assert python(code).strip() == "[]"


@needs_st
@pytest.mark.parametrize("kind", KINDS)
def test_sentence_transformers_saves_loads_and_encodes(kind, encoders, tmp_path):
    from sentence_transformers import SentenceTransformer
    expected = encoders[kind].encode(TEXTS)
    model = SentenceTransformer(modules=[SentenceModule(encoders[kind])], device="cpu")
    assert close(model.encode(TEXTS), expected)
    assert close(model.encode(TEXTS, batch_size=2, convert_to_tensor=True), expected)
    assert close(sentence_transformer(encoders[kind]).encode(TEXTS[0]), expected[0])
    assert model.similarity(expected, expected).shape == (7, 7)
    assert model.max_seq_length == SentenceModule(encoders[kind]).max_seq_length
    model.save(str(tmp_path/"saved"))
    folder = tmp_path/"saved"
    assert not [path for path in folder.rglob("*") if path.suffix in (".bin", ".pt", ".pkl", ".py")]
    again = SentenceTransformer(str(folder), trust_remote_code=True, device="cpu", local_files_only=True)
    assert close(again.encode(TEXTS), expected) and isinstance(again[0], SentenceModule)
    assert (type(encoders[kind]).from_pretrained(tmp_path/"saved").encode(TEXTS) == expected).all()
    with pytest.raises(ValueError, match="safetensors only"):
        model.save(str(tmp_path/"unsafe"), safe_serialization=False)


@needs_st
def test_sentence_transformers_loads_in_a_new_process(encoders, tmp_path, python):
    folder = str(tmp_path/"saved")
    sentence_transformer(encoders["pixel"]).save(folder)
    code = f"""
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({folder!r}, trust_remote_code=True, device="cpu", local_files_only=True)
print([float(x) for x in model.encode("A cat sleeps.")])"""
    assert close(json.loads(python(code)), encoders["pixel"].encode(["A cat sleeps."])[0])


@needs_st
# its place before version 6
@pytest.mark.filterwarnings("ignore:Importing from 'sentence_transformers.losses':DeprecationWarning")
def test_sentence_transformers_trains_the_encoder(encoders):
    from sentence_transformers import losses
    model = sentence_transformer(PixelEncoder(encoders["pixel"].config, encoders["pixel"].render_config))
    loss = losses.MultipleNegativesRankingLoss(model)
    sides = [model[0].preprocess(TEXTS[:3]), model[0].preprocess(TEXTS[3:6])]
    optimizer, seen = torch.optim.AdamW(model.parameters(), 1e-3), []
    for _ in range(4):
        value = loss([dict(side) for side in sides], None)
        optimizer.zero_grad(); value.backward(); optimizer.step(); seen.append(value.item())
    assert seen[-1] < seen[0]


@pytest.fixture(scope="module")
def pairs():
    return {language: tuple(map(list, zip(*Microworld().sts(language, n=60)))) for language in ("en", "ru")}


def without_ties(encoder, pairs: dict) -> dict:
    """Pairs whose cosines lie apart, so that rounding on another machine moves no rank."""
    def one_language(first, second, gold):
        cosine = (encoder.encode(first).astype("f8")*encoder.encode(second)).sum(1)
        order = cosine.argsort()
        kept = order[np.diff(cosine[order], prepend=-2) > 1e-5]
        assert len(kept) > 25
        return tuple([column[i] for i in kept] for column in (first, second, gold))
    return {language: one_language(*columns) for language, columns in pairs.items()}


@needs_mteb
@pytest.mark.parametrize("kind", KINDS)
def test_an_mteb_task_gives_our_scores(kind, encoders, pairs):
    pairs = without_ties(encoders[kind], pairs)
    task = pairs_task(pairs, "MicroworldSTS")
    scores = run_task(encoders[kind], task)
    assert list(scores) == ["test"] and set(scores["test"]) == {"en", "ru"}
    for language, (first, second, gold) in pairs.items():
        ours = sts.score(encoders[kind], first, second, gold)["all"]
        theirs = scores["test"][language]
        # by our similarity, in float64
        assert abs(theirs["pearson"] - ours["pearson"]) < 1e-6
        assert abs(theirs["spearman"] - ours["spearman"]) < 1e-9
        # by its own cosine, in float32
        assert abs(theirs["cosine_pearson"] - ours["pearson"]) < 1e-3
        assert abs(theirs["cosine_spearman"] - ours["spearman"]) < 1e-9
        assert theirs["main_score"] == theirs["cosine_spearman"]
    assert run_task(encoders[kind], task) == scores # its data are still loaded


@needs_mteb
def test_visual_sts_gives_the_scores_of_the_text(encoders, pairs):
    encoder = encoders["pixel"]
    read = run_task(encoder, pairs_task(pairs, "MicroworldSTS"))["test"]
    seen = run_task(encoder, pairs_task(pairs, "VisualMicroworldSTS", renderer=encoder.renderer))["test"]
    for language in pairs:
        assert abs(seen[language]["cosine_spearman"] - read[language]["cosine_spearman"]) < 1e-4
    with pytest.raises(ValueError, match="image"):
        run_task(encoders["text"], pairs_task(pairs, "VisualMicroworldSTS", renderer=encoder.renderer))


@needs_mteb
def test_what_mteb_knows_of_model_and_task(encoders, pairs):
    import mteb
    meta = MtebEncoder(encoders["pixel"], "sentnb/pixel-tiny").mteb_model_meta
    assert meta.name == "sentnb/pixel-tiny" and meta.revision == weights_fingerprint(encoders["pixel"])
    assert meta.modalities == ["text", "image"] and meta.embed_dim == 32
    assert MtebEncoder(encoders["text"]).mteb_model_meta.revision != meta.revision
    task, other = pairs_task(pairs, "One"), pairs_task({"en": pairs["en"]}, "One")
    assert task.metadata.dataset["revision"] != other.metadata.dataset["revision"]
    assert isinstance(task, mteb.AbsTask)
    quietly = dict(cache=None, co2_tracker=False, show_progress_bar=False)
    done = mteb.evaluate(MtebEncoder(encoders["static"]), [other], **quietly)
    ours = run_task(encoders["static"], other)["test"]["en"]["cosine_spearman"]
    assert done.task_results[0].get_score() == pytest.approx(ours)


@needs_mteb
@needs_st
def test_mteb_takes_the_sentence_transformer_too(encoders, pairs):
    import mteb
    task = pairs_task({"en": pairs["en"]}, "MicroworldSTS")
    model = sentence_transformer(encoders["pixel"])
    model.model_card_data.model_name = "sentnb/pixel-tiny" # MTEB before 2.8 fails where a model has no name
    done = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False)
    ours = run_task(encoders["pixel"], task)["test"]["en"]["cosine_spearman"]
    assert done.task_results[0].get_score() == pytest.approx(ours, abs=1e-4)


@needs_mteb
def test_pairs_that_make_no_task(encoders, pairs):
    first, second, gold = pairs["en"]
    for corpora_given, message in (({}, "pairs is empty"), ({"xx": pairs["en"]}, "no MTEB code for xx"),
                                   ({"en": (first, second, gold[1:])}, "the same number"),
                                   ({"en": (first, second, [float("nan")]*len(gold))}, "finite")):
        with pytest.raises(ValueError, match=message): pairs_task(corpora_given, "Any")
    with pytest.raises(ValueError, match="patches"):
        pairs_task(pairs, "Any", renderer=encoders["pixel"].renderer, longest=4)


@needs_mteb
def test_sts_b_from_the_mirror(hub, encoders):
    encoder = encoders["static"]
    theirs = run_task(encoder, sts_task("STS-B", ["en", "de"]))["test"]
    for language in ("en", "de"):
        ours = sts.evaluate(encoder, "STS-B", language=language)["all"]
        assert abs(theirs[language]["cosine_spearman"] - ours["spearman"]) < 1e-4


@needs_mteb
def test_mteb_knows_the_codes():
    from mteb.languages.check_language_code import check_language_code
    for code in CODES.values(): check_language_code(code)
