"What the tests of training share: tiny encoders, their examples, and processes that can be killed."
import json
import math
import multiprocessing
import os
import random
import signal

import numpy as np
import torch
from safetensors.torch import save_file

from sentnb.encoders import PixelConfig, PixelEncoder, TextEncoder
from sentnb.encoders.text import small_text_encoder, train_wordpiece
from sentnb.renderer import RenderConfig
from sentnb.training import Stage, fit

WORDS = "red green blue old new big small cold warm quiet".split()
PAIRS = [(f"{a} {b}", f"{b} and {a}") for a in WORDS for b in WORDS if a < b]
TRIPLES = [(a, b, f"not {a}") for a, b in PAIRS]
TEXTS = [a for a, _ in PAIRS]
PLACES = np.random.default_rng(0).normal(size=(len(PAIRS), 16))
DOCUMENTS = [" ".join(random.Random(i).choices(WORDS, k=20)) for i in range(20)]


def tiny(seed=0, dropout=.1, render=None, **sizes):
    torch.manual_seed(seed)
    sizes = dict(hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=32,
                 max_patches=16, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout) | sizes
    return PixelEncoder(PixelConfig(**sizes), render or RenderConfig(strategy="words", max_patches=16))


def tiny_text(seed=0, **sizes):
    torch.manual_seed(seed)
    sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, max_length=16) | sizes
    return small_text_encoder(train_wordpiece(TEXTS*3, 200), **sizes)


def one_stage(objective=None, **changes):
    return Stage("reasoning", PAIRS, objective, **(dict(steps=4, batch_size=8, warmup_steps=1) | changes))


def quick(encoder, stages, folder, **options):
    return fit(encoder, stages, folder, show_progress=False, **options)


def same(a, b): return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def kept(encoder): return {name: value.clone() for name, value in encoder.state_dict().items()}


def nearness(encoder, begin=tiny):
    """A dev score that the least bit of the weights changes, and that training away from the start makes
    worse: the best is not the last."""
    start = begin().state_dict()
    steps = {name: value - start.get(name, 0) for name, value in encoder.state_dict().items()}
    moved = sum(float(step.double().square().sum()) for step in steps.values())
    return dict(score=-math.sqrt(moved), moved=math.sqrt(moved))


def plain_descent(parameters, weight_decay, fused=None):
    "In place of AdamW, which would blow the rounding of a gradient near zero up to a whole step."
    return torch.optim.SGD(parameters, lr=0., weight_decay=weight_decay)


# --- processes ---

PROCESSES = multiprocessing.get_context("forkserver")   # fresh processes that share the time of the imports
PROCESSES.set_forkserver_preload(["torch", "torch._dynamo", "accelerate", "pytest", "hypothesis",
                                  "sentnb.training", "sentnb.encoders.multimodal",
                                  "sentnb.encoders.text.encoder", "transformers.models.bert.modeling_bert"])


def start(target, *arguments, **options):
    process = PROCESSES.Process(target=target, args=arguments, kwargs=options)
    process.start()
    return process


def finish(process, code=0):
    process.join(120)
    if process.exitcode is None: process.kill()
    assert process.exitcode == code


def both_finish(processes):
    try:
        for process in processes: finish(process)
    finally:
        for process in processes: process.kill()


class Death:
    "Kills this process at the nth time that something happens."
    def __init__(self, moment):
        self.name, _, n = moment.partition(" ")
        self.left = int(n)

    def now(self):
        self.left -= 1
        return self.left == 0

    def around(self, owner, name, before=None, after=None):
        "The function's place is taken by one that counts its calls."
        real = getattr(owner, name)
        def call(*arguments, **options):
            if before and self.now(): before(real, *arguments, **options)
            result = real(*arguments, **options)
            if after and self.now(): after(*arguments)
            return result
        setattr(owner, name, call)

    def arm(self, encoder_class=PixelEncoder):
        from sentnb.encoders import checkpoints
        from sentnb.training import checkpoint, loop
        def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
        def half(save, tensors, path, **options):
            save(tensors, path, **options)
            os.truncate(path, os.path.getsize(path)//2)
            die()
        moments = {
            "step": lambda: self.around(loop, "scheduled_learning_rate", before=die),
            "half-written": lambda: self.around(checkpoint, "save_tensors", before=half),
            "not-renamed": lambda: self.around(checkpoint, "save_tensors", after=die),
            "saved": lambda: self.around(checkpoint.Progress, "save", after=die),
            "folder-saved": lambda: self.around(encoder_class, "save_pretrained", after=die),
            # the old folder has been put aside, the new one is not in place
            "swapping": lambda: self.around(checkpoints.os, "replace", before=die)}
        moments[self.name]()


def train_and_keep(folder, stages, moment=None):
    "What a killed process does: a tiny text encoder through stages(); what comes out is left in the folder."
    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)
    if moment: Death(moment).arm(TextEncoder)
    encoder = tiny_text()
    def dev(encoder): return nearness(encoder, tiny_text)
    history = quick(encoder, stages(), folder, dev=dev, eval_every=2, save_every=1)
    save_file(encoder.state_dict(), folder/"final.safetensors")
    (folder/"history.json").write_text(json.dumps(history))


def as_rank(rank, folder):
    "This process becomes one of two."
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"   # a host name that does not resolve is no obstacle
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
