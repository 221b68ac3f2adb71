"""Eight threads share one text encoder and one renderer; some truncate, some do not."""
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
from tiny_text import TEXTS, tiny

from sentnb.encoders import TextEncoder, train_wordpiece
from sentnb.encoders.base import TextsTruncated
from sentnb.renderer import RenderConfig, TextRenderer


@cache
def text_encoder() -> TextEncoder:
    return tiny(train_wordpiece(TEXTS, vocab_size=150, max_alphabet=60))


def attempt(rng, folder) -> None:
    warnings.simplefilter("ignore", TextsTruncated)
    encoder = text_encoder()
    texts = [" ".join(rng.choice(TEXTS) for _ in range(rng.randint(1, 8))) for _ in range(60)]
    limits = [rng.choice([None, 5, 9, 24]) for _ in range(24)]
    expected = {limit: encoder.token_ids(texts, limit) for limit in set(limits)}
    renderer = TextRenderer(RenderConfig(strategy=rng.choice(["words", "bigrams", "continuous"])))
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(renderer, [texts[i:i + 6] for i in range(0, 60, 6)]))
        rows = list(pool.map(lambda limit: encoder.token_ids(texts, limit), limits))
        vectors = list(pool.map(lambda i: encoder.encode(texts[i:]), range(8))) # warns of truncated texts
    assert rows == [expected[limit] for limit in limits]
    for i, part in enumerate(vectors):
        assert np.abs(part - vectors[0][i:]).max() < 1e-5
    fresh = TextRenderer(renderer.config)
    for i, strips in enumerate(drawn):
        assert (strips.pixels == fresh(texts[6*i:6*i + 6]).pixels).all()
