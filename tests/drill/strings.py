"""Hostile strings are rendered alone, together, shuffled and in a new renderer: the same pictures."""
import unicodedata
import warnings

from sentnb.renderer import GlyphsMissing, RenderConfig, TextRenderer

SHORT = 2
PIECES = ["\0", "\ud800", "\udfff", "\ufeff", "\u202e", "\u200d", "\u2028", "\r\n", "\t", "\u0301"*40,
          "\U0001f468\u200d\U0001f469",
          "ﷺ", "क्षि", "ﺵ", "飛", "<script>", "%s%n", "\\", "\U0010ffff", " "*50, "i̇", "ß", "𝒳", "\x1b[31m"]


def hostile(rng) -> str:
    kind = rng.random()
    if kind < 0.4:
        return "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 12)))
    if kind < 0.8:
        return "".join(chr(rng.randrange(0x110000)) for _ in range(rng.randint(0, 30)))
    scripts = [0x41, 0x430, 0x5d0, 0x627, 0x915, 0xe01, 0x4e00, 0xac00]
    letters = [chr(rng.choice(scripts) + rng.randrange(20)) for _ in range(20)]
    return unicodedata.normalize(rng.choice(["NFC", "NFD"]), "".join(letters))


def attempt(rng, folder) -> None:
    warnings.simplefilter("ignore", GlyphsMissing)
    strategy = rng.choice(["words", "bigrams", "continuous"])
    config = RenderConfig(strategy=strategy, lowercase=rng.random() < 0.5)
    renderer = TextRenderer(config)
    texts = [hostile(rng) for _ in range(500)]

    def draw(drawing, batch):
        strips = drawing(batch)
        return {text: row[:, :16*(patches + 1)].tobytes()
                for text, row, patches in zip(batch, strips.pixels, strips.num_patches)}
    expected = draw(renderer, texts)
    shuffled = rng.sample(texts, len(texts))
    assert draw(renderer, shuffled) == expected
    assert draw(TextRenderer(config), shuffled) == expected
    for text in shuffled[:20]:
        assert draw(renderer, [text])[text] == expected[text]
