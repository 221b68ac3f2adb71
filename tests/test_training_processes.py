"Two processes against one: the same rows, the same losses, the same weights."
import json
import time

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from training_runs import (PAIRS, PLACES, TEXTS, TRIPLES, as_rank, both_finish, kept, nearness, one_stage,
                           plain_descent, quick, same, start, tiny, tiny_text)

from sentnb.encoders import MaskedAutoencoder, MaskedLanguageModel, PixelEncoder
from sentnb.training import (AMI, ContrastiveTension, Distillation, InfoNCE, Masked, Momentum, Pairs,
                             Perturbed, PictureSupCon, Same, SimCSE, Stage, Task, checkpoint)
from sentnb.training.stages import Batches


pytestmark = pytest.mark.usefixtures("one_thread")


TWO = [
    Stage("visual", TEXTS, InfoNCE(Perturbed("word_shuffle")), steps=4, batch_size=7, warmup_steps=0,
          learning_rate=.1, accumulate=2),
    Stage("distillation", PAIRS, Distillation(PLACES, Pairs()), steps=2, batch_size=7, warmup_steps=1,
          learning_rate=.02),
    Stage("reasoning", TRIPLES, InfoNCE(Pairs(typo_rate=.3)), steps=5, batch_size=9, warmup_steps=1,
          learning_rate=.1, keep="best"),
    Stage("in turn", steps=2, tasks=[
        Task(TEXTS, InfoNCE(Perturbed()), 7, .02), Task(PAIRS, InfoNCE(), 9, .05)]),
    Stage("together", order="together", steps=2, tasks=[
        Task(TEXTS, InfoNCE(Same()), 7, .05, weight=.5), Task(PAIRS, InfoNCE(), 9, .05, accumulate=2)]),
    Stage("in chunks", TRIPLES, InfoNCE(chunk=4), steps=3, batch_size=9, warmup_steps=0, learning_rate=.05),
]


def two_encoder():
    torch.optim.AdamW = plain_descent
    return tiny(dropout=0., head=True)


def run_as_rank(rank, folder):
    as_rank(rank, folder)
    def refuse(*arguments, **options): raise AssertionError("only the first process does this")
    if rank:   # the first process alone measures and writes
        checkpoint.Progress.save = PixelEncoder.save_pretrained = checkpoint.remove_leftovers = refuse
    write = checkpoint.Progress.save
    def slowly(run):   # the other is at the next piece long before
        time.sleep(.3)
        write(run)
    checkpoint.Progress.save = slowly
    encoder = two_encoder()
    if rank: torch.nn.init.zeros_(encoder.vit.layernorm.weight)   # all begin with the weights of the first
    for stop in (3, 4, None):
        dev = refuse if rank else nearness
        history = quick(encoder, TWO, folder/"run", dev=dev, eval_every=2, stop_after=stop)
    assert (folder/"run"/"02-reasoning"/"config.json").exists() and not encoder.training
    save_file(encoder.state_dict(), folder/f"{rank}.safetensors")
    (folder/f"{rank}.json").write_text(json.dumps(history))
    torch.distributed.destroy_process_group()


def test_two_processes_are_one(tmp_path, monkeypatch):
    both_finish([start(run_as_rank, rank, tmp_path) for rank in range(2)])
    monkeypatch.setattr(torch.optim, "AdamW", torch.optim.AdamW)   # put back when the test is over
    encoder = two_encoder()
    begin = kept(encoder)
    history = quick(encoder, TWO, tmp_path/"one", dev=nearness, eval_every=2)
    recorded = json.loads((tmp_path/"0.json").read_text())
    first, second = (load_file(tmp_path/f"{rank}.safetensors") for rank in range(2))
    assert same(first, second) and (tmp_path/"0.json").read_text() == (tmp_path/"1.json").read_text()
    np.testing.assert_allclose([row["loss"] for row in recorded], [row["loss"] for row in history], atol=2e-6)
    for name, value in encoder.state_dict().items():
        torch.testing.assert_close(first[name], value, atol=2e-6, rtol=1e-5, msg=name)
    moved = [name for name in first if not torch.allclose(first[name], begin[name], atol=1e-4)]
    assert len(moved) > 10, "the steps are far larger than the tolerance"


QUEUES = []   # after each step


class Watched(SimCSE):
    def after_step(self, encoder, state):
        super().after_step(encoder, state)
        QUEUES.append(state.queue.rows)


def of_encoder(objective, examples=PAIRS):
    return [Stage("one", examples, objective, steps=4, batch_size=7, warmup_steps=0, learning_rate=.1)]


# the two views differ in each, so that their attention tells something; 7 rows are 3 and 4
MORE = {
    "micse": lambda: (tiny(dropout=0.), of_encoder(Watched(
        mlp=True, ami=AMI(weight=.5, samples=20), momentum=Momentum(.5, 0., queue=12), view=Pairs()))),
    "tension": lambda: (tiny(dropout=0.),
                        of_encoder(ContrastiveTension(negatives=3, ami=AMI(weight=.5, samples=20)), TEXTS)),
    "patches": lambda: (MaskedAutoencoder(tiny(dropout=0.), 1, 32), of_encoder(Masked(), LINES)),
    "tokens": lambda: (MaskedLanguageModel(tiny_text(dropout=0.)), of_encoder(Masked(), LINES)),
    "sounds": lambda: (tiny_text(dropout=0.), [Stage("in turn", steps=4, tasks=[
        Task(TEXTS, SimCSE(), 7, .1),
        Task(range(12), PictureSupCon(SOUNDS, np.arange(12)%4, 8, variant="released", views="dropout"), 7,
             .1)])]),
}
SOUNDS = np.random.default_rng(0).normal(size=(12, 16, 16, 1)).astype(np.float32)
LINES = [" ".join(TEXTS[i:i + 1 + i % 3]) for i in range(len(TEXTS))]   # more is hidden of some


def more(name):
    "An encoder, its weights as they are, and a stage; the queues of it are watched."
    torch.optim.AdamW = plain_descent
    torch.manual_seed(0)
    QUEUES.clear()
    encoder, stages = MORE[name]()
    before = kept(encoder)
    return encoder, before, stages


def more_as_rank(rank, folder):
    as_rank(rank, folder)
    for name in MORE:
        encoder, _, stages = more(name)
        history = quick(encoder, stages, folder/name)
        tensors = kept(encoder) | {f"queue {k}": rows for k, rows in enumerate(QUEUES)}
        tensors["losses"] = torch.tensor([row["loss"] for row in history])
        save_file({key: value.contiguous() for key, value in tensors.items()},
                  folder/f"{name}-{rank}.safetensors")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("more")
    both_finish([start(more_as_rank, rank, folder) for rank in range(2)])
    return folder


@pytest.mark.parametrize("name", MORE)
def test_two_processes_are_one_for_all_that_looks_beyond_a_row(name, of_two, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", torch.optim.AdamW)   # put back when the test is over
    first, second = (load_file(of_two/f"{name}-{rank}.safetensors") for rank in range(2))
    assert same(first, second), "losses, queue and weights are the same in both"
    encoder, before, stages = more(name)
    history = quick(encoder, stages, tmp_path)
    np.testing.assert_allclose(first["losses"], [row["loss"] for row in history], atol=5e-6)
    for key, value in encoder.state_dict().items():
        torch.testing.assert_close(first[key], value, atol=5e-6, rtol=1e-5, msg=key)
    assert sum(not torch.allclose(value, before[key], atol=1e-4) for key, value in first.items()
               if key in before) > 10, "the steps are far larger than the tolerance"
    for k, rows in enumerate(QUEUES):   # the same keys in the same order
        assert len(rows) == min(12, 7*(k + 1))
        torch.testing.assert_close(first[f"queue {k}"], rows, atol=5e-6, rtol=1e-5)
    assert len(QUEUES) == (4 if name == "micse" else 0)


def test_another_number_of_processes_is_refused_until_the_run_is_over(tmp_path):
    stages = [one_stage(steps=3)]
    whole = quick(tiny(), stages, tmp_path, stop_after=2)
    with safe_open(tmp_path/"state.safetensors", "pt") as file:
        position = json.loads(file.metadata()["position"])
    assert position["processes"] == 1
    def of_two(**changes):
        state = tmp_path/"state.safetensors"
        save_file(load_file(state), state, metadata=dict(position=json.dumps(position | changes)))
    of_two(processes=2)
    encoder = tiny(seed=1)
    before = kept(encoder)
    with pytest.raises(ValueError, match="of 2 processes, this run has 1; .*--processes 2"):
        quick(encoder, stages, tmp_path)
    assert same(encoder.state_dict(), before)
    of_two(processes=1)
    whole = quick(encoder, stages, tmp_path)
    with safe_open(tmp_path/"state.safetensors", "pt") as file:
        position = json.loads(file.metadata()["position"])
    of_two(processes=2)
    assert quick(tiny(seed=2), stages, tmp_path) == whole, "what is over can be read by any number"


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_each_process_makes_its_rows(processes):
    stage, encoder = one_stage(InfoNCE(Pairs(typo_rate=.5)), batch_size=9), tiny()
    def columns(batch): return np.array(batch.texts).reshape(2, -1).T.tolist()
    whole = columns(Batches(stage, encoder)[2])
    shares = [columns(Batches(stage, encoder, process=p, processes=processes)[2]) for p in range(processes)]
    assert sum(shares, []) == whole and len(whole) == 9
