"An encoder that worker processes import: nothing else is imported with it."
import os
import signal

import numpy as np

from sentnb.encoders.base import SentenceEncoder


class Numbers(SentenceEncoder):
    "The number that a text consists of; it fails at a text, or ends its process there."
    width = 2

    def __init__(self, fails_at=None, dies_at=None):
        self.fails_at, self.dies_at = fails_at, dies_at

    def encode_window(self, texts, *options):
        if self.dies_at in texts: os.kill(os.getpid(), signal.SIGKILL)
        numbers = [np.nan if text == self.fails_at else int(text) for text in texts]
        return np.stack([np.ones(len(texts)), numbers], 1).astype(np.float32)
