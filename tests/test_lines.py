"""Lines joined from words: the bytes of the whole layout, for each character and for sentences of the mirror.

`SENTNB_SENTENCES=100000 pytest -s tests/test_lines.py -k mirror` compares that many: minutes on a free CPU.
"""
import itertools, os, random, unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.compute, pyarrow.parquet as pq, pytest
from sentnb.renderer import RenderConfig, TextRenderer
from sentnb.renderer.lines import HYPHENATION_POINT, MAX_WORD, SCRIPTS, _has_simple_layout

SENTENCES = int(os.environ.get("SENTNB_SENTENCES") or 2_000)
PLANE = "A plane is taking off."
pytestmark = pytest.mark.filterwarnings("ignore::sentnb.renderer.GlyphsMissing")

def draw_whole(config=None, **options):
    "A renderer that lays out each line as a whole."
    renderer = TextRenderer(config, **options)
    renderer._lines.is_usable = False
    return renderer

@pytest.fixture(scope="module")
def joined(): return TextRenderer()

@pytest.fixture(scope="module")
def whole(): return draw_whole()

def is_joined(renderer, texts): return [picture is not None for picture in renderer._lines.join_words(texts)]

def find_differences(joined, whole, texts, **options): # texts that the two do not draw alike
    first, second = joined(texts, **options), whole(texts, **options)
    if first.pixels.shape == second.pixels.shape:
        differ = (first.pixels != second.pixels).reshape(len(first), -1).any(1)
        return sorted({texts[i] for i in first.text_index[differ]})
    return [text for text in texts if joined([text]).pixels.tobytes() != whole([text]).pixels.tobytes()]

# Every character

def simple_characters(joined, script):
    "Also marks, which do not start a word."
    letter = SCRIPTS[script][0]
    return [chr(code) for code in range(0x21, 0x2e80)
            if _has_simple_layout(chr(code)) and joined._lines._is_simple(script, letter + chr(code))]

@pytest.mark.parametrize("script", range(len(SCRIPTS)))
def test_every_character_at_each_place_of_a_line(joined, whole, script):
    x = SCRIPTS[script][0]
    places = "{x}{c}", "{c} {x}", "{x} {c}", "{x} {c} {x}", "{x}{c} {x}", "{x} {c}{x}", "{x} {c}{c}  {c} "
    characters = simple_characters(joined, script)
    assert len(characters) > 900 and HYPHENATION_POINT not in characters
    texts = [place.format(x=x, c=character) for character in characters for place in places]
    drawn = is_joined(joined, texts)
    assert np.mean(drawn) > .8
    assert find_differences(joined, whole, texts) == []

def test_every_pair_of_common_characters(joined, whole):
    common = "".join(map(chr, range(0x21, 0x7f))) + "“”’‘–—…«»éèñßÀ°€·"
    texts = [f"x {a}{b} {b}" for a, b in itertools.product(common, common)]
    assert all(is_joined(joined, texts))
    assert find_differences(joined, whole, texts) == []

@pytest.mark.parametrize("settings", [
    dict(family="Noto Serif"), dict(font_size=6), dict(font_size=9.5), dict(patch_size=24, font_size=12),
    dict(patch_size=40, font_size=20), dict(rgb=True), dict(fonts=("NotoSans-Regular.ttf",)),
    dict(lowercase=True)])
def test_random_words_in_other_fonts_and_sizes(joined, settings):
    config = RenderConfig(**settings)
    renderer = TextRenderer(config)
    rng = random.Random(str(settings))
    texts = []
    for script, (letter, _) in enumerate(SCRIPTS):
        characters = simple_characters(joined, script)
        letters = [character for character in characters if character.isalpha()]
        for _ in range(100):
            words = ["".join(rng.choices(rng.choice([letters, letters, characters]), k=rng.randint(0, 9)))
                     for _ in range(rng.randint(1, 8))]
            texts.append(" ".join([letter, *words]))
    assert np.mean(is_joined(renderer, map(renderer._clean, texts))) > .1
    assert find_differences(renderer, draw_whole(config), texts) == []

def test_long_lines_are_cut_alike(joined, whole):
    texts = [PLANE*30, "word "*700, "a  b "*9, "  a", "a  ", "é"*60 + " x", "w "*3_000]
    for long in ("truncate", "scroll"):
        for max_patches in (2, 5, 64, 3_000):
            assert find_differences(joined, whole, texts, long=long, max_patches=max_patches) == []

# What is laid out as a whole

@pytest.mark.parametrize("text", [
    "", " ", "1, 2", "A plane 飞机", "مرحبا", "plane שלום", "हवाई जहाज़", "самолёт plane", "a \u0301b",
    "a\tb", "a\xa0b", "a\u200db", "ok 😀", "1\ufe0f\u20e3 a", "syl\u2027la", "a \u2028 b", "x"*(MAX_WORD + 1),
    "a \u0378", "a \u202eb", "a ★", "ﬁ"])
def test_other_texts_are_not_joined(joined, whole, text):
    assert is_joined(joined, [text]) == [False]
    assert find_differences(joined, whole, [text]) == []

def test_a_font_with_rules_for_spaces_is_not_used():
    families = {"Noto Sans": True, "Noto Sans CJK JP": False, "Noto Sans Devanagari": False}
    for family, is_usable in families.items():
        renderer = TextRenderer(RenderConfig(family=family))
        assert is_joined(renderer, ["ab"]) == [is_usable]

def test_ink_beyond_the_columns_of_a_word_is_found(joined, whole, monkeypatch):
    renderer = TextRenderer()
    draw = renderer._pen.draw
    def draw_with_spot(x, columns, down=0):
        picture = draw(x, columns, down)
        picture[0, -4] = 0 # in the gap after the last word
        return picture
    monkeypatch.setattr(renderer._pen, "draw", draw_with_spot)
    assert is_joined(renderer, ["one two"]) == [False] and len(renderer._lines) == 2
    assert is_joined(renderer, ["one"]) == [True]

# The cache

def test_pictures_are_bounded_and_few_are_enough(whole):
    small = TextRenderer(cache_size=5)
    texts = ["one two three", "four five six", "seven eight nine ten eleven twelve", "one four"]*3
    assert find_differences(small, whole, texts) == [] and len(small._lines) == 5
    assert find_differences(TextRenderer(cache_size=0), whole, texts) == []

def test_a_word_is_drawn_once(joined, monkeypatch):
    renderer = TextRenderer()
    renderer([PLANE, "Самолёт 1", "A ship 1"])
    monkeypatch.setattr(renderer, "_pen", None) # so that nothing can be drawn
    monkeypatch.setattr(renderer._lines, "pen", None)
    text = "A ship is taking off."
    assert (renderer([text]).pixels == joined([text]).pixels).all()
    with pytest.raises(AttributeError): renderer(["Самолёт ship"])

def test_threads_share_the_words(whole):
    renderer = TextRenderer(cache_size=300)
    rng = random.Random(0)
    words = [f"w{i}" for i in range(500)]
    batches = [[" ".join(rng.choices(words, k=9)) for _ in range(20)] for _ in range(40)]
    with ThreadPoolExecutor(4) as pool: drawn = list(pool.map(renderer, batches))
    assert all((strips.pixels == whole(batch).pixels).all() for strips, batch in zip(drawn, batches))

# The mirror

def read_texts(path: Path, per_column: int, rng: random.Random) -> list[str]:
    "Texts of each column of a table, lists of texts included."
    texts = []
    for column in pq.read_table(path).columns:
        while pa.types.is_list(column.type): column = pa.compute.list_flatten(column)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            values = column.drop_null().unique().to_pylist()
            texts += rng.sample(values, min(per_column, len(values)))
    return texts

def script_names(text: str) -> str:
    names = {unicodedata.name(character, "?").split()[0] for character in text if character.isalpha()}
    return next(iter(names)).lower() if len(names) == 1 else "several" if names else "none"

@pytest.mark.timeout(max(900, SENTENCES//5)) # seconds
def test_sentences_of_the_mirror(joined, whole):
    if "SENTNB_HUB" not in os.environ: pytest.skip("SENTNB_HUB is not set: no mirror to read")
    paths = sorted(path for path in Path(os.environ["SENTNB_HUB"]).rglob("*.parquet")
                   if "models" not in path.parts and "nonling" not in path.parts)
    rng = random.Random(0)
    groups = [read_texts(path, 30 + SENTENCES//60, rng) for path in paths]
    texts = [text for row in itertools.zip_longest(*groups) for text in row if text]
    texts = list(dict.fromkeys(texts))[:SENTENCES]
    compared, drawn = {}, {}
    for i in range(0, len(texts), 500):
        part = texts[i:i + 500]
        assert find_differences(joined, whole, part, max_patches=200) == []
        for text, is_sum in zip(part, is_joined(joined, map(joined._clean, part))):
            script = script_names(text)
            compared[script] = compared.get(script, 0) + 1
            drawn[script] = drawn.get(script, 0) + is_sum
    for script, n in sorted(compared.items(), key=lambda item: -item[1]):
        print(f"{script:12} {n:7,} compared, {1 - drawn[script]/n:7.1%} laid out as a whole")
    n = sum(compared.values())
    print(f"{n:,} texts, 0 differences, {1 - sum(drawn.values())/n:.1%} laid out as a whole")
    assert n == SENTENCES and drawn["latin"] > .9*compared["latin"]
