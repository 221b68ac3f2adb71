"Runs that are killed and resumed, two processes against one, and what `Stage` and `fit` refuse."
import dataclasses, json, math, multiprocessing, os, random, signal, sys, time

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sentnb import augmenters, training
from sentnb.encoders import MaskedAutoencoder, MaskedLanguageModel, PixelConfig, PixelEncoder
from sentnb.encoders.text import small_text_encoder, train_wordpiece
from sentnb.losses import info_nce
from sentnb.renderer import RenderConfig
from sentnb.training import Branch, Stage, TimeIsUp, average_weights, batch_indices, fit, learning_rate_at

WORDS = "red green blue old new big small cold warm quiet".split()
PAIRS = [(f"{a} {b}", f"{b} and {a}") for a in WORDS for b in WORDS if a < b]
TRIPLES = [(a, b, f"not {a}") for a, b in PAIRS]
TEXTS = [a for a, _ in PAIRS]
PLACES = np.random.default_rng(0).normal(size=(len(PAIRS), 16))
DOCUMENTS = [" ".join(random.Random(i).choices(WORDS, k=20)) for i in range(20)]


@pytest.fixture(autouse=True)
def one_thread():
    "As the processes that these runs are compared with: sums in another order are other numbers."
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny(seed=0, dropout=.1, render=None, **sizes):
    torch.manual_seed(seed)
    sizes = dict(hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=32, max_patches=16, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout) | sizes
    return PixelEncoder(PixelConfig(**sizes), render or RenderConfig(strategy="words", max_patches=16))


def one_stage(**changes): return Stage("reasoning", PAIRS, **(dict(steps=4, batch_size=8, warmup_steps=1) | changes))


def quick(encoder, stages, folder, **options): return fit(encoder, stages, folder, show_progress=False, **options)


def same(a, b): return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


# --- killed and resumed ---

STAGES = [
    Stage("visual", TEXTS, view="perturbed:char_swap+word_shuffle", steps=7, batch_size=8, warmup_steps=2, typos=.25, max_patches=8),
    Stage("topical", DOCUMENTS, view="spans", steps=5, batch_size=7, warmup_steps=1, accumulate=2, keep="best"),
    Stage("distillation", PAIRS, steps=4, batch_size=8, warmup_steps=1, typos=.5, targets=PLACES),
    Stage("reasoning", TRIPLES, steps=6, batch_size=8, warmup_steps=0, keep="best"),
]


def nearness(encoder):
    "A dev score that the least bit of the weights changes, and that training away from the start makes worse: the best is not the last."
    begin = tiny().state_dict()
    moved = math.sqrt(sum(float((v - begin.get(k, 0)).double().square().sum()) for k, v in encoder.state_dict().items()))
    return dict(score=-moved, moved=moved)


class Death:
    "Kills this process at the nth time that something happens."
    def __init__(self, moment): self.name, _, n = moment.partition(" "); self.left = int(n)

    def now(self):
        self.left -= 1
        return self.left == 0

    def arm(self):
        def die(): os.kill(os.getpid(), signal.SIGKILL)
        def around(module, name, before=None, after=None):
            real = getattr(module, name)
            def call(*arguments, **options):
                if before and self.now(): before(real, *arguments, **options)
                result = real(*arguments, **options)
                if after and self.now(): after(*arguments)
                return result
            setattr(module, name, call)
        def half(save, tensors, path, **options):
            save(tensors, path, **options)
            os.truncate(path, os.path.getsize(path)//2)
            die()
        def swap(replace, source, target):   # the old folder has been put aside, the new one is not in place
            die()
        if self.name == "step": around(training, "learning_rate_at", before=lambda *a, **k: die())
        elif self.name == "half-written": around(training, "save_file", before=half)
        elif self.name == "not-renamed": around(training, "save_file", after=lambda *a: die())
        elif self.name == "saved": around(training, "_save_state", after=lambda *a: die())
        elif self.name == "folder-saved": around(PixelEncoder, "save_pretrained", after=lambda *a: die())
        elif self.name == "swapping":
            from sentnb import encoding
            around(encoding.os, "replace", before=swap)
        else: raise ValueError(self.name)


def run_and_keep(folder, moment=None, slowly=False, **options):
    "What the killed process does: train, and only at the end leave the weights and the history."
    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)   # a worker that the common server has forked does not see its parent die
    if moment: Death(moment).arm()
    if slowly:
        schedule = training.learning_rate_at
        training.learning_rate_at = lambda *a: (time.sleep(.03), schedule(*a))[1]
    encoder = tiny()
    (folder/"began").touch()
    history = quick(encoder, STAGES, folder, dev=nearness, eval_every=2, **(dict(save_every=2) | options))
    assert not encoder.training and all(p.grad is None for p in encoder.parameters())
    save_file(encoder.state_dict(), folder/"final.safetensors")
    (folder/"history.json").write_text(json.dumps(history))


PROCESSES = multiprocessing.get_context("forkserver")   # fresh processes that share the time of the imports
PROCESSES.set_forkserver_preload(["torch", "torch._dynamo", "accelerate", "pytest", "hypothesis", "sentnb.training", "sentnb.encoders"])


def start(target, *arguments, **options):
    process = PROCESSES.Process(target=target, args=arguments, kwargs=options)
    process.start()
    return process


def finish(process, code=0):
    process.join(120)
    if process.exitcode is None: process.kill()
    assert process.exitcode == code


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    finish(start(run_and_keep, folder))
    return load_file(folder/"final.safetensors"), json.loads((folder/"history.json").read_text())


def check_equal(folder, unbroken):
    weights, history = unbroken
    assert json.loads((folder/"history.json").read_text()) == history
    assert same(load_file(folder/"final.safetensors"), weights)
    assert sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name[0] != ".") == ["00-visual", "01-topical", "02-distillation", "03-reasoning"]
    assert same(PixelEncoder.from_pretrained(folder/"03-reasoning").state_dict(), weights)


def test_the_unbroken_run_is_a_hard_case(unbroken):
    _, history = unbroken
    assert [(r["name"], r["step"]) for r in history] == [(s.name, i + 1) for s in STAGES for i in range(s.steps)]
    measured = {s.name: [r["dev"] for r in history if r["name"] == s.name and "dev" in r] for s in STAGES}
    assert all(max(scores) > scores[-1] for name, scores in measured.items() if name != "visual"), measured
    assert len({r["loss"] for r in history}) == len(history)


CHAINS = {
    "in a stage": ["step 2", "step 4", "step 3", "step 5"],
    "while writing": ["half-written 1", "half-written 2", "not-renamed 1", "not-renamed 2", "half-written 3"],
    "between stages": ["folder-saved 1", "swapping 2", "saved 3", "saved 1", "folder-saved 1", "saved 1"],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_killed_and_resumed_is_never_stopped(chain, unbroken, tmp_path):
    state = tmp_path/"state.safetensors"
    for moment in CHAINS[chain]:
        before = state.read_bytes() if state.exists() else None
        finish(start(run_and_keep, tmp_path, moment), -signal.SIGKILL)
        assert not (tmp_path/"final.safetensors").exists()
        if state.exists():   # whatever was being written, the state is whole
            with safe_open(state, "pt") as file: assert "place" in file.metadata()
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


def test_a_worker_renders_the_same_batches(unbroken, tmp_path):
    finish(start(run_and_keep, tmp_path, "step 10", workers=1), -signal.SIGKILL)
    finish(start(run_and_keep, tmp_path, workers=1))
    check_equal(tmp_path, unbroken)


def test_a_run_in_pieces(unbroken, tmp_path):
    weights, history = unbroken
    done = 0
    for piece in (1, 6, 3, 5):   # 7 ends a stage
        encoder = tiny(seed=done)
        done += piece
        rows = quick(encoder, STAGES, tmp_path, dev=nearness, eval_every=2, save_every=100, stop_after=piece)
        assert len(rows) == done and not encoder.training
        place = json.loads(safe_open(tmp_path/"state.safetensors", "pt").metadata()["place"])
        assert (place["stage"], place["step"]) == {1: (0, 1), 7: (1, 0), 10: (1, 3), 15: (2, 3)}[done]
    encoder = tiny()
    assert quick(encoder, STAGES, tmp_path, dev=nearness, eval_every=2) == history
    assert same(encoder.state_dict(), weights)
    again = tiny(seed=7)   # a run that is over gives its weights and its history, and trains no more
    assert quick(again, STAGES, tmp_path, dev=lambda encoder: 1/0, eval_every=2) == history and same(again.state_dict(), weights)


def test_the_checkpoint_holds_the_optimiser_and_the_best(tmp_path):
    encoder, stage = tiny(), one_stage(steps=6, keep="best")
    quick(encoder, [stage], tmp_path, dev=nearness, eval_every=1, stop_after=4)
    tensors = load_file(tmp_path/"state.safetensors")
    for name, parameter in encoder.named_parameters():
        assert torch.equal(tensors[f"model.{name}"], parameter)
        assert tensors[f"optimizer.{name}|step"] == 4 and tensors[f"optimizer.{name}|step"].shape == ()
        assert tensors[f"optimizer.{name}|exp_avg"].shape == parameter.shape and tensors[f"optimizer.{name}|exp_avg_sq"].any()
    place = json.loads(safe_open(tmp_path/"state.safetensors", "pt").metadata()["place"])
    best = tiny()
    best.load_state_dict({k.removeprefix("best."): v for k, v in tensors.items() if k.startswith("best.")})
    assert nearness(best)["score"] == place["best"] == max(r["dev"] for r in place["history"])


def test_the_best_weights_go_on(tmp_path):
    encoder = tiny()
    history = quick(encoder, [one_stage(steps=9, keep="best")], tmp_path, dev=nearness, eval_every=1)
    scores = [row["dev"] for row in history]
    assert max(scores) > scores[-1] and nearness(encoder)["score"] == max(scores)
    last = tiny()
    assert quick(last, [one_stage(steps=9)], tmp_path/"last", dev=nearness, eval_every=1) == history
    assert nearness(last)["score"] == scores[-1]


# --- other settings, other files ---

@pytest.mark.parametrize("change, named", [
    (dict(stages=[one_stage(learning_rate=2e-3)]), "stage 0 learning_rate 0.001 then, 0.002 now"),
    (dict(stages=[one_stage(), one_stage()]), "stage 1 batch_size None then, 8 now"),
    (dict(stages=[Stage("reasoning", [(b, a) for a, b in PAIRS], steps=4, batch_size=8, warmup_steps=1)]), "stage 0 fingerprint"),
    (dict(seed=1), "seed 0 then, 1 now"),
    (dict(weight_decay=.1), "weight_decay"),
    (dict(mixed_precision="bf16"), "mixed_precision 'no' then, 'bf16' now"),
    (dict(encoder=tiny(num_hidden_layers=2)), "encoder num_hidden_layers 1 then, 2 now"),
    (dict(encoder=tiny(dropout=.2)), "encoder attention_probs_dropout_prob 0.1 then, 0.2 now"),
    (dict(encoder=tiny(render=RenderConfig(strategy="bigrams", max_patches=16))), "render strategy 'words' then, 'bigrams' now"),
])
def test_other_settings_are_refused(change, named, tmp_path):
    quick(tiny(), [one_stage()], tmp_path, stop_after=2)
    files = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    encoder = change.get("encoder") or tiny(seed=3)
    before = {k: v.clone() for k, v in encoder.state_dict().items()}
    with pytest.raises(ValueError) as error: quick(encoder, **(dict(stages=[one_stage()], folder=tmp_path) | {k: v for k, v in change.items() if k != "encoder"}))
    assert named in str(error.value) and "resume=False" in str(error.value) and str(tmp_path) in str(error.value)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == files
    assert same(encoder.state_dict(), before)


def test_evaluating_at_other_steps_matters_only_where_the_best_is_kept(tmp_path):
    for keep in ("last", "best"):
        quick(tiny(), [one_stage(keep=keep)], tmp_path/keep, dev=nearness, eval_every=1, stop_after=2)
    assert [r.get("dev") is None for r in quick(tiny(), [one_stage()], tmp_path/"last", dev=nearness, eval_every=4)] == [False, False, True, False]
    with pytest.raises(ValueError, match="eval_every 1 then, 4 now"): quick(tiny(), [one_stage(keep="best")], tmp_path/"best", dev=nearness, eval_every=4)


def test_a_state_that_says_less_is_read(tmp_path):
    quick(tiny(), [one_stage()], tmp_path/"a")
    whole = tiny(); quick(whole, [one_stage()], tmp_path/"b")
    quick(tiny(), [one_stage()], tmp_path/"c", stop_after=2)
    state = tmp_path/"c"/"state.safetensors"
    place = json.loads(safe_open(state, "pt").metadata()["place"])
    for name in ("encoder", "render", "mixed_precision", "eval_every"): del place["settings"][name]
    save_file(load_file(state), state, metadata=dict(place=json.dumps(place)))
    encoder = tiny(seed=1); quick(encoder, [one_stage()], tmp_path/"c")
    assert same(encoder.state_dict(), whole.state_dict())


def test_resume_false_starts_anew(tmp_path):
    first = tiny(); history = quick(first, [one_stage()], tmp_path/"a")
    quick(tiny(seed=5), [one_stage(steps=9)], tmp_path/"b", stop_after=3)
    again = tiny()
    assert quick(again, [one_stage()], tmp_path/"b", resume=False) == history and same(again.state_dict(), first.state_dict())
    other = tiny(seed=1)
    assert quick(other, [one_stage()], tmp_path/"b", resume=False) != history and not same(other.state_dict(), first.state_dict())


@pytest.mark.parametrize("content", [b"", b"not safetensors", None])
def test_a_foreign_state_file_is_refused_and_kept(content, tmp_path):
    state = tmp_path/"state.safetensors"
    if content is None: save_file({"w": torch.zeros(2)}, state)
    else: state.write_bytes(content)
    before = state.read_bytes()
    with pytest.raises(ValueError, match="is not the state of a run"): quick(tiny(), [one_stage()], tmp_path)
    assert state.read_bytes() == before
    quick(tiny(), [one_stage()], tmp_path, resume=False)


def test_leftovers_of_killed_runs_are_removed_but_not_files_being_written(tmp_path):
    old, young, foreign = (tmp_path/name for name in (".state-abc.safetensors", ".state-def.safetensors", ".notes-abc.safetensors"))
    for path in (old, young, foreign): path.write_bytes(b"half")
    for path in (old, foreign): os.utime(path, (1, 1))
    quick(tiny(), [one_stage()], tmp_path, stop_after=1)
    assert not old.exists() and young.exists() and foreign.exists()


# --- several processes ---

def as_rank(rank, folder):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    if sys.platform == "linux": os.environ["GLOO_SOCKET_IFNAME"] = "lo"   # a host name that does not resolve is no obstacle
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    if rank:   # the first process alone measures and writes
        def never(*arguments, **options): raise AssertionError("only the first process does this")
        training._save_state = PixelEncoder.save_pretrained = training._remove_leftovers = never
    slow = training._save_state
    training._save_state = lambda *a: (time.sleep(.3), slow(*a))   # the other process is at the next piece long before
    encoder = two_encoder()
    for stop in (3, 4, None):
        history = quick(encoder, TWO, folder/"run", dev=nearness if rank == 0 else never, eval_every=2, stop_after=stop)
    assert (folder/"run"/"02-reasoning"/"config.json").exists() and not encoder.training
    save_file(encoder.state_dict(), folder/f"{rank}.safetensors")
    (folder/f"{rank}.json").write_text(json.dumps(history))
    torch.distributed.destroy_process_group()


TWO = [Stage("visual", TEXTS, view="perturbed:word_shuffle", steps=4, batch_size=7, warmup_steps=0, learning_rate=.1, accumulate=2),
       Stage("distillation", PAIRS, steps=2, batch_size=7, warmup_steps=1, learning_rate=.02, targets=PLACES),
       Stage("reasoning", TRIPLES, steps=5, batch_size=9, warmup_steps=1, learning_rate=.1, typos=.3, keep="best")]


def two_encoder():
    "Plain gradient descent: Adam would blow the rounding of a gradient near zero up to a whole step."
    torch.optim.AdamW = lambda parameters, weight_decay: torch.optim.SGD(parameters, lr=0., weight_decay=weight_decay)
    return tiny(dropout=0., head=True)


def test_two_processes_are_one(tmp_path, monkeypatch):
    processes = [start(as_rank, rank, tmp_path) for rank in range(2)]
    try:
        for process in processes: finish(process)
    finally:
        for process in processes: process.kill()
    monkeypatch.setattr(torch.optim, "AdamW", torch.optim.AdamW)
    encoder = two_encoder()
    begin = {k: v.clone() for k, v in encoder.state_dict().items()}
    history, recorded = quick(encoder, TWO, tmp_path/"one", dev=nearness, eval_every=2), json.loads((tmp_path/"0.json").read_text())
    first, second = (load_file(tmp_path/f"{rank}.safetensors") for rank in range(2))
    assert same(first, second) and (tmp_path/"0.json").read_text() == (tmp_path/"1.json").read_text()
    np.testing.assert_allclose([row["loss"] for row in recorded], [row["loss"] for row in history], atol=2e-6)
    for name, value in encoder.state_dict().items():
        torch.testing.assert_close(first[name], value, atol=2e-6, rtol=1e-5, msg=name)
    moved = [name for name in first if not torch.allclose(first[name], begin[name], atol=1e-4)]
    assert len(moved) > 10, "the steps are far larger than the tolerance"


def test_each_process_draws_its_rows():
    stage, renderer = one_stage(batch_size=9), tiny().renderer
    whole = training._Batches(stage, renderer, 0, 0, 0, 1).texts(2)
    for processes in (2, 3, 4):
        assert sum((training._Batches(stage, renderer, 0, 0, p, processes).texts(2) for p in range(processes)), []) == whole
    with pytest.raises(ValueError, match="9 pairs|batch_size=9 over 10 processes"): training._check_fit(tiny(), [stage], None, 10, eval_every=None)


# --- one step ---

def manual_loss(encoder, stage, batch):
    (pixels, num_patches), columns, _ = training._Batches(stage, encoder, 0, batch, 0, 1)[0]
    a, b = encoder(pixels, num_patches).chunk(columns)
    return info_nce(a, b, stage.temperature)


def test_accumulated_gradients_add_no_negatives(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", lambda parameters, weight_decay: torch.optim.SGD(parameters, lr=0.))
    stage, rate = one_stage(accumulate=2, steps=1, warmup_steps=0, learning_rate=.5), .5
    encoder, expected = tiny(dropout=0.), tiny(dropout=0.).train()
    losses = [manual_loss(expected, stage, batch) for batch in (0, 1)]
    history = quick(encoder, [stage], tmp_path, max_grad_norm=1e9)
    assert history[0]["loss"] == pytest.approx(float(sum(losses).detach())/2, abs=1e-6)
    (sum(losses)/2).backward()
    for (name, after), before in zip(encoder.named_parameters(), expected.parameters()):
        torch.testing.assert_close(after, before - rate*before.grad, atol=1e-6, rtol=1e-5, msg=name)
    (pixels, num_patches), _, _ = training._Batches(dataclasses.replace(stage, batch_size=16), encoder, 0, 0, 0, 1)[0]
    with torch.no_grad(): together = float(info_nce(*tiny(dropout=0.)(pixels, num_patches).chunk(2)))
    assert history[0]["loss"] < together - .1, "16 pairs in one loss are another, larger loss"


def test_gradients_are_clipped(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", lambda parameters, weight_decay: torch.optim.SGD(parameters, lr=0.))
    encoder, before = tiny(dropout=0.), tiny(dropout=0.)
    quick(encoder, [one_stage(steps=1, warmup_steps=0, learning_rate=1.)], tmp_path, max_grad_norm=.01)
    moved = math.sqrt(sum(float((a - b).detach().double().square().sum()) for a, b in zip(encoder.parameters(), before.parameters())))
    assert moved == pytest.approx(.01, rel=1e-3)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_batches_are_distinct_and_epochs_whole(data):
    n = data.draw(st.integers(2, 60)); size = data.draw(st.integers(2, n)); seed = data.draw(st.integers(0, 2**32 - 1)); epoch = data.draw(st.integers(0, 5))
    per_epoch = n//size
    batches = [batch_indices(n, size, epoch*per_epoch + b, seed) for b in range(per_epoch)]
    assert all(len(b) == len(set(b)) == size for b in batches)
    drawn = sum(batches, [])
    assert len(drawn) == len(set(drawn)) == per_epoch*size and set(drawn) <= set(range(n))
    b = data.draw(st.integers(0, per_epoch - 1))   # a batch is a function of its number: whatever was asked before
    training._epoch_order.cache_clear()
    assert batch_indices(n, size, epoch*per_epoch + b, seed) == batches[b]


def test_orders_differ_between_epochs_and_seeds():
    epochs = [tuple(batch_indices(30, 30, e, seed)) for e in range(3) for seed in range(2)]
    assert len(set(epochs)) == 6
    left_out = [set(range(10)) - set(sum((batch_indices(10, 3, 3*e + b, 0) for b in range(3)), [])) for e in range(40)]
    assert len({i for rest in left_out for i in rest}) == 10, "the example that an epoch leaves out is another each time"


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_batch_holds_one_group_and_an_epoch_all_of_them(data):
    size, seed, epoch = data.draw(st.integers(2, 6)), data.draw(st.integers(0, 2**32 - 1)), data.draw(st.integers(0, 4))
    counts = data.draw(st.lists(st.integers(size, 25), min_size=1, max_size=4))
    labels = tuple(data.draw(st.permutations([str(label) for label, count in enumerate(counts) for _ in range(count)])))
    per_epoch = sum(count//size for count in counts)
    batches = [batch_indices(len(labels), size, epoch*per_epoch + b, seed, labels) for b in range(per_epoch)]
    assert all(len(set(b)) == size and len({labels[i] for i in b}) == 1 for b in batches)
    assert len(set(sum(batches, []))) == per_epoch*size and {labels[b[0]] for b in batches} == set(labels)
    b = data.draw(st.integers(0, per_epoch - 1))
    training._epoch_of_groups.cache_clear()
    assert batch_indices(len(labels), size, epoch*per_epoch + b, seed, labels) == batches[b]


def test_groups_decide_the_batches_and_the_settings(tmp_path):
    pairs = [(f"text {i}", f"the text {i}") for i in range(16)]
    plain, grouped, other = (Stage("reasoning", pairs, steps=2, batch_size=4, groups=groups) for groups in (None, ["a", "b"]*8, ["a"]*8 + ["b"]*8))
    assert "groups" not in plain.settings() and grouped.settings() != other.settings() != plain.settings()
    for b in range(4):
        found = {pairs.index(row) % 2 for row in training._Batches(grouped, tiny(), 0, 0, 0, 1).texts(b)}
        assert len(found) == 1
    with pytest.raises(ValueError, match="smaller than batch_size=4 would never be seen: 'c' with 2"): dataclasses.replace(plain, groups=["a"]*14 + ["c"]*2)
    with pytest.raises(ValueError, match="groups has 3 labels; expected one str for each of the 16"): dataclasses.replace(plain, groups=["a"]*3)


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(0, 60), st.floats(1e-6, 1))
def test_learning_rate(steps, warmup, peak):
    stage = one_stage(steps=steps, warmup_steps=warmup, learning_rate=peak)
    rates = [learning_rate_at(step, stage) for step in range(steps)]
    assert all(0 < r <= peak*(1 + 1e-9) for r in rates)
    up, down = rates[:warmup], rates[warmup:]
    np.testing.assert_allclose(up, [peak*(i + 1)/warmup for i in range(len(up))])
    np.testing.assert_allclose(down, np.linspace(peak, 0, len(down) + 1)[:-1])


def test_typos_meet_a_share_of_the_first_members():
    renderer, pairs = tiny().renderer, [(f"somebody reads number {i}", f"number {i} is read") for i in range(200)]
    def changed(typos):
        stage = Stage("reasoning", pairs, batch_size=200, typos=typos)
        tuples = training._Batches(stage, renderer, 0, 0, 0, 1).texts(0)
        assert {b for _, b in tuples} == {b for _, b in pairs}, "the second member stays"
        return sum((a, b) not in pairs for a, b in tuples)/200
    assert changed(0.) == 0 and changed(1.) > .95 and .4 < changed(.5) < .6
    stage = Stage("reasoning", pairs, batch_size=200, typos=.5)
    data = training._Batches(stage, renderer, 0, 0, 0, 1)
    assert data.texts(0) == data.texts(0)
    texts = [dict((b, a) for a, b in data.texts(batch)) for batch in (0, 1)]
    assert texts[0] != texts[1], "other typos in the next epoch"


def test_views():
    rng = random.Random
    assert training.VIEWS["same"]("a b", rng(0)) == ("a b", "a b")
    assert training.VIEWS["pair"](["a", "b", "c"], rng(0)) == ("a", "b", "c")
    first, second = training.VIEWS["perturbed"]("one two three four", rng(0), name="word_shuffle")
    assert first == "one two three four" and sorted(second.split()) == sorted(first.split())
    drawn = {training.VIEWS["perturbed"]("abcd", rng(i), name="char_swap+char_delete")[1] for i in range(40)}
    assert {len(text) for text in drawn} == {3, 4}, "each of the named ones is drawn"
    assert all(span in DOCUMENTS[0] for span in training.VIEWS["spans"](DOCUMENTS[0], rng(0)))


def test_pairs_and_their_hard_negatives_stay_together():
    data, encoder = training._Batches(Stage("reasoning", TRIPLES, batch_size=5), tiny(), 0, 3, 0, 1), tiny()
    (pixels, num_patches), columns, targets = data[0]
    assert targets is None
    alone = [encoder.renderer([t]) for column in zip(*data.texts(3)) for t in column]
    assert columns == 3 and num_patches.tolist() == [int(s.num_patches[0]) for s in alone] and len(data) == 100 - 3
    for row, strip in zip(pixels.numpy(), alone): assert (row[:, :strip.pixels.shape[2]] == strip.pixels[0]).all()


# --- pre-training ---

def masked_model(kind, seed=0):
    torch.manual_seed(seed)
    if kind == "pixel": return MaskedAutoencoder(tiny(seed=seed), decoder_layers=1, decoder_width=32)
    return MaskedLanguageModel(small_text_encoder(train_wordpiece(TEXTS*3, 200), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, max_length=16))


@pytest.mark.parametrize("kind", ["pixel", "text"])
def test_pretraining_resumes_in_pieces_bit_for_bit(kind, tmp_path):
    stage = Stage("pretraining", TEXTS, view="masked", steps=30, batch_size=8, learning_rate=1e-2, warmup_steps=2)
    whole, pieces = masked_model(kind), masked_model(kind, seed=1)
    history = quick(whole, [stage], tmp_path/"whole", weight_decay=.05)
    assert sum(row["loss"] for row in history[-5:]) < .9*sum(row["loss"] for row in history[:5])
    assert quick(masked_model(kind), [stage], tmp_path/"pieces", weight_decay=.05, stop_after=0) == []
    quick(masked_model(kind), [stage], tmp_path/"pieces", weight_decay=.05, stop_after=1)
    for stop_after in (12, 100): resumed = quick(pieces, [stage], tmp_path/"pieces", weight_decay=.05, stop_after=stop_after)
    assert resumed == history
    for (name, a), b in zip(whole.state_dict().items(), pieces.state_dict().values(), strict=True): assert torch.equal(a, b), name
    looked = masked_model(kind, seed=2)
    assert quick(looked, [stage], tmp_path/"pieces", weight_decay=.05, stop_after=0) == history
    assert all(torch.equal(a, b) for a, b in zip(looked.state_dict().values(), whole.state_dict().values()))
    encoder = type(whole.encoder).from_pretrained(tmp_path/"whole"/"00-pretraining")
    np.testing.assert_allclose(encoder.encode(TEXTS[:3]), whole.encoder.encode(TEXTS[:3]), atol=1e-6)


def test_a_stage_says_which_model_it_takes(tmp_path):
    masked = Stage("pretraining", TEXTS, view="masked", batch_size=8)
    with pytest.raises(TypeError, match="MaskedAutoencoder.*not a PixelEncoder"): quick(tiny(), [masked], tmp_path)
    with pytest.raises(ValueError, match="takes one str each"): Stage("pretraining", [("a", "b")]*8, view="masked", batch_size=8)


# --- a teacher ---

def test_a_teacher_draws_every_text_of_an_example_to_its_vector(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", lambda parameters, weight_decay: torch.optim.SGD(parameters, lr=0.))
    stage, expected, encoder = one_stage(steps=1, warmup_steps=0, learning_rate=.5, targets=PLACES), tiny(dropout=0.), tiny(dropout=0.)
    rows = batch_indices(len(PAIRS), 8, 0, training._Batches(stage, expected, 0, 0, 0, 1).seed)
    goals = torch.nn.functional.normalize(torch.from_numpy(PLACES[rows]), dim=1)
    by_hand = 0.
    for side in (0, 1):   # 2 - 2 cos, by its definition
        vectors = torch.nn.functional.normalize(expected(*expected.collate([PAIRS[i][side] for i in rows])).double(), dim=1)
        by_hand = by_hand + (2 - 2*(vectors*goals).sum(1)).mean()/2
    history = quick(encoder, [stage], tmp_path, max_grad_norm=1e9)
    assert history[0]["loss"] == pytest.approx(by_hand.item(), abs=1e-6)
    by_hand.backward()
    for (name, after), before in zip(encoder.named_parameters(), expected.parameters()):
        torch.testing.assert_close(after, before - .5*before.grad, atol=1e-6, rtol=1e-5, msg=name)


def test_one_text_and_its_vector(tmp_path):
    lone = Stage("distillation", TEXTS, view="single", steps=40, batch_size=1, learning_rate=1e-2, targets=PLACES)
    history = quick(tiny(), [lone], tmp_path/"run")
    assert sum(row["loss"] for row in history[-10:]) < .9*sum(row["loss"] for row in history[:10])
    with pytest.raises(ValueError, match="targets"): quick(tiny(), [dataclasses.replace(lone, targets=-PLACES)], tmp_path/"run")   # other vectors are another run
    with pytest.raises(ValueError, match="targets have 8 dimensions, the encoder's vectors 16"): quick(tiny(), [dataclasses.replace(lone, targets=PLACES[:, :8])], tmp_path/"other")


# --- refused ---

@pytest.mark.parametrize("options, message", [
    (dict(examples=[]), "has no examples"),
    (dict(name=""), "cannot be empty"),
    (dict(name="en/de"), "cannot be empty, nor hold a slash"),
    (dict(view="spnas"), "expected one of pair, same, perturbed, spans, masked, single"),
    (dict(view="pair:char_swap"), "'pair' takes no argument"),
    (dict(view="perturbed:char_swap+typo", examples=TEXTS), "no augmenter is called typo"),
    (dict(batch_size=1), "at least 2 pairs"),
    (dict(batch_size=46), "more than its 45 examples"),
    (dict(keep="first"), "expected 'last' or 'best'"),
    (dict(steps=0), "must be at least 1"),
    (dict(accumulate=0), "must be at least 1"),
    (dict(learning_rate=0.), "learning_rate=0.0, expected a positive number"),
    (dict(learning_rate=math.nan), "learning_rate=nan"),
    (dict(temperature=-.05), "temperature=-0.05"),
    (dict(warmup_steps=-1), "warmup_steps=-1"),
    (dict(typos=1.5), "typos=1.5"),
    (dict(examples=TEXTS), r"examples\[0\] is 'red small'"),   # view "pair" would have read a str as a pair of letters
    (dict(examples=[*PAIRS, ("a", "b", "c")]), r"examples\[45\] is \('a', 'b', 'c'\)"),
    (dict(examples=[*PAIRS, ("a", None)]), r"examples\[45\]"),
    (dict(examples=PAIRS, view="same"), r"examples\[0\] is tuple; view 'same' takes one str each"),
    (dict(examples=TEXTS, view="single"), "without targets"),
    (dict(targets=PLACES[1:]), r"targets are float64 \[44, 16\]; expected an array of floats, one row for each of the 45 examples"),
    (dict(targets=PLACES.tolist()), "targets are list"),
    (dict(targets=0*PLACES), "length 0"),
    (dict(examples=TEXTS, view="masked", targets=PLACES), "a loss of its own"),
])
def test_stages_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message): Stage(**(dict(name="reasoning", examples=PAIRS, batch_size=8) | options))


@pytest.mark.parametrize("stages, options, message", [
    ([], {}, "no stages"),
    ([one_stage(keep="best")], {}, "keep='best' needs dev"),
    ([one_stage()], dict(eval_every=2), "eval_every=2 without dev"),
    ([one_stage()], dict(save_every=0), "save_every=0"),
    ([one_stage()], dict(stop_after=-1), "stop_after=-1"),
    ([one_stage(max_patches=17)], {}, "max_patches=17, the encoder takes 16 at most"),
    ([one_stage(keep="best")], dict(dev=lambda encoder: dict(spearman=1.)), "without 'score'"),
])
def test_runs_that_cannot_be(stages, options, message, tmp_path):
    with pytest.raises(ValueError, match=message): quick(tiny(), stages, tmp_path/"run", **options)
    assert not (tmp_path/"run"/"state.safetensors").exists()


def test_autocast_around_a_run_is_refused(tmp_path):
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match="within torch.autocast"): quick(tiny(), [one_stage()], tmp_path/"run")


def test_scrolled_strips_are_refused(tmp_path):
    with pytest.raises(ValueError, match="long='scroll'"): quick(tiny(render=RenderConfig(strategy="words", max_patches=16, long="scroll")), [one_stage()], tmp_path)


def test_a_text_that_a_view_refuses_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"stage 'topical', examples\[3\]: "):
        quick(tiny(), [Stage("topical", [*DOCUMENTS[:3], "   ", *DOCUMENTS[3:7]], view="spans", steps=1, batch_size=8)], tmp_path)


# --- divergence ---

class Spoiled(PixelEncoder):
    "An encoder that gives nan for the strips of one length, from some step on."
    calls, fine = 0, 3

    def forward(self, pixels, num_patches, head="drop"):
        out, self.calls = super().forward(pixels, num_patches, head), self.calls + self.training
        return torch.where((num_patches == num_patches.max())[:, None] & (self.calls > self.fine), torch.nan, out)


def spoiled(fine=3):
    torch.manual_seed(0)
    encoder = Spoiled(tiny().config, tiny().render_config)
    encoder.load_state_dict(tiny().state_dict()); encoder.fine = fine
    return encoder


def test_nan_names_step_and_text_and_the_run_can_go_on(tmp_path):
    pairs = [*PAIRS[:7], ("quiet and cold and warm and small", "cold")]
    stage = Stage("reasoning", pairs, steps=6, batch_size=8, warmup_steps=1)
    encoder = spoiled()
    with pytest.raises(FloatingPointError) as error: quick(encoder, [stage], tmp_path, save_every=1)
    message = str(error.value)
    assert message.startswith("stage 'reasoning', step 4: the loss is nan") and "1 of 16 embeddings are not finite, the first that of 'quiet and cold" in message
    assert "lower its learning_rate (0.001) or raise its warmup_steps (1)" in message
    assert not encoder.training and all(p.grad is None for p in encoder.parameters())
    assert all(v.isfinite().all() for v in load_file(tmp_path/"state.safetensors").values())
    mended, whole = tiny(), tiny()
    assert quick(mended, [stage], tmp_path) == quick(whole, [stage], tmp_path/"whole") and same(mended.state_dict(), whole.state_dict())


def test_an_infinite_gradient_never_reaches_the_weights(tmp_path):
    encoder = tiny()
    before = {k: v.clone() for k, v in encoder.state_dict().items()}
    hook = encoder.vit.layernorm.weight.register_hook(lambda gradient: gradient*torch.inf)
    with pytest.raises(FloatingPointError, match="stage 'reasoning', step 1: the norm of the gradient is (nan|inf)"): quick(encoder, [one_stage()], tmp_path)
    hook.remove()
    assert same(encoder.state_dict(), before) and not (tmp_path/"state.safetensors").exists()


def test_dev_scores(tmp_path):
    history = quick(tiny(), [one_stage()], tmp_path/"a", dev=lambda encoder: dict(score=np.float32(.5), n=np.int64(3), by=[1, 2.]))
    assert history[-1]["dev"] == .5 and history[-1]["dev_scores"] == dict(score=.5, n=3, by=[1, 2.]) and type(history[-1]["dev_scores"]["n"]) is int
    assert quick(tiny(), [one_stage()], tmp_path/"a") == history
    with pytest.raises(FloatingPointError, match="dev gave nan"): quick(tiny(), [one_stage(keep="best")], tmp_path/"b", dev=lambda encoder: math.nan)
    modes = []
    quick(tiny(), [one_stage()], tmp_path/"c", dev=lambda encoder: modes.append(encoder.training) or 0., eval_every=1)
    assert modes == [False]*4
    with pytest.raises(RuntimeError, match="mine"):
        encoder = tiny()
        def dev(encoder): raise RuntimeError("mine")
        quick(encoder, [one_stage()], tmp_path/"d", dev=dev)
    assert not encoder.training


# --- precision ---

def test_precisions_follow_one_another_and_leave_no_trace(tmp_path):
    attributes = set(vars(tiny()))
    weights, losses = {}, {}
    for name, precision in (("a", "no"), ("b", "bf16"), ("c", "no")):   # in one process, as in a notebook
        encoder = tiny()
        history = quick(encoder, [one_stage(), one_stage()], tmp_path/name, mixed_precision=precision)
        weights[name], losses[name] = encoder.state_dict(), [row["loss"] for row in history]
        assert all(v.dtype == torch.float32 for v in weights[name].values()) and all(map(math.isfinite, losses[name]))
        assert set(vars(encoder)) == attributes, "nothing of Accelerate stays on the encoder"
        pixels = torch.from_numpy(encoder.renderer(["a text"]).pixels)
        with torch.no_grad(): assert encoder(pixels, torch.tensor([2])).dtype == torch.float32
    assert same(weights["a"], weights["c"]) and losses["a"] == losses["c"]
    assert losses["b"] != losses["a"]
    np.testing.assert_allclose(losses["b"], losses["a"], rtol=.05)


def test_bf16_resumes_to_the_bit(tmp_path):
    whole, pieces = tiny(), tiny(seed=1)
    quick(whole, [one_stage()], tmp_path/"a", mixed_precision="bf16")
    quick(tiny(), [one_stage()], tmp_path/"b", mixed_precision="bf16", stop_after=2)
    quick(pieces, [one_stage()], tmp_path/"b", mixed_precision="bf16")
    assert same(whole.state_dict(), pieces.state_dict())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_on_a_gpu(precision, tmp_path):
    tiny_cpu = tiny(); quick(tiny_cpu, [one_stage()], tmp_path/"cpu")   # the device of the first run is not that of the second
    encoder = tiny().cuda()
    history = quick(encoder, [one_stage(steps=20), one_stage(steps=20)], tmp_path/"gpu", mixed_precision=precision, dev=nearness, eval_every=5)
    assert encoder.device.type == "cuda" and all(math.isfinite(row["loss"]) for row in history)
    quick(tiny().cuda(), [one_stage(steps=20), one_stage(steps=20)], tmp_path/"pieces", mixed_precision=precision, dev=nearness, eval_every=5, stop_after=27)
    resumed = quick(tiny(seed=1).cuda(), [one_stage(steps=20), one_stage(steps=20)], tmp_path/"pieces", mixed_precision=precision, dev=nearness, eval_every=5)
    np.testing.assert_allclose([row["loss"] for row in resumed], [row["loss"] for row in history], rtol=1e-3)


# --- the bar, the average ---

def test_progress_is_shown_or_not(tmp_path, capfd):
    fit(tiny(), [one_stage()], tmp_path/"a", show_progress=False)
    assert capfd.readouterr() == ("", "")
    fit(tiny(), [one_stage()], tmp_path/"a", resume=False)
    assert "reasoning: 100%" in capfd.readouterr().err


def test_average_weights(tmp_path):
    encoders = [tiny(seed=i) for i in range(3)]
    for i, encoder in enumerate(encoders): quick(encoder, [one_stage(steps=1)], tmp_path/str(i))
    before = [{k: v.clone() for k, v in e.state_dict().items()} for e in encoders]
    average = average_weights(encoders)
    for name, value in average.state_dict().items():
        expected = torch.stack([s[name] for s in before]).double().mean(0).float()
        assert torch.equal(value, expected)
    assert all(same(e.state_dict(), b) for e, b in zip(encoders, before))
    assert average.encode(["a text"]).shape == (1, 16)
    with torch.no_grad(): next(average.parameters()).add_(1)
    assert same(encoders[0].state_dict(), before[0]), "the average shares no memory with its members"
    assert same(average_weights([encoders[1]]).state_dict(), before[1])
    for wrong in ([tiny(), tiny(num_hidden_layers=2)], [tiny(), tiny(hidden_size=32)]):
        with pytest.raises(ValueError, match="not of one architecture"): average_weights(wrong)
    with pytest.raises(ValueError, match="no encoders"): average_weights([])


# --- branches ---

def test_a_branch_is_trained_once_and_goes_on_where_it_was_interrupted(tmp_path, monkeypatch):
    stage, options = one_stage(steps=9), dict(seed=3, show_progress=False)
    whole = Branch.root(tiny(), tmp_path/"whole").grow("A", stage, **options)
    root = Branch.root(tiny(), tmp_path/"pieces")
    before = {k: v.clone() for k, v in root.encoder.state_dict().items()}
    clock = iter([0., 1., 2., 3.])   # two pieces, then the time is over
    monkeypatch.setattr(training.time, "monotonic", lambda: next(clock))
    with pytest.raises(TimeIsUp, match="A stands at 8 of 9 steps"): root.grow("A", stage, until=2., piece_steps=4, **options)
    monkeypatch.undo()
    resumed = root.grow("A", stage, **options)
    assert resumed.key == whole.key and resumed.history == whole.history and same(resumed.encoder.state_dict(), whole.encoder.state_dict())
    assert same(root.encoder.state_dict(), before), "the parent stays as it is"
    monkeypatch.setattr(training, "info_nce", None)   # no step is taken any more
    again = root.grow("A", stage, until=0., **options)
    assert again.history == whole.history and same(again.encoder.state_dict(), whole.encoder.state_dict()) and again.seconds == resumed.seconds > 0 and again.commits == resumed.commits
    pieces = json.loads((resumed.folder/"pieces.json").read_text())
    assert [piece["steps"] for piece in pieces] == [4, 4, 1] and {piece["commit"] for piece in pieces} == set(resumed.commits)


def test_a_branch_is_known_by_all_that_made_it(tmp_path):
    root, stage = Branch.root(tiny(), tmp_path), one_stage(steps=1)
    keys = [branch.key for branch in (root, Branch.root(tiny(1), tmp_path), Branch.root(tiny(dropout=0.), tmp_path))]
    def grown(parent=root, name="A", stage=stage, **options): return parent.grow(name, stage, show_progress=False, **options)
    first = grown()
    keys += [branch.key for branch in (first, grown(name="B"), grown(seed=1), grown(stage=dataclasses.replace(stage, learning_rate=.1)), grown(weight_decay=.1), grown(first), Branch.average([first, root]))]
    assert len(set(keys)) == len(keys)
    assert grown(save_every=7).key == first.key, "how often it is saved decides nothing"


# --- image views: strips changed after they are drawn ---

def image_batch(view, encoder, batch=0, process=0, processes=1):
    stage = Stage("visual", TEXTS, view=view, batch_size=8)
    (pixels, num_patches), columns, _ = training._Batches(stage, encoder, seed=0, first=batch, process=process, processes=processes)[0]
    assert columns == 2
    return pixels.numpy(), num_patches.numpy()


@pytest.mark.parametrize("name", [*augmenters.IMAGE_AUGMENTERS, "crop+blur"])
def test_an_image_view_changes_the_second_strip_only(name):
    encoder = tiny(render=RenderConfig(strategy="continuous", max_patches=16))
    pixels, num_patches = image_batch(f"image:{name}", encoder)
    plain, lengths = image_batch("same", encoder)
    assert np.array_equal(pixels[:8], plain[:8]) and np.array_equal(num_patches[:8], lengths[:8])
    assert (pixels[8:] != plain[8:]).any(axis=(1, 2)).all(), "every second strip is another picture"
    assert (num_patches[8:] < lengths[8:]).all() if name == "crop" else (num_patches[8:] <= lengths[8:]).all()
    if name == "vertical_flip":
        for strip, flipped, n in zip(plain[8:], pixels[8:], lengths[8:]): assert np.array_equal(flipped[:, :16*n], strip[::-1, :16*n])
    for strip, n in zip(pixels[8:], num_patches[8:]): assert not strip[:, 16*n:16*(n + 1)].any(), "the black patch follows the text"


def test_an_image_view_repeats_itself_and_is_the_same_over_processes():
    encoder = tiny(render=RenderConfig(strategy="continuous", max_patches=16))
    pixels, num_patches = image_batch("image", encoder)
    again, lengths = image_batch("image", encoder)
    assert np.array_equal(pixels, again) and np.array_equal(num_patches, lengths)
    other, _ = image_batch("image", encoder, batch=1)
    assert other.shape != pixels.shape or not np.array_equal(other, pixels)
    width, halves = pixels.shape[2], [image_batch("image", encoder, process=rank, processes=2) for rank in range(2)]
    for rank, (part, part_lengths) in enumerate(halves):
        for half in range(2):
            mine, whole = slice(4*half, 4*half + 4), slice(8*half + 4*rank, 8*half + 4*rank + 4)
            assert np.array_equal(part_lengths[mine], num_patches[whole]) and np.array_equal(part[mine], pixels[whole, :, :part.shape[2]]) and part.shape[2] <= width


def test_an_image_view_trains_a_pixel_encoder_and_nothing_else(tmp_path):
    stage = Stage("visual", TEXTS, view="image:crop+blur", steps=3, batch_size=8, warmup_steps=1)
    assert len(quick(tiny(), [stage], tmp_path/"pixel")) == 3
    tokenizer = train_wordpiece(TEXTS, 60)
    with pytest.raises(TypeError, match="changes drawn strips; a TextEncoder draws none"):
        quick(small_text_encoder(tokenizer, hidden_size=16, num_hidden_layers=1, num_attention_heads=2), [dataclasses.replace(stage, max_patches=None)], tmp_path/"text")
    with pytest.raises(ValueError, match="no augmenter is called char_swap; there are crop"): Stage("visual", TEXTS, view="image:char_swap")
    with pytest.raises(ValueError, match="takes one str each"): Stage("visual", PAIRS, view="image", batch_size=8)
