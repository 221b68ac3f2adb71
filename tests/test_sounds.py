"""Sounds: decoded, as spectrograms, through a text encoder's blocks, and that a run of sounds in turn with
text can be killed at any time. What a batch of patches computes is in test_multimodal.py."""
import io
import json
import math
import signal

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import soundfile
import torch
from safetensors.torch import load_file
from test_multimodal import digest
from training_runs import TEXTS, finish, same, start, tiny_text, train_and_keep

from sentnb.corpora import Microworld, load_sounds
from sentnb.corpora.images_and_sounds import noise_images, shuffle_labels
from sentnb.corpora.microworld import Images
from sentnb.corpora.images_and_sounds import decode_sound
from sentnb.encoders import log_mel, standardize, crop_to_patches
from sentnb.encoders.multimodal import embed_pictures
from sentnb.encoders.multimodal import mel_filters
from sentnb.training import BatchRNG, PictureSupCon, SimCSE, Stage, Task

pytestmark = pytest.mark.usefixtures("one_thread")
RNG = np.random.default_rng(0)


# --- spectrograms, again in float64, by the definition of a Fourier transform and loops over bands ---

def mel(hertz): return 1127*math.log(1 + hertz/700)


def triangle(position, band, bands, rate):
    "The weight of a frequency in a band."
    low, high = mel(20), mel(rate/2)
    width = (high - low)/(bands + 1)
    return max(0, 1 - abs(mel(position) - low - (band + 1)*width)/width)


def log_mel_by_hand(wave, rate, bands, frames):
    window, shift, points = round(.025*rate), round(.01*rate), 256
    while points < max(window, rate//8): points *= 2
    hann = [.5 - .5*math.cos(2*math.pi*i/(window - 1)) for i in range(window)]
    wave = np.concatenate([wave.astype(np.float64), np.zeros(frames*shift + window)])
    angles = -2*np.pi*np.outer(np.arange(points//2 + 1), np.arange(window))/points
    weights = [[triangle(k*rate/points, band, bands, rate) for k in range(points//2 + 1)]
               for band in range(bands)]
    out = np.empty((bands, frames))
    for frame in range(frames):
        part = wave[frame*shift:frame*shift + window]
        part = (part - part.mean())*hann
        power = (np.cos(angles) @ part)**2 + (np.sin(angles) @ part)**2
        out[:, frame] = np.log(np.maximum(np.array(weights) @ power, 2**-23))
    return out


@pytest.mark.parametrize("rate, bands, samples, frames", [
    (8_000, 128, 1_000, 9), (16_000, 48, 2_000, 14), (11_025, 30, 900, 3)])
def test_log_mel(rate, bands, samples, frames):
    "White noise, cut or ended in silence, and a quiet tone on an offset that is taken away."
    noise = RNG.normal(scale=.1, size=samples)
    tone = .3 + .01*np.sin(2*np.pi*500*np.arange(samples)/rate)
    waves = np.stack([noise, tone]).astype(np.float32)
    got = log_mel(waves, rate, bands, frames)
    assert got.shape == (2, bands, frames, 1) and got.dtype == np.float32
    for wave, spectrogram in zip(waves, got[..., 0]):
        expected = log_mel_by_hand(wave, rate, bands, frames)
        loud = expected > -9   # below it the rounding of single precision is heard
        assert loud.mean() > .05
        np.testing.assert_allclose(spectrogram[loud], expected[loud], atol=5e-3)
        np.testing.assert_allclose(np.exp(spectrogram), np.exp(expected), rtol=1e-3, atol=1e-5)


def test_a_band_by_hand():
    filters = mel_filters(20, 8_000, 512)
    for band, k in ((0, 2), (0, 6), (7, 30), (7, 36), (19, 250)):
        assert filters[k, band].item() == pytest.approx(triangle(k*8_000/512, band, 20, 8_000), abs=1e-6)


@pytest.mark.parametrize("pitch", [200, 700, 2_500])
def test_a_tone_stands_in_its_band(pitch):
    wave = np.sin(2*np.pi*pitch*np.arange(8_000)/8_000).astype(np.float32)[None]
    loudest = set(log_mel(wave, 8_000, 40)[0, ..., 0].argmax(0))
    nearest = max(range(40), key=lambda band: triangle(pitch, band, 40, 8_000))
    assert loudest <= {nearest - 1, nearest, nearest + 1} and nearest in loudest


def test_silence_and_what_fills_no_patch():
    quiet = log_mel(np.zeros((1, 4_000), np.float32), 8_000, 48)
    assert (quiet == np.float32(math.log(2**-23))).all()
    with pytest.raises(ValueError, match="all values are equal"): standardize(quiet)
    cells = RNG.normal(3, 2, (2, 50, 75, 1)).astype(np.float32)
    ready = standardize(cells)
    np.testing.assert_allclose(ready, (cells - cells.mean(dtype=float))/(2*cells.std(dtype=float)), atol=1e-5)
    np.testing.assert_array_equal(crop_to_patches(cells, 24), cells[:, :48, :72])
    with pytest.raises(ValueError, match=r"\[50, 75\] are smaller than a patch of 64"):
        crop_to_patches(cells, 64)


# --- files ---

def file_of(wave, rate, kind="WAV", subtype=None):
    file = io.BytesIO()
    soundfile.write(file, wave, rate, format=kind, subtype=subtype)
    return file.getvalue()


def sine(rate, pitch=300, seconds=.5): return .5*np.sin(2*np.pi*pitch*np.arange(round(rate*seconds))/rate)


@pytest.mark.parametrize("kind, subtype, near", [("WAV", "PCM_16", 1e-4), ("FLAC", "PCM_16", 1e-4),
                                                 ("WAV", "FLOAT", 1e-7), ("OGG", "VORBIS", .05)])
def test_kinds_of_files(kind, subtype, near):
    wave, rate = decode_sound(file_of(sine(8_000), 8_000, kind, subtype))
    assert rate == 8_000 and wave.dtype == np.float32
    np.testing.assert_allclose(wave[200:3_800], sine(8_000)[200:3_800], atol=near)


def test_channels_and_rates():
    both, _ = decode_sound(file_of(np.stack([sine(8_000), sine(8_000, 900)], 1), 8_000))
    np.testing.assert_allclose(both, (sine(8_000) + sine(8_000, 900))/2, atol=1e-4)
    for wanted in (16_000, 6_000):
        wave, rate = decode_sound(file_of(sine(8_000), 8_000), wanted)
        assert rate == wanted
        np.testing.assert_allclose(wave[200:-200], sine(wanted)[200:-200], atol=.01)


WAVES = [RNG.uniform(-.5, .5, samples).astype(np.float32) for samples in (300, 1_000, 640, 800, 90, 700)]


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    "Two sets: classes with gaps, one file at another rate; and digits by speaker."
    def files(name, rows):
        folder = tmp_path/"nonling"/name
        folder.mkdir(parents=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder/"train.parquet")
    def audio(wave, rate=8_000): return dict(bytes=file_of(wave, rate, subtype="FLOAT"), path=None)
    files("esc10", [dict(audio=audio(wave), label=5*(i % 2), label_name=f"class {i % 2}", fold=1)
                    for i, wave in enumerate(WAVES)]
          + [dict(audio=audio(sine(16_000), 16_000), label=9, label_name="a tone", fold=1)])
    files("fsdd", [dict(audio=audio(wave), digit=i % 3, speaker=f"speaker {i % 2}", speaker_digit=10*i)
                   for i, wave in enumerate(WAVES)])
    monkeypatch.setenv("SENTNB_HUB", str(tmp_path))


def test_a_set_is_cut_and_ends_in_silence(mirror):
    sounds = load_sounds("nonling/esc10", seconds=.1)
    assert sounds.waves.shape == (7, 800) and sounds.rate == 8_000
    for wave, kept in zip(WAVES, sounds.waves):
        np.testing.assert_array_equal(kept[:len(wave)], wave[:800])
        assert not kept[len(wave):].any()
    # at the rate of the first
    np.testing.assert_allclose(sounds.waves[6][50:], sine(8_000)[50:800], atol=.01)
    assert sounds.labels.tolist() == [0, 1, 0, 1, 0, 1, 2]
    assert sounds.names == ("class 0", "class 1", "a tone")
    some, again = (load_sounds("nonling/esc10", seconds=.1, n=4) for _ in range(2))
    np.testing.assert_array_equal(some.waves, again.waves)
    assert len(some.waves) == 4 and load_sounds("nonling/esc10", rate=4_000).waves.shape == (7, 4_000)


def test_classes_of_digits(mirror):
    assert load_sounds("nonling/fsdd").names == tuple(str(10*i) for i in range(6))
    assert load_sounds("nonling/fsdd", label="speaker").labels.tolist() == [0, 1, 0, 1, 0, 1]
    with pytest.raises(ValueError, match="expected audio and fold"): load_sounds("nonling/fsdd", label="fold")
    with pytest.raises(ValueError, match="seconds=0"): load_sounds("nonling/fsdd", seconds=0)
    with pytest.raises(ValueError, match="n=0"): load_sounds("nonling/fsdd", n=0)


def test_names_of_classes_are_those_of_their_column(mirror):
    assert load_sounds("nonling/esc10", label="fold").names == ("1",)


def test_the_sounds_of_the_microworld_have_the_rate_and_the_split():
    sounds = load_sounds("microworld", "test", rate=16_000, n=4)
    direct = Microworld(seed=0).sounds(4, rate=16_000, split="test")
    assert sounds.rate == 16_000 and (sounds.waves == direct.waves).all()
    assert load_sounds("microworld", n=4).rate == 8_000


# --- the microworld, and the controls ---

def digests_of_sounds():
    "Of two kinds of cells, and of a control."
    sounds = Microworld().sounds(24, classes=6, seconds=.5)
    cells = Images(log_mel(sounds.waves, sounds.rate, 24), sounds.labels, sounds.names)
    return [digest((1_000*sounds.waves).round().astype(np.int32)), digest(noise_images(cells).labels)]


def test_the_microworld_sounds_the_same_each_time(python):
    code = "import sys; sys.path.insert(0, 'tests'); import test_sounds as t; print(t.digests_of_sounds())"
    assert python(code, PYTHONHASHSEED="7").strip() == str(digests_of_sounds())


def test_sounds_are_apart_from_sentences_and_splits():
    world = Microworld()
    before = world.sentences("en", 50)
    train, test = (world.sounds(24, classes=6, split=split) for split in ("train", "test"))
    assert world.sentences("en", 50) == before
    assert not {digest(wave) for wave in train.waves} & {digest(wave) for wave in test.waves}


def test_a_class_can_be_heard():
    "The nearest mean of half of the sounds tells the class of the others, far above chance."
    sounds = Microworld().sounds(240, classes=12)
    cells = log_mel(sounds.waves, sounds.rate, 48).max(2).reshape(240, -1)
    means = np.stack([cells[:120][sounds.labels[:120] == k].mean(0) for k in range(12)])
    guesses = ((cells[120:, None] - means)**2).sum(2).argmin(1)
    assert (guesses == sounds.labels[120:]).mean() > 4/12


def test_controls_of_spectrograms():
    cells = Images(RNG.normal(size=(12, 24, 48, 1)).astype(np.float32), np.arange(12) % 4, tuple("abcd"))
    noise, other = noise_images(cells), shuffle_labels(cells)
    assert noise.pixels.shape == cells.pixels.shape and noise.pixels.dtype == np.float32
    assert set(noise.pixels.ravel()) <= set(cells.pixels.ravel()) and (noise.pixels != cells.pixels).any()
    assert sorted(other.labels) == sorted(cells.labels) and other.pixels is cells.pixels


# --- two tasks in turn ---

CELLS = RNG.normal(size=(24, 24, 48, 1)).astype(np.float32)
LABELS = np.arange(24) % 5


def of_sounds(**changes):
    options = dict(pictures=CELLS, labels=LABELS, patch_size=24, views="dropout", positions=False) | changes
    return PictureSupCon(**options)


def test_two_views_are_two_draws_of_dropout():
    encoder, objective = tiny_text().train(), of_sounds()
    torch.manual_seed(0)
    state = objective.state(encoder)
    cells = objective.batch([3, 1], BatchRNG(0, 0, [3, 1]), encoder, None).tensors[0]
    assert torch.equal(cells[:2], cells[2:])
    assert state.inputs.position_embeddings is None and state.inputs.num_patches == 2
    a, b = embed_pictures(encoder, state.inputs, cells).chunk(2)
    assert (a != b).any()
    a, b = embed_pictures(encoder.eval(), state.inputs, cells).chunk(2)
    torch.testing.assert_close(a, b)


def stages():
    sounds = Task(range(24), of_sounds(), batch_size=8, learning_rate=2e-3, warmup_steps=0, schedule="cosine")
    sentences = Task(TEXTS, SimCSE(mlp=True), batch_size=8, learning_rate=1e-3, warmup_steps=0)
    return [Stage("audiocse", tasks=[sounds, sentences], steps=6, keep="best")]


# a rate is asked for twice a step: the odd deaths come before sounds, the even ones between the two tasks
def test_killed_and_resumed_is_never_stopped(tmp_path):
    unbroken, broken = tmp_path/"unbroken", tmp_path/"broken"
    for folder in (unbroken, broken): folder.mkdir()
    finish(start(train_and_keep, unbroken, stages))
    for moment in ("step 4", "half-written 1", "step 3"):
        finish(start(train_and_keep, broken, stages, moment), -signal.SIGKILL)
        assert not (broken/"final.safetensors").exists()
    finish(start(train_and_keep, broken, stages))
    histories = [json.loads((folder/"history.json").read_text()) for folder in (unbroken, broken)]
    assert histories[0] == histories[1] and len(histories[0]) == 6
    assert same(*(load_file(folder/"final.safetensors") for folder in (unbroken, broken)))
