"""The states of words: the same words for tokens and patches, and means that a loop would give."""
import numpy as np
import pytest
import torch

from sentnb.encoders import PixelConfig, PixelEncoder, WordTeacher, small_text_encoder, train_wordpiece
from sentnb.encoders.words import patch_shares, piece_shares, word_spans, word_states
from sentnb.renderer import RenderConfig
from sentnb.renderer.config import clean
from sentnb.training import BatchRNG, WordDistillation, word_distillation

TEXTS = ["A plane takes off.", "飞机 takes off\tagain,  twice", "हवाई जहाज़ उड़ रहा है।", "The", "",
         "one two three four five six seven eight nine ten eleven twelve thirteen"]


@pytest.fixture(scope="module")
def tokens():
    torch.manual_seed(0)
    tokenizer = train_wordpiece([*TEXTS, "飞 机 off, again , twice", "ten eleven"], vocab_size=120)
    return small_text_encoder(tokenizer, hidden_size=32, num_hidden_layers=2, num_attention_heads=2).eval()


def student(**drawn):
    torch.manual_seed(1)
    return PixelEncoder(PixelConfig(32, 2, 2, 64, max_patches=24),
                        RenderConfig(strategy="words", max_patches=24, **drawn)).eval()


@pytest.mark.parametrize("punctuation", [False, True])
def test_words_of_tokens_and_of_patches_are_the_same(tokens, punctuation):
    encoder, texts = student(split_punctuation=punctuation), [clean(text) for text in TEXTS]
    own = patch_shares(encoder, texts, 24)
    theirs = piece_shares(tokens, texts, punctuation=punctuation)
    assert own.shape[:2] == theirs.shape[:2]
    for text, patches in zip(texts, own):
        words = [text[a:b] for a, b in word_spans(text, punctuation)]
        assert words == [word for word, _ in encoder.renderer.word_patches(text)]
        room, whole = 23, []
        for word, n in encoder.renderer.word_patches(text):
            room -= n
            whole.append(room >= 0)
        assert (patches.sum(1) > 0).tolist()[:len(words)] == whole


def test_the_state_of_a_word_is_the_mean_over_its_pieces(tokens):
    text = clean("The plane, 飞机")
    with torch.no_grad(): states, _ = tokens.hidden_states(*tokens.collate([text]))
    word_vectors, known = word_states(states, piece_shares(tokens, [text]))
    offsets = tokens.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    for k, (start, end) in enumerate(word_spans(text)):
        pieces = [i for i, (a, b) in enumerate(offsets) if a < b and a < end and b > start]
        assert pieces and known[0, k]
        torch.testing.assert_close(word_vectors[0, k], states[0, pieces].mean(0))


def test_a_word_that_is_cut_has_no_state(tokens):
    words = " ".join(["plane"]*30)
    assert 0 < int(piece_shares(tokens, [words], 12).sum()) < 12
    whole = patch_shares(student(), [words], 12)[0].sum(1)
    assert whole[:3].tolist() == [1, 1, 1] and whole[-1] == 0


def test_the_loss_is_that_of_a_loop(tokens):
    encoder, teacher = student(), WordTeacher(tokens, TEXTS)
    objective = WordDistillation(teacher, "squares")
    state = objective.state(encoder)
    batch = objective.batch(TEXTS, BatchRNG(0, 0, range(len(TEXTS))), encoder, 24)
    with torch.no_grad(): loss = objective.loss(encoder, state, batch)
    each = []
    for text in map(clean, TEXTS):
        wanted, known = teacher.states(*teacher.collate([text]))
        with torch.no_grad(): states, _ = encoder.hidden_states(*encoder.collate([text], 24))
        offset, distances = 1, []
        for k, (_, n) in enumerate(encoder.renderer.word_patches(text)):
            if known[0, k] and offset + n <= 24:
                with torch.no_grad(): word_vectors = state(states[0, offset:offset + n].mean(0))
                distances.append(float((word_vectors - wanted[0, k]).square().mean()))
            offset += n
        each.append(np.mean(distances) if distances else 0)
    assert float(loss) == pytest.approx(np.mean(each), rel=1e-4)


def test_word_weights_follow_their_frequency_and_enter_the_loss(tokens):
    texts = ["the one and the other", "the ten", "one two"]
    teacher = WordTeacher(tokens, texts)
    words = [word for text in texts for word in text.split()]
    weights = teacher.frequency_weights(texts, 0.01)
    for row, text in zip(weights, texts):
        expected = [0.01/(0.01 + words.count(word)/len(words)) for word in text.split()]
        assert row[:len(expected)].tolist() == pytest.approx(expected)
        assert not row[len(expected):].any()

    encoder = student()
    losses = []
    for smoothing in (None, 0.01, 1e6):
        objective = WordDistillation(teacher, "squares", smoothing)
        torch.manual_seed(0)
        state = objective.state(encoder)
        batch = objective.batch(texts, BatchRNG(0, 0, range(len(texts))), encoder, None)
        losses.append(objective.loss(encoder, state, batch).item())
    assert losses[0] == pytest.approx(losses[2], rel=1e-4)      # all weigh 1
    assert losses[0] != pytest.approx(losses[1], rel=1e-4)


def test_two_processes_weigh_every_text_alike(tokens, monkeypatch):
    encoder, objective = student(), WordDistillation(WordTeacher(tokens, TEXTS))
    state = objective.state(encoder)
    def loss(part):
        batch = objective.batch(TEXTS[part], BatchRNG(0, 0, range(len(TEXTS))[part]), encoder, 24)
        with torch.no_grad(): return objective.loss(encoder, state, batch)
    whole, parts = loss(slice(None)), []
    def kept(mean, count): # called as in each of two processes
        parts.append((float(mean), count))
        return mean
    monkeypatch.setattr(word_distillation, "mean_across_processes", kept)
    for part in (slice(0, 2), slice(2, None)): loss(part)
    assert [count for _, count in parts] == [2, 4]
    assert sum(mean*count for mean, count in parts)/6 == pytest.approx(float(whole), rel=1e-5)
