"""Pictures through a text encoder's blocks: what is computed, what learns, what is saved, and that a run of
two tasks in turn can be killed at any time."""
import hashlib
import io
import json
import signal

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from scipy.special import erf, logsumexp, softmax
from tiny_text import tiny_roberta
from torch.utils._python_dispatch import TorchDispatchMode
from training_runs import TEXTS, finish, kept, quick, same, start, tiny, tiny_text, train_and_keep
from transformers import DistilBertConfig, DistilBertModel

from sentnb.corpora import Microworld, load_images
from sentnb.corpora.images_and_sounds import decode_image, noise_images, shuffle_labels
from sentnb.corpora.microworld.images_and_sounds import Images
from sentnb.encoders import TextEncoder
from sentnb.encoders.multimodal import PatchInput, embed_pictures, get_layers
from sentnb.losses.supervised import SUP_CON
from sentnb.training import BatchRNG, PictureSupCon, SimCSE, Stage, Task

pytestmark = pytest.mark.usefixtures("one_thread")
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (24, 16, 16, 3), dtype=np.uint8)
LABELS = np.arange(24) % 5


def of_pixels(**changes):
    return PictureSupCon(**dict(pictures=PIXELS, labels=LABELS, patch_size=8) | changes)


# --- what is computed, again in float64 and by numpy alone ---

def linear(x, weights, name): return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(x, weights, name, eps):
    x = (x - x.mean(-1, keepdims=True))/np.sqrt(x.var(-1, keepdims=True) + eps)
    return x*weights[f"{name}.weight"] + weights[f"{name}.bias"]


def patches_of(picture, size): # row by row, each patch's cells with its colours outermost
    height, width, _ = picture.shape
    return np.array([picture[y:y + size, x:x + size].transpose(2, 0, 1).ravel()
                     for y in range(0, height, size) for x in range(0, width, size)])


def vector_of(picture, weights, config):
    "A picture [h, w, c] in numbers -> [d]: patches, projection, [CLS], positions, layers, MLP."
    projection = weights["inputs.projection.weight"]
    states = patches_of(picture, projection.shape[-1]) @ projection.reshape(len(projection), -1).T
    states = np.concatenate([weights["inputs.cls_token"][0], states + weights["inputs.projection.bias"]])
    if "inputs.position_embeddings" in weights: states = states + weights["inputs.position_embeddings"][0]
    heads, width = config.num_attention_heads, config.hidden_size//config.num_attention_heads
    for k in range(config.num_hidden_layers):
        layer = f"model.encoder.layer.{k}"
        query, key, value = (linear(states, weights, f"{layer}.attention.self.{name}")
                             for name in ("query", "key", "value"))
        parts = []
        for part in (slice(h*width, (h + 1)*width) for h in range(heads)):
            attention = softmax(query[:, part] @ key[:, part].T/np.sqrt(width), axis=1)
            parts.append(attention @ value[:, part])
        out = linear(np.concatenate(parts, 1), weights, f"{layer}.attention.output.dense")
        eps = config.layer_norm_eps
        states = layer_norm(states + out, weights, f"{layer}.attention.output.LayerNorm", eps)
        wide = linear(states, weights, f"{layer}.intermediate.dense")
        wide = wide*(1 + erf(wide/np.sqrt(2)))/2
        states = layer_norm(states + linear(wide, weights, f"{layer}.output.dense"), weights,
                            f"{layer}.output.LayerNorm", eps)
    cls = states[0]
    if "head.weight" in weights: cls = np.tanh(linear(cls, weights, "head"))
    return np.tanh(linear(cls, weights, "inputs.mlp"))


def loss_of(a, b, labels, tau, variant):
    a, b = (x/np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    across, n = a @ b.T/tau, len(a)
    if variant == "released":
        places = [sorted(set(labels)).index(label) for label in labels]
        return np.mean([logsumexp(across[i]) - across[i, places[i]] for i in range(n)])
    if variant == "paper_eq5": return np.mean([logsumexp(across[i]) - across[i, i] for i in range(n)])
    if variant == "paper_eq4":
        return sum(logsumexp(across[i][labels != labels[i]]) - logsumexp(across[i][labels == labels[i]])
                   for i in range(n))
    if variant == "simclr": labels = np.arange(n)
    z, classes, terms = np.concatenate([a, b]), np.concatenate([labels, labels]), []
    for i in range(2*n):
        others = np.array([j for j in range(2*n) if j != i])
        logits = z[others] @ z[i]/tau
        terms.append(np.mean((logsumexp(logits) - logits)[classes[others] == classes[i]]))
    return np.mean(terms)


def in_float64(encoder, state):
    tensors = encoder.state_dict() | state.state_dict()
    return {name: tensor.double().numpy() for name, tensor in tensors.items()}


@pytest.fixture(scope="module")
def tokenizer(): return tiny_text().tokenizer


@pytest.mark.parametrize("variant", SUP_CON)
@pytest.mark.parametrize("kind", ["BERT, photographs", "RoBERTa, spectrograms", "BERT with a head, ImageNet"])
def test_the_loss_of_a_batch(kind, variant, tokenizer):
    objective = of_pixels(variant=variant)
    encoder = tiny_text(num_hidden_layers=2).eval()
    if "ImageNet" in kind: # as supervised VisualCSE reads images
        objective = of_pixels(variant=variant, scale="imagenet")
        encoder.head = torch.nn.Linear(encoder.width, encoder.width)
    if kind.startswith("RoBERTa"):
        encoder = tiny_roberta(tokenizer)
        sounds = RNG.normal(size=(24, 16, 24, 1)).astype(np.float32)
        objective = of_pixels(pictures=sounds, views="dropout", positions=False, variant=variant)
    state, numbers = objective.state(encoder), [4, 9, 14, 3, 0, 1]   # the first three of one class
    for parameter in state.parameters(): torch.nn.init.normal_(parameter, std=.1)   # biases are 0 at first
    batch = objective.batch(numbers, BatchRNG(0, 0, numbers), encoder, None)
    weights, pictures = in_float64(encoder, state), batch.tensors[0].numpy()
    if "ImageNet" in kind: pictures = (pictures/255 - [.485, .456, .406])/[.229, .224, .225]
    elif pictures.dtype == np.uint8: pictures = pictures/127.5 - 1
    vectors = np.array([vector_of(picture, weights, encoder.config) for picture in pictures])
    got = embed_pictures(encoder, state.inputs, batch.tensors[0]).detach()
    np.testing.assert_allclose(got, vectors, rtol=1e-4, atol=1e-5)
    expected = loss_of(*np.split(vectors, 2), LABELS[numbers], objective.temperature, variant)
    np.testing.assert_allclose(objective.loss(encoder, state, batch).item(), expected, rtol=1e-4)


def test_the_layers_of_distilbert(tokenizer):
    "They are called `transformer.layer`, and give what the whole model gives for the same states."
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=32, n_layers=2, n_heads=2, hidden_dim=64)
    encoder = TextEncoder(DistilBertModel(config), tokenizer, pooling="cls").eval()
    states = torch.randn(2, 5, 32)
    whole = encoder.model(inputs_embeds=states, attention_mask=torch.ones(2, 5, dtype=torch.long))
    embedded = encoder.model.embeddings(None, states)
    torch.testing.assert_close(get_layers(encoder)(embedded), whole.last_hidden_state)


class Waits(TorchDispatchMode):
    "Counts what would make a GPU wait for the CPU: numbers, or masks of unknown size, taken out of tensors."
    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.count += function.overloadpacket in (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero)
        return function(*arguments, **options or {})


def test_nothing_waits_for_each_picture():
    encoder, objective, counts = tiny_text(), of_pixels(), []
    state = objective.state(encoder)
    for numbers in (range(4), range(20)):
        batch = objective.batch(numbers, BatchRNG(0, 0, numbers), encoder, None)
        with Waits() as waits: objective.loss(encoder, state, batch).backward()
        counts.append(waits.count)
    assert counts[0] == counts[1] < 4
    with Waits() as waits: [float(x) for x in torch.ones(3)]
    assert waits.count == 3


@pytest.mark.parametrize("begin", [tiny, tiny_text])
def test_places_differ_by_positions_alone(begin):
    "Patches in another order: the same [CLS], unless they have positions."
    encoder, pictures = begin().eval(), torch.randn(3, 16, 24, 1)
    swapped = torch.cat([pictures[:, 8:], pictures[:, :8]], 1)
    for positions in (False, True):
        torch.manual_seed(0)
        inputs = PatchInput(encoder.width, (16, 24), 8, 1, positions)
        for parameter in inputs.parameters(): torch.nn.init.normal_(parameter)
        a, b = (embed_pictures(encoder, inputs, x, mlp=False) for x in (pictures, swapped))
        assert torch.allclose(a, b, atol=1e-5) != positions


# --- what learns ---

@pytest.mark.parametrize("begin", [tiny, tiny_text])
def test_the_gradient_comes_to_the_blocks_and_not_to_what_reads_text(begin):
    encoder = begin()
    objective = of_pixels()
    state = objective.state(encoder)
    objective.loss(
        encoder, state, objective.batch(range(8), BatchRNG(0, 0, range(8)), encoder, None)
    ).backward()
    blocks = {name for name, p in encoder.named_parameters() if p.grad is not None and p.grad.any()}
    assert all(p.grad is not None and p.grad.any() for p in state.parameters())
    expected = {name for name, _ in encoder.named_parameters() if ".layer." in name}
    assert len(expected) >= 16 and expected <= blocks
    assert not [name for name in blocks if "embedding" in name]


def test_image_steps_leave_the_token_embeddings_to_the_bit(tmp_path):
    encoder = tiny_text()
    before = kept(encoder)
    stage = Stage("images", tasks=[Task(range(24), of_pixels(), batch_size=8, warmup_steps=0)], steps=3)
    quick(encoder, [stage], tmp_path)
    after = encoder.state_dict()
    assert after.keys() == before.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if ".layer." in name}


def test_what_is_saved_is_a_text_encoder(tmp_path):
    encoder = tiny_text(pooling="cls")
    names = set(encoder.state_dict())
    quick(encoder, [in_turn(steps=2)], tmp_path/"run")
    encoder.save_pretrained(tmp_path/"saved")
    again = TextEncoder.from_pretrained(tmp_path/"saved")
    assert set(again.state_dict()) == names and same(again.state_dict(), encoder.state_dict())
    assert again.pooling == "cls"
    np.testing.assert_array_equal(again.encode(TEXTS[:5]), encoder.encode(TEXTS[:5]))
    torch.manual_seed(0)
    inputs, pictures = PatchInput(encoder.width, 16, 8), torch.from_numpy(PIXELS[:3])
    a, b = (embed_pictures(x.eval(), inputs, pictures) for x in (encoder, again))
    assert torch.equal(a, b)


# --- two tasks in turn ---

def in_turn(image_lr=2e-3, text_lr=1e-3, **changes):
    "As Algorithm 1: images by a cosine, then sentences."
    images = Task(range(24), of_pixels(), batch_size=8, learning_rate=image_lr, warmup_steps=0,
                  schedule="cosine")
    sentences = Task(TEXTS, SimCSE(mlp=True), batch_size=8, learning_rate=text_lr, warmup_steps=0)
    return Stage(**dict(name="visualcse", tasks=[images, sentences], steps=6) | changes)


def stages():
    return [in_turn(keep="best"), in_turn(tasks=in_turn().tasks[::-1], name="text first", steps=2)]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    finish(start(train_and_keep, folder, stages))
    return load_file(folder/"final.safetensors"), json.loads((folder/"history.json").read_text())


def test_each_step_has_both_losses_and_rates(unbroken):
    _, history = unbroken
    assert [(row["name"], row["step"]) for row in history] == \
        [("visualcse", step) for step in range(1, 7)] + [("text first", 1), ("text first", 2)]
    losses = [loss for row in history for loss in row["losses"]]
    assert len(losses) == len(set(losses)) == 16
    measured = [row["dev"] for row in history[:6] if "dev" in row]
    assert max(measured) > measured[-1]   # the best is not the last


# a rate is asked for twice a step: the odd deaths come before images, the even ones between the two tasks
@pytest.mark.parametrize("chain", [["step 4", "half-written 1", "step 3"], ["folder-saved 1", "step 2"]])
def test_killed_and_resumed_is_never_stopped(chain, unbroken, tmp_path):
    for moment in chain:
        finish(start(train_and_keep, tmp_path, stages, moment), -signal.SIGKILL)
        assert not (tmp_path/"final.safetensors").exists()
    finish(start(train_and_keep, tmp_path, stages))
    weights, history = unbroken
    assert json.loads((tmp_path/"history.json").read_text()) == history
    assert same(load_file(tmp_path/"final.safetensors"), weights)


def test_each_task_has_an_optimiser_of_its_own(tmp_path):
    "Both hold the blocks, with other moments; that of the images has what images need, as they learned it."
    encoder = tiny_text()
    quick(encoder, [in_turn()], tmp_path, stop_after=3)
    tensors = load_file(tmp_path/"state.safetensors")
    moments = [{name.partition(".")[2].removeprefix(f"{k}."): tensor for name, tensor in tensors.items()
                if name.startswith(f"optimizer.{k}.") and name.endswith("|exp_avg")} for k in range(2)]
    shared = [f"{name}|exp_avg" for name, _ in encoder.named_parameters() if ".layer." in name]
    assert shared and all(not torch.equal(moments[0][name], moments[1][name]) for name in shared)
    of_images = [name for name in moments[0] if "inputs." in name]
    assert len(of_images) == 6 and not [name for name in moments[1] if "inputs." in name]
    embeddings = [name for name in moments[1] if "word_embeddings" in name]
    assert embeddings and not set(embeddings) & set(moments[0])


@pytest.mark.parametrize("stopped", ["image_lr", "text_lr"])
def test_each_task_has_a_rate_of_its_own(stopped, tmp_path):
    "Of two rates one is too small to move a bit: what only the other task reaches stays, or moves."
    encoder = tiny_text()
    before = kept(encoder)
    quick(encoder, [in_turn(steps=3, **{stopped: 1e-30})], tmp_path)
    changed = {name for name, tensor in encoder.state_dict().items()
               if (tensor - before[name]).abs().max() > 1e-9}
    assert changed >= {name for name in before if ".layer." in name and "key.bias" not in name}
    assert any("embedding" in name for name in changed) == (stopped == "image_lr")


# --- the same pictures for the same seed ---

def digest(array): return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def digests_of_views():
    "Of three batches: two of one seed, and one of another."
    images = Microworld().pictures(24, classes=6, size=16)
    objective = PictureSupCon(images.pixels, images.labels, 8)
    return [digest(objective.batch(range(8), BatchRNG(seed, number, range(8)), None, None).tensors[0])
            for seed, number in ((0, 0), (0, 1), (1, 0))]


def test_views_are_drawn_by_seed_and_batch_alone(python):
    "In a fresh process too, whose hashes are others."
    code = "import sys; sys.path.insert(0, 'tests'); import test_multimodal as t; print(t.digests_of_views())"
    own_digests = digests_of_views()
    assert python(code, PYTHONHASHSEED="7").strip() == str(own_digests) and len(set(own_digests)) == 3


def test_a_view_does_not_depend_on_its_batch():
    objective = of_pixels()
    together = objective.batch([5, 7, 2], BatchRNG(0, 3, [5, 7, 2]), None, None).tensors[0]
    alone = objective.batch([2], BatchRNG(0, 3, [2], start=2), None, None).tensors[0]
    assert torch.equal(together[[2, 5]], alone)
    assert not torch.equal(alone[0], alone[1])


def encoded(pixels, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def test_a_picture_is_decoded_to_its_middle_square():
    wide = RNG.integers(0, 256, (16, 25, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decode_image(encoded(wide), 16), wide[:, 4:20])
    tall = wide.transpose(1, 0, 2)
    np.testing.assert_array_equal(decode_image(encoded(tall), 16), tall[4:20])
    grey = wide[:, :16, 0]
    np.testing.assert_array_equal(decode_image(encoded(grey), 16), np.stack([grey]*3, 2))
    # halved: within a grey step of the mean of each four, weighted as a triangle does
    smooth = np.tile(np.arange(0, 256, 8, dtype=np.uint8)[:, None, None], (1, 32, 3))
    np.testing.assert_allclose(decode_image(encoded(smooth), 16)[1:-1, :, 0].astype(int),
                               np.tile(np.arange(0, 256, 16)[1:-1, None] + 4, (1, 16)), atol=1)


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    "A mirror with one set of images: places that are counted, classes with gaps."
    folder = tmp_path/"nonling"/"caltech60"
    folder.mkdir(parents=True)
    rows = [dict(image=dict(bytes=encoded(picture), path=None), label=7*(i % 3), label_name=f"class {i % 3}")
            for i, picture in enumerate(PIXELS)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder/"train.parquet")
    monkeypatch.setenv("SENTNB_HUB", str(tmp_path))
    return tmp_path


def test_a_set_is_read_the_same_each_time(mirror):
    whole = load_images("nonling/caltech60", size=16)
    np.testing.assert_array_equal(whole.pixels, PIXELS)
    assert whole.labels.tolist() == [i % 3 for i in range(24)]
    assert whole.names == ("class 0", "class 1", "class 2")
    some, again = (load_images("nonling/caltech60", size=16, n=10) for _ in range(2))
    np.testing.assert_array_equal(some.pixels, again.pixels)
    places = [next(i for i in range(24) if (PIXELS[i] == picture).all()) for picture in some.pixels]
    assert len(set(places)) == 10 and places != sorted(places)   # drawn, not the first
    assert some.labels.tolist() == [i % 3 for i in places]


def test_a_damaged_image_is_named(mirror, tmp_path):
    content, folder = bytearray(encoded(PIXELS[0])), tmp_path/"pictures"/"a class"
    folder.mkdir(parents=True)
    (folder/"whole one.png").write_bytes(content)
    listed = tmp_path/"list.txt"
    listed.write_text("x/a class/whole one.png\n\n")
    assert load_images(folder.parent, size=16, listed=listed).names == ("a class",)
    content[12] ^= 255 # the name of the first chunk: Pillow raises SyntaxError
    (folder/"z broken.png").write_bytes(content)
    with pytest.raises(ValueError, match="z broken.png: .* bytes are no picture"): load_images(folder.parent)
    for name in ("nonling/caltech60", "microworld", str(folder.parent)):
        with pytest.raises(ValueError, match="n=0: expected an integer of at least 1, or None"):
            load_images(name, n=0)


def test_the_images_of_the_microworld_are_of_the_split():
    train, test = (load_images("microworld", split, 16, n=6) for split in ("train", "test"))
    direct = Microworld(seed=0).pictures(6, size=16, split="test")
    assert not (train.pixels == test.pixels).all() and (test.pixels == direct.pixels).all()


def test_controls_are_drawn_by_their_seed():
    images = Images(PIXELS, LABELS, tuple("abcde"))
    for control, part in ((shuffle_labels, "labels"), (noise_images, "pixels")):
        first, again, other = (digest(getattr(control(images, seed), part)) for seed in (0, 0, 1))
        assert first == again and len({first, other, digest(getattr(images, part))}) == 3
        unchanged = "pixels" if part == "labels" else "labels"
        assert getattr(control(images), unchanged) is getattr(images, unchanged)


def test_pictures_that_are_no_array_are_named_before_anything_else():
    for own_patches in (False, True):
        with pytest.raises(ValueError, match="pictures are list: expected an array of 4 dimensions"):
            PictureSupCon([1], np.zeros(1, int), own_patches=own_patches)
