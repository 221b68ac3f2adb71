"""A file of a checkpoint or of a training state is truncated, emptied, extended, or changed in one bit."""
import shutil
import warnings
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
from tiny_text import TEXTS, tiny

from sentnb.core import data_dir
from sentnb.encoders import (
    Lens, LensConfig, PixelConfig, PixelEncoder, StaticEncoder, TextEncoder, train_wordpiece)
from sentnb.encoders.base import TextsTruncated
from sentnb.training import InfoNCE, Stage, fit
from sentnb.training.checkpoint import read_state

PROBES = ["a cat sleeps", "the old sofa", "кошка спит"]
SHORT = 24


def small_pixels(seed: int=0) -> PixelEncoder:
    torch.manual_seed(seed)
    return PixelEncoder(PixelConfig(32, 1, 2, 64, max_patches=16)).eval()


def train(folder: Path, encoder: PixelEncoder|None=None) -> list:
    stages = [Stage(name, [(text, text) for text in TEXTS[:32]], InfoNCE(), steps=2, batch_size=8)
              for name in ("first", "second")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TextsTruncated)
        return fit(encoder or small_pixels(), stages, folder, show_progress=False)


@cache
def base() -> TextEncoder:
    return tiny(train_wordpiece(TEXTS, vocab_size=150, max_alphabet=60))


@cache
def originals() -> Path:
    "A folder with one file or folder of each kind."
    root = Path(mkdtemp())
    small_pixels().save_pretrained(root/"pixels")
    base().save_pretrained(root/"text")
    StaticEncoder.fit(TEXTS, dim=8, min_count=1).save_pretrained(root/"static")
    Lens(base(), LensConfig()).save_pretrained(root/"lens")
    train(root/"run")
    shutil.copytree(data_dir("checkpoints")/"text-small-mlm", root/"shipped")
    return root


def content_of(kind: str, folder: Path):
    "What loading gives, for a comparison."
    load = dict(pixels=PixelEncoder.from_pretrained, text=TextEncoder.from_pretrained,
                shipped=TextEncoder.from_pretrained, static=StaticEncoder.from_pretrained,
                lens=lambda path: Lens.from_pretrained(path, base()))
    if kind == "run":
        tensors, position = read_state(folder/"state.safetensors")
        return sorted((name, value.numpy().tobytes()) for name, value in tensors.items()), position
    return load[kind](folder).encode(PROBES)


def spoil(file: Path, rng) -> str:
    content = bytearray(file.read_bytes())
    fault = rng.choice(["truncate", "empty", "extend", "zeros", "flip a bit", "flip a bit", "flip a bit"])
    if fault == "truncate":
        content = content[:rng.randrange(len(content))]
    elif fault == "empty":
        content = b""
    elif fault == "extend":
        content += rng.randbytes(rng.randint(1, 99))
    elif fault == "zeros":
        content = bytes(len(content))
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)
    return fault


def attempt(rng, folder) -> None:
    kind = rng.choice(["pixels", "text", "static", "lens", "run", "shipped"])
    copy = folder/kind
    shutil.copytree(originals()/kind, copy)
    expected = content_of(kind, copy)
    names = dict(run=["state.safetensors"], shipped=["model.safetensors", "config.json", "tokenizer.json"])
    file = copy/rng.choice(names.get(kind, ["model.safetensors"]))
    fault = spoil(file, rng)
    try:
        content = content_of(kind, copy)
    except (ValueError, OSError) as error:
        assert file.name in str(error) and str(copy) in str(error), f"{kind}, {fault}: {error}"
        return
    same = content == expected if kind == "run" else np.array_equal(content, expected)
    assert same, f"{kind}, {fault}: {file.name} is damaged, and is read without an error"
