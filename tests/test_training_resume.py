"Runs that are killed and resumed, and what a run finds in its folder."
import dataclasses
import json
import multiprocessing
import os
import random
import signal
import time
import warnings

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from training_runs import (DOCUMENTS, PAIRS, PLACES, TEXTS, TRIPLES, Death, finish, kept, nearness, one_stage,
                           quick, same, start, tiny, tiny_text)

from sentnb.encoders import PixelEncoder
from sentnb.encoders.base import TextsTruncated
from sentnb.renderer import RenderConfig
from sentnb.training import Distillation, InfoNCE, Pairs, Perturbed, Same, Spans, Stage, Task, loop
from sentnb.training.checkpoint import read_state


pytestmark = pytest.mark.usefixtures("one_thread")


# --- killed and resumed ---

STAGES = [
    Stage("visual", TEXTS, InfoNCE(Perturbed("char_swap", "word_shuffle", typo_rate=.25)), steps=7,
          batch_size=8, warmup_steps=2, max_length=8),
    Stage("topical", DOCUMENTS, InfoNCE(Spans()), steps=5, batch_size=7, warmup_steps=1, accumulate=2,
          keep="best"),
    Stage("distillation", PAIRS, Distillation(PLACES, Pairs(typo_rate=.5)), steps=4, batch_size=8,
          warmup_steps=1),
    Stage("reasoning", TRIPLES, steps=6, batch_size=8, warmup_steps=0, keep="best"),
    Stage("both", tasks=[Task(TEXTS, InfoNCE(Same()), batch_size=8, warmup_steps=1),
                         Task(PAIRS, batch_size=9, learning_rate=3e-3, warmup_steps=0, accumulate=2)],
          steps=4),
]
FOLDERS = ["00-visual", "01-topical", "02-distillation", "03-reasoning", "04-both"]


def run_and_keep(folder, moment=None, slowly=False, **options):
    "What the killed process does: train, and only at the end leave the weights and the history."
    torch.set_num_threads(1)
    # a worker of the common server would not see its parent die
    multiprocessing.set_start_method("fork", force=True)
    if moment: Death(moment).arm()
    if slowly:
        schedule = loop.scheduled_learning_rate
        loop.scheduled_learning_rate = lambda *a: (time.sleep(.03), schedule(*a))[1]
    encoder = tiny()
    (folder/"began").touch()
    history = quick(encoder, STAGES, folder, dev=nearness, eval_every=2, **(dict(save_every=2) | options))
    assert not encoder.training and all(p.grad is None for p in encoder.parameters())
    save_file(encoder.state_dict(), folder/"final.safetensors")
    (folder/"history.json").write_text(json.dumps(history))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    finish(start(run_and_keep, folder))
    return load_file(folder/"final.safetensors"), json.loads((folder/"history.json").read_text())


def check_equal(folder, unbroken):
    weights, history = unbroken
    assert json.loads((folder/"history.json").read_text()) == history
    assert same(load_file(folder/"final.safetensors"), weights)
    assert sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != ".") == FOLDERS
    assert same(PixelEncoder.from_pretrained(folder/FOLDERS[-1]).state_dict(), weights)


def test_the_unbroken_run_is_a_hard_case(unbroken):
    _, history = unbroken
    steps = [(stage.name, i + 1) for stage in STAGES for i in range(stage.steps)]
    assert [(row["name"], row["step"]) for row in history] == steps
    measured = {s.name: [row["dev"] for row in history if row["name"] == s.name and "dev" in row]
                for s in STAGES}
    worse = [name for name, scores in measured.items() if max(scores) > scores[-1]]
    assert set(worse) >= {"topical", "distillation", "reasoning"}, measured
    assert len({row["loss"] for row in history}) == len(history)
    last = [row for row in history if row["name"] == "both"]
    assert all(len(row["losses"]) == 2 and sum(row["losses"]) == row["loss"] for row in last)


CHAINS = {
    "in a stage": ["step 2", "step 4", "step 3", "step 5"],
    "while writing": ["half-written 1", "half-written 2", "not-renamed 1", "not-renamed 2", "half-written 3"],
    "between stages": ["folder-saved 1", "swapping 2", "saved 3", "saved 1", "folder-saved 1", "saved 1"],
    "between tasks": ["step 24", "step 2"],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_killed_and_resumed_is_never_stopped(chain, unbroken, tmp_path):
    state = tmp_path/"state.safetensors"
    for moment in CHAINS[chain]:
        before = state.read_bytes() if state.exists() else None
        finish(start(run_and_keep, tmp_path, moment), -signal.SIGKILL)
        assert not (tmp_path/"final.safetensors").exists()
        if state.exists():   # whatever was being written, the state is whole
            with safe_open(state, "pt") as file: assert "position" in file.metadata()
        if moment == "half-written 1": assert (state.read_bytes() if state.exists() else None) == before
        if moment.startswith("half-written"): assert list(tmp_path.glob(".state-*"))
    finish(start(run_and_keep, tmp_path))
    check_equal(tmp_path, unbroken)


def test_killed_from_outside_at_any_time(unbroken, tmp_path):
    rng, kills = random.Random(0), 0
    for _ in range(4):
        (tmp_path/"began").unlink(missing_ok=True)
        process = start(run_and_keep, tmp_path, slowly=True, save_every=1)
        while not (tmp_path/"began").exists() and process.is_alive(): time.sleep(.01)
        process.join(rng.uniform(.05, .6))
        if process.exitcode is None: process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        kills += process.exitcode != 0
    assert kills
    finish(start(run_and_keep, tmp_path))
    check_equal(tmp_path, unbroken)


def test_a_worker_makes_the_same_batches(unbroken, tmp_path):
    finish(start(run_and_keep, tmp_path, "step 10", workers=1), -signal.SIGKILL)
    finish(start(run_and_keep, tmp_path, workers=1))
    check_equal(tmp_path, unbroken)


def read_position(folder): return read_state(folder/"state.safetensors")[1]


def test_a_run_in_pieces(unbroken, tmp_path):
    weights, history = unbroken
    done = 0
    for piece in (1, 6, 3, 5):   # 7 ends a stage
        encoder = tiny(seed=done)
        done += piece
        rows = quick(encoder, STAGES, tmp_path, dev=nearness, eval_every=2, save_every=100, stop_after=piece)
        assert len(rows) == done and not encoder.training
        position = read_position(tmp_path)
        assert (position["stage"], position["step"]) == {1: (0, 1), 7: (1, 0), 10: (1, 3), 15: (2, 3)}[done]
    encoder = tiny()
    assert quick(encoder, STAGES, tmp_path, dev=nearness, eval_every=2) == history
    assert same(encoder.state_dict(), weights)
    again = tiny(seed=7)   # a run that is over gives its weights and its history, and trains no more
    assert quick(again, STAGES, tmp_path, dev=lambda encoder: 1/0, eval_every=2) == history
    assert same(again.state_dict(), weights)


def test_the_checkpoint_holds_the_optimiser_and_the_best(tmp_path):
    encoder, stage = tiny(), one_stage(steps=6, keep="best")
    quick(encoder, [stage], tmp_path, dev=nearness, eval_every=1, stop_after=4)
    tensors = load_file(tmp_path/"state.safetensors")
    for name, parameter in encoder.named_parameters():
        assert torch.equal(tensors[f"model.{name}"], parameter)
        moments = {key: tensors[f"optimizer.0.{name}|{key}"] for key in ("step", "exp_avg", "exp_avg_sq")}
        assert moments["step"] == 4 and moments["step"].shape == ()
        assert moments["exp_avg"].shape == parameter.shape and moments["exp_avg_sq"].any()
    position, best = read_position(tmp_path), tiny()
    best.load_state_dict({k.removeprefix("best."): v for k, v in tensors.items() if k.startswith("best.")})
    assert nearness(best)["score"] == position["best"] == max(row["dev"] for row in position["history"])


def test_the_best_weights_go_on(tmp_path):
    encoder = tiny()
    history = quick(encoder, [one_stage(steps=9, keep="best")], tmp_path, dev=nearness, eval_every=1)
    scores = [row["dev"] for row in history]
    assert max(scores) > scores[-1] and nearness(encoder)["score"] == max(scores)
    last = tiny()
    assert quick(last, [one_stage(steps=9)], tmp_path/"last", dev=nearness, eval_every=1) == history
    assert nearness(last)["score"] == scores[-1]


def test_bf16_resumes_to_the_bit(tmp_path):
    whole, pieces = tiny(), tiny(seed=1)
    quick(whole, [one_stage()], tmp_path/"a", mixed_precision="bf16")
    quick(tiny(), [one_stage()], tmp_path/"b", mixed_precision="bf16", stop_after=2)
    quick(pieces, [one_stage()], tmp_path/"b", mixed_precision="bf16")
    assert same(whole.state_dict(), pieces.state_dict())


# --- other settings, other files ---

def other_pairs(**changes):
    return Stage("reasoning", [(b, a) for a, b in PAIRS], steps=4, batch_size=8, warmup_steps=1)


@pytest.mark.parametrize("change, named", [
    (dict(stages=[one_stage(learning_rate=2e-3)]), "stage 0 task 0 learning_rate was 0.001, is 0.002"),
    (dict(stages=[one_stage(), one_stage()]), "stage 1 name was None, is 'reasoning'"),
    (dict(stages=[other_pairs()]), "stage 0 task 0 fingerprint"),
    (dict(stages=[one_stage(InfoNCE(temperature=.1))]),
     "stage 0 task 0 objective temperature was 0.05, is 0.1"),
    (dict(stages=[one_stage(InfoNCE(Pairs(typo_rate=.5)))]),
     "stage 0 task 0 objective view typo_rate was 0.0, is 0.5"),
    (dict(stages=[one_stage(Distillation(PLACES, Pairs()))]),
     "stage 0 task 0 objective objective was 'InfoNCE', is 'Distillation'"),
    (dict(seed=1), "seed was 0, is 1"),
    (dict(weight_decay=.1), "weight_decay"),
    (dict(mixed_precision="bf16"), "mixed_precision was 'no', is 'bf16'"),
    (dict(encoder=tiny(num_hidden_layers=2)), "encoder num_hidden_layers was 1, is 2"),
    (dict(encoder=tiny(dropout=.2)), "encoder attention_probs_dropout_prob was 0.1, is 0.2"),
    (dict(encoder=tiny(render=RenderConfig(strategy="bigrams", max_patches=16))),
     "render strategy was 'words', is 'bigrams'"),
])
def test_other_settings_are_refused(change, named, tmp_path):
    quick(tiny(), [one_stage()], tmp_path, stop_after=2)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    encoder = change.get("encoder") or tiny(seed=3)
    before, options = kept(encoder), {k: v for k, v in change.items() if k != "encoder"}
    with pytest.raises(ValueError) as error:
        quick(encoder, **(dict(stages=[one_stage()], folder=tmp_path) | options))
    assert all(words in str(error.value) for words in (named, "resume=False", str(tmp_path)))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    assert same(encoder.state_dict(), before)


def test_other_settings_of_one_of_several_tasks_are_named(tmp_path):
    tasks = [Task(TEXTS, InfoNCE(Same()), batch_size=8), Task(PAIRS, batch_size=8)]
    quick(tiny(), [Stage("both", tasks=tasks, steps=2)], tmp_path, stop_after=1)
    faster = [tasks[0], dataclasses.replace(tasks[1], learning_rate=2e-3)]
    for changes, named in ((dict(tasks=faster), "stage 0 task 1 learning_rate"),
                           (dict(order="together"), "stage 0 order was 'in turn', is 'together'")):
        with pytest.raises(ValueError, match=named):
            quick(tiny(), [Stage(**dict(name="both", tasks=tasks, steps=2) | changes)], tmp_path)


def test_evaluating_at_other_steps_matters_only_where_the_best_is_kept(tmp_path):
    for keep in ("last", "best"):
        quick(tiny(), [one_stage(keep=keep)], tmp_path/keep, dev=nearness, eval_every=1, stop_after=2)
    rows = quick(tiny(), [one_stage()], tmp_path/"last", dev=nearness, eval_every=4)
    assert [row.get("dev") is None for row in rows] == [False, False, True, False]
    with pytest.raises(ValueError, match="eval_every was 1, is 4"):
        quick(tiny(), [one_stage(keep="best")], tmp_path/"best", dev=nearness, eval_every=4)


def test_resume_false_starts_anew(tmp_path):
    first = tiny()
    history = quick(first, [one_stage()], tmp_path/"a")
    quick(tiny(seed=5), [one_stage(steps=9)], tmp_path/"b", stop_after=3)
    again = tiny()
    assert quick(again, [one_stage()], tmp_path/"b", resume=False) == history
    assert same(again.state_dict(), first.state_dict())
    other = tiny(seed=1)
    assert quick(other, [one_stage()], tmp_path/"b", resume=False) != history
    assert not same(other.state_dict(), first.state_dict())


@pytest.mark.parametrize("content", [b"", b"not safetensors", None])
def test_a_foreign_state_file_is_refused_and_kept(content, tmp_path):
    state = tmp_path/"state.safetensors"
    if content is None: save_file({"w": torch.zeros(2)}, state)
    else: state.write_bytes(content)
    before = state.read_bytes()
    with pytest.raises(ValueError, match="is not the state of a run|cannot be read"):
        quick(tiny(), [one_stage()], tmp_path)
    assert state.read_bytes() == before
    quick(tiny(), [one_stage()], tmp_path, resume=False)


def test_leftovers_of_killed_runs_are_removed_but_not_files_being_written(tmp_path):
    names = (".state-abc.safetensors", ".state-def.safetensors", ".notes-abc.safetensors")
    old, young, foreign = (tmp_path/name for name in names)
    for path in (old, young, foreign): path.write_bytes(b"half")
    for path in (old, foreign): os.utime(path, (1, 1))
    quick(tiny(), [one_stage()], tmp_path, stop_after=1)
    assert not old.exists() and young.exists() and foreign.exists()


# --- texts that are cut ---

@pytest.mark.parametrize("begin, unit", [(tiny, "patches"), (tiny_text, "tokens")])
@pytest.mark.parametrize("options", [{}, dict(workers=1), dict(stop_after=3)])
def test_what_training_cuts_is_said_once_a_stage(begin, unit, options, tmp_path, recwarn):
    warnings.simplefilter("always")
    texts = ["red", "green cold big"]*8
    stages = [Stage(name, list(zip(texts, texts)), steps=4, batch_size=16, max_length=length)
              for name, length in (("short", 4), ("whole", 16))]
    for _ in range(3): history = quick(begin(), stages, tmp_path, **options)
    warnings_shown = [warning for warning in recwarn.list if warning.category is TextsTruncated]
    message, = [str(warning.message) for warning in warnings_shown]
    assert message == f"stage 'short': 64 of 128 texts were truncated at 4 {unit}"
    assert [row.get("truncated") for row in history] == [{f"at 4 {unit}": 16}]*4 + [None]*4
