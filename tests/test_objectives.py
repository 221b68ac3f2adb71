"SimCSE and its kin: losses against plain references, runs in pieces against whole ones, two processes."
import copy
import dataclasses
import json
import math
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from siamese_runs import TEXTS, pixel, text, text_with_head
from training_runs import as_rank, both_finish, kept, plain_descent, quick, same, start

from sentnb import losses
from sentnb.encoders import PixelEncoder
from sentnb.training import (AMI, SCD, Batch, Branch, ContrastiveTension, InfoNCE, MirrorBERT, Momentum,
                             Pairs, Same, SimCSE, Single, Stage, TextObjective, micse)
from sentnb.training.simcse import forward_with_maps, second_encoder
from sentnb.training.stages import Batches

torch.set_num_threads(1)
SHORT = Momentum(decay=.9, queue=12)


def stage(objective, name="stage", **changes):
    options = dict(steps=5, batch_size=9, warmup_steps=1, learning_rate=3e-3) | changes
    return Stage(name, TEXTS, objective, **options)


# --- losses against references ---

def float_of(loss): return float(loss.detach())


def batch_of(encoder, texts, views=2):
    return Batch(encoder.collate(list(texts)*views), list(texts)*views, views)


def loss_of(objective, encoder, batch, state=None, seed=3):
    torch.manual_seed(seed)
    return objective.loss(encoder, objective.state(encoder) if state is None else state, batch)


@pytest.mark.parametrize("make", [pixel, text, text_with_head])
def test_simcse_is_the_papers(make):
    encoder = make().train()
    batch = batch_of(encoder, TEXTS[:6])
    torch.manual_seed(3)
    with torch.no_grad():
        z = F.normalize(encoder(*batch.tensors, head="keep" if encoder.has_head else "drop"), dim=1).double()
    rows = [[math.exp(float(z[i] @ z[6 + j])/.05) for j in range(6)] for i in range(6)]
    expected = -sum(math.log(row[i]/sum(row)) for i, row in enumerate(rows))/6
    attracted = -sum(math.log(row[i]) for i, row in enumerate(rows))/6
    released = -sum(math.log(row[i]/(row[i] + 5)) for i, row in enumerate(rows))/6   # e^0 for the five others
    def same_view(i): return sum(math.exp(float(z[i] @ z[k])/.05) for k in range(6) if k != i)
    printed = sum(math.log(same_view(i)) - float(z[i] @ z[i + 6])/.05 for i in range(6))/6
    ways = [({}, expected), (dict(negatives="none"), attracted), (dict(negatives="zeros"), released),
            (dict(form="printed"), printed)]
    for options, value in ways:
        assert float_of(loss_of(SimCSE(**options), encoder, batch)) == pytest.approx(value, abs=1e-4)


class Free(AMI):
    "Asks for the maps, and adds nothing: dropout falls as it does with the term."
    def term(self, *maps): return torch.zeros(())


KIN = [SimCSE(), SimCSE(negatives="zeros"), MirrorBERT(shortest=0), ContrastiveTension(2), SCD(projection=8)]


@pytest.mark.parametrize("variant, layers", [("paper", (1,)), ("released", (0, 1)), ("paper", (0, 1))])
@pytest.mark.parametrize("objective", KIN, ids=lambda o: type(o).__name__)
def test_ami_is_subtracted_from_any_of_them(objective, variant, layers, monkeypatch):
    "What it adds is the loss function's own value on the maps of the two views, the same cells drawn."
    encoder, calls = text(dropout=.2).train(), []
    batch = batch_of(encoder, TEXTS[:6], objective.takes[0])
    ami = AMI(weight=.5, variant=variant, layers=layers, samples=6)
    torch.manual_seed(9)
    state, with_it = objective.state(encoder), dataclasses.replace(objective, ami=ami)
    real = losses.mutual_information.attention_mutual_information
    def spy(first, second, mask, *other_arguments, **options):
        information = real(first, second, mask, *other_arguments, **options)
        calls.append((first, second, mask, other_arguments, options, float_of(information)))
        return information
    with monkeypatch.context() as patched:
        patched.setattr("sentnb.training.simcse.attention_mutual_information", spy)
        value = loss_of(with_it, encoder, batch, state)
    (first, second, mask, other_arguments, options, information), = calls
    assert len(first) == len(second) == len(layers) and first[0].shape[:2] == (6, 2)
    assert mask.shape == (6, first[0].shape[-1]) and other_arguments == (variant,) and options["samples"] == 6
    assert not torch.equal(first[0], second[0]), "two views"
    free = dataclasses.replace(with_it, ami=Free(**dataclasses.asdict(ami)))
    without = float_of(loss_of(free, encoder, batch, state))
    assert information > .01 and float_of(value) == pytest.approx(without - .5*information, abs=1e-5)
    value.backward()
    assert encoder.model.encoder.layer[layers[0]].attention.self.query.weight.grad.abs().sum() > 0


def test_ami_adds_minus_its_weight_times_the_information():
    ami, generator = AMI(weight=.25, samples=30), torch.Generator().manual_seed(0)
    first, second = (torch.rand(4, 2, 5, 5, generator=generator).softmax(-1) for _ in range(2))
    mask = torch.ones(4, 5, dtype=torch.bool)
    torch.manual_seed(0)
    expected = losses.attention_mutual_information([first], [second], mask, samples=30)
    torch.manual_seed(0)
    assert torch.equal(ami.term([first], [second], mask), -.25*expected)


def test_contrastive_tension_reads_with_two_towers():
    encoder, objective = pixel(dropout=0.).train(), ContrastiveTension(3)
    state, batch = objective.state(encoder), batch_of(encoder, TEXTS[:5], 1)
    with torch.no_grad():
        for p in state.tower.parameters(): p.add_(.01)
        a, b = state.tower(*batch.tensors).double(), encoder(*batch.tensors).double()
    def softplus(x): return math.log1p(math.exp(float(x)))
    def cost(i): return softplus(-a[i] @ b[i]) + sum(softplus(a[i] @ b[(i + k) % 5]) for k in (1, 2, 3))
    expected = sum(map(cost, range(5)))/5
    assert float_of(objective.loss(encoder, state, batch)) == pytest.approx(expected, rel=1e-5)


def test_contrastive_tension_as_released_draws_further_pairs():
    encoder, objective = pixel(dropout=.2).train(), ContrastiveTension(2, "released", dropout=0.)
    state, batch = objective.state(encoder), batch_of(encoder, TEXTS[:10], 1)
    with torch.no_grad():
        for p in state.tower.parameters(): p.add_(.01)
        a = copy.deepcopy(state.tower).eval()(*batch.tensors).double()
        b = copy.deepcopy(encoder).eval()(*batch.tensors).double()
    def softplus(x): return math.log1p(math.exp(float(x)))
    pairs = [(g, g, 1) for g in (0, 5)] + [(g + k, g + k + 2, -1) for g in (0, 5) for k in (1, 2)]
    expected = sum(softplus(-sign*(a[i] @ b[j])) for i, j, sign in pairs)/6
    assert float_of(objective.loss(encoder, state, batch)) == pytest.approx(expected, rel=1e-5)


def test_scd_reads_with_two_rates_of_the_same_weights():
    options = dict(temperature=.2, alpha=.5, off_diagonal=.2, projection=8)
    encoder, objective = text(dropout=.1).train(), SCD((0., .3), **options)
    before = encoder.settings()
    state, batch = objective.state(encoder), batch_of(encoder, TEXTS[:7], 1)
    assert encoder.settings() == before and encoder.model.config.hidden_dropout_prob == .1
    assert all(a is b for reader in state.encoders for a, b in zip(reader.parameters(), encoder.parameters()))
    assert not [name for name in state.state_dict() if not name.startswith("projector.")]
    first, _, _, second, _, _, last = state.projector
    assert second.bias is None and last.bias is None
    def normed(x): return F.relu(F.batch_norm(x, None, None, training=True))
    def project(x):
        hidden = normed(F.linear(normed(F.linear(x, first.weight, first.bias)), second.weight))
        return F.linear(hidden, last.weight).numpy().T
    torch.manual_seed(3)
    with torch.no_grad():
        a, b = (reader(*batch.tensors) for reader in state.encoders)
        calm = copy.deepcopy(encoder).eval()(*batch.tensors)
        torch.testing.assert_close(a, calm, atol=1e-5, rtol=1e-4)   # rate 0
        c = np.corrcoef(project(a), project(b))[:8, 8:]
    apart = ((1 - np.diag(c))**2).sum() + .2*(c[~np.eye(8, dtype=bool)]**2).sum()
    expected = float(F.cosine_similarity(a, b).mean())/.2 + .5*apart
    assert float_of(loss_of(objective, encoder, batch, state)) == pytest.approx(expected, rel=1e-3)


def test_mirror_hides_a_span_of_the_second_view():
    for encoder, hole in ((text(), " [MASK] "), (pixel(), " "*4)):
        for seed in range(30):
            objective = MirrorBERT(hidden=4, shortest=len(TEXTS[2]))
            first, second = objective.texts((TEXTS[2],)*2, random.Random(seed), encoder)
            assert first == TEXTS[2] and hole in second
            assert any(second == first[:i] + hole + first[i + 4:] for i in range(len(first) - 3))
    for objective in (MirrorBERT(hidden=0, shortest=0), MirrorBERT(shortest=9), MirrorBERT()):
        assert objective.texts(("abcdefgh",)*2, random.Random(0), text()) == ("abcdefgh", "abcdefgh")


def test_a_sentence_is_not_its_own_negative():
    encoder, objective = text(dropout=0.).train(), SimCSE(momentum=Momentum(queue=12, dropout=None))
    state, batch = objective.state(encoder), batch_of(encoder, TEXTS[:6])
    first, vectors = objective.loss(encoder, state, batch), encoder(*batch.tensors)
    assert float_of(first) == pytest.approx(float_of(losses.simcse(*vectors.chunk(2))))
    assert len(state.queue) == 6
    torch.testing.assert_close(state.queue.rows, vectors[:6].detach())
    assert objective.loss(encoder, state, batch) > first + .5, "of unknown examples they are"


def own_negatives(objective, knows, batches=200):
    "How many anchors meet a vector of their own sentence: 32 sentences, batch 16, queue 16, as at 0.1 %."
    few = [f"{text} {number}" for text in TEXTS[:16] for number in (1, 2)]
    low_shot = Stage("few", few, objective, steps=batches, batch_size=16)
    encoder = text(dropout=0.).train()
    state, counts = objective.state(encoder), []
    for _, batch in zip(range(batches), Batches(low_shot, encoder, 0)):
        examples = torch.tensor(batch.examples)
        own = state.queue.examples[None] == examples[:, None]
        left_out = objective.earlier_vectors(state, examples if knows else None).get("own_keys")
        counts.append(int((own if left_out is None else own & ~left_out).sum()))
        vectors = torch.from_numpy(np.eye(16, encoder.width, dtype=np.float32))
        state.queue.push(vectors, examples)
    return counts


@pytest.mark.parametrize("form", ["simcse", "printed"])
def test_no_sentence_of_a_low_shot_set_is_its_own_negative(form):
    objective = SimCSE(form=form, momentum=Momentum(queue=16))
    assert sum(own_negatives(objective, knows=True)) == 0
    assert sum(own_negatives(objective, knows=False)) > 200, "half of the batches have some"


@pytest.mark.parametrize("form", ["simcse", "printed"])
def test_own_vectors_in_the_queue_do_not_change_the_loss(form):
    "A batch of known examples, its own vectors in the queue, against a float64 reference without them."
    objective = SimCSE(form=form, momentum=Momentum(queue=12, dropout=None))
    encoder = text(dropout=0.).train()
    state, batch = objective.state(encoder), batch_of(encoder, TEXTS[:6])
    batch = dataclasses.replace(batch, examples=tuple(range(6)))
    state.queue.push(torch.randn(4, encoder.width), torch.tensor([9, 0, 3, 9]))
    queue = F.normalize(state.queue.rows.double(), dim=1)
    with torch.no_grad(): z = F.normalize(encoder(*batch.tensors).double(), dim=1)
    total = 0.
    for i in range(6):
        keys = [queue[k] for k, example in enumerate([9, 0, 3, 9]) if example != i]
        near = [z[6 + j] for j in range(6)] if form == "simcse" else [z[j] for j in range(6) if j != i]
        candidates = sum(math.exp(float(z[i] @ v)/.05) for v in [*near, *keys])
        total += math.log(candidates) - float(z[i] @ z[6 + i])/.05
    assert float_of(objective.loss(encoder, state, batch)) == pytest.approx(total/6, abs=1e-4)
    assert state.queue.examples.tolist() == [9, 0, 3, 9, 0, 1, 2, 3, 4, 5]


def test_hard_negatives_are_of_the_anchor():
    encoder = text(dropout=0.).train()
    batch = Batch(encoder.collate(TEXTS[:9]), TEXTS[:9], 3)
    expected = losses.simcse(*encoder(*batch.tensors).chunk(3))
    torch.testing.assert_close(loss_of(SimCSE(view=Pairs()), encoder, batch), expected)


# --- with the loop ---

OBJECTIVES = {
    "micse": (text, micse(momentum=SHORT, ami=AMI(samples=20))),
    "simcse": (pixel, SimCSE(mlp=True)),
    "ct": (pixel, ContrastiveTension(3, ami=AMI(samples=20))),
    "mirror": (text, MirrorBERT()),
    "scd": (text, SCD(projection=12)),
    "positive": (pixel, SimCSE(negatives="zeros", ami=AMI(samples=20))),
    "released": (pixel, ContrastiveTension(1, "released", dropout=0.)),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_run_in_pieces_is_the_unbroken_run(name, tmp_path):
    make, objective = OBJECTIVES[name]
    stages = [stage(objective, "first", steps=3, accumulate=2), stage(InfoNCE(Same()), "between", steps=2),
              stage(objective, "last", steps=4)]
    whole, pieces = make(), make()
    settings = whole.settings()
    history = quick(whole, stages, tmp_path/"whole")
    for _ in range(8):   # each step a run of its own, the last in a new encoder
        quick(pieces, stages, tmp_path/"pieces", stop_after=1, save_every=1)
    pieces = make()
    assert quick(pieces, stages, tmp_path/"pieces") == history and len(history) == 9
    assert same(whole.state_dict(), pieces.state_dict())
    assert not same(whole.state_dict(), make().state_dict())
    assert whole.settings() == settings and not whole.training
    saved = type(whole).from_pretrained(tmp_path/"whole"/"02-last").state_dict()
    assert same(saved, whole.state_dict()), "nothing of the objective is left in the encoder"
    other = dataclasses.replace(objective, ami=AMI(weight=1.))
    changed = [dataclasses.replace(stages[0], objective=other), *stages[1:]]
    with pytest.raises(ValueError, match="other settings.*objective ami"):
        quick(make(), changed, tmp_path/"whole")


def test_the_queue_fills_and_the_momentum_encoder_follows(tmp_path, monkeypatch):
    encoder, seen, follow = text(), [], SimCSE.after_step
    def watch(self, online, state):
        slow, weight = state.slow.encoder, "model.embeddings.word_embeddings.weight"
        before = slow.state_dict()[weight].clone()
        follow(self, online, state)
        after = slow.state_dict()[weight]
        torch.testing.assert_close(after, .9*before + .1*online.state_dict()[weight], atol=1e-6, rtol=1e-5)
        assert not torch.equal(after, before)
        trained = {name for name, p in state.named_parameters() if p.requires_grad}
        seen.append((len(state.queue), slow.config.hidden_dropout_prob, trained))
    monkeypatch.setattr(SimCSE, "after_step", watch)
    quick(encoder, [stage(micse(momentum=SHORT, ami=None), steps=3, accumulate=2)], tmp_path)
    assert [n for n, _, _ in seen] == [12, 12, 12] and {rate for _, rate, _ in seen} == {.3}
    assert seen[0][2] == {"head.0.weight", "head.0.bias"} and encoder.config.hidden_dropout_prob == .1


def test_training_with_it_raises_the_information_and_is_a_branch_of_its_own(tmp_path):
    information, keys, root = {}, set(), Branch.root(text(), tmp_path)
    for name, ami in (("without", None), ("with", AMI(weight=2.))):
        branch = root.grow("simcse", stage(SimCSE(ami=ami), steps=15), show_progress=False)
        encoder = branch.encoder.train()
        torch.manual_seed(0)
        _, (m,), mask = encoder(*encoder.collate(TEXTS*2), attention_layers=[1])
        shared = losses.attention_mutual_information([m[:45]], [m[45:]], mask[:45], samples=None)
        information[name] = float_of(shared)
        keys.add(branch.key)
    assert information["with"] > 1.1*information["without"] > 0 and len(keys) == 2


def test_heads_are_trained_and_towers_part(tmp_path, monkeypatch):
    states = []
    for kind in (SimCSE, ContrastiveTension):
        monkeypatch.setattr(kind, "after_step", lambda self, encoder, state: states.append(kept(state)))
    quick(pixel(), [stage(SimCSE(mlp=True), steps=2)], tmp_path/"simcse")
    assert not torch.equal(states[0]["head.0.weight"], states[1]["head.0.weight"])
    encoder, name = pixel(), "vit.layernorm.weight"
    quick(encoder, [stage(ContrastiveTension(2), steps=2)], tmp_path/"ct")
    before, after = states[2][f"tower.{name}"], states[3][f"tower.{name}"]
    assert not torch.equal(before, after) and not torch.equal(after, encoder.state_dict()[name])


@pytest.mark.parametrize("name", ["micse", "scd"])
def test_half_precision_and_the_best(name, tmp_path):
    make, objective = OBJECTIVES[name]
    def dev(encoder): return -float(encoder.encode(TEXTS[:2])[0, 0])
    options = dict(mixed_precision="bf16", dev=dev, eval_every=2)
    history = quick(make(), [stage(objective, keep="best")], tmp_path, **options)
    assert all(math.isfinite(row["loss"]) for row in history) and "dev" in history[1]


def test_an_objective_of_ones_own_over_texts(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Pull(TextObjective):
        strength: float = 2.
        view: Single = Single()
        takes = (1,)
        def loss(self, encoder, state, batch):
            return self.strength*forward_with_maps(encoder, batch.tensors)[0].square().mean()
    history = quick(pixel(), [stage(Pull(), steps=8, learning_rate=.03)], tmp_path)
    assert history[-1]["loss"] < history[0]["loss"]
    settings = stage(Pull()).settings()["tasks"][0]["objective"]
    assert settings == dict(objective="Pull", strength=2., view=dict(view="Single", typo_rate=0.))
    assert json.loads(json.dumps(micse().settings()))["ami"]["weight"] == 2.5e-3


# --- errors ---

@pytest.mark.parametrize("objective, message", [
    (SimCSE(view=Single()), "SimCSE expects 2 or 3 texts for each example, Single returns 1"),
    (SCD(view=Same()), "SCD expects 1 texts for each example, Same returns 2"),
    (MirrorBERT(view=Single()), "MirrorBERT expects 2 texts"),
    (ContrastiveTension(9), "negatives=9: expected 0 to 8, because a batch has 9 texts"),
    (ContrastiveTension(3, "released"), "batch_size=9: expected a multiple of 7 texts"),
])
def test_stages_that_cannot_be(objective, message):
    with pytest.raises(ValueError, match=message): stage(objective)


def test_hard_negatives_are_for_one_form():
    triples = [(a, b, c) for a, b, c in zip(TEXTS, TEXTS[1:], TEXTS[2:])]
    for objective in (SimCSE(view=Pairs(), negatives="zeros"), SimCSE(view=Pairs(), form="printed")):
        with pytest.raises(ValueError, match="hard negatives need"):
            Stage("stage", triples, objective, batch_size=9)


@pytest.mark.parametrize("make, objective, error, message", [
    (pixel, SimCSE(ami=AMI(layers=[2])), ValueError,
     "stage 'stage': ami uses the layers 2, but the encoder has the layers 0 to 1"),
    (pixel, SimCSE(ami=AMI(variant="released")), ValueError, "uses the layers -1, 0"),
    (text_with_head, SimCSE(mlp=True), ValueError, "already has a training head"),
])
def test_runs_that_cannot_be(make, objective, error, message, tmp_path):
    with pytest.raises(error, match=message): quick(make(), [stage(objective)], tmp_path/"run")
    assert not (tmp_path/"run"/"state.safetensors").exists()


def test_an_encoder_without_maps_is_refused(tmp_path):
    class Closed(PixelEncoder): num_layers = 0
    encoder = Closed(pixel().config, pixel().render_config)
    with pytest.raises(TypeError, match="ami needs attention maps, and Closed returns none"):
        quick(encoder, [stage(SimCSE(ami=AMI()))], tmp_path)


@pytest.mark.parametrize("wrong, message", [
    (lambda: AMI(variant="mine"), "expected one of paper, released"),
    (lambda: AMI(weight=0), "weight=0"),
    (lambda: AMI(samples=0), "samples=0"),
    (lambda: SimCSE(temperature=-1), "temperature=-1"),
    (lambda: SimCSE(form="x"), "form='x'"),
    (lambda: SimCSE(negatives="none", momentum=SHORT), "momentum adds negatives"),
    (lambda: SimCSE(negatives=False), "negatives=False: expected one of batch, zeros, none"),
    (lambda: MirrorBERT(hidden=-1), "hidden=-1"),
    (lambda: SCD(dropout=(.1, .1)), "two different rates"),
    (lambda: SCD(projection=0), "projection=0"),
    (lambda: losses.nt_xent(torch.ones(1, 2), torch.ones(1, 2)), "1 rows: expected at least 2"),
    (lambda: losses.contrastive_tension(torch.ones(3, 2), torch.ones(3, 2), 3), "expected from 0 to 2"),
    (lambda: losses.contrastive_tension(torch.ones(3, 2), torch.ones(3, 2), -1, "released"), "negatives=-1"),
    (lambda: losses.contrastive_tension(torch.ones(3, 2), torch.ones(3, 2), 1.5), "negatives=1.5"),
    (lambda: AMI(samples=2.5), "samples=2.5: expected an integer of at least 1"),
    (lambda: AMI(pool_heads=0), "pool_heads=0"),
    (lambda: Momentum(decay=2), "decay=2: expected a number from 0 to below 1"),
    (lambda: Momentum(dropout=1.), "dropout=1.0"),
    (lambda: Momentum(queue=0), "queue=0"),
    (lambda: ContrastiveTension(dropout=1.), "dropout=1.0: expected a number from 0 to below 1"),
    (lambda: SimCSE(negatives="zeros", form="printed"), "form='printed' has the negatives of the batch"),
    (lambda: losses.decorrelation(torch.ones(3, 2), torch.ones(2, 2)), "b has 2 rows, a has 3"),
    (lambda: losses.positive_attraction(torch.ones(3, 2), torch.ones(3, 2), 0.), "temperature=0.0"),
], ids=[str(i) for i in range(23)])
def test_refuses(wrong, message):
    with pytest.raises(ValueError, match=message): wrong()


@pytest.mark.parametrize("objective", [KIN[0], *KIN[2:]], ids=lambda o: type(o).__name__)
def test_divergence_names_the_step_and_the_text(objective, tmp_path):
    class Broken(PixelEncoder):
        def forward(self, *a, **k): return super().forward(*a, **k)*torch.nan
    encoder = Broken(pixel().config, pixel().render_config)
    where = "stage 'stage', step 1: .*not finite.*lower its learning_rate"
    with pytest.raises(FloatingPointError, match=where):
        quick(encoder, [stage(objective)], tmp_path)


def test_a_second_encoder_shares_the_weights_and_not_the_dropout():
    encoder = pixel(dropout=.1)
    other = second_encoder(encoder, .4)
    with torch.no_grad(): encoder.vit.layernorm.weight.mul_(2)
    assert other.vit.layernorm.weight is encoder.vit.layernorm.weight
    assert (encoder.config.hidden_dropout_prob, other.config.hidden_dropout_prob) == (.1, .4)


# --- two processes ---

def four_stages(folder):
    "Without dropout, by plain gradient descent: losses and weights."
    torch.optim.AdamW = plain_descent
    encoder, options = pixel(dropout=0.), dict(batch_size=7, learning_rate=.05)
    slow = Momentum(decay=.5, dropout=None, queue=12)
    stages = [stage(SimCSE(mlp=True, momentum=slow), "simcse", steps=4, **options),
              stage(InfoNCE(Same()), "plain", steps=1, **options),
              stage(ContrastiveTension(3), "ct", steps=2, accumulate=2, **options),
              stage(MirrorBERT(), "mirror", steps=2, **(options | dict(batch_size=8)))]
    for stop in (2, None): history = quick(encoder, stages, folder/"run", stop_after=stop, save_every=1)
    return kept(encoder) | dict(losses=torch.tensor([row["loss"] for row in history]))


def run_as_rank(rank, folder):
    as_rank(rank, folder)
    save_file(four_stages(folder), folder/f"{rank}.safetensors")
    torch.distributed.destroy_process_group()


def test_two_processes_are_one(tmp_path, monkeypatch):
    both_finish([start(run_as_rank, rank, tmp_path) for rank in range(2)])
    monkeypatch.setattr(torch.optim, "AdamW", torch.optim.AdamW)   # put back when the test is over
    begin, alone = kept(pixel(dropout=0.)), four_stages(tmp_path/"alone")
    for rank in range(2):
        for name, value in load_file(tmp_path/f"{rank}.safetensors").items():
            torch.testing.assert_close(value, alone[name], atol=2e-5, rtol=1e-4, msg=name)
    moved = [name for name, value in begin.items() if not torch.allclose(value, alone[name], atol=1e-3)]
    assert len(moved) > 10, "the steps are far larger than the tolerance"
