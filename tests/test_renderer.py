"""The renderer: parity with PIXEL, any text, one rule for what is long or odd, no font but those given."""
import hashlib, io, json, math, multiprocessing, os, pickle, shutil, subprocess, sys, time, warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np, pytest
from hypothesis import example, given, settings, strategies as st
from sentnb.core import project_root
from sentnb.renderer import (
    FontMissing, FontWarning, GlyphsMissing, RenderConfig, Strips, TextRenderer, clean, find_fonts,
    split_characters, split_words, versions)
from sentnb.renderer.fonts import OPTIONAL_FONTS, REQUIRED_FONTS
from sentnb.renderer.pen import Pen

GOLDEN = Path(os.environ.get("SENTNB_GOLDEN") or project_root().parent/"shared"/"golden")/"render"
NEWLINES_AND_NUL = {"a\rb", "a\u2028b", "a\u2029b", "a\r\nb", "ab\0cd"} # the reference clips a line, or stops
PLANE = "A plane is taking off."
# any text is drawn here
pytestmark = pytest.mark.filterwarnings("ignore::sentnb.renderer.GlyphsMissing")
STRATEGIES = ["continuous", "words", "bigrams"]

@pytest.fixture(scope="module")
def renderers(): return {strategy: TextRenderer(RenderConfig(strategy=strategy)) for strategy in STRATEGIES}

@pytest.fixture(scope="module")
def continuous(renderers): return renderers["continuous"]

@pytest.fixture(scope="module")
def words(renderers): return renderers["words"]

# Golden pictures

@pytest.fixture(scope="module")
def golden():
    if not (GOLDEN/"golden.npz").is_file():
        pytest.skip(f"no golden pictures in {GOLDEN}: set SENTNB_GOLDEN to the folder that holds render/")
    described = json.loads((GOLDEN/"golden.json").read_text(encoding="utf-8"))
    fonts = tuple((name, described["fonts"][name]["sha256"]) for name in REQUIRED_FONTS + OPTIONAL_FONTS)
    def make(**settings):
        return TextRenderer(RenderConfig(fonts=fonts, **settings), fonts=[GOLDEN.parent.parent/"fonts"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", FontWarning)
        try: make()
        except (FontMissing, FontWarning) as error:
            pytest.skip(f"the fonts of the golden pictures are not here: {error}")
    differs = {name: (described["versions"][name], ours) for name, ours in versions().items()
               if name in ("pango", "cairo", "freetype", "harfbuzz") and described["versions"][name] != ours}
    if differs: pytest.skip(f"byte equality is meant for other library versions (golden, here): {differs}")
    return described, np.load(GOLDEN/"golden.npz"), make

def same(strips: Strips, pictures: np.ndarray, counts: list[int]) -> np.ndarray: # bool [n]
    full = np.full_like(pictures, 255)
    full[:, :, :strips.pixels.shape[2]] = strips.pixels
    return (full == pictures).reshape(len(full), -1).all(1) & (strips.num_patches == np.array(counts))

@pytest.mark.parametrize("kind, images, settings", [
    ("items", "images", {}), ("edge", "edge_images", {}), ("pairs", "pair_images", {}),
    ("words", "word_images", dict(strategy="words")), ("rgb", "rgb_images", dict(rgb=True))])
def test_golden(golden, kind, images, settings):
    described, arrays, make = golden
    chosen = [i for i, entry in enumerate(described[kind]) if entry.get("text") not in NEWLINES_AND_NUL]
    entries = [described[kind][i] for i in chosen]
    texts = [tuple(entry["pair"]) if "pair" in entry else entry.get("words", entry.get("text"))
             for entry in entries]
    counts = [entry["num_text_patches"] for entry in entries]
    equal = same(make(**settings)(texts, max_patches=64), arrays[images][chosen], counts)
    defects = len(described[kind]) - len(equal)
    print(f"golden {kind}: {equal.sum()}/{len(equal)}, {defects} defects of the reference not drawn")
    assert equal.all(), [texts[i] for i in np.flatnonzero(~equal)]

def test_golden_lengths_at_529(golden):
    described, _, make = golden
    strips = make()([entry["text"] for entry in described["items"]], max_patches=529)
    assert strips.num_patches.tolist() == [entry["num_text_patches_529"] for entry in described["items"]]

def test_golden_defects_are_drawn_by_our_rule(golden):
    described, arrays, make = golden
    pictures = {entry["text"]: picture for entry, picture in zip(described["edge"], arrays["edge_images"])}
    renderer = make()
    assert NEWLINES_AND_NUL <= set(pictures)
    for text in NEWLINES_AND_NUL:
        pixels = renderer([text], max_patches=64).pixels
        assert (pixels == renderer([clean(text)], max_patches=64).pixels).all()
        assert pixels.shape[2] > 16 and (pixels[0] != pictures[text][:, :pixels.shape[2]]).any()

# The strip

TEXT = st.text(st.characters(exclude_categories=()), max_size=60) # surrogates too
ODD = ["", " ", "\0", "\ud800", "a\r\n\x0b\x0c\x85\u2028\u2029\tb", "\u202e\u2067x", "e\u0301\u0301", "👩‍👧🇬🇧",
       "ﷺ", "مرحبا hi שלום", "\U0010ffff\ufdd0"]

def check_strips(strips: Strips, n: int, max_patches: int) -> None:
    assert len(strips) == n and strips.pixels.dtype == np.uint8
    assert strips.num_patches.dtype == strips.text_index.dtype == np.int64
    height, width = strips.pixels.shape[1:3]
    assert height == 16 and width == 16*(strips.num_patches.max(initial=0) + 1) <= 16*max_patches
    for pixels, k in zip(strips.pixels, strips.num_patches):
        assert k >= 1 and (pixels[:, 16*k:16*k+16] == 0).all() and (pixels[:, 16*k+16:] == 255).all()

@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=120, deadline=None)
@given(texts=st.lists(TEXT, max_size=3), max_patches=st.integers(2, 40))
@example(texts=ODD, max_patches=64)
def test_any_text(renderers, strategy, texts, max_patches):
    renderer = renderers[strategy]
    strips = renderer(texts, max_patches=max_patches)
    check_strips(strips, len(texts), max_patches)
    assert (strips.text_index == np.arange(len(texts))).all()
    for i, text in enumerate(texts): # a picture does not depend on its batch, nor on what was drawn before
        alone = renderer([text], max_patches=max_patches)
        assert (alone.pixels[0] == strips.pixels[i, :, :alone.pixels.shape[2]]).all()
    whole = renderer(texts, max_patches=10_000)
    assert (strips.truncated == (whole.num_patches > max_patches - 1)).all()
    assert (strips.num_patches == np.minimum(whole.num_patches, max_patches - 1)).all()
    for part, all_of_it, k in zip(strips.pixels, whole.pixels, strips.num_patches):
        assert (part[:, :16*k] == all_of_it[:, :16*k]).all()

@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=3), max_patches=st.integers(2, 12))
@example(texts=["word "*300, "مرحبا بالعالم "*40, "漢"*99], max_patches=7)
def test_scroll_loses_nothing(renderers, strategy, texts, max_patches):
    renderer = renderers[strategy]
    whole = renderer(texts, max_patches=10_000)
    strips = renderer(texts, max_patches=max_patches, long="scroll")
    check_strips(strips, len(strips), max_patches)
    assert (np.diff(strips.text_index) >= 0).all() and not strips.truncated.any()
    for i in range(len(texts)):
        of_text = np.flatnonzero(strips.text_index == i)
        parts = [strips.pixels[j, :, :16*strips.num_patches[j]] for j in of_text]
        assert (np.concatenate(parts, axis=1) == whole.pixels[i, :, :16*whole.num_patches[i]]).all()
        assert all(part.shape[1] == 16*(max_patches - 1) for part in parts[:-1])

@settings(max_examples=300, deadline=None)
@given(TEXT)
def test_cleaning_and_splitting_lose_nothing(text):
    cleaned = clean(text)
    assert cleaned.encode() and not set(cleaned) & set("\0\n\r\x85\u2028\u2029") if text else cleaned == ""
    assert clean(cleaned) == cleaned
    assert "".join(split_characters(cleaned)) == cleaned
    assert "".join(split_words(cleaned)) == "".join(cleaned.split())

def test_the_same_length_rule_as_pixel(continuous):
    pen = Pen(continuous.files, "Noto Sans", 8*120/72)
    for text in ["", "i", "word", PLANE, "漢字", "Самолет"]:
        width, _ = pen.set(text)
        assert continuous([text]).num_patches[0] == math.ceil((2 + width + 2)/16)

def test_replaced_characters(renderers):
    drawn_as = {"ab\0cd": "ab\ufffdcd", "a\ud800": "a\ufffd", "a\rb": "a b", "a\r\nb": "a b",
                "a\u2028b": "a b", "a\x85b": "a b"}
    for renderer in renderers.values():
        for odd, plain in drawn_as.items():
            assert (renderer([odd]).pixels == renderer([plain]).pixels).all()
        assert renderer(["ab\0cd"]).num_patches[0] > renderer(["ab"]).num_patches[0]

def test_a_control_character_is_seen(continuous):
    bell, none = (continuous([text]).pixels[0, :, :32] for text in ("a\x07b", "ab"))
    assert (bell != none).any()

@pytest.mark.parametrize("text", [
    "word "*20_000, "a"*100_000, "漢"*100_000, "ﷺ"*40_000, "مرحبا "*17_000, "e\u0301"*50_000, "\t"*100_000,
    "\u0301"*100_000])
def test_100_000_characters(renderers, text):
    for renderer in renderers.values():
        renderer([PLANE])
        start = time.perf_counter()
        strips = renderer([text])
        assert time.perf_counter() - start < 5 # no layout grows faster than its text
        check_strips(strips, 1, 64)

def test_the_beginning_of_a_long_text_is_that_of_a_shorter_one(continuous):
    text = "word and more "*8_000
    assert len(text) > 6*continuous.BLOCK
    assert (continuous([text]).pixels == continuous([text[:2_000]]).pixels).all()

def test_every_block_of_a_long_text_is_drawn(continuous, monkeypatch):
    monkeypatch.setattr(continuous, "BLOCK", 20)
    text = "one two three four five six seven eight nine e" + "\u0301"*3 + " ten"
    blocks = list(continuous._blocks(text))
    assert "".join(blocks) == text and max(map(len, blocks)) <= 20
    assert all(block.endswith(" ") for block in blocks[:-1])
    assert list(continuous._blocks("x"*19 + "e\u0301")) == ["x"*19, "e\u0301"] # no mark begins a block
    drawn = [continuous([block]) for block in blocks]
    together = np.concatenate([s.pixels[0, :, :-16] for s in drawn], axis=1)
    assert (continuous([text]).pixels[0, :, :-16] == together).all()

# Strategies

def test_the_same_word_is_the_same_picture(words):
    alone = words(["plane"])
    k = int(alone.num_patches[0])
    strip, picture = words([f"a plane, plane {'x'*30} plane"]), alone.pixels[0, :, :16*k]
    starts = range(0, 16*(strip.num_patches[0] + 1 - k), 16)
    found = [start for start in starts if (strip.pixels[0, :, start:start+16*k] == picture).all()]
    assert len(found) == 2 # "plane," is another word

def test_every_unit_starts_on_a_patch_border(words):
    for text in ["A plane is taking off.", "飞机是飞机。", "飛行機がとぶ", "Самолет 离地 now", "नमस्ते दुनिया"]:
        strips = [words([unit]) for unit in split_words(text)]
        together = np.concatenate([s.pixels[0, :, :-16] for s in strips], axis=1)
        assert (words([text]).pixels[0, :, :-16] == together).all()
    assert split_words("飞机 ok飞") == ["飞", "机", "ok", "飞"]
    assert words(["飞"]).num_patches[0] == 1

@pytest.mark.parametrize("strategy", STRATEGIES)
def test_lower_case_is_what_is_drawn(renderers, strategy):
    cased, uncased = renderers[strategy], TextRenderer(RenderConfig(strategy=strategy, lowercase=True))
    text = "A PLANE\nÉtait Là, Ω 飞"
    small = text.lower()
    assert np.array_equal(uncased([text, (text, text)]).pixels, cased([small, (small, small)]).pixels)
    assert not np.array_equal(cased([text]).pixels, uncased([text]).pixels)

def test_punctuation_may_stand_apart(words):
    apart = TextRenderer(RenderConfig(strategy="words", split_punctuation=True))
    together, parted = "«Stop», he said... 5€ 飞机。", "« Stop » , he said . . . 5 € 飞 机 。"
    assert np.array_equal(apart([together]).pixels, words([parted]).pixels)
    assert np.array_equal(words([["Stop,"]]).pixels, apart([["Stop,"]]).pixels) # a list is already divided
    marks_and_sequences = ["नमस्ते", ",", "e\u0301a", "👩‍👧", "x", "❤️"]   # stay whole
    assert split_words("नमस्ते, e\u0301a 👩‍👧x ❤️", punctuation=True) == marks_and_sequences
    long = "ab," + "x"*100
    def patches(text): return apart([text], max_patches=200).num_patches[0]
    assert "".join(split_words(long, punctuation=True)) == long
    assert patches(long) == patches("ab") + patches(",") + patches("x"*100)
    with pytest.raises(ValueError, match="expected strategy=\"words\""): RenderConfig(split_punctuation=True)

def test_bigrams_are_two_characters_a_patch(renderers):
    bigrams = renderers["bigrams"]
    assert bigrams(["ab"*10]).num_patches[0] == 10
    assert bigrams(["飞机"]).num_patches[0] == 2 # too wide for one
    def patch(text, i): return bigrams([text]).pixels[0, :, 16*i:16*i + 16]
    assert (patch("it th", 2) == patch("is th", 2)).all() # of "it", " t", "h"
    assert not (patch("th", 0) == patch("is th", 2)).all()
    assert (patch("is is ", 0) != 255).any()

def test_nothing_of_an_aligned_unit_is_clipped(words):
    tall = Pen(words.files, "Noto Sans", 8*120/72, height=64)
    for text in ["है", "ที่นี่", "Ấg", "جميع", "plane", "jÅ"]:
        tall.set(text)
        assert (tall.draw(16, 128) < 255).sum() == (words([text]).pixels[0, :, :-16] < 255).sum()

def test_pictures_are_looked_up_and_bounded():
    renderer = TextRenderer(RenderConfig(strategy="words"), cache_size=50)
    renderer(["plane a plane"]*20)
    assert renderer._unit.cache_info().misses == 2
    renderer([f"w{i}" for i in range(200)])
    assert renderer._unit.cache_info().currsize == 50
    fresh = TextRenderer(RenderConfig(strategy="words"))
    assert (renderer(["w1 plane"]).pixels == fresh(["w1 plane"]).pixels).all()
    with pytest.raises(ValueError, match="cache_size=-1: expected"): TextRenderer(cache_size=-1)

# What is refused

@pytest.mark.parametrize("texts, words", [
    (["fine", None], "texts[1] is of type NoneType"), ([b"x"], "texts[0] is of type bytes"),
    (["a", "b", 3.5], "texts[2] is of type float"), ([["a", "list"]], "texts[0] is of type list"),
    ([("a", "b", "c")], "texts[0] is of type tuple"), ([("a", None)], "texts[0]"),
    ("a sentence", "texts is one str")])
def test_what_is_not_text(continuous, texts, words):
    with pytest.raises(TypeError) as error: continuous(texts)
    assert words in str(error.value)

def test_a_list_of_words_may_be_long(words):
    start = time.perf_counter()
    check_strips(words([["x" + "\u0301"*100_000, "飞", ""], []]), 2, 64)
    assert time.perf_counter() - start < 5

def test_error_on_long_texts_names_the_first(continuous):
    with pytest.raises(ValueError, match=r"texts\[1\] takes 8 patches"):
        continuous([".", PLANE, PLANE*9], max_patches=8, long="error")
    assert len(continuous([".", PLANE], max_patches=9, long="error")) == 2
    with pytest.raises(ValueError, match="long='fold'"): continuous([PLANE], long="fold")
    for wrong in (0, 1, 2.5, True):
        with pytest.raises(ValueError, match="max_patches"): continuous([PLANE], max_patches=wrong)

def test_config_round_trip():
    fonts = ("NotoSans-Regular.ttf", ("NotoSansCJK-Regular.ttc", "ab"))
    config = RenderConfig(strategy="bigrams", max_patches=32, fonts=fonts, rgb=True, long="scroll",
                          lowercase=True)
    assert RenderConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config and hash(config)
    with pytest.raises(ValueError, match="colour"): RenderConfig.from_dict(dict(colour=True))

# Fonts

def test_config_records_the_fonts_used(continuous):
    assert [name for name, _ in continuous.config.fonts[:2]] == list(REQUIRED_FONTS)
    for path, (name, sha) in zip(continuous.files, continuous.config.fonts):
        assert path.name == name and hashlib.sha256(path.read_bytes()).hexdigest() == sha

def test_fonts_are_searched_in_order(tmp_path, monkeypatch, continuous):
    latin = continuous.files[0]
    other = next(path for path, _ in find_fonts() if path.name != latin.name)
    for name, source in (("env", other), ("given", latin)):
        (tmp_path/name).mkdir(); shutil.copy(source, tmp_path/name/latin.name)
    monkeypatch.setenv("SENTNB_FONTS", os.pathsep.join(["", str(tmp_path/"none"), str(tmp_path/"env")]))
    wanted, pinned = ((latin.name, None),), ((latin.name, continuous.config.fonts[0][1]),)
    assert find_fonts(wanted)[0][0] == tmp_path/"env"/latin.name
    assert find_fonts(wanted, (str(tmp_path/"given"),))[0][0] == tmp_path/"given"/latin.name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_fonts(pinned)[0][1] == pinned[0][1] # the pinned bytes win over the order

def test_other_bytes_warn_and_missing_fonts_say_how(continuous, monkeypatch):
    with pytest.warns(FontWarning, match="NotoSans-Regular.ttf has sha256"):
        TextRenderer(RenderConfig(fonts=(("NotoSans-Regular.ttf", "0"*64),)))
    with pytest.raises(FontMissing, match="SENTNB_FONTS") as error:
        TextRenderer(RenderConfig(fonts=("No-Such.ttf",)))
    assert "apt-get" not in str(error.value), "no package that we know holds it"
    monkeypatch.setattr("sentnb.renderer.fonts.font_folders", lambda: [])
    with pytest.raises(FontMissing, match="apt-get install fonts-noto-core"): TextRenderer()
    monkeypatch.undo()
    with pytest.raises(FontMissing): TextRenderer(fonts=["no/such/folder"])
    with pytest.raises(ValueError, match="Comic Sans"): TextRenderer(RenderConfig(family="Comic Sans"))

def file_of(name: str) -> Path:
    "An installed font of the distribution's packages."
    try: return find_fonts(((name, None),))[0][0]
    except FontMissing: pytest.skip(f"{name} is not installed")

def test_characters_in_no_font_are_named_once(recwarn):
    warnings.simplefilter("always")
    latin = TextRenderer(RenderConfig(fonts=("NotoSans-Regular.ttf",), strategy="words"))
    latin([PLANE, "Ünïcode, самолёт", "a\nb\tc\u200d\ufeff"])
    assert not recwarn.list
    pictures = latin(["一 plane", ("一", "二"), [PLANE, "一"]]).pixels
    warning, = recwarn.list
    assert warning.category is GlyphsMissing and warning.filename == __file__
    assert "2 characters in 3 texts" in str(warning.message) and "U+4E00 一, U+4E8C 二" in str(warning.message)
    assert (latin(["一 plane", ("一", "二"), [PLANE, "一"]]).pixels == pictures).all() and len(recwarn.list) == 1
    latin(["".join(map(chr, range(0x4e00, 0x4e10)))]); latin(["bell \x07"])
    many, bell = (str(warning.message) for warning in recwarn.list[1:])
    assert "15 characters in 1 text," in many and "and 7 more" in many
    assert "1 character in 1 text," in bell and "U+0007;" in bell

def test_all_of_noto_by_one_setting(continuous, recwarn):
    file_of("NotoSansEthiopic-Regular.ttf")
    warnings.simplefilter("always")
    everything = TextRenderer(RenderConfig(fonts="noto"))
    shown = [PLANE, "Самолет", "飞机直骨", "مرحبا", "นี่", "हिन्दी", "שלום", "ﬁ fi"]
    assert (everything(shown).pixels == continuous(shown).pixels).all() # others stand behind the default
    everything(["ሰላም ওঁ བོད་ ᚠᚢᚦ தமிழ் မြန်မာ ខ្មែរ"])
    assert not recwarn.list
    names = [name for name, _ in everything.config.fonts]
    assert len(names) == len(set(names)) > 50
    assert not [name for name in names if "Mono" in name or "Bold" in name]
    assert TextRenderer(RenderConfig.from_dict(everything.config.to_dict())).config == everything.config

def test_one_way_to_draw_in_another_font(continuous, tmp_path):
    file = file_of("NotoSerif-Regular.ttf")
    serif = TextRenderer(RenderConfig(family="Noto Serif"))
    assert serif.config.fonts[0][0] == file.name and serif.config.fonts[1:] == continuous.config.fonts
    assert serif([PLANE]).pixels.tobytes() != continuous([PLANE]).pixels.tobytes()
    assert (serif(["飞机"]).pixels == continuous(["飞机"]).pixels).all() # what it lacks
    shutil.copy(file, tmp_path/"mine.ttf") # of another name, as one that is not installed
    for fonts in ([file], str(file), [tmp_path/"mine.ttf"]):
        again = TextRenderer(RenderConfig(family="noto serif"), fonts=fonts)
        assert (again([PLANE]).pixels == serif([PLANE]).pixels).all()
    assert pickle.loads(pickle.dumps(again)).config == again.config

def test_any_other_way_says_which(tmp_path):
    file, other = file_of("NotoSerif-Regular.ttf"), tmp_path/"notes.py"
    other.write_text("import this\n")
    right = r"RenderConfig\(family='Noto Serif'\), fonts=\["
    for wrong in (lambda: TextRenderer(fonts=[file]), lambda: TextRenderer(RenderConfig(fonts="noto"), file),
                  lambda: TextRenderer(RenderConfig(family="Noto Serif", fonts=REQUIRED_FONTS), [file])):
        with pytest.raises(ValueError, match=right): wrong()
    for wrong in (lambda: RenderConfig(fonts=(file,)), lambda: RenderConfig(fonts=file.name),
                  lambda: RenderConfig(family=str(file)), lambda: RenderConfig(family=file.name),
                  lambda: RenderConfig(family="")):
        with pytest.raises(ValueError, match="to draw in a font"): wrong()
    for fonts in (other, [tmp_path/"none.ttf", other]):
        with pytest.raises((ValueError, FontMissing), match="not a font file|no font file"):
            TextRenderer(fonts=fonts)
    with pytest.raises(ValueError, match="not a font file"):
        TextRenderer(RenderConfig(fonts=("NotoSans-Regular.ttf", other.name)), fonts=[other])
    with pytest.raises(ValueError, match="none of the files to draw with"): TextRenderer(fonts=[tmp_path])

@pytest.mark.parametrize("strategy, fits", [("continuous", 9.5), ("words", 10), ("bigrams", 10)])
def test_a_size_that_clips_letters_gives_a_warning(strategy, fits, recwarn):
    warnings.simplefilter("always")
    for size in (8, fits): TextRenderer(RenderConfig(strategy=strategy, font_size=size))
    assert not recwarn.list
    for clips in (dict(font_size=fits + .5), dict(font_size=20), dict(patch_size=8), dict(dpi=240)):
        with pytest.warns(FontWarning, match="clips letters"):
            TextRenderer(RenderConfig(strategy=strategy, **clips))

def test_no_font_but_those_given_is_used():
    latin, full = TextRenderer(RenderConfig(fonts=("NotoSans-Regular.ttf",))), TextRenderer(RenderConfig())
    assert (latin(["plane"]).pixels == full(["plane"]).pixels).all()
    boxed, drawn = latin(["一"]).pixels, full(["一"]).pixels # a box with its code, and the letter
    assert boxed.shape != drawn.shape or (boxed != drawn).any()
    def unknown(pen): return pen.lib.pango.pango_layout_get_unknown_glyphs_count(pen.layout)
    assert unknown(latin._pen) == 1 and unknown(full._pen) == 0

SHOWN = ["A plane", "Самолет", "飞机直骨", "مرحبا", "นี่", "😀 ☺ ı i", "ﬁ fi \x07 bob"]

def run(program: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", program], env=os.environ | environment, capture_output=True,
                          text=True, cwd=project_root())

def digest(code: str="", **environment: str) -> str:
    program = f"""import hashlib
{code}
from sentnb.renderer import RenderConfig, TextRenderer
d = hashlib.sha256()
for s in {STRATEGIES}: d.update(TextRenderer(RenderConfig(strategy=s))({SHOWN!r}).pixels.tobytes())
print(d.hexdigest())"""
    done = run(program, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()

def test_a_picture_does_not_depend_on_the_desktop(tmp_path):
    hostile = tmp_path/"fonts.conf"
    hostile.write_text("""<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>/usr/share/fonts</dir>
<match target="pattern">
 <edit name="family" mode="assign" binding="strong"><string>DejaVu Serif</string></edit></match>
<match target="font"><edit name="antialias" mode="assign"><bool>false</bool></edit>
 <edit name="hintstyle" mode="assign"><const>hintfull</const></edit></match></fontconfig>""")
    plain = digest()
    assert plain == digest(FONTCONFIG_FILE=str(hostile), LANGUAGE="zh_CN:tr:ko", PANGO_LANGUAGE="zh-cn",
                           LC_ALL="C.UTF-8", LANG="zh_CN.UTF-8", FC_LANG="ko", GDK_DPI_SCALE="2")
    assert plain == digest("import locale; locale.setlocale(locale.LC_ALL, 'C')", LANG="C")

def test_the_pen_has_no_language(continuous): # a locale's would choose other forms of Han characters and of б
    pen = continuous._pen
    language = pen.lib.pango.pango_context_get_language(pen.lib.pango.pango_layout_get_context(pen.layout))
    assert pen.lib.pango_ffi.string(pen.lib.pango.pango_language_to_string(language)) == b"xx"

@pytest.mark.parametrize("hide", [
    "import sys; sys.modules['pangocairocffi'] = None",
    "import ctypes.util; ctypes.util.find_library = lambda name: None",
    "import os; os.environ['PATH'] = ''; import ctypes.util; find = ctypes.util.find_library; "
    "ctypes.util.find_library = lambda name: None if 'pango' in name else find(name)"])
def test_missing_pango_is_one_sentence(hide):
    done = run(f"{hide}\nfrom sentnb.renderer import TextRenderer\nprint('imported')\nTextRenderer()")
    assert done.returncode and done.stdout.strip() == "imported"
    for command in ("apt-get install libpango-1.0-0 libpangocairo-1.0-0 libpangoft2-1.0-0",
                    "brew install pango"):
        assert command in done.stderr
    assert "dlopen" not in done.stderr and done.stderr.count("Traceback") == 1
    assert len(done.stderr.strip().splitlines()[-1].split(". ")) == 1

# Workers, files, pictures

NEW = ["drawn for the first time", "飛機"] # so that it is not looked up

def _in_child(renderer, queue): queue.put(renderer(NEW).pixels.tobytes())

@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_draws_the_same(words):
    queue = multiprocessing.get_context("fork").Queue()
    with words._lock: # as if another thread were drawing at that moment
        child = multiprocessing.get_context("fork").Process(target=_in_child, args=(words, queue))
        child.start()
    drawn = queue.get(timeout=60); child.join()
    assert drawn == words(NEW).pixels.tobytes()

def test_threads_draw_the_same(renderers):
    batches = [[f"{PLANE} number {i}", "飞机", f"{i*i} words"] for i in range(60)]
    for strategy, renderer in renderers.items():
        fresh = TextRenderer(RenderConfig(strategy=strategy))
        with ThreadPoolExecutor(4) as pool: drawn = list(pool.map(fresh, batches))
        assert all((a.pixels == renderer(b).pixels).all() for a, b in zip(drawn, batches))

def test_copies_through_pickle(words):
    copy = pickle.loads(pickle.dumps(words))
    assert copy.config == words.config and (copy([PLANE]).pixels == words([PLANE]).pixels).all()

def test_png(tmp_path, continuous):
    from PIL import Image
    def opened(png): return Image.open(io.BytesIO(png))
    for renderer in (continuous, TextRenderer(RenderConfig(rgb=True))):
        picture = renderer([PLANE, "I ❤️ a much longer text than the other one"])[0]
        path = picture.save_png(tmp_path/"strip.png")
        assert (np.asarray(Image.open(path)) == picture.pixels).all() and picture.pixels.shape[1] == 16*9
        assert path.read_bytes() == picture.to_png() and [f.name for f in tmp_path.iterdir()] == ["strip.png"]
        assert opened(picture._repr_png_()).size == (2*16*9, 32)
        assert opened(picture.to_png(scale=3, wrap=4, grid=True)).size == (3*16*4, 3*16*3)
        assert (np.asarray(opened(picture.to_png(wrap=4)))[16:32, :64] == picture.pixels[:, 64:128]).all()

def test_indexing(continuous):
    strips = continuous([PLANE, "x", ""])
    assert continuous([PLANE*9, "x"])._repr_png_()[:4] == b"\x89PNG"
    assert len(strips) == 3 and (strips[-1].pixels == strips[2].pixels).all() and len(strips[1:]) == 2
    with pytest.raises(IndexError): strips[3]
    assert strips._repr_png_()[:4] == b"\x89PNG" and continuous([])._repr_png_() is None

def test_versions(continuous):
    assert continuous.versions() == versions() and {"pango", "cairo", "freetype"} <= set(versions())
    assert all(value is None or value[0].isdigit() for value in versions().values())