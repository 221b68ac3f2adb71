"""The contract, by objectives and encoders that the library does not have: images, vectors that were computed
before, two tasks in turn; and by scored pairs and labels. Each is killed and resumed bit for bit, and two
processes are one."""
import dataclasses
import json
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from training_runs import (TEXTS, Death, as_rank, both_finish, finish, kept, plain_descent, quick, same,
                           start, tiny)

from sentnb.encoders.base import check_encoder
from sentnb.losses import info_nce
from sentnb.losses.contrastive import gather
from sentnb.training import (
    Batch, Branch, Classification, CoSENT, CosineRegression, InfoNCE, Objective, Perturbed, Stage, SupCon,
    Task)

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (24, 16, 48), dtype=np.uint8)
LABELS = RNG.integers(0, 3, 24)
VECTORS = RNG.normal(size=(24, 12)).astype(np.float32)
SCORED = [(a, b, float(score)) for a, b, score in zip(TEXTS[::2], TEXTS[1::2], RNG.uniform(size=24))]
LABELLED = [(text, int(label)) for text, label in zip(TEXTS, LABELS)]
KNOWN = dict(regression=(SCORED, CosineRegression()), ranking=(SCORED, CoSENT()),
             labels=(LABELLED, SupCon(Perturbed("word_shuffle"))),
             classes=(LABELLED, Classification(classes=3)))


class Own(nn.Module):
    "What an encoder must have for an objective of one's own, and no more."
    width = 8

    @property
    def device(self): return next(self.parameters()).device

    def settings(self): return dict(encoder=dict(kind=type(self).__name__))

    def save_pretrained(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), folder/"model.safetensors")


class ImageEncoder(Own):
    def __init__(self, dropout):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 8, 8), nn.GELU(), nn.Flatten(), nn.Dropout(dropout),
                                    nn.Linear(48, self.width))

    def forward(self, images): return self.layers(images[:, None]/255)


class Lens(Own):
    def __init__(self, dropout):
        super().__init__()
        self.layers = nn.Sequential(nn.Dropout(dropout), nn.Linear(12, self.width))

    def forward(self, vectors): return self.layers(vectors)


@dataclasses.dataclass(frozen=True)
class Brightness(Objective):
    "An image and itself in another light, behind a head; the running mean of all that was seen is taken off."
    range: tuple = (.5, 1.)
    temperature: float = .2

    def state(self, encoder):
        state = nn.Module()
        state.head = nn.Linear(encoder.width, 4)
        state.register_buffer("mean", torch.zeros(4))
        return state

    def batch(self, examples, draws, encoder, max_length):
        images = torch.from_numpy(np.stack(examples)).float()
        light = torch.tensor([rng.uniform(*self.range) for rng in draws])[:, None, None]
        return Batch((torch.cat([images, images*light]),), num_views=2)

    def loss(self, encoder, state, batch):
        vectors = state.head(encoder(*batch.tensors))
        state.seen = gather(vectors.detach()).mean(0)
        return info_nce(*(vectors - state.mean).chunk(2), self.temperature, gathered=True)

    def after_step(self, encoder, state): state.mean.lerp_(state.seen, .5)


class Labels(Objective):
    "Classes of vectors, or of pictures that an encoder of strips reads as it does text."
    def __init__(self, labels): self.labels = labels

    def state(self, encoder): return nn.Linear(encoder.width, int(self.labels.max()) + 1)

    def batch(self, examples, draws, encoder, max_length):
        rows, labels = torch.from_numpy(np.stack(examples)), torch.from_numpy(self.labels[draws.indices])
        if rows.dtype == torch.uint8:
            return Batch((rows, torch.full((len(rows),), 2), labels))   # two patches and the last
        return Batch((rows, labels))

    def loss(self, encoder, state, batch):
        *tensors, labels = batch.tensors
        scores = state(encoder(*tensors))
        return nn.functional.cross_entropy(gather(scores), gather(labels[:, None])[:, 0])


def case(name, dropout): # an encoder, and a stage that trains it
    torch.manual_seed(0)
    options = dict(batch_size=9, learning_rate=.05, warmup_steps=1)
    if name == "images":
        stage = Stage("images", list(IMAGES), Brightness(), steps=6, accumulate=2, **options)
        return ImageEncoder(dropout), stage
    if name == "lens": return Lens(dropout), Stage("lens", VECTORS, Labels(LABELS), steps=6, **options)
    if name in KNOWN: return tiny(dropout=dropout), Stage(name, *KNOWN[name], steps=6, **options)
    text = Task(TEXTS, InfoNCE(Perturbed("word_shuffle")), **(options | dict(learning_rate=.02)))
    pictures = Task(IMAGES, Labels(LABELS), **options)
    weighed = dataclasses.replace(pictures, learning_rate=.02, weight=.3)
    if name == "in turn": return tiny(dropout=dropout), Stage("both", tasks=[pictures, text], steps=4)
    return tiny(dropout=dropout), Stage("both", tasks=[weighed, text], steps=4, order="together")


CASES = ["images", "lens", "in turn", "together", *KNOWN]


def run_and_keep(name, folder, moment=None, workers=0):
    torch.set_num_threads(1)
    encoder, stage = case(name, dropout=.1)
    if moment: Death(moment).arm(type(encoder))
    history = quick(encoder, [stage], folder, save_every=1, workers=workers)
    save_file(encoder.state_dict(), folder/"final.safetensors")
    (folder/"history.json").write_text(json.dumps(history))


@pytest.mark.parametrize("name", CASES)
def test_killed_and_resumed_is_never_stopped(name, tmp_path):
    whole, pieces = tmp_path/"whole", tmp_path/"pieces"
    for folder in (whole, pieces): folder.mkdir()
    finish(start(run_and_keep, name, whole))
    for moment in ("half-written 3", "step 2", "not-renamed 1", "folder-saved 1"):
        finish(start(run_and_keep, name, pieces, moment), -signal.SIGKILL)
    finish(start(run_and_keep, name, pieces))
    assert same(load_file(whole/"final.safetensors"), load_file(pieces/"final.safetensors"))
    assert (whole/"history.json").read_text() == (pieces/"history.json").read_text()
    history = json.loads((whole/"history.json").read_text())
    assert len({row["loss"] for row in history}) == len(history) == case(name, 0.)[1].steps
    assert not same(load_file(whole/"final.safetensors"), case(name, 0.)[0].state_dict())


def run_as_rank(rank, folder):
    as_rank(rank, folder)
    torch.optim.AdamW = plain_descent
    for name in CASES:
        encoder, stage = case(name, dropout=0.)
        history = quick(encoder, [stage], folder/name)
        save_file(encoder.state_dict(), folder/f"{name} {rank}.safetensors")
        (folder/f"{name} {rank}.json").write_text(json.dumps(history))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    both_finish([start(run_as_rank, rank, folder) for rank in range(2)])
    return folder


@pytest.mark.parametrize("name", CASES)
def test_two_processes_are_one(name, ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", plain_descent)
    encoder, stage = case(name, dropout=0.)
    begin = kept(encoder)
    history = quick(encoder, [stage], tmp_path)
    first, second = (load_file(ranks/f"{name} {rank}.safetensors") for rank in range(2))
    assert same(first, second)
    recorded = json.loads((ranks/f"{name} 0.json").read_text())
    np.testing.assert_allclose([row["loss"] for row in recorded], [row["loss"] for row in history], atol=2e-6)
    for key, value in encoder.state_dict().items():
        torch.testing.assert_close(first[key], value, atol=2e-6, rtol=1e-5, msg=key)
    moved = max(float((first[key] - begin[key]).abs().max()) for key in first)
    assert moved > 1e-3, "far larger than the tolerance"


def test_what_an_objective_of_ones_own_is_known_by(tmp_path):
    encoder, stage = case("lens", dropout=0.)
    check_encoder(encoder, "training")
    others = [stage, dataclasses.replace(stage, objective=Labels(LABELS[::-1].copy())),
              dataclasses.replace(stage, examples=VECTORS + 1)]
    keys = {Branch.root(encoder, tmp_path).grow("lens", each, show_progress=False).key for each in others}
    assert len(keys) == 3
    task, = json.loads(json.dumps(case("images", 0.)[1].settings()))["tasks"]
    assert task["objective"]["range"] == [.5, 1.]


def test_what_an_objective_lacks_is_said(tmp_path):
    class Empty(Objective): pass
    encoder, _ = case("lens", dropout=0.)
    with pytest.raises(NotImplementedError, match="Empty does not define batch"):
        quick(encoder, [Stage("empty", VECTORS, Empty(), batch_size=2)], tmp_path)
    class Half(Empty):
        def batch(self, examples, draws, encoder, max_length): return Batch((torch.zeros(1),))
    with pytest.raises(NotImplementedError, match="Half does not define loss"):
        quick(encoder, [Stage("half", VECTORS, Half(), batch_size=2)], tmp_path)


def test_the_least_that_is_an_objective(tmp_path):
    "Twelve lines, as the notebook of the objectives has them."
    class Ratings(Objective):
        def batch(self, examples, draws, encoder, max_length):
            first, second, ratings = zip(*examples)
            tensors = encoder.collate([*first, *second], max_length)
            return Batch((*tensors, torch.tensor(ratings)[:, None]), [*first, *second], num_views=2)

        def loss(self, encoder, state, batch):
            *tensors, ratings = batch.tensors
            cosines = torch.cosine_similarity(*encoder(*tensors).chunk(2))[:, None]
            return (gather(cosines) - gather(ratings)).square().mean()
    rated = [(a, b, float(i % 2)) for i, (a, b) in enumerate(zip(TEXTS[::2], TEXTS[1::2]))]
    stage = Stage("rated", rated, Ratings(), steps=30, batch_size=8, learning_rate=.01)
    history = quick(tiny(dropout=0.), [stage], tmp_path)
    assert sum(row["loss"] for row in history[-5:]) < .8*sum(row["loss"] for row in history[:5])
