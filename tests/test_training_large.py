"What large trainings need: chunks, losses read later, checkpoints by minutes, examples in Arrow."
import json
from hashlib import sha256

import pytest
import torch
from accelerate import Accelerator
from safetensors import safe_open
from safetensors.torch import load_file
from training_runs import PAIRS, TEXTS, TRIPLES, nearness, one_stage, quick, same, tiny, tiny_text

from sentnb.core import fingerprint
from sentnb.training import (InfoNCE, Pairs, Perturbed, Rows, Same, Stage, Task, checkpoint, loop, objectives,
                             scheduled_learning_rate)
from sentnb.training.stages import Batches
from sentnb.training.checkpoint import Progress

pytestmark = pytest.mark.usefixtures("one_thread")

TASKS = [Task(TEXTS, InfoNCE(Perturbed("word_shuffle")), 8, .5, warmup_steps=0), Task(PAIRS, InfoNCE(), 6)]


# --- in chunks ---

def gradients(objective, encoder, batch):
    torch.manual_seed(3)   # of dropout
    encoder.zero_grad()
    loss = objective.loss(encoder, torch.nn.Module(), batch)
    loss.backward()
    named = encoder.named_parameters()
    return loss.detach(), {name: p.grad.clone() for name, p in named if p.grad is not None}


@pytest.mark.parametrize("make", [tiny, tiny_text])
@pytest.mark.parametrize("examples", [PAIRS, TRIPLES])
def test_cached_gradients_are_the_gradients(make, examples):
    encoder = make(dropout=0.).double().train() if make is tiny else make().double().eval()
    batch = Batches(Stage("x", examples, InfoNCE(), batch_size=11), encoder)[0]
    loss, whole = gradients(InfoNCE(), encoder, batch)
    for chunk in (1, 5, 64):
        cached_loss, cached = gradients(InfoNCE(chunk=chunk), encoder, batch)
        torch.testing.assert_close(cached_loss, loss, rtol=1e-12, atol=0)
        assert cached.keys() == whole.keys()
        for name, value in whole.items():
            torch.testing.assert_close(cached[name], value, rtol=1e-9, atol=1e-13, msg=name)
    assert max(float(value.abs().max()) for value in whole.values()) > 1e-3


@pytest.mark.parametrize("make", [tiny, tiny_text])
def test_the_second_reading_has_the_dropout_of_the_first(make, monkeypatch):
    encoder = (make(dropout=.3) if make is tiny else make()).double().train()
    batch = Batches(Stage("x", PAIRS, InfoNCE(), batch_size=11), encoder)[0]
    cached_loss, cached = gradients(InfoNCE(chunk=5), encoder, batch)
    calls = []
    def as_it_is(function, *rows, use_reentrant, **options):   # chunks, and their graphs are kept
        calls.append(len(rows[0]))
        return function(*rows, **options)
    monkeypatch.setattr(objectives, "checkpoint", as_it_is)
    loss, whole = gradients(InfoNCE(chunk=5), encoder, batch)
    assert calls == [5, 5, 5, 5, 2] and torch.equal(loss, cached_loss)
    for name, value in whole.items(): torch.testing.assert_close(cached[name], value, rtol=1e-12, atol=1e-15)
    monkeypatch.undo()
    torch.manual_seed(4)
    other = InfoNCE(chunk=5).loss(encoder, torch.nn.Module(), batch)
    assert not torch.equal(other.detach(), loss), "dropout is on"


def test_activations_of_no_chunk_are_held_until_the_gradient_comes():
    encoder = tiny(dropout=0.).train()
    batch = Batches(Stage("x", PAIRS, InfoNCE(), batch_size=40), encoder)[0]
    def saved(objective):
        total = []
        def pack(tensor):
            total.append(tensor.numel()*tensor.is_floating_point())   # texts are held, as bytes
            return tensor
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            objective.loss(encoder, torch.nn.Module(), batch)
        return sum(total)
    assert saved(InfoNCE(chunk=8)) < .1*saved(InfoNCE())


# --- losses that are read later ---

def test_losses_that_are_read_later_are_the_same(tmp_path):
    stages = [one_stage(steps=7), Stage("both", tasks=TASKS, steps=5)]
    def run(folder, **options):
        encoder = tiny()
        return encoder, quick(encoder, stages, folder, dev=nearness, eval_every=3, **options)
    at_once, history = run(tmp_path/"a")
    later, rows = run(tmp_path/"b", read_every=4, save_every=5)
    assert rows == history and same(at_once.state_dict(), later.state_dict())
    quick(tiny(), stages, tmp_path/"c", dev=nearness, eval_every=3, read_every=50, stop_after=5)
    assert run(tmp_path/"c", read_every=50)[1] == history


def test_a_history_as_long_as_that_of_a_million_steps_is_saved(tmp_path):
    layer = torch.nn.Linear(1, 1)
    run = Progress(tmp_path, layer, dict(seed=0), Accelerator(cpu=True))
    row = dict(stage=0, name="cmlm and retrieval"*60, step=1_234_567, loss=9.876543210987654)
    run.history = [row]*100_000
    assert len(json.dumps(run.history)) > 1e8   # what the metadata of safetensors may be
    run.save()
    again = Progress(tmp_path, layer, dict(seed=0), Accelerator(cpu=True))
    again.load()
    assert again.history == run.history


def test_of_losses_read_later_the_first_that_diverged_is_named(tmp_path, monkeypatch):
    encoder, steps = tiny(), iter(range(100))
    def spoils(module, inputs, out): return out*torch.nan if next(steps) == 6 else out   # of step 7 on, all
    encoder.register_forward_hook(spoils)
    with pytest.raises(FloatingPointError, match="stage 'reasoning', step 7: the loss is nan; lower its"):
        quick(encoder, [one_stage(steps=20)], tmp_path, read_every=10, save_every=5)
    with safe_open(tmp_path/"state.safetensors", "pt") as file:
        position = json.loads(file.metadata()["position"])
    assert position["step"] == 5
    assert all(value.isfinite().all() for value in load_file(tmp_path/"state.safetensors").values())
    mended, whole = tiny(seed=1), tiny()
    assert quick(mended, [one_stage(steps=20)], tmp_path) == quick(whole, [one_stage(steps=20)], tmp_path/"w")
    assert same(mended.state_dict(), whole.state_dict())


def test_a_gradient_read_later_that_is_infinite_is_named(tmp_path):
    encoder = tiny()
    encoder.vit.layernorm.weight.register_hook(lambda gradient: gradient*torch.inf)
    with pytest.raises(FloatingPointError, match="step 1: the norm of the gradient is (nan|inf)"):
        quick(encoder, [one_stage()], tmp_path, read_every=4)
    assert not (tmp_path/"state.safetensors").exists()


def test_a_checkpoint_is_made_when_its_minutes_are_over(tmp_path, monkeypatch):
    clock, saved, save = [0.], [], Progress.save
    monkeypatch.setattr(Progress, "save", lambda run: saved.append((run.stage, run.step)) or save(run))
    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: clock[0])
    def tick(*arguments):   # each step takes a minute
        clock[0] += 60
        return scheduled_learning_rate(*arguments)
    monkeypatch.setattr(loop, "scheduled_learning_rate", tick)
    stages = [one_stage(steps=12), one_stage(steps=2)]
    for minutes, expected in (("5 minutes", [(0, 5), (0, 10), (1, 0), (2, 0)]),
                              ("1 minute", [*((0, k) for k in range(1, 12)), (1, 0), (1, 1), (2, 0)]),
                              ("90 minutes", [(1, 0), (2, 0)]), (7, [(0, 7), (1, 0), (2, 0)])):
        saved.clear()
        quick(tiny(), stages, tmp_path/str(minutes), save_every=minutes)
        assert saved == expected, minutes
    with pytest.raises(ValueError, match="expected a number of steps, or a time such as"):
        quick(tiny(), stages, tmp_path/"x", save_every="5 hours")


# --- examples in Arrow ---

@pytest.mark.parametrize("examples, objective", [
    (PAIRS, InfoNCE()), (TEXTS, InfoNCE(Same())), (TRIPLES, InfoNCE(Pairs(typo_rate=.5)))])
def test_rows_train_as_the_list_does(examples, objective, tmp_path):
    ways = {}
    for name, held in (("list", examples), ("rows", Rows(iter(examples)))):
        stage = Stage("x", held, objective, steps=4, batch_size=8, learning_rate=1e-2)
        ways[name] = quick(tiny(), [stage], tmp_path/name), stage.settings()
    assert ways["list"] == ways["rows"]
    rows = [list(example) if isinstance(example, tuple) else example for example in examples]
    task, = ways["rows"][1]["tasks"]
    assert task["fingerprint"] == fingerprint([rows, sha256().hexdigest()])
