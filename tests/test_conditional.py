"""CMLM: the loss by its formula, what reaches what, order and masks from the seed, folders, runs that are
killed, two processes."""
import contextlib
import json
import multiprocessing
import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from siamese_runs import TEXTS, TOKENIZER, text
from tiny_text import tiny_roberta
from training_runs import PAIRS, Death, as_rank, both_finish, finish, kept, plain_descent, quick, same, start
from transformers import (
    AutoModelForMaskedLM, BertModel, DebertaConfig, DebertaModel, RemBertConfig, RemBertModel)

from sentnb.encoders import ConditionalMaskedLanguageModel, MaskedLanguageModel, TextEncoder
from sentnb.encoders.adapters import sentence_transformer
from sentnb.encoders.base import check_encoder
from sentnb.encoders.conditional import (
    ATTENTION, CONCATENATED, MASK_RATIO, POOLED, VARIANTS, Projections)
from sentnb.experiments.files import load_encoder
from sentnb.training import AdditiveMargin, ConditionalMasked, BatchRNG, Masked, Pairs, Spans, Stage, Task

pytestmark = pytest.mark.usefixtures("one_thread")

LINES = [" ".join(TEXTS[i:i + 1 + i % 3]) for i in range(len(TEXTS))]   # of several lengths
NEIGHBOURS = list(zip(LINES, LINES[7:] + LINES[:7]))


def conditional(variant="concatenated", projections=3, make=text, **options):
    options = dict(dropout=0., initializer_range=.2) | options if make is text else options
    mlm = MaskedLanguageModel(make(**options) if make is text else make(TOKENIZER), MASK_RATIO)
    torch.manual_seed(1)
    return ConditionalMaskedLanguageModel(mlm, projections, variant).eval()


def batch_of(model, pairs=NEIGHBOURS, seed=0):
    return model.conditional_batch(*zip(*pairs), random.Random(seed))


# --- the formula, in float64, pair by pair, without padding ---

class Reference:
    "BERT, and what CMLM lays around it, from the weights."
    def __init__(self, model):
        self.weights = {name: value.double() for name, value in model.state_dict().items()}
        self.config, self.variant, self.count = model.config, model.variant, model.projections.count
        self.pooling, roberta = model.encoder.pooling, model.config.model_type == "roberta"
        self.first = 1 + self.config.pad_token_id if roberta else 0
        self.head = ("mlm.decoder.dense", "mlm.decoder.layer_norm", "mlm.decoder.bias") if roberta else (
            "mlm.decoder.predictions.transform.dense", "mlm.decoder.predictions.transform.LayerNorm",
            "mlm.decoder.predictions.bias")

    def linear(self, x, name): return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x, name):
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + self.config.layer_norm_eps).sqrt()
        return centred/scale*self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def gelu(self, x): return x*(1 + torch.erf(x/2**.5))/2

    def tokens(self, ids): return self.weights["mlm.encoder.model.embeddings.word_embeddings.weight"][ids]

    def states(self, vectors, places): # [s, d]
        own = "mlm.encoder.model.embeddings."
        x = vectors + self.weights[f"{own}position_embeddings.weight"][self.first + torch.tensor(places)]
        x = self.norm(x + self.weights[f"{own}token_type_embeddings.weight"][0], f"{own}LayerNorm")
        for k in range(self.config.num_hidden_layers):
            layer, heads = f"mlm.encoder.model.encoder.layer.{k}.", []
            names = (f"{layer}attention.self.{name}" for name in ("query", "key", "value"))
            query, key, value = (self.linear(x, name) for name in names)
            for each in torch.arange(x.shape[1]).chunk(self.config.num_attention_heads):
                scores = query[:, each] @ key[:, each].T/len(each)**.5
                weights = scores.exp()/scores.exp().sum(1, keepdim=True)
                heads.append(weights @ value[:, each])
            x = self.norm(x + self.linear(torch.cat(heads, 1), f"{layer}attention.output.dense"),
                          f"{layer}attention.output.LayerNorm")
            wide = self.gelu(self.linear(x, f"{layer}intermediate.dense"))
            x = self.norm(x + self.linear(wide, f"{layer}output.dense"), f"{layer}output.LayerNorm")
        return x

    def projections(self, ids): # [N, d]
        states = self.states(self.tokens(ids), range(len(ids)))
        ways = dict(mean=lambda: states.mean(0), max=lambda: states.max(0).values, cls=lambda: states[0])
        vector = hidden = ways[self.pooling]()
        if self.count == 1: return vector[None]
        for k in (0, 2): hidden = self.linear(hidden, f"projections.mlp.{k}").clamp(min=0)
        return torch.cat([vector, self.linear(hidden, "projections.mlp.4")]).view(self.count, -1)

    def losses(self, first, second, labels): # one for each masked token
        spaces, tokens = self.projections(first), self.tokens(second)
        positions = [0]*self.count + [*range(len(second))]
        states = self.states(torch.cat([spaces, tokens]), positions)[self.count:]
        if self.variant == "skip":   # "also concatenated with the sequence outputs" (section 5.1)
            repeated = spaces.flatten().expand(len(second), -1)
            states = self.linear(torch.cat([states, repeated], 1), "projections.joint")
        dense, norm, bias = self.head
        states = self.norm(self.gelu(self.linear(states, dense)), norm)
        scores = states @ self.tokens(torch.arange(self.config.vocab_size)).T + self.weights[bias]
        shares = scores.exp()/scores.exp().sum(1, keepdim=True)
        return [-shares[k, label].log() for k, label in enumerate(labels.tolist()) if label != -100]

    def loss(self, batch):
        first, first_mask, second, second_mask, labels = batch
        n, m = first_mask.sum(1), second_mask.sum(1)
        losses = [loss for k in range(len(first))
                  for loss in self.losses(first[k, :n[k]], second[k, :m[k]], labels[k, :m[k]])]
        return sum(losses)/len(losses)


@pytest.mark.parametrize("options", [
    {}, dict(projections=1), dict(projections=15), dict(pooling="max"), dict(pooling="cls", variant="skip"),
    dict(variant="averaged"), dict(make=tiny_roberta)], ids=lambda options: "-".join(options) or "as it is")
def test_the_loss_is_that_of_the_formula(options):
    model = conditional(**options)
    batch = batch_of(model)
    assert len({*batch[3].sum(1).tolist()}) > 3, "rows of several lengths"
    with torch.no_grad(): loss, expected = model.conditional_loss(*batch), Reference(model).loss(batch)
    assert loss.dtype == torch.float32 and loss.shape == ()
    assert float(loss) == pytest.approx(float(expected), rel=2e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_is_nearly_the_same_in_half_precision(variant):
    model = conditional(variant)
    batch = batch_of(model)
    with torch.autocast("cpu", torch.bfloat16): loss = model.conditional_loss(*batch)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, model.conditional_loss(*batch), atol=.02, rtol=.02)


# --- what reaches what ---

@pytest.mark.parametrize("variant", ["concatenated", "skip"])
def test_the_gradient_reaches_each_token_of_both_sentences(variant):
    model = conditional(variant)
    pairs = [("red green blue old", "small cold"), ("warm", "quiet new red green")]
    first, first_mask, second, second_mask, labels = batch_of(model, pairs)
    outputs = []
    def keep(module, inputs, output):
        output.retain_grad()
        outputs.append(output)
    handle = model.encoder.model.get_input_embeddings().register_forward_hook(keep)
    model.conditional_loss(first, first_mask, second, second_mask, labels).backward()
    handle.remove()
    assert len(outputs) == 2, "each sentence is read once"
    for tokens, mask in zip(outputs, (first_mask, second_mask)):   # rows are computed shortest first
        reached = tokens.grad.abs().sum(2) > 0
        assert torch.equal(reached, mask[mask.sum(1).argsort()].bool()), "all tokens, and no padding"
    for name, parameter in model.projections.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_sentence_read_first_changes_the_prediction(variant):
    model = conditional(variant)
    first, first_mask, *second = batch_of(model)
    with torch.no_grad():
        right = model.conditional_loss(first, first_mask, *second)
        other = model.conditional_loss(first.roll(1, 0), first_mask.roll(1, 0), *second)
        assert abs(right - other) > 1e-4
        model.projections.mlp[4].weight[16:].mul_(-1)   # the third of the three
        assert abs(right - model.conditional_loss(first, first_mask, *second)) > 1e-4
        again = model.mlm(*second)   # without any neighbour
    assert abs(right - again) > 1e-4


def test_projections_are_the_vector_and_others():
    torch.manual_seed(0)
    vectors = torch.randn(5, 8)
    projected = Projections(8, 4)(vectors)
    assert projected.shape == (5, 4, 8) and torch.equal(projected[:, 0], vectors)
    assert all((projected[:, k] - projected[:, j]).abs().max() > .1 for k in range(4) for j in range(k))
    with pytest.raises(ValueError, match="projections=2.5"): Projections(8, 2.5)


def test_so_many_tokens_are_masked_as_the_paper_says():
    model = conditional()
    long = [("red", " ".join(["red green"]*count)) for count in (4, 8, 11)]
    ids, labels = model.collate([second for _, second in long])[0], batch_of(model, long)[4]
    ordinary = [(row > 4).sum().item() for row in ids]
    assert (labels != -100).sum(1).tolist() == [round(80/256*n) for n in ordinary] != [0, 0, 0]


# --- the objective ---

def test_half_of_the_pairs_are_swapped_and_all_is_drawn_from_the_seed():
    model, objective = conditional(), ConditionalMasked()
    pairs = NEIGHBOURS*8
    def make_batch(seed, batch, rows=slice(None), of_objective=objective):
        rows = range(len(pairs))[rows]
        return of_objective.batch([pairs[k] for k in rows], BatchRNG(seed, batch, rows, rows.start), model,
                                  None)
    whole = make_batch(0, 3)
    first, second = np.array(whole.texts).reshape(2, -1)
    swapped = np.array([(b, a) == pair for a, b, pair in zip(first, second, pairs)])
    ordered = np.array([(a, b) == pair for a, b, pair in zip(first, second, pairs)])
    assert (swapped ^ ordered).all() and abs(swapped.mean() - .5) < 4*np.sqrt(.25/len(pairs))
    again = make_batch(0, 3)
    assert again.texts == whole.texts and all(map(torch.equal, again.tensors, whole.tensors))
    assert make_batch(0, 4).texts != whole.texts != make_batch(1, 3).texts
    parts = [make_batch(0, 3, slice(0, 100)), make_batch(0, 3, slice(100, None))]   # two processes
    assert sum((part.texts[:len(part.texts)//2] for part in parts), []) == first.tolist()
    hidden_words = [row[row != -100].tolist() for part in parts for row in part.tensors[4]]
    assert hidden_words == [row[row != -100].tolist() for row in whole.tensors[4]]
    for share, expected in ((0., [pair[0] for pair in pairs]), (1., [pair[1] for pair in pairs])):
        assert make_batch(0, 3, of_objective=ConditionalMasked(swapped=share)).texts[:len(pairs)] == expected
    label, ids = whole.tensors[4], model.collate(second.tolist())[0]
    assert torch.equal(label[label != -100], ids[label != -100]), "labels are of the second sentence"


def test_any_view_of_two_texts_makes_neighbours():
    model, documents = conditional(), [" ".join(["red green blue old"]*8)]*4
    batch = ConditionalMasked(Spans()).batch(documents, BatchRNG(0, 0, range(4)), model, None)
    assert len(batch.texts) == 8 and all(text in documents[0] for text in batch.texts)


def test_what_it_cannot_train_on_is_refused(tmp_path):
    for wrong in ([("a", "b", "c")], ["a text"], [("a", 1)]):
        with pytest.raises(ValueError, match="stage 'x'"):
            Stage("x", wrong, ConditionalMasked(), batch_size=1)
    with pytest.raises(ValueError, match="swapped=-1"): ConditionalMasked(swapped=-1)
    with pytest.raises(TypeError, match="not a MaskedLanguageModel"):
        quick(conditional().mlm, [of_pairs()], tmp_path)
    with pytest.raises(ValueError, match="max_length=99"):
        quick(conditional(), [of_pairs(max_length=99)], tmp_path)
    with pytest.raises(ValueError, match="examples.0. is tuple; Masked expects one str"):
        Stage("plain", NEIGHBOURS, Masked(), batch_size=8)


def of_pairs(objective=None, **changes):
    options = dict(steps=4, batch_size=7, warmup_steps=0, learning_rate=.1) | changes
    return Stage("pairs", NEIGHBOURS, objective or ConditionalMasked(), **options)


def test_plain_masking_trains_the_model_within_and_no_projection(tmp_path):
    model = conditional()
    before = kept(model)
    quick(model.mlm, [Stage("plain", LINES, Masked(), steps=2, batch_size=8)], tmp_path)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and all(name.startswith("mlm.") for name in changed)


def test_with_retrieval_the_losses_are_added_with_their_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", plain_descent)
    options = dict(batch_size=7, learning_rate=.1, warmup_steps=0)
    tasks = [Task(NEIGHBOURS, ConditionalMasked(), **options),
             Task(PAIRS, AdditiveMargin(scale=5.), weight=.3, **options)]
    model = conditional()
    history = quick(model, [Stage("both", tasks=tasks, order="together", steps=1)], tmp_path)
    cmlm, retrieval = history[0]["losses"]
    assert history[0]["loss"] == pytest.approx(cmlm + .3*retrieval, abs=1e-6)
    assert retrieval > 1 and cmlm > 1
    alone = conditional()
    quick(alone, [Stage("both", tasks=tasks[:1], order="together", steps=1)], tmp_path/"alone")
    assert not same(alone.encoder.state_dict(), model.encoder.state_dict())


# --- an encoder, and folders ---

def warns_of_projections():
    return pytest.warns(UserWarning, match="variant='averaged'.*ConditionalMaskedLanguageModel")


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_encodes_as_its_encoder_and_a_saved_one_goes_on(variant, tmp_path):
    model = conditional(variant, pooling="max")
    check_encoder(model, "training on texts")
    inner, batch = model.encoder.encode(LINES, normalize=False), batch_of(model)
    vectors = model.encode(LINES, normalize=False)
    with torch.no_grad():
        if variant == "averaged": inner = model.projections(torch.from_numpy(inner)).mean(1).numpy()
        np.testing.assert_allclose(vectors, inner, atol=1e-6)
        np.testing.assert_allclose(model(*model.collate(LINES)), inner, atol=1e-5)
        vectors, maps, mask = model(*model.collate(LINES[:3]), attention_layers=[1])
        np.testing.assert_allclose(vectors, inner[:3], atol=1e-5)
        assert maps[0].shape[0] == len(mask) == 3
    np.testing.assert_allclose(np.linalg.norm(model.encode(LINES), axis=1), 1, atol=1e-6)
    saved = model.save_pretrained(tmp_path/"m")
    again = ConditionalMaskedLanguageModel.from_pretrained(saved)
    assert again.settings() == model.settings() and same(again.state_dict(), model.state_dict())
    assert not again.training and again.accuracy(NEIGHBOURS) == model.accuracy(NEIGHBOURS)
    assert torch.equal(again.conditional_loss(*batch), model.conditional_loss(*batch))
    expectation = warns_of_projections if variant == "averaged" else contextlib.nullcontext
    with expectation(): encoder = TextEncoder.from_pretrained(saved)
    assert encoder.pooling == "max"
    np.testing.assert_array_equal(encoder.encode(LINES), model.encoder.encode(LINES))
    assert same(MaskedLanguageModel.from_pretrained(saved).state_dict(), model.mlm.state_dict())
    _, info = AutoModelForMaskedLM.from_pretrained(saved, output_loading_info=True)
    assert not info["missing_keys"]


def test_a_folder_says_what_it_lacks_and_takes_other_masking(tmp_path):
    model = conditional()
    model.save_pretrained(tmp_path/"m", half=True)
    again = ConditionalMaskedLanguageModel.from_pretrained(tmp_path/"m", mask_ratio=100/256)
    assert again.mlm.mask_ratio == 100/256
    weight = again.projections.mlm if hasattr(again.projections, "mlm") else again.projections.mlp[0].weight
    torch.testing.assert_close(weight, model.projections.mlp[0].weight, atol=0, rtol=2**-7)
    model.mlm.save_pretrained(tmp_path/"plain")
    with pytest.raises(ValueError, match="plain has no projections; create new ones"):
        ConditionalMaskedLanguageModel.from_pretrained(tmp_path/"plain")


@pytest.mark.filterwarnings("error::UserWarning")
def test_what_averages_is_loaded_as_it_encodes_whoever_asks(tmp_path):
    "The inner encoder has other vectors: loading it alone gives a message."
    model = conditional("averaged")
    saved = str(model.save_pretrained(tmp_path/"m"))
    loaded = load_encoder(saved, device="cpu")
    assert isinstance(loaded, ConditionalMaskedLanguageModel) and not loaded.training
    np.testing.assert_array_equal(loaded.encode(LINES), model.encode(LINES))
    with warns_of_projections(): inner_encoder = TextEncoder.from_pretrained(saved)
    assert not np.allclose(inner_encoder.encode(LINES), model.encode(LINES), atol=.01)
    with pytest.raises(ValueError, match="more than max_length"):
        load_encoder(saved, "error").encode(["a "*999])
    with pytest.raises(ValueError, match="long='scroll'"): load_encoder(saved, "scroll")
    for plain in (conditional("skip"), model.mlm):
        assert type(load_encoder(str(plain.save_pretrained(tmp_path/"plain")))) is TextEncoder


def test_what_encodes_is_an_encoder_to_sentence_transformers(tmp_path):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is an extra")
    model = conditional(pooling="max")
    model.save_pretrained(tmp_path/"m")
    theirs = sentence_transformer(TextEncoder.from_pretrained(tmp_path/"m"))
    vectors = theirs.encode(LINES, normalize_embeddings=True)
    np.testing.assert_allclose(vectors, model.encode(LINES), atol=1e-6)


def test_the_folder_itself_is_one_to_sentence_transformers(tmp_path):
    "A plain encoder, pooled by the mean, as it reads any folder of transformers."
    theirs = pytest.importorskip("sentence_transformers", reason="sentence-transformers is an extra")
    model = conditional()
    model.save_pretrained(tmp_path/"m")
    vectors = theirs.SentenceTransformer(str(tmp_path/"m")).encode(LINES, normalize_embeddings=True)
    np.testing.assert_allclose(vectors, model.encode(LINES), atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_reaches_what(variant):
    "The second sentence attends to the projections alone; `skip` also appends them to masked states."
    first, second = LINES[1], f"{LINES[2]} {TOKENIZER.mask_token}"
    model = conditional(variant)
    labels, rows, table = model.attention_table(first, second)
    m, n = (len(model.encoder.token_ids([text])[0]) for text in (first, second))
    assert rows == [*range(m + 3 + n)] and len(labels) > len(rows) and labels[m:m + 3] == ["p1", "p2", "p3"]
    assert table.shape == (len(rows), len(labels)) and not table[:, len(rows):].any(), "nobody sees padding"
    assert (table[:m, :m] == ATTENTION).all() and not table[:m, m:].any() and not table[m + 3:, :m].any()
    assert (table[m:m + 3, :m] == POOLED).all() and (table[m + 3:, m + 3:len(rows)] == ATTENTION).all()
    masks = np.array([label == TOKENIZER.mask_token for label in labels[m + 3:len(rows)]])
    assert masks.sum() == 1
    projections = table[m + 3:, m:m + 3]
    assert (projections[~masks] == ATTENTION).all()
    assert (projections[masks] == (CONCATENATED if variant == "skip" else ATTENTION)).all()


def narrow(): # its tokens have fewer dimensions than its states
    return RemBertModel(RemBertConfig(
        vocab_size=len(TOKENIZER), hidden_size=32, input_embedding_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=64, output_embedding_size=16, max_position_embeddings=24))


def without_positions(): # it looks at distances
    return DebertaModel(DebertaConfig(
        vocab_size=len(TOKENIZER), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=24, position_biased_input=False))


class TokensAlone(BertModel):
    def forward(self, input_ids, attention_mask): return super().forward(input_ids, attention_mask)


def without_vectors(): return TokensAlone(text().config, add_pooling_layer=False)


@pytest.mark.parametrize("make, message", [
    (without_vectors, "TokensAlone does not accept inputs_embeds and position_ids"),
    (narrow, "tokens have 16 dimensions and sentence vectors 32"),
    (without_positions, "DebertaModel has no position embeddings")])
def test_a_model_that_cannot_read_vectors_is_refused(make, message):
    mlm = MaskedLanguageModel(TextEncoder(make(), TOKENIZER, max_length=20))
    with pytest.raises(ValueError, match=message): ConditionalMaskedLanguageModel(mlm)


# --- runs ---

STAGES = [of_pairs(steps=5, learning_rate=1e-2), Stage("both", order="together", steps=4, tasks=[
    Task(NEIGHBOURS, ConditionalMasked(), 7, .01, 1, accumulate=2),
    Task(PAIRS, AdditiveMargin(Pairs(typo_rate=.3)), 9, .01, 1, weight=.5)])]


def run_and_keep(folder, moment=None):
    "Train, and only at the end leave weights and history."
    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)
    if moment: Death(moment).arm()
    model = conditional("skip" if folder.name == "skip" else "concatenated", dropout=.1)
    history = quick(model, STAGES, folder, save_every=2)
    save_file(kept(model), folder/"final.safetensors")
    (folder/"history.json").write_text(json.dumps(history))


def test_killed_and_resumed_is_never_stopped(tmp_path):
    finish(start(run_and_keep, tmp_path/"whole"))
    for moment in ("step 4", "saved 2", "step 3"): # in the first stage, at its last save, in the second
        finish(start(run_and_keep, tmp_path/"killed", moment), -9)
    assert not (tmp_path/"killed"/"final.safetensors").exists()
    finish(start(run_and_keep, tmp_path/"killed"))
    whole, killed = (load_file(tmp_path/name/"final.safetensors") for name in ("whole", "killed"))
    assert same(whole, killed)
    texts = [(tmp_path/name/"history.json").read_text() for name in ("whole", "killed")]
    assert texts[0] == texts[1] and len(json.loads(texts[0])) == 9
    begin = kept(conditional(dropout=.1))
    assert not any(torch.equal(whole[name], begin[name]) for name in begin if "projections.mlp" in name)


def run_as_rank(rank, folder):
    as_rank(rank, folder)
    torch.optim.AdamW = plain_descent
    for variant in ("concatenated", "skip"):
        model = conditional(variant)
        history = quick(model, [of_pairs()], folder/variant)
        losses = dict(losses=torch.tensor([row["loss"] for row in history]))
        save_file(kept(model) | losses, folder/f"{variant}-{rank}.safetensors")
    torch.distributed.destroy_process_group()


def test_two_processes_are_one(tmp_path, monkeypatch):
    both_finish([start(run_as_rank, rank, tmp_path) for rank in range(2)])
    monkeypatch.setattr(torch.optim, "AdamW", plain_descent)
    for variant in ("concatenated", "skip"):
        first, second = (load_file(tmp_path/f"{variant}-{rank}.safetensors") for rank in range(2))
        assert same(first, second)
        model = conditional(variant)
        before = kept(model)
        history = quick(model, [of_pairs()], tmp_path/f"one-{variant}")
        np.testing.assert_allclose(first["losses"], [row["loss"] for row in history], atol=5e-6)
        for name, value in model.state_dict().items():
            torch.testing.assert_close(first[name], value, atol=5e-6, rtol=1e-5, msg=name)
        moved = [name for name in before if not torch.allclose(first[name], before[name], atol=1e-4)]
        assert len(moved) > 10, "the steps are far larger than the tolerance"