"encoders.base, checkpoints, attention: each distinct text once, weights by their digest, maps in order."
import contextlib
import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from sentnb.encoders import base
from sentnb.encoders.attention_maps import attend, map_layers, rejoin
from sentnb.encoders.base import (
    SentenceEncoder,
    distinct_vectors,
    length_chunks,
    track_chunks,
    encode_texts,
    windows,
)
from sentnb.encoders.checkpoints import tensors_to_save, weights_digest

few = settings(max_examples=40, deadline=None, derandomize=True)
some_texts = st.lists(st.text("abc", max_size=3), max_size=12)


class Counting(SentenceEncoder):
    "Length and first letter of a text; remembers what it was asked for."
    width = 2

    def __init__(self): self.asked = []

    def encode(self, texts, **options):
        self.asked.append((list(texts), options))
        return super().encode(texts)

    def encode_window(self, texts, batch_size, normalize, head):
        return np.array([[1 + len(text), ord(text[:1] or " ")] for text in texts], np.float32)


@few
@given(some_texts)
def test_each_distinct_text_is_encoded_once_the_shortest_first(texts):
    encoder = Counting()
    vectors = encode_texts(encoder, iter(texts), head="keep")
    assert vectors.dtype == np.float64
    assert vectors.tolist() == [[1 + len(text), ord(text[:1] or " ")] for text in texts]
    assert encoder.asked == [(sorted(set(texts), key=lambda text: (len(text), text)), dict(head="keep"))]


@few
@given(some_texts)
def test_rows_say_whose_vector_it_is(texts):
    encoder = Counting()
    vectors, rows = distinct_vectors(encoder, texts, order="given", dtype=np.float32)
    assert vectors.dtype == np.float32 and rows.dtype == np.int64 and vectors.shape == (len(set(texts)), 2)
    assert encoder.asked == [(list(dict.fromkeys(texts)), {})]
    assert [encoder.asked[0][0][row] for row in rows] == texts


class Bar(contextlib.nullcontext):
    "What `encode` moves."
    def __init__(self): self.moves = []
    def __enter__(self): return self
    def update(self, count): self.moves.append(count)

    @property
    def n(self): return sum(self.moves)


def test_the_bar_moves_by_the_batch(monkeypatch):
    class Scrolling(Counting):
        def encode_window(self, texts, batch_size, normalize, head):
            strips = [i for i, text in enumerate(texts) for _ in range(1 + len(text))]
            for chunk in track_chunks([strips[k:k + 4] for k in range(0, len(strips), 4)], len(texts)): pass
            return super().encode_window(texts, batch_size, normalize, head)
    for encoder, moves in ((Scrolling(), [1, 2, 0, 1, 1, 1, 0]), (Counting(), [3, 3])):
        bar = Bar()
        monkeypatch.setattr(base, "progress", lambda *shown, **options: bar)
        SentenceEncoder.encode(encoder, ["", "abc", "a", "", "abcd", "ab"], window=3)
        assert bar.moves == moves


class Gives:
    "Anything with encode."
    def __init__(self, vectors): self.vectors = vectors
    def encode(self, texts): return self.vectors


@pytest.mark.parametrize("vectors, options, message", [
    (np.ones(2), {}, r"shape \(2,\) for 2 sentences"),
    (np.ones((3, 4)), {}, r"shape \(3, 4\) for 2 sentences"),
    ([[1., 1.], [0., 0.]], {}, "1 vectors that are zero or not finite, the first for 'longer'"),
    ([[np.nan, 1.], [1., 1.]], {}, "zero or not finite, the first for 'a'"),
    ([[1., 1.], [np.inf, 1.]], dict(zeros=True), "1 vectors that are not finite, the first for 'longer'"),
    ([[1., 1.], [1e60, 1.]], dict(dtype=np.float32), "not finite, the first for 'longer'"),
    (np.ones((2, 4)), dict(order="longest"), "order='longest': expected one of shortest, given"),
])
@pytest.mark.filterwarnings("ignore:overflow")
def test_vectors_that_would_spoil_a_score_are_refused(vectors, options, message):
    with pytest.raises(ValueError, match=message): encode_texts(Gives(vectors), ["longer", "a"], **options)


def test_zeros_pass_where_they_may():
    vectors = encode_texts(Gives([[0., 0.], [1., 2.]]), ["longer", "a"], zeros=True)
    assert vectors.tolist() == [[1., 2.], [0., 0.]]


@pytest.mark.parametrize("call", [
    lambda texts: encode_texts(Counting(), texts), lambda texts: list(windows(texts, 2)), Counting().encode],
    ids=["encode_texts", "windows", "encode"])
def test_only_texts_are_encoded(call):
    for texts, message in (("one text", "texts is one str"), (["a", None], r"texts\[1\] is NoneType")):
        with pytest.raises(TypeError, match=message): call(texts)


def test_the_digest_is_that_of_the_branches_that_were_trained():
    "Keys of trained branches hold it: it must not change."
    model = nn.ModuleDict(dict(b=nn.Linear(2, 3), a=nn.BatchNorm1d(2)))
    expected = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        expected.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode() + tensor.numpy().tobytes())
    before = weights_digest(model)
    assert before == expected.hexdigest()[:16] == weights_digest(model)
    assert weights_digest(model.half()) != before


@few
@given(st.lists(st.integers(1, 6), min_size=1, max_size=9), st.integers(1, 4), st.integers(0, 2**31))
def test_rows_come_back_in_their_order(lengths, size, seed):
    torch.manual_seed(seed)
    chunks, parts, n, s = length_chunks(torch.tensor(lengths), size), [], len(lengths), max(lengths)
    vectors, maps = torch.randn(n, 3), torch.rand(n, 2, s, s)
    seen = torch.arange(s) < torch.tensor(lengths)[:, None]
    maps = maps*(seen[:, None, None] & seen[:, None, :, None])
    for rows in chunks:
        width = max(lengths[row] for row in rows)
        parts.append((vectors[rows], seen[rows, :width], {1: maps[rows, :, :width, :width]}))
    together, (attention,), mask = rejoin(parts, chunks, s)
    assert torch.equal(together, vectors) and torch.equal(attention, maps) and torch.equal(mask, seen)
    assert torch.equal(rejoin([(part[0], part[1], None) for part in parts], chunks, s), vectors)


def test_attention_by_plain_products():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 5, 4)
    mask = torch.rand(2, 1, 5, 5) > .3
    mask |= torch.eye(5, dtype=torch.bool)
    expected = nn.functional.scaled_dot_product_attention(q, k, v, mask)
    states, weights = attend(q, k, v, mask)
    torch.testing.assert_close(states, expected)
    assert (weights[~mask.expand_as(weights)] == 0).all()
    assert attend(q.bfloat16(), k.bfloat16(), v.bfloat16())[1].dtype == torch.float32
    assert map_layers(None, 3) is None
    assert map_layers([2, 0], 3) == {2: None, 0: None} == map_layers(range(0, 3, 2), 3)


def test_evaluating_restores_the_mode_of_each_module():
    model = nn.Sequential(nn.Dropout(.5), nn.Dropout(.5).eval())
    with pytest.raises(KeyError), base.evaluating(model):
        assert not any(module.training for module in model.modules())
        raise KeyError
    assert [module.training for module in model.modules()] == [True, True, False]


def test_only_equal_tensors_are_tied():
    square = torch.arange(4.).view(2, 2)
    state = dict(a=square, tied=square, b=square.T, empty=torch.zeros(0), other=torch.zeros(0))
    tensors = tensors_to_save(state)
    assert list(tensors) == ["a", "b", "empty", "other"] and torch.equal(tensors["b"], square.T)
