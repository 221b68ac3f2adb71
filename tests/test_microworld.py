"The microworld: forms are there, splits share nothing, a call gives the same rows, the grammar agrees."
import re
import shutil

import pytest

from sentnb.core import data_dir
from sentnb.corpora.microworld import (
    FAMILIES, LANGUAGES, SPLITS, LexiconError, Microworld, Scene, load_lexicon)


@pytest.fixture(scope="module")
def micro():
    return Microworld()


def tell(micro, language, style=0, order="neutral", definite=False, **slots):
    scene = Scene("man", "one", "", "sleep", "", "", "", "", "")._replace(**slots)
    return micro.grammars[language].sentence(scene, style, order, definite)


# the lexicon

def test_every_concept_has_all_forms_in_ten_languages():
    lexicon = load_lexicon()
    assert sorted(lexicon.words) == sorted(LANGUAGES)
    assert sorted(language for family in FAMILIES.values() for language in family) == sorted(LANGUAGES)
    for language, sections in lexicon.words.items():
        for section, concepts in lexicon.concepts.items():
            assert list(sections[section]) == list(concepts)
            for concept, words in sections[section].items():
                assert 1 <= len(words) <= 2, (language, concept)
                cells = [cell for word in words for cell in word.values()]
                assert all(cell == cell.strip() and cell for cell in cells), (language, words)
                assert concepts[concept].get("number") != "count" or "-" not in cells, (language, words)


def test_what_the_concepts_name_exists():
    lexicon = load_lexicon()
    nouns, places = lexicon.concepts["nouns"], lexicon.concepts["places"]
    for row in nouns.values():
        assert row["parent"] in ("-", *nouns) and set(row["places"].split(",")) <= {"-", "all", *places}
        known = {"-", "adult", "child", "size", "age", "colour", *lexicon.concepts["adjectives"]}
        assert set(row["adjectives"].split(",")) <= known
    for row in lexicon.concepts["verbs"].values():
        words_taken = {token.lstrip("-") for token in f'{row["agents"]},{row["objects"]}'.split(",")}
        assert words_taken - {""} <= set(nouns), row
        assert set(row["places"].split(",")) <= {"all", *places}, row
        assert row["opposite"] in ("-", *lexicon.concepts["verbs"]), row
    for section in ("adjectives", "times"):
        known = {"-", *lexicon.concepts[section]}
        for row in lexicon.concepts[section].values(): assert set(row["opposite"].split(",")) <= known


@pytest.mark.parametrize("file, before, after, message", [
    ("de", "apple\tm\tApfel\tApfel\tÄpfel", "apple\tm\tApfel\tApfel",
     r"de\.tsv:\d+: concept 'apple': missing form 'plural'"),
    ("pl", "dog\tm2\tpies\tpsa\t", "dog\tm2\tpies\t-\t",
     r"pl\.tsv:\d+: concept 'dog': missing form 'accusative'"),
    ("fr", "\nswim\tnage\tnagent", "", r"fr\.tsv: no row in @verbs for concept 'swim' \(concepts\.tsv:\d+\)"),
    ("zh", "pear\t个\t梨\n", "pear\t个\t苹果\n", r"zh\.tsv:\d+: concept 'pear': '苹果' is also the word of 'apple'"),
    ("en", "pear\tpear", "paer\tpear", r"en\.tsv:\d+: concept 'paer' is not among the nouns"),
    ("ru", "@verbs", "@werbs", r"ru\.tsv:\d+: section 'werbs'"),
    ("it", "swim\tnuotando", "swim\tnuotando\tnuotare", r"it\.tsv:\d+: concept 'swim': 3 cells, expected 2")])
def test_a_fault_of_the_lexicon_is_named(tmp_path, file, before, after, message):
    shutil.copytree(data_dir("microworld"), tmp_path, dirs_exist_ok=True)
    path = tmp_path/f"{file}.tsv"
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(LexiconError, match=message): load_lexicon(tmp_path)


# agreement, case and order

CUT = dict(agent="woman", verb="cut", object="apple", object_number="one")
FEED = dict(agent="woman", verb="feed", object="dog", object_number="one")
HUG = dict(agent="girl", verb="hug", object="grandfather", object_number="one")
BUY = dict(agent="woman", verb="buy", object="book", object_number="one")
REPAIR = dict(verb="repair", object="computer", object_number="one")
DOGS = dict(agent="woman", verb="photograph", object="dog", object_number="some")


@pytest.mark.parametrize("language, slots, sentence", [
    ("en", dict(agent="actor", quality="elderly"), "An elderly actor is sleeping."),
    ("de", CUT | dict(object_quality="red"), "Eine Frau schneidet einen roten Apfel."),
    ("de", HUG, "Ein Mädchen umarmt einen Großvater."),
    ("nl", dict(agent="horse", quality="white"), "Een wit paard slaapt."),
    ("nl", dict(agent="horse", number="some", quality="white"), "Enkele witte paarden slapen."),
    ("es", FEED, "Una mujer está alimentando a un perro."),
    ("es", BUY, "Una mujer está comprando un libro."),
    ("fr", dict(agent="man", quality="young", number="some"), "De jeunes hommes dorment."),
    ("fr", dict(verb="drink", object="water", object_number=""), "Un homme boit de l'eau."),
    ("fr", REPAIR | dict(object_quality="old"), "Un homme répare un vieil ordinateur."),
    ("it", dict(agent="student", quality="happy", number="some"), "Alcuni studenti felici stanno dormendo."),
    ("it", dict(agent="student"), "Uno studente sta dormendo."),
    ("pt", dict(agent="nurse", quality="tired"), "Uma enfermeira cansada está dormindo."),
    ("pl", dict(agent="man", number="some", quality="young"), "Młodzi mężczyźni śpią."),
    ("pl", FEED | dict(object_quality="black"), "Kobieta karmi czarnego psa."),
    ("pl", CUT | dict(object="carrot"), "Kobieta kroi marchewkę."),
    ("ru", DOGS | dict(object_quality="white"), "Женщина фотографирует белых собак."),
    ("ru", CUT | dict(object="pear", object_quality="green"), "Женщина режет зелёную грушу."),
    ("zh", CUT | dict(object_quality="red"), "一个女人正在切一个红色的苹果。")])
def test_noun_phrases_agree(micro, language, slots, sentence):
    assert tell(micro, language, **slots) == sentence


FOOTBALL = dict(agent="boy", verb="football", place="park", time="evening")
GIRLS, STUDENTS = (dict(agent=agent, number="some", definite=True) for agent in ("girl", "student"))


@pytest.mark.parametrize("language, slots, sentence", [
    ("en", FOOTBALL | dict(order="time"), "In the evening, a boy is playing football in the park."),
    ("de", FOOTBALL, "Ein Junge spielt am Abend im Park Fußball."),
    ("de", FOOTBALL | dict(order="time"), "Am Abend spielt ein Junge im Park Fußball."),
    ("nl", FOOTBALL | dict(order="time"), "'s Avonds voetbalt een jongen in het park."),
    ("nl", FOOTBALL | dict(order="place", style=8), "In het park speelt een jongen 's avonds voetbal."),
    ("pl", dict(order="place", agent="dog", place="park"), "W parku śpi pies."),
    ("ru", FOOTBALL | dict(order="time"), "Вечером в парке мальчик играет в футбол."),
    ("zh", FOOTBALL, "一个男孩晚上在公园里踢足球。"),
    ("zh", FOOTBALL | dict(order="place"), "在公园里，一个男孩晚上在踢足球。"),
    ("de", GIRLS, "Die Mädchen schlafen."),
    ("it", STUDENTS, "Gli studenti stanno dormendo.")])
def test_clauses_are_ordered_as_their_language_wants(micro, language, slots, sentence):
    assert tell(micro, language, **slots) == sentence


def test_every_sentence_is_well_formed(micro):
    for language in LANGUAGES:
        for sentence in micro.sentences(language, 2_000):
            assert sentence[-1] == ("。" if language == "zh" else "."), sentence
            assert not any(wrong in sentence for wrong in ("  ", " - ", "_", "|")), sentence
            assert sentence[0] != "-" and not sentence[0].islower(), sentence


# the views

def views(micro, split, n):
    "Every sentence of a split that a training could see, in two languages."
    texts = set()
    for language in ("en", "ru"):
        texts |= set(micro.sentences(language, n, split))
        texts |= {sentence for sentence, _ in micro.probe(language, n, split)}
        texts |= {sentence for row in micro.nli(language, split, n) for sentence in row}
        texts |= {sentence for row in micro.sts(language, split, n) for sentence in row[:2]}
    texts |= {sentence for row in micro.parallel("en", "ru", split, n) for sentence in row}
    many = micro.parallel_many(("en", "ru"), n, split)
    return texts | {sentence for row in many for sentence in row.values()}


def test_splits_share_no_sentence_whatever_the_seed():
    parts = ((0, "train"), (1, "dev"), (2, "test"))
    train, dev, test = (views(Microworld(seed), split, 700) for seed, split in parts)
    assert min(len(train), len(dev), len(test)) > 4_000
    assert not train & test and not train & dev and not dev & test


def test_every_scene_of_a_view_is_of_its_split(micro, monkeypatch):
    scenes = []
    grammar = type(micro.grammars["en"])
    plain = grammar.sentence
    def listen(self, scene, *args, **options):
        scenes.append(scene)
        return plain(self, scene, *args, **options)
    monkeypatch.setattr(grammar, "sentence", listen)
    for split in SPLITS:
        scenes.clear()
        views(micro, split, 100); micro.documents("en", 20, split=split)
        assert len(scenes) > 1_000 and {scene.split for scene in scenes} == {split}
        assert all(micro.world.fits(scene) for scene in scenes)


def test_the_same_call_gives_the_same_rows_in_any_process(python):
    code = """if True:
        from sentnb.core import fingerprint
        from sentnb.corpora.microworld import Microworld
        m = Microworld(3)
        rows = [m.sentences("de", 50), m.nli("en", "train", 50), m.sts("ru", "test", 50)]
        rows += [m.parallel("en", "zh", n=50), m.documents("it", 5), m.probe("pl", 50), m.describe()]
        print(fingerprint(rows))"""
    assert python(code, PYTHONHASHSEED="1") == python(code, PYTHONHASHSEED="2")
    assert Microworld(3).sentences("de", 50) != Microworld(4).sentences("de", 50)


def test_a_longer_view_begins_with_the_shorter(micro):
    assert micro.sts("fr", "test", 80)[:40] == micro.sts("fr", "test", 40)
    assert micro.nli("en", "train", 80)[:40] == micro.nli("en", "train", 40)


def test_gold_scores_fill_the_scale_and_are_those_of_every_language(micro):
    golds = [g for *_, g in micro.sts("en", "test", 1_200)]
    assert min(golds) < .5 and max(golds) == 5 and all(0 <= g <= 5 for g in golds)
    for low in range(6): assert sum(low <= g < low + 1 for g in golds) > 120, low
    for language in LANGUAGES: assert [g for *_, g in micro.sts(language, "test", 200)] == golds[:200]


def test_sentences_are_the_same_only_where_the_meaning_is(micro):
    for language in LANGUAGES:
        for split in ("dev", "test"):
            rows = micro.sts(language, split, 1_000)
            assert not [row for row in rows if row[0] == row[1] and row[2] < 5]
            assert sum(row[0] == row[1] for row in rows) < 60


def test_similarity_is_symmetric_and_five_only_for_the_same_scene(micro):
    for x, y, gold in micro._pairs("dev", 500):
        assert micro.world.similarity(y, x) == gold and (gold == 5) == (x == y)


def test_two_scenes_never_read_the_same(micro):
    for language in LANGUAGES:
        seen = {}
        for _, scene in zip(range(4_000), micro._scenes(micro._rng("train", 1, "collisions"), "train")):
            for style in (0, 255):
                sentence = micro.grammars[language].sentence(scene, style)
                assert seen.setdefault(sentence, scene) == scene


def test_hypotheses_follow_or_contradict(micro):
    import random
    world, rng = micro.world, random.Random(0)
    def apart(a, b): return a and b and a not in world.ancestors[b] and b not in world.ancestors[a]
    def differ(a, b): return a and b and a != b
    for _, x in zip(range(2_000), micro._scenes(micro._rng("train", 1, "nli test"), "train")):
        entailed, contradicted = world.entailed(rng, x), world.contradicted(rng, x)
        if entailed:
            assert entailed.agent in world.ancestors[x.agent]
            assert (entailed.verb, entailed.number) == (x.verb, x.number)
            slots = ("quality", "object_quality", "place", "time")
            assert all(getattr(entailed, slot) in ("", getattr(x, slot)) for slot in slots)
            assert not x.object or entailed.object in world.ancestors[x.object]
            assert entailed != x, "it says less, or in other words"
        if contradicted:
            assert contradicted != x and world.fits(contradicted)
            clash = [differ(getattr(x, slot), getattr(contradicted, slot))
                     for slot in ("verb", "number", "quality", "place", "time")]
            clash += [apart(x.agent, contradicted.agent), apart(x.object, contradicted.object)]
            assert any(clash), "what says less contradicts nothing"


def test_documents_have_a_topic(micro):
    documents = micro.documents("en", 40, (4, 8))
    assert all(4 <= d.count(".") <= 8 for d in documents) and len(set(documents)) == 40
    assert sum(" the " in d.lower() for d in documents) == 40
    assert all(4 <= d.count("。") <= 5 for d in micro.documents("zh", 10, (4, 5), "test"))


def test_labels_of_a_probe_vary(micro):
    rows = micro.probe("es", 800)
    values = {name: {labels[name] for _, labels in rows} for name in rows[0][1]}
    assert values["agent"] == {"person", "animal"} and values["number"] == {"one", "some"}
    assert values["place"] == {"indoors", "outdoors"}
    assert len(values["verb"]) > 8 and values["time"] == {"none", "day", "season", "meal"}


def test_wrong_arguments_are_named(micro):
    with pytest.raises(ValueError, match="language='fi': expected one of en, de"): micro.sentences("fi")
    with pytest.raises(ValueError, match="split='validation': expected one of train, dev, test"):
        micro.sts("en", "validation")
    with pytest.raises(ValueError, match="n=-1"): micro.nli(n=-1)
    for sentences in ((0, 0), (0, 4), (5, 4), (80, 80)):
        with pytest.raises(ValueError, match="expected the smallest and the largest number, from 1 to"):
            micro.documents("en", 1, sentences)


def test_drawing_a_document_that_is_too_long_ends(micro, monkeypatch):
    monkeypatch.setattr("sentnb.corpora.microworld.corpus.ATTEMPTS", 3)
    with pytest.raises(ValueError, match="no document of 60 sentences in 3 attempts"):
        micro.documents("en", 1, (60, 60), "test")


def test_the_counts(micro):
    counts = micro.describe()
    assert counts["scenes"] > 50_000 and counts["concepts"]["nouns"] > 120
    assert min(counts["words"].values()) > 300


def test_a_tree_has_a_label_for_each_word(micro):
    rows = micro.trees(400, "test")
    assert rows == Microworld().trees(400, "test")
    for sentence, tree in rows:
        words, arcs = sentence.split(), [re.fullmatch(r"(\w+)\((\d+),(\d+)\)", arc) for arc in tree.split()]
        labels, heads, dependents = zip(*(arc.groups() for arc in arcs))
        assert list(dependents) == list(map(str, range(len(words)))), sentence
        assert labels.count("nsubj") == labels.count("root") == 1, sentence
        root = labels.index("root")
        for label, head in zip(labels, map(int, heads)):   # two levels below the root
            assert head == root or (label in ("det", "mod", "case") and int(heads[head]) == root), sentence
        assert words[labels.index("aux")] in ("is", "are"), sentence
        articles = [word.lower() in ("a", "an", "the", "some", "several") for word in words]
        assert articles == [label == "det" for label in labels], sentence
    assert 20 < len({tree for _, tree in rows}) < len(rows), "many sentences share a tree"
    scene = Scene("woman", "one", "young", "cut", "apple", "one", "red", "kitchen", "morning")
    assert micro.grammars["en"].tree(scene) == "det mod nsubj aux root det mod obj case det obl case det obl"
    with pytest.raises(ValueError, match="English only"): micro.grammars["zh"].tree(scene)
