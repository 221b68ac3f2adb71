"What tasks, stages and runs refuse, and what is said when a run diverges."
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_runs import DOCUMENTS, PAIRS, PLACES, TEXTS, kept, one_stage, quick, same, tiny, tiny_text

from sentnb.encoders import MaskedLanguageModel, PixelEncoder
from sentnb.encoders.base import check_encoder
from sentnb.renderer import RenderConfig
from sentnb.training import (BatchRNG, Classification, CoSENT, CosineRegression, Distillation, Entailment,
                             ImageViews, InfoNCE, Masked, Objective, Pairs, Perturbed, Same, Single, Spans,
                             Stage, SupCon, Task, fingerprint_examples, fit, loop)


@pytest.mark.parametrize("options, message", [
    (dict(examples=[]), "stage 'reasoning': the task has no examples"),
    (dict(examples=None), "the task has no examples"),
    (dict(name=""), "must not be empty"),
    (dict(name="en/de"), "must not be empty or contain a slash"),
    (dict(objective="simcse"), "objective is 'simcse'; expected an objective from training.objectives, "
                               "such as InfoNCE"),
    (dict(objective=InfoNCE), "objective is <class"),
    (dict(objective=InfoNCE("same")), "view is 'same'; expected a view from training.views, such as Same"),
    (dict(objective=InfoNCE(Single()), examples=TEXTS),
     "InfoNCE expects 2 or 3 texts for each example, Single returns 1"),
    (dict(batch_size=1), "batch_size=1: expected at least 2"),
    (dict(batch_size=46), "exceeds the task.s 45 examples"),
    (dict(keep="first"), "expected one of last, best"),
    (dict(order="at once"), "expected one of in turn, together"),
    (dict(steps=0), "steps=0: expected .*at least 1"),
    (dict(accumulate=0), "accumulate=0: expected .*at least 1"),
    (dict(learning_rate=0.), "learning_rate=0.0: expected a positive number"),
    (dict(learning_rate=math.nan), "learning_rate=nan"),
    (dict(warmup_steps=-1), "warmup_steps=-1"),
    (dict(weight=2.), "order='together'"),
    (dict(examples=TEXTS), r"examples\[0\] is 'red small'"),   # a str is no pair of letters
    (dict(examples=[*PAIRS, ("a", "b", "c")]), r"examples\[45\] is \('a', 'b', 'c'\)"),
    (dict(examples=[*PAIRS, ("a", None)]), r"examples\[45\]"),
    (dict(objective=InfoNCE(Same())), r"examples\[0\] is tuple; Same expects one str for each example"),
    (dict(objective=InfoNCE(ImageViews())), "ImageViews expects one str"),
    (dict(objective=Masked()), "Masked expects one str"),
    (dict(objective=Distillation(PLACES[1:], Pairs())),
     r"float64 \[44, 16\]; expected an array of floats, one row for each of the 45 examples"),
    (dict(objective=Distillation(PLACES.tolist(), Pairs())), "vectors are list"),
    (dict(objective=Distillation(0*PLACES, Pairs())), "length 0"),
    (dict(groups=["a"]*43 + ["c"]*2), "smaller than batch_size=8 would never be used: 'c' with 2"),
    (dict(groups=["a"]*3), "groups has 3 labels; expected one str for each of the 45"),
])
def test_stages_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        Stage(**(dict(name="reasoning", examples=PAIRS, batch_size=8) | options))


TASK = Task(PAIRS, batch_size=8)


@pytest.mark.parametrize("options, message", [
    (dict(tasks=[]), "stage 'both': the stage has no tasks"),
    (dict(batch_size=8), "batch_size with several tasks: pass it to each"),
    (dict(examples=PAIRS), "examples with several tasks"),
    (dict(order="together", tasks=[TASK, Task(TEXTS, InfoNCE(Same()), 8, learning_rate=.1)]),
     "learning rates .*0.001 after 10, 0.1 after 10"),
    (dict(order="together", tasks=[TASK, Task(PAIRS, batch_size=8, warmup_steps=0)]), "warm-ups"),
    (dict(tasks=[TASK, Task(PAIRS, batch_size=8, weight=.5)]), "weight= applies only to order='together'"),
])
def test_tasks_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=message): Stage(**(dict(name="both", tasks=[TASK, TASK]) | options))


def test_views_that_cannot_be():
    with pytest.raises(ValueError, match="no augmenter is called typo; choose from char_insert"):
        Perturbed("char_swap", "typo")
    with pytest.raises(ValueError, match="no augmenter is called char_swap; choose from crop"):
        ImageViews("char_swap")
    with pytest.raises(ValueError, match="temperature=-0.05"): InfoNCE(temperature=-.05)
    for view in (Pairs, Perturbed):
        with pytest.raises(ValueError, match="typo_rate=1.5"): view(typo_rate=1.5)


@pytest.mark.parametrize("stages, options, message", [
    ([], {}, "no stages"),
    ([one_stage(keep="best")], {}, "keep='best' needs dev"),
    ([one_stage()], dict(eval_every=2), "eval_every=2 without dev"),
    ([one_stage()], dict(save_every=0), "save_every=0"),
    ([one_stage()], dict(stop_after=-1), "stop_after=-1"),
    ([one_stage()], dict(max_grad_norm=0), "max_grad_norm=0: expected a number above 0"),
    ([one_stage()], dict(max_grad_norm=-1.), "max_grad_norm=-1.0"),
    ([one_stage()], dict(max_grad_norm=math.nan), "max_grad_norm=nan"),
    ([one_stage()], dict(max_grad_norm=None), "max_grad_norm=None"),
    ([one_stage()], dict(weight_decay=-.1), "weight_decay=-0.1: expected at least 0"),
    ([one_stage(max_length=17)], {}, "stage 'reasoning': max_length=17 exceeds the encoder's limit of 16"),
    ([one_stage(keep="best")], dict(dev=lambda encoder: dict(spearman=1.)), "without 'score'"),
])
def test_runs_that_cannot_be(stages, options, message, tmp_path):
    with pytest.raises(ValueError, match=message): quick(tiny(), stages, tmp_path/"run", **options)
    assert not (tmp_path/"run"/"state.safetensors").exists()


def test_more_processes_than_examples_of_a_batch():
    with pytest.raises(ValueError, match="batch_size=9 over 10 processes"):
        loop._check_tasks(tiny(), [one_stage(batch_size=9)], 10)


def test_an_objective_says_which_model_it_takes(tmp_path):
    masked = Stage("pretraining", TEXTS, Masked(), batch_size=8)
    with pytest.raises(TypeError, match="stage 'pretraining': Masked trains .*not a PixelEncoder"):
        quick(tiny(), [masked], tmp_path)
    with pytest.raises(
        TypeError, match="LanguageModel cannot be used for training on texts; it has no width"
    ):
        quick(MaskedLanguageModel(tiny_text()), [one_stage()], tmp_path)
    with pytest.raises(ValueError, match="max_length=17 exceeds the encoder's limit of 16"):
        long = Stage("pretraining", TEXTS, Masked(), batch_size=8, max_length=17)
        quick(MaskedLanguageModel(tiny_text()), [long], tmp_path)


def test_what_an_encoder_must_have(tmp_path):
    class Bare(torch.nn.Linear): device = torch.device("cpu")
    with pytest.raises(TypeError, match=r"Bare cannot be used for training; it has no settings .*; no save"):
        quick(Bare(2, 2), [one_stage()], tmp_path)
    for purpose in ("encoding", "training", "training on texts"):
        for encoder in (tiny(), tiny_text()): check_encoder(encoder, purpose)
    with pytest.raises(ValueError, match="expected one of encoding, training, training on texts"):
        check_encoder(tiny(), "search")


def test_an_encoder_does_not_hide_what_the_run_says(tmp_path, monkeypatch):
    encoder = tiny()
    monkeypatch.setattr(encoder, "settings", lambda: dict(seed=1, sizes=2))
    with pytest.raises(ValueError, match=r"settings\(\) of PixelEncoder contains seed, which are names of"):
        quick(encoder, [one_stage()], tmp_path)


def test_examples_that_have_no_fingerprint():
    class Open(Objective): pass
    with pytest.raises(TypeError, match="neither texts, numbers nor arrays .*range"):
        Task([object()]*9, Open(), batch_size=2).settings()
    class Held(Objective):
        def __init__(self): self.held = object()
    with pytest.raises(TypeError, match="held is of type object, which JSON cannot represent: override"):
        Held().settings()


def test_arrays_are_known_by_their_values():
    class Open(Objective):
        def __init__(self, held): self.held = held
    def settings(examples, held): return Task(examples, Open(held), batch_size=2).settings()
    rows = np.arange(12.).reshape(4, 3)
    ways = [settings(rows, rows), settings(rows + 1, rows), settings(rows, rows + 1),
            settings(rows.astype(np.float32), rows),
            settings([(row, "a text", 1) for row in rows], rows),
            settings([(row, "a text", 2) for row in rows], rows),
            settings(rows, dict(rows=[rows])), settings(rows, None)]
    assert all(first != second for i, first in enumerate(ways) for second in ways[:i])
    assert settings(torch.from_numpy(rows), torch.from_numpy(rows)) == ways[0]
    assert settings(list(rows), rows.copy()) == ways[0]


def test_numbers_of_numpy_are_known_as_those_of_python():
    numbers = (3, np.int64(3)), (.5, np.float32(.5)), (True, np.bool_(True)), (.1, np.float64(.1))
    for ours, theirs in numbers:
        assert fingerprint_examples([("a", ours)]) == fingerprint_examples([("a", theirs)])
        assert fingerprint_examples([ours]) == fingerprint_examples([theirs])
    labels = [("a", 0), ("b", 1)]
    numpy_labels = [(text, np.int64(label)) for text, label in labels]
    for objective in (SupCon(), Classification()):
        for i, (first, second) in enumerate(zip(labels, numpy_labels)):
            targets = [objective.batch([row], BatchRNG(0, 0, [i]), tiny(), None).tensors[-1]
                       for row in (first, second)]
            assert torch.equal(*targets) and targets[0].dtype == torch.int64
        assert Task(labels, objective, 2).settings() == Task(numpy_labels, objective, 2).settings()
    scored = [("a", "b", np.float32(1)), ("b", "c", np.float32(.5))]
    for objective in (CoSENT(), CosineRegression()): objective.check(scored, 2)
    Entailment().check([("a", "b", np.int64(2))], 1)
    for objective, example in ((Classification(), ("a", True)), (Classification(), ("a", np.int64(2))),
                               (SupCon(), ("a", np.float32(1))), (CoSENT(), ("a", "b", np.float32(np.nan)))):
        with pytest.raises(ValueError, match=r"examples\[0\] is"): objective.check([example, example], 2)


def test_autocast_around_a_run_is_refused(tmp_path):
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match="inside torch.autocast"):
        quick(tiny(), [one_stage()], tmp_path/"run")


def test_scrolled_strips_are_refused(tmp_path):
    scrolling = tiny(render=RenderConfig(strategy="words", max_patches=16, long="scroll"))
    with pytest.raises(ValueError, match="long='scroll'"): quick(scrolling, [one_stage()], tmp_path)


def test_a_text_that_a_view_refuses_is_named(tmp_path):
    texts = [*DOCUMENTS[:3], "   ", *DOCUMENTS[3:7]]
    with pytest.raises(ValueError, match=r"stage 'topical', examples\[3\]: "):
        quick(tiny(), [Stage("topical", texts, InfoNCE(Spans()), steps=1, batch_size=8)], tmp_path)
    tasks = [TASK, Task(texts, InfoNCE(Spans()), batch_size=8)]
    with pytest.raises(ValueError, match=r"stage 'both', task 1, examples\[3\]: "):
        quick(tiny(), [Stage("both", tasks=tasks, steps=1)], tmp_path)


# --- divergence ---

class Spoiled(PixelEncoder):
    "An encoder that gives nan for the strips of one length, from some step on."
    calls, fine = 0, 3

    def forward(self, pixels, num_patches, head="drop"):
        out, self.calls = super().forward(pixels, num_patches, head), self.calls + self.training
        spoiled = (num_patches == num_patches.max())[:, None] & (self.calls > self.fine)
        return torch.where(spoiled, torch.nan, out)


def spoiled():
    torch.manual_seed(0)
    encoder = Spoiled(tiny().config, tiny().render_config)
    encoder.load_state_dict(tiny().state_dict())
    return encoder


def test_nan_names_step_and_text_and_the_run_can_go_on(tmp_path):
    pairs = [*PAIRS[:7], ("quiet and cold and warm and small", "cold")]
    stage, encoder = Stage("reasoning", pairs, steps=6, batch_size=8, warmup_steps=1), spoiled()
    with pytest.raises(FloatingPointError) as error: quick(encoder, [stage], tmp_path, save_every=1)
    message = str(error.value)
    assert message.startswith("stage 'reasoning', step 4: the loss is nan")
    assert "1 of 16 embeddings are not finite, the first that of 'quiet and cold" in message
    assert "lower its learning_rate (0.001) or raise its warmup_steps (1)" in message
    assert not encoder.training and all(p.grad is None for p in encoder.parameters())
    assert all(value.isfinite().all() for value in load_file(tmp_path/"state.safetensors").values())
    mended, whole = tiny(), tiny()
    assert quick(mended, [stage], tmp_path) == quick(whole, [stage], tmp_path/"whole")
    assert same(mended.state_dict(), whole.state_dict())


def test_of_several_tasks_the_one_that_diverged_is_named(tmp_path):
    tasks = [TASK, Task(TEXTS, InfoNCE(Same()), 8, learning_rate=.01)]
    for order, where in (("in turn", "stage 'both', task 1, step 2: the loss is nan"),
                         ("together", "stage 'both', task 1, step 2")):
        if order == "together": tasks[1] = Task(TEXTS, InfoNCE(Same()), 8)
        with pytest.raises(FloatingPointError, match=where):
            quick(spoiled(), [Stage("both", tasks=tasks, steps=3, order=order)], tmp_path/order)


def test_an_infinite_gradient_never_reaches_the_weights(tmp_path):
    encoder = tiny()
    before = kept(encoder)
    hook = encoder.vit.layernorm.weight.register_hook(lambda gradient: gradient*torch.inf)
    where = "stage 'reasoning', step 1: the norm of the gradient is (nan|inf)"
    with pytest.raises(FloatingPointError, match=where):
        quick(encoder, [one_stage()], tmp_path)
    hook.remove()
    assert same(encoder.state_dict(), before) and not (tmp_path/"state.safetensors").exists()


def test_dev_scores(tmp_path):
    scores = dict(score=np.float32(.5), n=np.int64(3), by=[1, 2.])
    history = quick(tiny(), [one_stage()], tmp_path/"a", dev=lambda encoder: scores)
    assert history[-1]["dev"] == .5 and history[-1]["dev_scores"] == dict(score=.5, n=3, by=[1, 2.])
    assert type(history[-1]["dev_scores"]["n"]) is int
    assert quick(tiny(), [one_stage()], tmp_path/"a") == history
    with pytest.raises(FloatingPointError, match="dev returned nan"):
        quick(tiny(), [one_stage(keep="best")], tmp_path/"b", dev=lambda encoder: math.nan)
    modes = []
    def look(encoder): return modes.append(encoder.training) or 0.
    quick(tiny(), [one_stage()], tmp_path/"c", dev=look, eval_every=1)
    assert modes == [False]*4
    encoder = tiny()
    def broken(encoder): raise RuntimeError("mine")
    with pytest.raises(RuntimeError, match="mine"): quick(encoder, [one_stage()], tmp_path/"d", dev=broken)
    assert not encoder.training


def test_progress_is_shown_or_not(tmp_path, capfd):
    fit(tiny(), [one_stage()], tmp_path/"a", show_progress=False)
    assert capfd.readouterr() == ("", "")
    fit(tiny(), [one_stage()], tmp_path/"a", resume=False)
    shown = capfd.readouterr().err
    assert "reasoning: 100%" in shown and "examples/s=" in shown and "loss=" in shown
    fit(tiny(), [one_stage()], tmp_path/"b", label="English")
    assert "English (reasoning): 100%" in capfd.readouterr().err



@pytest.mark.parametrize("loss, value", [
    (lambda vectors: vectors.square().sum(1), r"a tensor of shape \(\d+,\)"), (lambda vectors: 3., r"3\.0")])
def test_an_objective_of_ones_own_returns_one_number(loss, value, tmp_path):
    class Vector(InfoNCE):
        def loss(self, encoder, state, batch): return loss(encoder(*batch.tensors))
    with pytest.raises(TypeError, match=f"the loss of Vector is {value}: expected a tensor of one number"):
        quick(tiny(), [one_stage(objective=Vector())], tmp_path)
