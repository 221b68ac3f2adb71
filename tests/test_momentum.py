"""The momentum encoder and the queue: the average in closed form, dropout of its own on the encoders we have,
the ring, and two processes. The file is its own worker."""
import copy
import sys
from collections import OrderedDict

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings, strategies as st
from torch import nn

from sentnb.encoders import PixelConfig, PixelEncoder, TextEncoder
from sentnb.encoders.base import set_dropout
from sentnb.encoders.text import small_text_encoder, train_wordpiece
from sentnb.losses import info_nce
from sentnb.training import MomentumEncoder, Queue

torch.set_num_threads(1)


class Tiny(nn.Module):
    def __init__(self, dropout=.1):
        super().__init__()
        self.body, self.norm, self.drop = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(dropout)
        self.head, self.header = nn.Linear(6, 3), nn.Linear(1, 1)

    def forward(self, x, head="drop"):
        states = self.drop(self.norm(self.body(x)))
        return self.head(states) if head == "keep" else states


def tiny(seed=0):
    torch.manual_seed(seed)
    return Tiny()


def move(encoder, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in encoder.parameters(): p.add_(torch.randn(p.shape, generator=generator))


def same_parameters(slow, encoder): # names
    own = slow.encoder.named_parameters()
    return {name for name, parameter in own if torch.equal(parameter, encoder.get_parameter(name))}


@pytest.mark.parametrize("decay", [0., .9, .995])
def test_is_the_exponential_average(decay):
    encoder = tiny()
    slow = MomentumEncoder(encoder, decay)
    expected = {name: p.detach().double().clone() for name, p in encoder.named_parameters()}
    for step in range(7):
        move(encoder, step)
        encoder(torch.randn(8, 4, generator=torch.Generator().manual_seed(step))) # moves the buffers
        assert slow.update(encoder) is slow
        for name, p in encoder.named_parameters():
            expected[name] = decay*expected[name] + (1 - decay)*p.detach().double()
    assert slow.copied == ("head",)
    for name, p in slow.encoder.named_parameters():
        copied = torch.equal(p, encoder.get_parameter(name))
        if name.startswith("head."): assert copied # `header` is another part
        else:
            np.testing.assert_allclose(p, expected[name], atol=1e-6)
            assert decay == 0 or not copied
    for name, buffer in slow.encoder.named_buffers():
        assert torch.equal(buffer, encoder.get_buffer(name)) # those of whole numbers too
    assert slow.encoder.norm.num_batches_tracked == 7


def test_what_is_copied_can_be_named():
    encoder = tiny()
    slow, none = MomentumEncoder(encoder, copied=["body", "norm"]), MomentumEncoder(encoder, copied=[])
    move(encoder, 0)
    for average in (slow, none): average.update(encoder)
    same = same_parameters(slow, encoder)
    assert same == {"body.weight", "body.bias", "norm.weight", "norm.bias"}
    assert not same_parameters(none, encoder)
    with pytest.raises(TypeError, match=r"\['head'\]"): MomentumEncoder(encoder, copied="head")
    with pytest.raises(ValueError, match="'hea'.*body, norm, head, header"):
        MomentumEncoder(encoder, copied=["hea"])


def test_the_encoder_is_left_alone():
    encoder = tiny().eval()
    before = copy.deepcopy(encoder.state_dict())
    slow = MomentumEncoder(encoder)
    assert slow.training and slow.encoder.training and not encoder.training
    x = torch.randn(5, 4)
    slow(x)
    slow.update(encoder)
    weights = {name: value for name, value in encoder.state_dict().items() if not name.startswith("norm.")}
    assert all(torch.equal(value, before[name]) for name, value in weights.items())
    assert encoder.drop.p == .1 and all(p.requires_grad for p in encoder.parameters())
    assert not set(map(id, slow.parameters())) & set(map(id, encoder.parameters()))


def test_no_gradient_and_the_graph_of_the_encoder_survives():
    encoder = tiny()
    slow = MomentumEncoder(encoder)
    x = torch.randn(6, 4)
    z1, z2 = encoder(x, head="keep"), slow(x, head="keep")
    assert z1.requires_grad and not z2.requires_grad
    loss = info_nce(z1, z2, symmetric=False)
    slow.update(encoder) # before the backward pass: of no consequence
    loss.backward()
    assert all(p.grad is None and not p.requires_grad for p in slow.parameters())
    assert encoder.body.weight.grad.abs().max() > 0


def test_state_resumes():
    encoder = tiny()
    slow, queue = MomentumEncoder(encoder), Queue(5, 3)
    for step in range(4):
        move(encoder, step)
        slow.update(encoder)
        queue.push(torch.full((2, 3), float(step)))
    other, ring = MomentumEncoder(tiny(1)), Queue(5, 3)
    for part, saved in ((other, slow.state_dict()), (ring, queue.state_dict())):
        assert all(isinstance(value, torch.Tensor) for value in saved.values()) # what safetensors holds
        part.load_state_dict(saved)
    assert len(ring) == 5 and torch.equal(ring.rows, queue.rows)
    for part in (slow, other): part.update(encoder)
    for part in (queue, ring): part.push(torch.full((2, 3), 9.))
    assert torch.equal(ring.rows, queue.rows)
    assert all(torch.equal(a, b) for a, b in zip(slow.state_dict().values(), other.state_dict().values()))
    with pytest.raises(RuntimeError, match="size mismatch for vectors"):
        Queue(6, 3).load_state_dict(queue.state_dict())


@pytest.mark.parametrize("wrong, error, words", [
    (lambda: MomentumEncoder(tiny(), decay=1.), ValueError, "decay=1.0"),
    (lambda: MomentumEncoder(tiny(), decay=-.1), ValueError, "decay"),
    (lambda: MomentumEncoder(tiny(), dropout=1.), ValueError, "dropout=1.0"),
    (lambda: MomentumEncoder(nn.Linear(2, 2)), ValueError, "Linear has no dropout"),
    (lambda: MomentumEncoder(tiny().half()), TypeError, "body.weight is torch.float16"),
    (lambda: MomentumEncoder(tiny()).update(nn.Linear(4, 6)), ValueError, "differs.*bare encoder"),
    (lambda: Queue(0, 3), ValueError, "size=0"),
    (lambda: Queue(3, 2).push(torch.ones(2, 3)), ValueError, r"\[n, 2\]"),
    (lambda: Queue(3, 2).push(torch.ones(2)), ValueError, r"\[n, 2\]"),
    (lambda: Queue(3, 2).push(torch.ones(2, 2).long()), TypeError, "int64"),
    (lambda: Queue(3, 2).push(None), TypeError, "NoneType"),
], ids=[str(i) for i in range(11)])
def test_refuses(wrong, error, words):
    with pytest.raises(error, match=words): wrong()


def test_without_dropout_of_its_own():
    assert MomentumEncoder(tiny(), dropout=None).encoder.drop.p == .1
    assert MomentumEncoder(nn.Linear(2, 2), dropout=None).encoder.weight.shape == (2, 2)


def small_pixel():
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    encoder = PixelEncoder(PixelConfig(**sizes, head=True, max_patches=16))
    encoder.renderer # made, as after the first text
    return encoder


def small_text():
    torch.manual_seed(0)
    tokenizer = train_wordpiece(["one two three", "two three four"], vocab_size=60)
    bare = small_text_encoder(tokenizer, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
    return TextEncoder(bare.model, bare.tokenizer, head=True)


@pytest.mark.parametrize("make, head", [(small_pixel, "pooler"), (small_text, "head")])
def test_on_our_encoders(make, head):
    "The copy computes what the encoder would with the other rate, and its head is copied."
    encoder = make()
    slow = MomentumEncoder(encoder, dropout=.3)
    assert slow.copied == (head,) and encoder.width == 16
    batch = encoder.collate(["one two", "three"])
    def answer(module, seed=5):
        torch.manual_seed(seed)
        return module(*batch, head="keep").detach()
    encoder.train()
    ours = answer(encoder)
    assert not torch.equal(answer(slow), ours)
    set_dropout(encoder, .3)
    assert torch.equal(answer(slow), answer(encoder))
    set_dropout(encoder, .1)
    assert torch.equal(answer(encoder), ours)
    for module in (slow, encoder): set_dropout(module, 0.)
    assert torch.equal(answer(slow, 1), answer(slow, 2)), "no place was left"
    assert torch.equal(answer(slow), answer(encoder))
    move(encoder, 0)
    slow.update(encoder)
    same = same_parameters(slow, encoder)
    assert same == {name for name, _ in encoder.named_parameters() if name.startswith(f"{head}.")} and same


def test_dropout_counts_its_places_and_frozen_configurations():
    encoder = small_pixel()
    config = encoder.config
    assert set_dropout(encoder, .2) == 2*2 + 2 # two layers of two, and two numbers of the configuration
    assert config.hidden_dropout_prob == .1
    assert encoder.config.hidden_dropout_prob == encoder.config.attention_probs_dropout_prob == .2
    with pytest.raises(ValueError, match="dropout=nan"): set_dropout(encoder, float("nan"))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(size=st.integers(1, 9), batches=st.lists(st.integers(0, 12), max_size=8))
def test_ring_is_the_last_of_all(size, batches):
    queue, everything = Queue(size, 2), []
    assert queue.rows.shape == (0, 2) and len(queue) == 0
    for n in batches:
        numbers = torch.arange(len(everything), len(everything) + n, dtype=torch.float64)
        rows = numbers[:, None]*torch.tensor([1., -1.])
        everything += rows[:, 0].tolist()
        assert queue.push(rows) is queue
        assert queue.rows[:, 0].tolist() == everything[-size:]
        assert torch.equal(queue.rows[:, 1], -queue.rows[:, 0])
        assert len(queue) == min(size, len(everything)) and queue.rows.dtype == torch.float32


def test_vectors_of_unknown_examples_are_nobodys_own():
    queue = Queue(4, 1).push(torch.ones(2, 1)).push(torch.ones(1, 1), torch.tensor([7]))
    assert queue.own_keys(torch.tensor([-1, 7])).tolist() == [[False]*3, [False, False, True]]


def test_ring_keeps_no_gradient_and_gives_a_copy():
    queue = Queue(4, 2)
    x = torch.randn(3, 2, requires_grad=True)
    queue.push(x*2)
    kept = queue.rows
    assert not kept.requires_grad and not list(queue.parameters())
    queue.push(torch.zeros(4, 2))
    assert torch.equal(kept, (x*2).detach()) # what a loss already holds is not overwritten
    loss = info_nce(x, x.flip(0), symmetric=False, queue=queue.rows)
    queue.push(torch.ones(2, 2))
    loss.backward()
    queue.rows.zero_()
    assert queue.rows.sum() == 4


def test_ring_refuses_a_nan_and_stays():
    queue = Queue(4, 2).push(torch.ones(2, 2))
    for bad in (float("nan"), float("inf")):
        with pytest.raises(FloatingPointError, match="row 1 of 2"):
            queue.push(torch.tensor([[1., 1.], [bad, 1.]]))
    assert torch.equal(queue.rows, torch.ones(2, 2))


def steps(rank, ranks, sizes):
    "Three steps on this process's part of each batch: queue, parameters of the momentum encoder, losses."
    torch.manual_seed(0)
    encoder = nn.Sequential(OrderedDict(body=nn.Linear(4, 6), bend=nn.Tanh(), head=nn.Linear(6, 3)))
    slow, queue = MomentumEncoder(encoder, decay=.5, dropout=None), Queue(11, 3)
    local = nn.parallel.DistributedDataParallel(encoder) if ranks > 1 else encoder
    optimiser, losses = torch.optim.SGD(encoder.parameters(), .1), []
    start = sum(sizes[:rank])
    mine = slice(start, start + sizes[rank])
    for step in range(3):
        x = torch.randn(sum(sizes), 4, generator=torch.Generator().manual_seed(step))[mine]
        z = slow(x)
        loss = info_nce(local(x), z, symmetric=False, queue=queue.rows, gathered=True)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        slow.update(encoder)
        queue.push(z)
        losses.append(loss.item())
    parameters = torch.cat([p.flatten() for p in slow.parameters()])
    return dict(rows=queue.rows.numpy(), losses=np.array(losses), parameters=parameters.numpy())


def worker(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = {name: steps(rank, 2, sizes) for name, sizes in SHARES.items()}
    out = {f"{name} {key}": value for name, values in found.items() for key, value in values.items()}
    queue = Queue(4, 1)
    try: queue.push(torch.full((2, 1), float("nan") if rank else 1.))
    except FloatingPointError as error: out["refused"] = np.array(str(error))
    out["after"] = np.array(len(queue))
    np.savez(f"{folder}/{rank}.npz", **out)
    dist.barrier()
    dist.destroy_process_group()

SHARES = {"equal": (4, 4), "uneven": (3, 5)}


@pytest.fixture(scope="module")
def ranks(two_processes, tmp_path_factory): return two_processes(__file__, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("share", SHARES)
def test_two_processes_are_one(ranks, share):
    alone = steps(0, 1, (8,))
    assert len(alone["rows"]) == 11 and np.ptp(alone["losses"]) > 1e-2
    for out in ranks:
        for key, value in alone.items():
            np.testing.assert_allclose(out[f"{share} {key}"], value, atol=2e-6, err_msg=key)


def test_a_nan_of_one_process_is_refused_by_both(ranks):
    for out in ranks: assert str(out["refused"]).startswith("row 2 of 4") and out["after"] == 0


if __name__ == "__main__": worker(int(sys.argv[1]), sys.argv[2])
