"training.objectives: losses against plain references, runs in pieces against unbroken ones, two processes against one; and the attention maps of the encoders. The file is its own worker."
import copy, dataclasses, json, math, os, sys

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers as hf

from sentnb import losses
from sentnb.encoders import PixelConfig, PixelEncoder, TextEncoder
from sentnb.encoders.text import small_text_encoder, train_wordpiece
from sentnb.renderer import RenderConfig
from sentnb.training import AMI, SCD, Branch, ContrastiveTension, MirrorBERT, Momentum, Objective, SimCSE, Stage, fit, micse
from sentnb.training.objectives import read, twin

torch.set_num_threads(1)
WORDS = "red green blue old new big small cold warm quiet".split()
TEXTS = [f"{a} {b}" + " and so on"*(i % 3) for i, (a, b) in enumerate((a, b) for a in WORDS for b in WORDS if a < b)]
SHORT = Momentum(decay=.9, queue=12)


def pixel(dropout=.1, seed=0, **sizes):
    torch.manual_seed(seed)
    sizes = dict(hidden_size=16, num_attention_heads=2, num_hidden_layers=2, intermediate_size=32, max_patches=24, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout) | sizes
    return PixelEncoder(PixelConfig(**sizes), RenderConfig(strategy="words", max_patches=24))

TOKENIZER = train_wordpiece(TEXTS, vocab_size=90)

def text(dropout=.1, seed=0, head=False, **sizes):
    torch.manual_seed(seed)
    made = small_text_encoder(TOKENIZER, **dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, max_length=24, dropout=dropout) | sizes)
    return TextEncoder(made.model, TOKENIZER, head=True, max_length=24) if head else made

def stage(objective, name="stage", **changes):
    view = "single" if objective and objective.columns == (1,) else "same"
    return Stage(name, TEXTS, **(dict(view=view, steps=5, batch_size=9, warmup_steps=1, learning_rate=3e-3, objective=objective) | changes))

def quick(encoder, stages, folder, **options): return fit(encoder, stages, folder, show_progress=False, **options)

def same(a, b): return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


# --- attention maps ---

@pytest.mark.parametrize("make", [pixel, text])
def test_maps_change_no_vector_and_stand_in_the_order_of_the_rows(make, monkeypatch):
    encoder = make(num_hidden_layers=3).eval()
    texts = [TEXTS[i*7 % 45] for i in range(70)]   # two chunks on a CPU, lengths mixed
    tensors, calls, fused = encoder.collate(texts), [], F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: (calls.append(1), fused(*a, **k))[1])
    with torch.no_grad():
        plain = encoder(*tensors)
        every, calls[:] = len(calls), []
        vectors, maps, mask = encoder(*tensors, attention_layers=(2, 0))
        assert every == 6 and len(calls) == 2, "of three layers one stays fused, in both chunks"
        torch.testing.assert_close(vectors, plain, atol=1e-5, rtol=1e-5)
        assert [list(m.shape) for m in maps] == [[70, 2, mask.shape[1], mask.shape[1]]]*2
        for i in (0, 1, 33, 69):   # each row alone
            _, alone, seen = encoder(*encoder.collate([texts[i]]), attention_layers=(2, 0))
            s = int(seen.sum())
            assert int(mask[i].sum()) == s == seen.shape[1]
            for m, a in zip(maps, alone): torch.testing.assert_close(m[i, :, :s, :s], a[0], atol=1e-5, rtol=1e-5)
    for m in maps:
        assert not m.transpose(2, 3)[~mask[:, None].expand(-1, 2, -1)].any(), "nothing looks at padding"
        torch.testing.assert_close(m.sum(-1)[mask[:, None].expand(-1, 2, -1)], torch.ones(2*int(mask.sum())))

@pytest.mark.parametrize("make", [pixel, text])
def test_maps_are_after_dropout_and_carry_gradients(make):
    encoder = make(dropout=.4).train()
    tensors = encoder.collate(TEXTS[:8])
    torch.manual_seed(0)
    _, (m,), mask = encoder(*tensors, attention_layers=[1])
    real = m[(mask[:, None] & mask[:, :, None])[:, None].expand_as(m)]
    assert .3 < float((real == 0).float().mean()) < .5 and float(real.detach().max()) > 1/.6/24
    (m*torch.randn(m.shape)).sum().backward()
    moved = {name for name, p in encoder.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    for kind in ("query.weight", "key.weight"): assert len([name for name in moved if name.endswith(kind)]) == 2
    assert len([name for name in moved if name.endswith("value.weight")]) == 1, "the last layer's values come after its map"

@pytest.mark.parametrize("make", [pixel, text])
def test_layers_that_there_are_not(make):
    encoder = make()
    for wrong in ([], [2], [-1], [0, 0], [.5]):
        with pytest.raises(ValueError, match="of the 2 layers, from 0 to 1"): encoder(*encoder.collate(TEXTS[:2]), attention_layers=wrong)

MODELS = {
    "roberta": lambda: hf.RobertaModel(hf.RobertaConfig(vocab_size=90, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16, max_position_embeddings=40, pad_token_id=0, type_vocab_size=1), add_pooling_layer=False),
    "distilbert": lambda: hf.DistilBertModel(hf.DistilBertConfig(vocab_size=90, dim=16, n_layers=3, n_heads=2, hidden_dim=16, max_position_embeddings=40)),
    "t5": lambda: hf.T5EncoderModel(hf.T5Config(vocab_size=90, d_model=16, d_kv=8, d_ff=16, num_layers=3, num_heads=2, is_encoder_decoder=False)),
    "mpnet": lambda: hf.MPNetModel(hf.MPNetConfig(vocab_size=90, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16, max_position_embeddings=40, pad_token_id=0), add_pooling_layer=False),
}

@pytest.mark.parametrize("kind", MODELS)
def test_maps_of_other_architectures_are_those_of_eager_attention(kind):
    torch.manual_seed(0)
    encoder = TextEncoder(MODELS[kind]().eval(), TOKENIZER, max_length=24)
    before, ids = encoder.settings(), encoder.collate([TEXTS[1], TEXTS[2]])
    with torch.no_grad():
        plain, (vectors, maps, mask) = encoder(*ids), encoder(*ids, attention_layers=[1, 2])
        assert encoder.settings() == before and encoder.model.config._attn_implementation in ("sdpa", "eager")
        if kind != "mpnet": encoder.model.set_attn_implementation("eager")
        eager = encoder.model(input_ids=ids[0], attention_mask=ids[1], output_attentions=True).attentions
    torch.testing.assert_close(vectors, plain, atol=1e-5, rtol=1e-4)
    for m, layer in zip(maps, (1, 2)): torch.testing.assert_close(m*mask[:, None, :, None], eager[layer]*mask[:, None, :, None], atol=1e-5, rtol=1e-4)


# --- losses against references ---

def float_of(loss): return float(loss.detach())

def same_loss(objective, encoder, tensors, columns, state=None, seed=3):
    torch.manual_seed(seed)
    return objective.loss(encoder, objective.state(encoder) if state is None else state, tensors, columns)

@pytest.mark.parametrize("make", [pixel, text, lambda: text(head=True)])
def test_simcse_is_the_papers(make):
    encoder = make().train()
    tensors = encoder.collate(TEXTS[:6]*2)
    torch.manual_seed(3)
    with torch.no_grad(): z = F.normalize(encoder(*tensors, head="keep" if getattr(encoder.config, "head", False) else "drop"), dim=1).double()
    rows = [[math.exp(float(z[i] @ z[6 + j])/.05) for j in range(6)] for i in range(6)]
    expected = -sum(math.log(row[i]/sum(row)) for i, row in enumerate(rows))/6
    assert float_of(same_loss(SimCSE(), encoder, tensors, 2)) == pytest.approx(expected, abs=1e-4)
    assert float_of(same_loss(SimCSE(negatives=False), encoder, tensors, 2)) == pytest.approx(-sum(math.log(row[i]) for i, row in enumerate(rows))/6, abs=1e-4)
    candidates = [[math.exp(float(z[i] @ z[k])/.05) for k in range(12) if k not in (i, (i + 6) % 12)] for i in range(12)]
    printed = sum(math.log(sum(row)) - float(z[i] @ z[(i + 6) % 12])/.05 for i, row in enumerate(candidates))/12
    assert float_of(same_loss(SimCSE(form="printed"), encoder, tensors, 2)) == pytest.approx(printed, abs=1e-4)

@pytest.mark.parametrize("variant, layers", [("paper", (1,)), ("released", (0, 1)), ("paper", (0, 1))])
@pytest.mark.parametrize("objective", [SimCSE(), SimCSE(negatives=False), MirrorBERT(), ContrastiveTension(2), SCD(projection=8)], ids=lambda o: type(o).__name__)
def test_ami_is_subtracted_from_any_of_them(objective, variant, layers):
    "What it adds is the loss function's own value on the maps of the two views, the same cells drawn."
    encoder, columns = text(dropout=.2).train(), objective.columns[0]
    tensors = encoder.collate(TEXTS[:6]*columns)
    ami = AMI(weight=.5, variant=variant, layers=layers, samples=6)
    torch.manual_seed(9)
    state = objective.state(encoder)
    with_it, seen = dataclasses.replace(objective, ami=ami), []
    real = losses.attention.attention_mutual_information
    from sentnb.training import objectives
    def spy(one, two, mask, *a, **k):
        found = real(one, two, mask, *a, **k)
        seen.append((one, two, mask, a, k, float(found.detach())))
        return found
    objectives.attention_mutual_information = spy
    try: value = same_loss(with_it, encoder, tensors, columns, state)
    finally: objectives.attention_mutual_information = real
    (one, two, mask, given, options, information), = seen
    assert len(one) == len(two) == len(layers) and one[0].shape[:2] == (6, 2) and mask.shape == (6, one[0].shape[-1]) and given == (variant,) and options["samples"] == 6
    assert not torch.equal(one[0], two[0]), "two views"
    without = same_loss(dataclasses.replace(with_it, ami=Free(**dataclasses.asdict(ami))), encoder, tensors, columns, state)
    assert information > .01 and float(value.detach()) == pytest.approx(float(without.detach()) - .5*information, abs=1e-5)
    value.backward()
    assert encoder.model.encoder.layer[layers[0]].attention.self.query.weight.grad.abs().sum() > 0

class Free(AMI):
    "Asks for the maps, and adds nothing: dropout falls as it does with the term."
    def term(self, *maps): return torch.zeros(())

def test_ami_adds_minus_its_weight_times_the_information():
    ami, generator = AMI(weight=.25, samples=30), torch.Generator().manual_seed(0)
    one, two = (torch.rand(4, 2, 5, 5, generator=generator).softmax(-1) for _ in range(2))
    mask = torch.ones(4, 5, dtype=torch.bool)
    torch.manual_seed(0); expected = losses.attention_mutual_information([one], [two], mask, samples=30)
    torch.manual_seed(0); assert torch.equal(ami.term([one], [two], mask), -.25*expected)

def test_contrastive_tension_reads_with_two_towers():
    encoder = pixel(dropout=0.).train(); objective = ContrastiveTension(3)
    state, tensors = objective.state(encoder), encoder.collate(TEXTS[:5])
    with torch.no_grad():
        for p in state.tower.parameters(): p.add_(.01)
        a, b = state.tower(*tensors).double(), encoder(*tensors).double()
    expected = sum(math.log1p(math.exp(-float(a[i] @ b[i]))) + sum(math.log1p(math.exp(float(a[i] @ b[(i + k) % 5]))) for k in (1, 2, 3)) for i in range(5))/5
    assert float_of(objective.loss(encoder, state, tensors, 1)) == pytest.approx(expected, rel=1e-5)

def test_scd_reads_with_two_rates_of_the_same_weights():
    encoder = text(dropout=.1).train(); objective = SCD((0., .3), alpha=.5, off_diagonal=.2, projection=8)
    before = encoder.settings()
    state, tensors = objective.state(encoder), encoder.collate(TEXTS[:7])
    assert encoder.settings() == before and encoder.model.config.hidden_dropout_prob == .1
    assert all(a is b for one in state.twins for a, b in zip(one.parameters(), encoder.parameters()))
    assert not [name for name in state.state_dict() if not name.startswith("projector.")]
    torch.manual_seed(3)
    with torch.no_grad():
        a, b = (one(*tensors) for one in state.twins)
        calm = copy.deepcopy(encoder).eval()(*tensors)
        torch.testing.assert_close(a, calm, atol=1e-5, rtol=1e-4)   # rate 0
        c = np.corrcoef(*(F.linear(F.relu(F.batch_norm(F.linear(x, state.projector[0].weight, state.projector[0].bias), None, None, training=True)), state.projector[3].weight, state.projector[3].bias).numpy().T for x in (a, b)))[:8, 8:]
    expected = float(F.cosine_similarity(a, b).mean()) + .5*(((1 - np.diag(c))**2).sum() + .2*(c[~np.eye(8, dtype=bool)]**2).sum())
    assert float_of(same_loss(objective, encoder, tensors, 1, state)) == pytest.approx(expected, rel=1e-3)

def test_mirror_hides_a_span_of_the_second_view():
    import random
    for encoder, hole in ((text(), " [MASK] "), (pixel(), " "*4)):
        for seed in range(30):
            first, second = MirrorBERT(hidden=4).texts((TEXTS[2],)*2, random.Random(seed), encoder)
            assert first == TEXTS[2] and hole in second
            assert any(second == first[:i] + hole + first[i + 4:] for i in range(len(first) - 3))
    assert MirrorBERT(hidden=0).texts(("abcdefgh",)*2, random.Random(0), text()) == ("abcdefgh", "abcdefgh")


# --- with the loop ---

OBJECTIVES = {"micse": (text, micse(momentum=SHORT, ami=AMI(samples=20))), "simcse": (pixel, SimCSE(mlp=True)), "ct": (pixel, ContrastiveTension(3, ami=AMI(samples=20))),
              "mirror": (text, MirrorBERT()), "scd": (text, SCD(projection=12)), "positive": (pixel, SimCSE(negatives=False, ami=AMI(samples=20)))}

@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_run_in_pieces_is_the_unbroken_run(name, tmp_path):
    make, objective = OBJECTIVES[name]
    stages = [stage(objective, "first", steps=3, accumulate=2), stage(None, "between", view="same", steps=2), stage(objective, "last", steps=4)]
    whole, pieces = make(), make()
    settings = whole.settings()
    history = quick(whole, stages, tmp_path/"whole")
    for _ in range(8): found = quick(pieces, stages, tmp_path/"pieces", stop_after=1, save_every=1)   # every step in a run of its own ...
    pieces = make()                                                                                 # ... the last in a new encoder
    found = quick(pieces, stages, tmp_path/"pieces")
    assert found == history and len(history) == 9 and same(whole.state_dict(), pieces.state_dict())
    assert not same(whole.state_dict(), make().state_dict()) and whole.settings() == settings and not whole.training
    assert same(type(whole).from_pretrained(tmp_path/"whole"/"02-last").state_dict(), whole.state_dict()), "nothing of the objective is left in the encoder"
    changed = [dataclasses.replace(s, objective=dataclasses.replace(s.objective, ami=AMI(weight=1.))) if s.objective else s for s in stages]
    with pytest.raises(ValueError, match="other settings.*objective ami"): quick(make(), changed, tmp_path/"whole")

def test_the_queue_fills_and_the_momentum_encoder_follows(tmp_path, monkeypatch):
    encoder, seen = text(), []
    real = SimCSE.after_step
    def watch(self, online, state):
        before, where = state.slow.encoder.state_dict()["model.embeddings.word_embeddings.weight"].clone(), online.model.embeddings.word_embeddings.weight
        real(self, online, state)
        after = state.slow.encoder.model.embeddings.word_embeddings.weight
        torch.testing.assert_close(after, .9*before + .1*where, atol=1e-6, rtol=1e-5)
        assert not torch.equal(after, before)
        seen.append((len(state.queue), state.slow.encoder.config.hidden_dropout_prob, {name for name, p in state.named_parameters() if p.requires_grad}))
    monkeypatch.setattr(SimCSE, "after_step", watch)
    quick(encoder, [stage(micse(momentum=SHORT, ami=None), steps=3, accumulate=2)], tmp_path)
    assert [n for n, _, _ in seen] == [12, 12, 12] and {rate for _, rate, _ in seen} == {.3}
    assert seen[0][2] == {"head.0.weight", "head.0.bias"} and encoder.config.hidden_dropout_prob == .1

def test_training_with_it_raises_the_information_and_is_a_branch_of_its_own(tmp_path):
    found, root = {}, Branch.root(text(), tmp_path)
    for name, ami in (("without", None), ("with", AMI(weight=2.))):
        branch = root.grow("simcse", stage(SimCSE(ami=ami), steps=15), show_progress=False)
        encoder = branch.encoder.train()
        torch.manual_seed(0)
        _, (m,), mask = encoder(*encoder.collate(TEXTS*2), attention_layers=[1])
        found[name] = float_of(losses.attention_mutual_information([m[:45]], [m[45:]], mask[:45], samples=None))
        found[f"{name} key"] = branch.key
    assert found["with"] > 1.1*found["without"] > 0 and found["with key"] != found["without key"]

def test_a_sentence_is_not_its_own_negative():
    encoder = text(dropout=0.).train(); objective = SimCSE(momentum=Momentum(queue=12, dropout=None))
    state, tensors = objective.state(encoder), encoder.collate(TEXTS[:6]*2)
    first = objective.loss(encoder, state, tensors, 2)
    assert float_of(first) == pytest.approx(float_of(losses.simcse(*encoder(*tensors).chunk(2)))) and len(state.queue) == 6
    torch.testing.assert_close(state.queue.rows, encoder(*tensors)[:6].detach())
    assert objective.loss(encoder, state, tensors, 2) > first + .5, "now they are"

def test_heads_are_trained_and_towers_part(tmp_path, monkeypatch):
    kept = []
    for kind in (SimCSE, ContrastiveTension): monkeypatch.setattr(kind, "after_step", lambda self, encoder, state: kept.append({k: v.clone() for k, v in state.state_dict().items()}))
    quick(pixel(), [stage(SimCSE(mlp=True), steps=2)], tmp_path/"simcse")
    assert not torch.equal(kept[0]["head.0.weight"], kept[1]["head.0.weight"])
    encoder = pixel()
    quick(encoder, [stage(ContrastiveTension(2), steps=2)], tmp_path/"ct")
    name = "vit.layernorm.weight"
    assert not torch.equal(kept[2][f"tower.{name}"], kept[3][f"tower.{name}"]) and not torch.equal(kept[3][f"tower.{name}"], encoder.state_dict()[name])

def test_half_precision_and_the_best(tmp_path):
    for name in ("micse", "scd"):
        make, objective = OBJECTIVES[name]
        history = quick(make(), [stage(objective, keep="best")], tmp_path/name, mixed_precision="bf16", dev=lambda e: -float(e.encode(TEXTS[:2])[0, 0]), eval_every=2)
        assert all(math.isfinite(row["loss"]) for row in history) and "dev" in history[1]

def test_an_objective_of_ones_own_and_old_settings(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Pull(Objective):
        strength: float = 2.
        def loss(self, encoder, state, tensors, columns): return self.strength*read(encoder, tensors)[0].square().mean()
    encoder = pixel()
    history = quick(encoder, [stage(Pull(), steps=8, learning_rate=.03)], tmp_path)
    assert history[-1]["loss"] < history[0]["loss"]
    assert stage(Pull()).settings()["objective"] == dict(objective="Pull", strength=2.) and "objective" not in stage(None, view="same").settings()
    assert json.loads(json.dumps(stage(micse()).settings()))["objective"]["ami"]["weight"] == 2.5e-3


# --- errors ---

@pytest.mark.parametrize("options, message", [
    (dict(objective="simcse"), "objective is 'simcse'"), (dict(objective=SimCSE), "objective is <class"),
    (dict(objective=SimCSE(), view="single"), "SimCSE takes 2 or 3 texts of an example, view='single' gives 1"),
    (dict(objective=SCD()), "SCD takes 1 texts.*view='same' gives 2"),
    (dict(objective=SimCSE(), temperature=.1), r"SimCSE\(temperature=...\)"),
    (dict(objective=SCD(), view="masked"), "beside 'masked'"), (dict(objective=SCD(), view="single", targets=np.ones((45, 4))), "beside targets"),
])
def test_stages_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message): Stage("wrong", TEXTS, **(dict(view="same", batch_size=8) | options))

@pytest.mark.parametrize("make, objective, error, message", [
    (pixel, SimCSE(ami=AMI(layers=[2])), ValueError, "stage 'stage': ami looks at the layers 2, the encoder has 2, from 0 to 1"),
    (pixel, SimCSE(ami=AMI(variant="released")), ValueError, "looks at the layers -1, 0"),
    (pixel, ContrastiveTension(9), ValueError, "negatives=9: a batch of 9 texts has from 0 to 8"),
    (lambda: text(head=True), SimCSE(mlp=True), ValueError, "training head of its own"),
    (pixel, Objective(), NotImplementedError, "has no loss"),
])
def test_runs_that_cannot_be(make, objective, error, message, tmp_path):
    with pytest.raises(error, match=message): quick(make(), [stage(objective)], tmp_path/"run")
    assert not (tmp_path/"run"/"state.safetensors").exists()

@pytest.mark.parametrize("wrong, message", [
    (lambda: AMI(variant="mine"), "expected one of paper, released"), (lambda: AMI(weight=0), "weight=0"), (lambda: AMI(samples=0), "samples=0"),
    (lambda: SimCSE(temperature=-1), "temperature=-1"), (lambda: SimCSE(form="x"), "form='x'"), (lambda: SimCSE(negatives=False, momentum=SHORT), "momentum gives negatives"),
    (lambda: MirrorBERT(hidden=-1), "hidden=-1"), (lambda: SCD(dropout=(.1, .1)), "two different rates"), (lambda: SCD(projection=0), "projection=0"),
    (lambda: losses.nt_xent(torch.ones(1, 2), torch.ones(1, 2)), "1 rows: expected at least 2"), (lambda: losses.contrastive_tension(torch.ones(3, 2), torch.ones(3, 2), 3), "0 to 2 others"),
    (lambda: losses.decorrelation(torch.ones(3, 2), torch.ones(2, 2)), "one shape"), (lambda: losses.positive_attraction(torch.ones(3, 2), torch.ones(3, 2), 0.), "temperature=0.0"),
], ids=[str(i) for i in range(13)])
def test_refuses(wrong, message):
    with pytest.raises(ValueError, match=message): wrong()

def test_divergence_names_the_step(tmp_path):
    class Broken(PixelEncoder):
        def forward(self, *a, **k): return super().forward(*a, **k)*torch.nan
    encoder = Broken(pixel().config, pixel().render_config)
    for objective in (SimCSE(), ContrastiveTension(2), MirrorBERT(), SCD(projection=8)):
        with pytest.raises(FloatingPointError, match="stage 'stage', step 1: .*lower its learning_rate"): quick(encoder, [stage(objective)], tmp_path/type(objective).__name__)

def test_a_twin_has_the_weights_and_not_the_rate():
    encoder = pixel(dropout=.1)
    other = twin(encoder, .4)
    with torch.no_grad(): encoder.vit.layernorm.weight.mul_(2)
    assert other.vit.layernorm.weight is encoder.vit.layernorm.weight and (encoder.config.hidden_dropout_prob, other.config.hidden_dropout_prob) == (.1, .4)


# --- two processes ---

def steps(folder):
    "Three stages without dropout, by plain gradient descent: weights and losses."
    torch.optim.AdamW = lambda parameters, weight_decay: torch.optim.SGD(parameters, lr=0., weight_decay=weight_decay)
    encoder = pixel(dropout=0.)
    stages = [stage(SimCSE(mlp=True, momentum=Momentum(decay=.5, dropout=None, queue=12)), "simcse", steps=4, batch_size=7, learning_rate=.05), stage(None, "plain", view="same", steps=1, batch_size=7, learning_rate=.05),
              stage(ContrastiveTension(3), "ct", steps=2, batch_size=7, learning_rate=.05, accumulate=2), stage(MirrorBERT(), "mirror", steps=2, batch_size=8, learning_rate=.05)]
    history = []
    for stop in (2, None): history = quick(encoder, stages, folder/"run", stop_after=stop, save_every=1)
    return dict(losses=np.array([row["loss"] for row in history])) | {k: v.numpy() for k, v in encoder.state_dict().items()}

def worker(rank, folder):
    from pathlib import Path
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    np.savez(f"{folder}/{rank}.npz", **steps(Path(folder)))
    dist.barrier()
    dist.destroy_process_group()

def test_two_processes_are_one(two_processes, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", torch.optim.AdamW)
    begin, first = {k: v.numpy().copy() for k, v in pixel(dropout=0.).state_dict().items()}, two_processes(__file__, tmp_path)
    alone = steps(tmp_path/"alone")
    for out in first:
        for key, value in alone.items(): np.testing.assert_allclose(out[key], value, atol=2e-5, rtol=1e-4, err_msg=key)
    moved = [key for key, value in begin.items() if not np.allclose(value, alone[key], atol=1e-3)]
    assert len(moved) > 10, "the steps are far larger than the tolerance"


if __name__ == "__main__": worker(int(sys.argv[1]), sys.argv[2])
