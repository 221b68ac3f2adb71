"What a step is: which examples meet, what becomes of them, the loss, the gradient, the rate."
import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from training_runs import (DOCUMENTS, PAIRS, PLACES, TEXTS, TRIPLES, nearness, one_stage, plain_descent,
                           quick, same, tiny, tiny_text)

from sentnb import augmenters
from sentnb.encoders import MaskedAutoencoder, MaskedLanguageModel
from sentnb.losses import info_nce
from sentnb.renderer import RenderConfig
from sentnb.training import (
    BatchRNG,
    Distillation,
    ImageViews,
    InfoNCE,
    Masked,
    Pairs,
    Perturbed,
    Same,
    SimCSE,
    Single,
    Spans,
    Stage,
    Task,
    batch_indices,
    scheduled_learning_rate,
    stages,
)
from sentnb.training.stages import Batches


@pytest.fixture
def descent(monkeypatch): monkeypatch.setattr(torch.optim, "AdamW", plain_descent)


def assert_stepped(encoder, before, rate):
    "Every parameter of `encoder` is that of `before`, a step of plain descent further."
    for (name, after), parameter in zip(encoder.named_parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(after, parameter - rate*parameter.grad, atol=1e-6, rtol=1e-5, msg=name)


# --- one step ---

def manual_loss(encoder, stage, batch, task=0):
    batch_made = Batches(stage, encoder, first=batch, task=task)[0]
    return info_nce(*encoder(*batch_made.tensors).chunk(2))


def test_accumulated_gradients_add_no_negatives(tmp_path, descent):
    stage, rate = one_stage(accumulate=2, steps=1, warmup_steps=0, learning_rate=.5), .5
    encoder, expected = tiny(dropout=0.), tiny(dropout=0.).train()
    losses = [manual_loss(expected, stage, batch) for batch in (0, 1)]
    history = quick(encoder, [stage], tmp_path, max_grad_norm=1e9)
    assert history[0]["loss"] == pytest.approx(float(sum(losses).detach())/2, abs=1e-6)
    (sum(losses)/2).backward()
    assert_stepped(encoder, expected, rate)
    with torch.no_grad():
        together = float(manual_loss(tiny(dropout=0.), dataclasses.replace(stage, batch_size=16), 0))
    assert history[0]["loss"] < together - .1, "16 pairs in one loss are another, larger loss"


TASKS = [Task(TEXTS, InfoNCE(Perturbed("word_shuffle")), 8, .5, warmup_steps=0),
         Task(PAIRS, InfoNCE(), 9, .5, warmup_steps=0)]


def test_tasks_together_are_one_step_of_the_weighted_sum(tmp_path, descent):
    tasks = [dataclasses.replace(task, weight=weight) for task, weight in zip(TASKS, (.25, 2.))]
    stage = Stage("both", tasks=tasks, steps=1, order="together")
    encoder, expected = tiny(dropout=0.), tiny(dropout=0.).train()
    losses = [manual_loss(expected, stage, 0, task) for task in (0, 1)]
    row, = quick(encoder, [stage], tmp_path, max_grad_norm=1e9)
    assert row["losses"] == pytest.approx([float(loss.detach()) for loss in losses], abs=1e-6)
    assert row["loss"] == .25*row["losses"][0] + 2*row["losses"][1]
    (.25*losses[0] + 2*losses[1]).backward()
    assert_stepped(encoder, expected, .5)


def test_tasks_in_turn_are_steps_one_after_the_other(tmp_path, descent):
    tasks = [TASKS[0], dataclasses.replace(TASKS[1], learning_rate=.1)]
    stage, encoder, expected = Stage("both", tasks=tasks, steps=1), tiny(dropout=0.), tiny(dropout=0.).train()
    row, = quick(encoder, [stage], tmp_path, max_grad_norm=1e9)
    for number, task in enumerate(tasks):
        loss = manual_loss(expected, stage, 0, number)
        assert row["losses"][number] == pytest.approx(float(loss.detach()), abs=1e-6)
        loss.backward()
        with torch.no_grad():
            for parameter in expected.parameters(): parameter.sub_(task.learning_rate*parameter.grad)
        expected.zero_grad()
    for (name, after), parameter in zip(encoder.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(after, parameter, atol=1e-6, rtol=1e-5, msg=name)


def test_the_first_task_draws_as_it_would_alone_and_the_second_otherwise():
    encoder, stage = tiny(), Stage("both", tasks=[TASKS[0], TASKS[0]], steps=1)
    alone = Batches(Stage("both", tasks=TASKS[:1], steps=1), encoder)[0].texts
    assert Batches(stage, encoder)[0].texts == alone != Batches(stage, encoder, task=1)[0].texts


def test_a_single_task_can_use_the_random_numbers_of_a_second(tmp_path):
    "Then with the first, which here changes next to nothing, and without it come to the same."
    still = Task(PAIRS, InfoNCE(), 8, learning_rate=1e-12, warmup_steps=0)
    text = Task(TEXTS, SimCSE(mlp=True), 8, .01, warmup_steps=0)
    ends, as_second = {}, dataclasses.replace(text, rng_index=1)
    for name, tasks in dict(both=[still, text], alone=[as_second], own=[text]).items():
        encoder = ends[name] = tiny_text()
        quick(encoder, [Stage("text", tasks=tasks, steps=3)], tmp_path/name)
    def apart(a, b):
        pairs = zip(ends[a].parameters(), ends[b].parameters(), strict=True)
        return max(float((one - other).detach().abs().max()) for one, other in pairs)
    assert apart("both", "alone") < 1e-6 < 1e-3 < apart("both", "own")
    assert (text.settings()["rng_index"], as_second.settings()["rng_index"]) == (None, 1)


def test_gradients_are_clipped(tmp_path, descent):
    encoder, before = tiny(dropout=0.), tiny(dropout=0.)
    quick(encoder, [one_stage(steps=1, warmup_steps=0, learning_rate=1.)], tmp_path, max_grad_norm=.01)
    assert -nearness(encoder, lambda: before)["score"] == pytest.approx(.01, rel=1e-3)


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(0, 60), st.floats(1e-6, 1))
def test_learning_rate(steps, warmup, peak):
    rates = [scheduled_learning_rate(step, steps, peak, warmup) for step in range(steps)]
    assert all(0 < rate <= peak*(1 + 1e-9) for rate in rates)
    up, down = rates[:warmup], rates[warmup:]
    np.testing.assert_allclose(up, [peak*(i + 1)/warmup for i in range(len(up))])
    np.testing.assert_allclose(down, np.linspace(peak, 0, len(down) + 1)[:-1])


def test_a_schedule_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="schedule='lineer': expected one of linear, cosine, inverse"):
        scheduled_learning_rate(3, 10, 1., schedule="lineer")


# --- which examples meet ---

@settings(deadline=None, max_examples=60)
@given(st.data())
def test_batches_are_distinct_and_epochs_whole(data):
    n = data.draw(st.integers(2, 60))
    size, seed, epoch = (data.draw(st.integers(low, high)) for low, high in ((2, n), (0, 2**32 - 1), (0, 5)))
    per_epoch = n//size
    drawn = [batch_indices(n, size, epoch*per_epoch + b, seed) for b in range(per_epoch)]
    assert all(len(batch) == len(set(batch)) == size for batch in drawn)
    together = sum(drawn, [])
    assert len(together) == len(set(together)) == per_epoch*size and set(together) <= set(range(n))
    b = data.draw(st.integers(0, per_epoch - 1))
    stages._shuffled_indices.cache_clear()   # a batch is a function of its number: whatever was asked before
    assert batch_indices(n, size, epoch*per_epoch + b, seed) == drawn[b]


def test_orders_differ_between_epochs_and_seeds():
    epochs = [tuple(batch_indices(30, 30, epoch, seed)) for epoch in range(3) for seed in range(2)]
    assert len(set(epochs)) == 6
    def drawn_in(epoch): return {i for b in range(3) for i in batch_indices(10, 3, 3*epoch + b, 0)}
    union = set().union(*(set(range(10)) - drawn_in(epoch) for epoch in range(40)))
    assert len(union) == 10, "the example that an epoch leaves out is another each time"


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_batch_holds_one_group_and_an_epoch_all_of_them(data):
    size, seed, epoch = (data.draw(st.integers(low, high)) for low, high in ((2, 6), (0, 2**32 - 1), (0, 4)))
    counts = data.draw(st.lists(st.integers(size, 25), min_size=1, max_size=4))
    in_order = [str(label) for label, count in enumerate(counts) for _ in range(count)]
    labels = tuple(data.draw(st.permutations(in_order)))
    per_epoch = sum(count//size for count in counts)
    drawn = [batch_indices(len(labels), size, epoch*per_epoch + b, seed, labels) for b in range(per_epoch)]
    assert all(len(set(batch)) == size and len({labels[i] for i in batch}) == 1 for batch in drawn)
    assert len(set(sum(drawn, []))) == per_epoch*size and {labels[batch[0]] for batch in drawn} == set(labels)
    b = data.draw(st.integers(0, per_epoch - 1))
    stages._group_batches.cache_clear()
    assert batch_indices(len(labels), size, epoch*per_epoch + b, seed, labels) == drawn[b]


@pytest.mark.parametrize("groups, shuffle", [(None, "_shuffled_indices"), (("a", "b")*20, "_group_batches")])
def test_an_epoch_is_shuffled_once_for_each_of_many_tasks(groups, shuffle, monkeypatch):
    calls, original = [], getattr(stages, shuffle)
    def counted(*arguments):
        calls.append(arguments)
        return original(*arguments)
    monkeypatch.setattr(stages, shuffle, counted)
    texts = [f"text {i}" for i in range(40)]
    stage = Stage("many", steps=20, tasks=[Task(texts, InfoNCE(Same()), 4, groups=groups) for _ in range(4)])
    tasks = [Batches(stage, tiny(), seed=1, task=k) for k in range(4)]
    drawn = [[batches[number].texts[:4] for batches in tasks] for number in range(20)]
    assert len(calls) == len(set(calls)) == 2*4   # two epochs of four tasks
    for number, of_tasks in enumerate(drawn):
        for batches, read in zip(tasks, of_tasks):
            rows = batch_indices(40, 4, number, batches.seed, groups)
            assert [texts[i] for i in rows] == read


def test_groups_decide_the_batches_and_the_settings():
    pairs = [(f"text {i}", f"the text {i}") for i in range(16)]
    plain, grouped, other = (Stage("reasoning", pairs, steps=2, batch_size=4, groups=groups)
                             for groups in (None, ["a", "b"]*8, ["a"]*8 + ["b"]*8))
    assert "groups" not in plain.settings() and grouped.settings() != other.settings() != plain.settings()
    places = {text: i for i, (text, _) in enumerate(pairs)}
    for b in range(4): assert len({places[text] % 2 for text in Batches(grouped, tiny())[b].texts[:4]}) == 1


# --- views ---

def tuples_of(view, examples, batch=0):
    batch_made = Batches(Stage("reasoning", examples, InfoNCE(view), batch_size=len(examples)), tiny())[batch]
    return list(zip(*np.array(batch_made.texts).reshape(batch_made.num_views, -1).tolist()))


def test_typos_meet_a_share_of_the_first_members():
    pairs = [(f"somebody reads number {i}", f"number {i} is read") for i in range(200)]
    def changed(rate):
        tuples = tuples_of(Pairs(typo_rate=rate), pairs)
        assert {b for _, b in tuples} == {b for _, b in pairs}, "the second member stays"
        return sum(pair not in pairs for pair in tuples)/200
    assert changed(0.) == 0 and changed(1.) > .95 and .4 < changed(.5) < .6
    view = Pairs(typo_rate=.5)
    assert tuples_of(view, pairs) == tuples_of(view, pairs)
    first, second = ({b: a for a, b in tuples_of(view, pairs, batch)} for batch in (0, 1))
    assert first != second, "other typos in the next epoch"


def test_views():
    from random import Random
    assert Same().texts("a b", Random(0)) == ("a b", "a b") and Single().texts("a", Random(0)) == ("a",)
    assert Pairs().texts(["a", "b", "c"], Random(0)) == ("a", "b", "c")
    first, second = Perturbed("word_shuffle").texts("one two three four", Random(0))
    assert first == "one two three four" and sorted(second.split()) == sorted(first.split())
    drawn = {Perturbed("char_swap", "char_delete").texts("abcd", Random(i))[1] for i in range(40)}
    assert {len(text) for text in drawn} == {3, 4}, "each of the named ones is drawn"
    assert Perturbed() == Perturbed("mixture") != Perturbed("char_swap")
    assert Perturbed(typo_rate=.5).typo_rate == .5
    assert all(span in DOCUMENTS[0] for span in Spans().texts(DOCUMENTS[0], Random(0)))


def test_draws_are_of_the_example_or_of_the_place():
    whole, share = BatchRNG(3, 5, [8, 1, 4], start=0), BatchRNG(3, 5, [4], start=2)
    assert len(whole) == 3 and share[0].random() == whole[2].random() == whole[2].random()
    third = whole.generator("image", 2).random()
    assert share.generator("image").random() == third != whole.generator("mask", 2).random()
    others = [BatchRNG(4, 5, [8])[0], BatchRNG(3, 6, [8])[0], BatchRNG(3, 5, [9])[0], whole[0]]
    assert len({rng.random() for rng in others}) == 4


def test_pairs_and_their_hard_negatives_stay_together():
    encoder = tiny()
    data = Batches(Stage("reasoning", TRIPLES, batch_size=5), encoder, first=3)
    batch = data[0]
    pixels, num_patches = batch.tensors
    columns = np.array(batch.texts).reshape(3, 5)
    assert batch.num_views == 3 and set(map(tuple, columns.T.tolist())) <= set(TRIPLES)
    assert len(data) == 100 - 3
    alone = [encoder.renderer([text]) for text in batch.texts]
    assert num_patches.tolist() == [int(strip.num_patches[0]) for strip in alone]
    for row, strip in zip(pixels.numpy(), alone):
        assert (row[:, :strip.pixels.shape[2]] == strip.pixels[0]).all()


# --- image views: strips changed after they are drawn ---

def image_batch(view, encoder, batch=0, process=0, processes=1):
    stage = Stage("visual", TEXTS, InfoNCE(view), batch_size=8)
    batch_made = Batches(stage, encoder, first=batch, process=process, processes=processes)[0]
    assert batch_made.num_views == 2
    return [tensor.numpy() for tensor in batch_made.tensors]


def continuous(): return tiny(render=RenderConfig(strategy="continuous", max_patches=16))


@pytest.mark.parametrize("names", [*augmenters.IMAGE_AUGMENTERS, "crop blur"])
def test_an_image_view_changes_the_second_strip_only(names):
    pixels, num_patches = image_batch(ImageViews(*names.split()), continuous())
    plain, lengths = image_batch(Same(), continuous())
    assert np.array_equal(pixels[:8], plain[:8]) and np.array_equal(num_patches[:8], lengths[:8])
    assert (pixels[8:] != plain[8:]).any(axis=(1, 2)).all(), "every second strip is another picture"
    assert (num_patches[8:] <= lengths[8:]).all()
    assert names != "crop" or (num_patches[8:] < lengths[8:]).all()
    if names == "vertical_flip":
        for strip, flipped, n in zip(plain[8:], pixels[8:], lengths[8:]):
            assert np.array_equal(flipped[:, :16*n], strip[::-1, :16*n])
    for strip, n in zip(pixels[8:], num_patches[8:]):
        assert not strip[:, 16*n:16*(n + 1)].any(), "the black patch follows the text"


def test_an_image_view_repeats_itself_and_is_the_same_over_processes():
    pixels, num_patches = image_batch(ImageViews(), continuous())
    again, lengths = image_batch(ImageViews(), continuous())
    assert np.array_equal(pixels, again) and np.array_equal(num_patches, lengths)
    other, _ = image_batch(ImageViews(), continuous(), batch=1)
    assert other.shape != pixels.shape or not np.array_equal(other, pixels)
    for rank in range(2):
        part, part_lengths = image_batch(ImageViews(), continuous(), process=rank, processes=2)
        width = part.shape[2]
        for half in range(2):
            mine, whole = slice(4*half, 4*half + 4), slice(8*half + 4*rank, 8*half + 4*rank + 4)
            assert np.array_equal(part_lengths[mine], num_patches[whole]) and width <= pixels.shape[2]
            assert np.array_equal(part[mine], pixels[whole, :, :width])


def test_an_image_view_trains_a_pixel_encoder_and_nothing_else(tmp_path):
    stage = Stage("visual", TEXTS, InfoNCE(ImageViews("crop", "blur")), steps=3, batch_size=8, warmup_steps=1)
    assert len(quick(tiny(), [stage], tmp_path/"pixel")) == 3
    message = "stage 'visual': ImageViews augments rendered strips; a TextEncoder renders none"
    with pytest.raises(TypeError, match=message):
        quick(tiny_text(), [stage], tmp_path/"text")


# --- pre-training ---

def masked_model(kind, seed=0):
    torch.manual_seed(seed)
    if kind == "pixel": return MaskedAutoencoder(tiny(seed=seed), decoder_layers=1, decoder_width=32)
    return MaskedLanguageModel(tiny_text(seed))


@pytest.mark.parametrize("kind", ["pixel", "text"])
def test_pretraining_resumes_in_pieces_bit_for_bit(kind, tmp_path):
    stage = Stage("pretraining", TEXTS, Masked(), steps=30, batch_size=8, learning_rate=1e-2, warmup_steps=2)
    whole, pieces, looked = (masked_model(kind, seed) for seed in range(3))
    history = quick(whole, [stage], tmp_path/"whole", weight_decay=.05)
    assert sum(row["loss"] for row in history[-5:]) < .9*sum(row["loss"] for row in history[:5])
    def go_on(model, stop_after):
        return quick(model, [stage], tmp_path/"pieces", weight_decay=.05, stop_after=stop_after)
    assert go_on(masked_model(kind), 0) == []
    go_on(masked_model(kind), 1)
    for stop_after in (12, 100): resumed = go_on(pieces, stop_after)
    assert resumed == history
    for (name, a), b in zip(whole.state_dict().items(), pieces.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert go_on(looked, 0) == history
    assert all(torch.equal(a, b) for a, b in zip(looked.state_dict().values(), whole.state_dict().values()))
    encoder = type(whole.encoder).from_pretrained(tmp_path/"whole"/"00-pretraining")
    np.testing.assert_allclose(encoder.encode(TEXTS[:3]), whole.encoder.encode(TEXTS[:3]), atol=1e-6)


# --- a teacher ---

def test_a_teacher_draws_every_text_of_an_example_to_its_vector(tmp_path, descent):
    stage = one_stage(Distillation(PLACES, Pairs()), steps=1, warmup_steps=0, learning_rate=.5)
    expected, encoder = tiny(dropout=0.), tiny(dropout=0.)
    rows = batch_indices(len(PAIRS), 8, 0, Batches(stage, expected).seed)
    goals, by_hand = torch.nn.functional.normalize(torch.from_numpy(PLACES[rows]), dim=1), 0.
    for side in (0, 1):   # 2 - 2 cos, by its definition
        vectors = expected(*expected.collate([PAIRS[i][side] for i in rows])).double()
        by_hand = by_hand + (2 - 2*(torch.nn.functional.normalize(vectors, dim=1)*goals).sum(1)).mean()/2
    history = quick(encoder, [stage], tmp_path, max_grad_norm=1e9)
    assert history[0]["loss"] == pytest.approx(by_hand.item(), abs=1e-6)
    by_hand.backward()
    assert_stepped(encoder, expected, .5)


def test_one_text_and_its_vector(tmp_path):
    def lone(vectors):
        return Stage("distillation", TEXTS, Distillation(vectors), steps=40, batch_size=1, learning_rate=1e-2)
    history = quick(tiny(), [lone(PLACES)], tmp_path/"run")
    assert sum(row["loss"] for row in history[-10:]) < .9*sum(row["loss"] for row in history[:10])
    with pytest.raises(ValueError, match="objective vectors"):
        quick(tiny(), [lone(-PLACES)], tmp_path/"run")   # another run
    with pytest.raises(ValueError, match="the teacher's vectors have 8 dimensions, the encoder's 16"):
        quick(tiny(), [lone(PLACES[:, :8])], tmp_path/"other")


# --- precision ---

def test_precisions_follow_one_another_and_leave_no_trace(tmp_path):
    attributes, weights, losses = set(vars(tiny())), {}, {}
    for name, precision in (("a", "no"), ("b", "bf16"), ("c", "no")):   # in one process, as in a notebook
        encoder = tiny()
        history = quick(encoder, [one_stage(), one_stage()], tmp_path/name, mixed_precision=precision)
        weights[name], losses[name] = encoder.state_dict(), [row["loss"] for row in history]
        assert all(value.dtype == torch.float32 for value in weights[name].values())
        assert all(map(math.isfinite, losses[name]))
        assert set(vars(encoder)) == attributes, "nothing of Accelerate stays on the encoder"
        with torch.no_grad(): assert encoder(*encoder.collate(["a text"])).dtype == torch.float32
    assert same(weights["a"], weights["c"]) and losses["a"] == losses["c"]
    assert losses["b"] != losses["a"]
    np.testing.assert_allclose(losses["b"], losses["a"], rtol=.05)


def test_tf32_is_of_the_run_alone(tmp_path):
    seen = []
    def look(encoder): return seen.append(torch.get_float32_matmul_precision()) or 0.
    quick(tiny(), [one_stage()], tmp_path, mixed_precision="tf32", dev=look, stop_after=4)
    def fails(encoder): raise RuntimeError("mine")
    with pytest.raises(RuntimeError, match="mine"):
        quick(tiny(), [one_stage()], tmp_path/"b", mixed_precision="tf32", dev=fails)
    assert seen == ["high"] and torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(ValueError, match="mixed_precision was 'tf32', is 'no'"):
        quick(tiny(), [one_stage()], tmp_path)
    with pytest.raises(ValueError, match="mixed_precision='fp8': expected one of no, tf32, bf16, fp16"):
        quick(tiny(), [one_stage()], tmp_path/"c", mixed_precision="fp8")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["no", "tf32", "bf16", "fp16"])
def test_on_a_gpu(precision, tmp_path):
    quick(tiny(), [one_stage()], tmp_path/"cpu")   # the device of the first run is not that of the second
    stages = [one_stage(steps=20), one_stage(steps=20), Stage("both", tasks=TASKS, steps=5)]
    def run(encoder, folder, **options):
        return quick(encoder, stages, tmp_path/folder, mixed_precision=precision, dev=nearness_cpu,
                     eval_every=5, **options)
    def nearness_cpu(encoder): return nearness(encoder, lambda: tiny().cuda())
    encoder = tiny().cuda()
    history = run(encoder, "gpu")
    assert encoder.device.type == "cuda" and all(math.isfinite(row["loss"]) for row in history)
    run(tiny().cuda(), "pieces", stop_after=27)
    resumed = run(tiny(seed=1).cuda(), "pieces")
    np.testing.assert_allclose([row["loss"] for row in resumed], [row["loss"] for row in history], rtol=1e-3)
