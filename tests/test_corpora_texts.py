"Texts to pre-train on: sentences, blocks, what tests hold, what is taken out, the proof that none is left."
import json, random

import pyarrow, pyarrow.parquet
import pytest
from hypothesis import example, given, settings, strategies as st

from sentnb import corpora
from sentnb.core import fingerprint
from sentnb.corpora import pretraining, texts as module

real = pytest.mark.usefixtures("hub") # skips, and says so, without a mirror
quick = settings(deadline=None, max_examples=200)
WORDS = ["A", "cat", "sleeps", "Dr.", "U.S.", "3.", "12.5", "ends.", "Ends!", "why?", "“so.”", "...", "Ён…",
         "他说。", "好！”", "走了", "(x)", "é", "end.)", "\n", "；", "'", "--", "»"]
documents = st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)


def letters(text: str) -> str:
    return "".join(text.split())


# Pure functions

@given(documents)
@quick
def test_sentences_lose_nothing_and_cut_again_the_same(text):
    sentences = corpora.split_sentences(text)
    assert letters("".join(sentences)) == letters(text) and all(s == s.strip() and s for s in sentences)
    assert [again for s in sentences for again in corpora.split_sentences(s)] == sentences


@given(documents)
@quick
def test_a_block_is_cut_into_the_pieces_that_it_was_joined_from(text):
    sentences = corpora.split_sentences(text)
    joined = module.join_sentences(sentences)
    assert letters(joined) == letters(text)
    fragments = [fragment for s in sentences for fragment in corpora.split_fragments(s)]
    assert corpora.split_fragments(joined) == fragments
    assert module.join_sentences(sentences[:1]) == "".join(sentences[:1])


@pytest.mark.parametrize("text, expected", [
    ("Mr. A. B. Smith of the U.S. won. He did.", ["Mr. A. B. Smith of the U.S. won.", "He did."]),
    ("Er kam am 3. Mai. Gut so.", ["Er kam am 3. Mai.", "Gut so."]),
    ("In 1999. Then 3.5 of it.", ["In 1999.", "Then 3.5 of it."]),
    ('Yahoo! is it. "Is it?" (It is.) ¿Sí? Tak.', ["Yahoo! is it.", '"Is it?"', "(It is.)", "¿Sí?", "Tak."]),
    ("Т.е. так. Он ушёл.", ["Т.е. так.", "Он ушёл."]),
    ("他走了。“好！”她说", ["他走了。", "“好！”", "她说"]),
    ("« Il part. » Elle…  Oui !", ["« Il part. »", "Elle…", "Oui !"]),
    ("One\n\nTwo", ["One", "Two"]), ("", [])])
def test_where_sentences_end(text, expected):
    assert corpora.split_sentences(text) == expected


@given(documents, st.sets(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join), max_size=6))
@example("A cat. B dog. C bird. A cat.", {"C bird. A cat.", "B dog"})
@quick
def test_nothing_banned_is_left_and_nothing_else_goes(text, banned):
    banned = {form: "some test" for form in map(corpora.normalize, banned) if form}
    sentences = corpora.split_sentences(text)
    kept, reasons = corpora.remove_banned(sentences, banned)
    rest = iter(sentences)
    assert all(sentence in rest for sentence in kept) # in order
    assert bool(reasons) == (len(kept) < len(sentences)) and set(reasons) <= set(banned)
    assert corpora.remove_banned(kept, banned) == (kept, [])
    if kept: corpora.check_clean([module.join_sentences(kept)], banned=banned)
    if reasons:
        with pytest.raises(ValueError, match="text 1 holds the test sentence .* of some test"):
            corpora.check_clean(["", module.join_sentences(sentences)], banned=banned)


@pytest.mark.parametrize("text", [
    "It was so. A man is playing a guitar! Then no more.", "a man , is PLAYING a guitar",
    "He met Mr. A man is playing a guitar.", "It rained in May, no. 3. A man is playing a guitar.",
    "Title\nA man. Is playing a guitar\nnext"])
def test_no_spelling_hides_a_test_sentence(text):
    banned = {corpora.normalize("A man is playing a guitar.")}
    with pytest.raises(ValueError, match="amanisplayingaguitar"): corpora.check_clean([text], banned=banned)
    kept, reasons = corpora.remove_banned(corpora.split_sentences(text), banned)
    assert reasons and "guitar" not in " ".join(kept)


def test_what_stands_side_by_side_after_a_removal_is_looked_at_again():
    banned = {"onetwo", "gone"}
    sentences = ["One.", "Gone.", "Two.", "Three."]
    assert corpora.remove_banned(sentences, banned) == (["Three."], ["gone", "onetwo"])


@given(st.lists(documents, max_size=4), st.integers(1, 12))
@example(["A 他说。 ； ； ..."], 1)
@quick
def test_blocks_hold_every_letter_in_order_and_keep_their_size(texts, words):
    blocks = list(corpora.pack_blocks(texts, words))
    assert letters("".join(blocks)) == letters("".join(texts)) and all(block.strip() for block in blocks)
    # marks that stand alone are no words beside Han, and where a cut leaves no Han they are: not counted here
    def spoken(text): return corpora.count_words(f"一一 {text}") - 1
    assert max(map(spoken, blocks), default=0) <= 1.75*words + 1
    # no block holds two documents
    cut = map(corpora.split_sentences, texts)
    assert blocks == [block for sentences in cut for block in corpora.pack_blocks([sentences], words)]


def test_blocks_end_where_sentences_end():
    text = " ".join(f"This is sentence {i} of a long text that goes on." for i in range(200))
    blocks = list(corpora.pack_blocks([text], 45))
    assert " ".join(blocks) == text and all(block.endswith("on.") for block in blocks)
    assert {corpora.count_words(block) for block in blocks[:-1]} <= {40, 44, 45, 50} and len(blocks) > 40
    endless = " ".join(["word"]*1000)
    assert {len(part.split()) for part in corpora.pack_blocks([endless], 45)} <= {43, 44} # 23 equal parts
    assert "".join(corpora.pack_blocks(["走"*1000], 45)) == "走"*1000
    assert max(map(len, corpora.pack_blocks(["走"*1000], 45))) <= 90
    for wrong in (0, -3):
        with pytest.raises(ValueError, match="1 or more"): list(corpora.pack_blocks(["A"], wrong))


def test_a_cut_lays_no_test_sentence_bare():
    text = "He left! despite this it went on and on and then stopped"
    assert list(corpora.pack_blocks([text], 4))[0] == "He left! despite this"
    assert list(corpora.pack_blocks([text], 4, {"despitethis"})) == list(corpora.pack_blocks([text], 4))[1:]


@pytest.mark.parametrize("text, n", [("", 0), ("one  two\nthree", 3), ("一二三四", 2), ("一二三", 2),
                                     ("他说 hello , ok。", 3), ("año – día", 3)])
def test_words_are_counted(text, n):
    assert corpora.count_words(text) == n


# A mirror of a few rows

@pytest.fixture
def mirror(tmp_path, monkeypatch):
    "An empty mirror and cache; put(name, config=..., split=rows, ...) adds a data set."
    monkeypatch.setenv("SENTNB_HUB", str(tmp_path/"hub"))
    monkeypatch.setenv("SENTNB_CACHE", str(tmp_path/"cache"))
    (tmp_path/"hub").mkdir()
    def put(name, **splits):
        folder = tmp_path/"hub"/name
        folder.mkdir(parents=True, exist_ok=True)
        header, one_config = "---\nconfigs:\n", isinstance(next(iter(splits.values())), list)
        for config, parts in ({"default": splits} if one_config else splits).items():
            header += f'- config_name: "{config}"\n  data_files:\n'
            for split, rows in parts.items():
                table = pyarrow.Table.from_pylist(rows)
                pyarrow.parquet.write_table(table, folder/f"{config}-{split}.parquet")
                header += f'  - split: {split}\n    path: "{config}-{split}.parquet"\n'
        (folder/"README.md").write_text(header + "---\n")
    put.cache = tmp_path/"cache"/"pretraining"
    return put


def articles(*texts):
    return [dict(id=i, title="t", url="u", text=text, n_paragraphs=1) for i, text in enumerate(texts)]


def questions(*texts):
    return [dict(text=text, label=0, coarse="a", fine="b") for text in texts]


@pytest.fixture
def wikipedia(mirror):
    mirror("senteval/trec", train=questions("?"), test=questions("Who wrote it ?", "Where? And when?"))
    mirror("text/wikipedia_en_2015",
           train=articles("A first. Who wrote it?\n\nB second. C third.", "Who wrote it?"),
           extra=articles("D fourth. Where? And when? E fifth.", "Held. F sixth."),
           validation=articles("Held. Held. G seventh. Who WROTE it"))
    return mirror


def test_the_tests_are_taken_out_and_counted(wikipedia):
    ask = dict(sources=["wikipedia"], tests=["TREC"])
    assert corpora.test_sentences(["TREC"]) == {"whowroteit": "TREC", "whereandwhen": "TREC"}
    texts = ["A first. B second. C third.", "D fourth. E fifth.", "F sixth."]
    assert sorted(corpora.pretraining_texts(**ask)) == texts
    dev = corpora.pretraining_texts(split="validation", **ask)
    assert dev == corpora.pretraining_texts(split="dev", **ask) == ["Held. Held. G seventh."]
    counts, = corpora.pretraining_counts(**ask)
    expected = dict(sentences=15, banned=5, translations=0, repeated=1, train_documents=3, train_sentences=6,
                    train_words=12, validation_sentences=3, banned_by=dict(TREC=4), licence="CC BY-SA 3.0")
    assert {name: counts[name] for name in expected} == expected and json.dumps(counts)


def test_the_proof_names_what_it_finds(wikipedia):
    clean = corpora.check_clean(corpora.pretraining_texts(sources=["wikipedia"], tests=["TREC"]), ["TREC"])
    assert (clean["texts"], clean["pieces"], clean["banned"]) == (3, 6, 2)
    with pytest.raises(ValueError, match="text 0 holds the test sentence 'whowroteit' of TREC"):
        corpora.check_clean(["So: who wrote it. Who wrote it"], ["TREC"])
    with pytest.raises(TypeError, match="text 1 is a list"): corpora.check_clean(["a", ["b"]], ["TREC"])
    with pytest.raises(ValueError, match="one of the two"): corpora.check_clean(["a"], ["TREC"], banned=set())


def sample(mirror, seed=0):
    "Sets of every form that a source has, full of what is hard to cut, and a test that holds some of it."
    rng = random.Random(seed)
    def text(longest): return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, longest)))
    def row(columns): return {column: text(6) for column in columns}
    def texts(count, longest): return [text(longest) for _ in range(count)]
    mirror("text/wikipedia_en_2015", train=articles(*texts(40, 60)), extra=articles(*texts(20, 30)),
           validation=articles(*texts(20, 30)))
    mirror("text/wikipedia_en_sentences", train=[dict(text=text(8), page_id=i) for i in range(300)])
    mirror("parallel/ntrex128", test=[row(NTREX[:-1]) | dict(ces="", doc_id=str(i//4)) for i in range(60)])
    def inferences(): return [row(("premise", "hypothesis")) | dict(label="neutral") for _ in range(150)]
    mirror("nli/xnli", **{language: dict(validation=inferences()) for language in ("en", "de")})
    def paws(ids):
        return dict(validation=[dict(id=i, label=0) | row(("sentence1", "sentence2")) for i in ids])
    mirror("paraphrase/paws-x", en=paws(range(0, 150, 2)), de=paws(range(100)))
    mirror("senteval/trec", test=questions(*texts(25, 4)))


def test_the_rules_are_those_that_got_this_name(mirror):
    sample(mirror)
    ask = dict(languages=("en", "de"), tests=["TREC"],
               sources=("wikipedia", "wikipedia_sentences", "ntrex", "xnli", "paws-x"))
    texts = [corpora.pretraining_texts(words, split=split, **ask)
             for words in (3, 12) for split in ("train", "validation")]
    counts = [{name: value for name, value in row.items() if name != "fingerprint"}
              for row in corpora.pretraining_counts(**ask)]
    assert list(map(len, texts)) == [388, 47, 132, 22]
    assert (pretraining.RULES, fingerprint([texts, counts])) == ("1ec3759174aead8f", "93cb90977b82ffca"), (
        "the rules make other texts than they did under this name: give them another, pretraining.RULES")


def test_order_comes_from_the_seed(wikipedia):
    wikipedia("text/wikipedia_en_2015", train=articles(*(f"Number {i}." for i in range(50))),
              extra=articles("x"), validation=articles("y"))
    ask = dict(sources=["wikipedia"], tests=[])
    first = corpora.pretraining_texts(**ask)
    assert first == corpora.pretraining_texts(**ask) != corpora.pretraining_texts(seed=1, **ask)
    assert sorted(first) == sorted(corpora.pretraining_texts(seed=1, **ask)) and len(first) == 51
    assert {corpora.count_words(text) for text in corpora.pretraining_texts(words=1, **ask)} == {1}


def test_the_cache_follows_data_and_tests(wikipedia, monkeypatch):
    ask = dict(sources=["wikipedia"])
    first = corpora.pretraining_texts(tests=["TREC"], **ask)
    cleaned = []
    clean = pretraining._clean
    monkeypatch.setattr(pretraining, "_clean", lambda *a: cleaned.append(a[0]) or clean(*a))
    monkeypatch.setattr(pretraining, "RULES", "other rules")
    assert corpora.pretraining_texts(tests=["TREC"], **ask) == first and cleaned == ["wikipedia"]
    assert corpora.pretraining_texts(tests=["TREC"], **ask) == first and len(cleaned) == 1
    corpora.pretraining_texts(tests=[], **ask)
    assert len(cleaned) == 2
    wikipedia("senteval/trec", test=questions("B second"))
    assert "B second" not in " ".join(corpora.pretraining_texts(tests=["TREC"], **ask)) and len(cleaned) == 3
    new = dict(train=articles("New."), extra=articles("Newer."), validation=articles("y"))
    wikipedia("text/wikipedia_en_2015", **new)
    assert sorted(corpora.pretraining_texts(tests=["TREC"], **ask)) == ["New.", "Newer."]
    assert len(cleaned) == 4


def test_a_broken_write_leaves_no_cache(wikipedia, monkeypatch):
    def fail(table, path, **rest):
        path.write_bytes(b"half")
        raise OSError("disk full")
    with monkeypatch.context() as patch:
        patch.setattr(pyarrow.parquet, "write_table", fail)
        with pytest.raises(OSError, match="disk full"):
            corpora.pretraining_texts(sources=["wikipedia"], tests=["TREC"])
    assert list(wikipedia.cache.iterdir()) == []
    assert len(corpora.pretraining_texts(sources=["wikipedia"], tests=["TREC"])) == 3


@pytest.fixture
def translated(mirror):
    "200 sentences in twelve languages, number 7 twice; number 5 is tested in English, number 6 in German."
    languages = (*corpora.LANGUAGES, "ja", "ko")
    def row(i): return {language: f"{language} sentence {i}." for language in languages}
    rows = [row(i) for i in (*range(200), 7)]
    mirror("parallel/stsb", train=rows, validation=rows[:1], test=rows[:1])
    mirror("senteval/trec", test=questions("en sentence 5", "de sentence 6"))
    return dict(sources=["stsb"], tests=["TREC"])


def test_a_translation_of_a_test_sentence_is_one_too(translated):
    parts = {split: " ".join(corpora.pretraining_texts(languages=["de", "zh"], split=split, **translated))
             for split in ("train", "validation")}
    everything = " ".join(parts.values())
    assert "de sentence 5." not in everything and "zh sentence 5." not in everything
    assert "de sentence 6." not in everything and "zh sentence 6." in everything
    assert everything.count("de sentence 7.") == 1
    held = {language: {i for i in range(200) if f"{language} sentence {i}." in parts["validation"]}
            for language in ("de", "zh")}
    # the same rows, so that no translation of them is trained on
    assert held["de"] and held["de"] - {6} == held["zh"] - {6}
    german, chinese = corpora.pretraining_counts(["de", "zh"], **translated)
    assert (german["translations"], german["banned"], german["repeated"]) == (1, 1, 1)
    assert (chinese["translations"], chinese["banned"]) == (1, 0)


NTREX = ("eng", "deu", "nld", "spa", "fra", "ita", "por", "pol", "rus", "zho-CN", "ces")


def test_neighbours_made_by_joining_rows_or_by_the_dev_part_are_looked_at_again(mirror):
    rows = [{code: f"{code} {text}" for code in NTREX} for text in ("says so.", "Why not?", "Fine.")]
    mirror("parallel/ntrex128", test=[row | dict(doc_id="one") for row in rows])
    mirror("text/wikipedia_en_2015", train=articles("One. Held. Two. Three."), extra=articles("x"),
           validation=articles("Held."))
    mirror("senteval/trec", test=questions("deu says so. deu Why not?", "One two"))
    ask = dict(languages=["de", "en"], sources=["ntrex", "wikipedia"], tests=["TREC"])
    texts = corpora.pretraining_texts(**ask) + corpora.pretraining_texts(split="dev", **ask)
    assert sorted(texts) == ["Held.", "Three.", "deu Fine.", "x"]
    assert corpora.check_clean(texts, ["TREC"])["pieces"] == 4


def test_sentences_that_the_articles_hold_come_once(wikipedia):
    sentences = ("A first.", "H eighth.", "Held.", "H eighth!", "Who wrote it?")
    wikipedia("text/wikipedia_en_sentences", train=[dict(text=text, page_id=1) for text in sentences])
    texts = corpora.pretraining_texts(sources=["wikipedia", "wikipedia_sentences"], tests=["TREC"])
    texts += corpora.pretraining_texts(split="dev", sources=["wikipedia_sentences"], tests=["TREC"])
    everything = " ".join(texts)
    assert everything.count("H eighth") == everything.count("A first") == 1 and "Held" not in everything


@pytest.mark.parametrize("request_, message", [
    (dict(sources=["wiki"]), "expected some of wikipedia,"), (dict(languages=["xx"]), "no text in 'xx'"),
    (dict(languages=[]), "languages is empty"), (dict(split="test"), "one of train, validation"),
    (dict(words=0), "1 or more"), (dict(tests=["STS17"]), "no test STS17; expected some of STS12"),
    (dict(languages="en", sources=["ocnli"]), "expected languages of zh")])
def test_wrong_requests_say_what_there_is(mirror, request_, message):
    with pytest.raises(ValueError, match=message): corpora.pretraining_texts(**request_)


def test_missing_data_say_what_to_set(mirror):
    with pytest.raises(FileNotFoundError, match="set SENTNB_HUB"):
        corpora.pretraining_texts(tests=[], sources=["wikipedia"])


def test_the_microworld_gives_texts_of_the_same_shape():
    ask = dict(words=20, languages=("en", "ru", "zh"), n=20)
    train, dev = (corpora.microworld_texts(split=split, **ask) for split in ("train", "validation"))
    assert train == corpora.microworld_texts(**ask) != corpora.microworld_texts(seed=1, **ask)
    assert len(train) > 60 and max(map(corpora.count_words, train)) <= 35
    assert not set(corpora.split_fragments("\n".join(train))) & set(corpora.split_fragments("\n".join(dev)))
    assert corpora.microworld_texts(languages="de", n=2) == corpora.microworld_texts(languages=["de"], n=2)


# Declarations and real data

def test_every_source_and_test_is_declared():
    for name, source in corpora.TEXT_SOURCES.items():
        d = corpora.get_dataset(source.dataset)
        for language, columns in source.columns.items():
            config, _ = d.resolve(source.config(language), source.splits[0])
            wanted = {*columns, *source.english, *([source.document] if source.document else [])}
            assert language in corpora.LANGUAGES and wanted <= set(d.get_columns(config)), name
            for split in (*source.splits, *([source.validation] if source.validation else [])):
                d.resolve(config, split)
    parts = [part for parts in corpora.TESTS.values() for part in parts]
    for part in parts:
        config, split = corpora.get_dataset(part.name).resolve(part.config, part.split)
        assert set(part.columns) <= set(corpora.get_dataset(part.name).get_columns(config))
    assert set(corpora.LANGUAGES) == {language for _, language in corpora.text_sources(corpora.LANGUAGES)}


def test_nothing_is_trained_on_that_is_tested():
    tested = {(part.name, part.config, part.split) for parts in corpora.TESTS.values() for part in parts}
    trained = {(source.dataset, source.config(language), split) for source in corpora.TEXT_SOURCES.values()
               for language in source.columns for split in source.splits}
    assert len(trained) > 15 and not tested & trained
    for d in corpora.DATASETS.values():
        roles = [role for role in (d.train, d.parallel) if role and role.trained]
        assert not tested & {(d.name, *part[:2]) for role in roles for part in role.parts(d)}, d.name
    assert {"STS-B", "STS12", "STS16", "SICK", "Tatoeba", "MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC",
            "MRPC", "XQuAD"} <= set(corpora.TESTS)


@real
def test_every_sentence_that_is_evaluated_is_a_test_sentence():
    banned = corpora.test_sentences()
    assert len(banned) > 370_000
    assert corpora.evaluation_sentences(sets=corpora.STS) <= banned.keys()
    both = ("sentence1", "sentence2")
    evaluated = [*((f"senteval/{task}", "train", ("text",)) for task in ("mr", "cr", "subj", "mpqa")),
                 *((f"senteval/{task}", "test", ("text",)) for task in ("sst2", "sst5", "trec")),
                 ("senteval/mrpc", "test", both), ("mteb/sickr-sts", "test", both),
                 ("parallel/tatoeba_test", "test", ("sentence", "english"))]
    for name, split, columns in evaluated:
        rows = corpora.load(name, None, split)
        forms = {corpora.normalize(row[column]) for row in rows for column in columns} - {""}
        assert forms and forms <= banned.keys(), name


@real
def test_text_in_other_languages_is_clean(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTNB_CACHE", str(tmp_path))
    sources, banned, languages = ["ntrex", "stsb"], corpora.test_sentences(), ("de", "zh")
    counts = corpora.pretraining_counts(languages, sources)
    news = [row for row in counts if row["source"] == "ntrex"]
    assert len(counts) == 4 and all(row["train_words"] > 30_000 and row["repeated"] <= 50 for row in news)
    german = next(row for row in counts if (row["source"], row["language"]) == ("stsb", "de"))
    # STS-B train is drawn from STS12-16
    assert german["translations"] > 9000 and german["banned_by"]["STS12"] > 1500
    assert german["train_sentences"] > 400
    parts = dict(train=1_300, validation=100)
    for part, least in parts.items():
        texts = corpora.pretraining_texts(languages=languages, sources=sources, split=part)
        assert corpora.check_clean(texts, banned=banned)["texts"] == len(texts) > least
    def list_sentences(part):
        texts = corpora.pretraining_texts(languages="de", sources=["ntrex"], split=part)
        return {corpora.normalize(sentence) for text in texts for sentence in corpora.split_sentences(text)}
    train, dev = map(list_sentences, parts)
    assert len(train) > 1000 and len(dev) > 50 and not train & dev


@real
def test_wikipedia_is_cleaned_of_what_tests_took_from_it():
    banned, removed, kept = corpora.test_sentences(), 0, []
    for _, text in zip(range(1500), corpora.documents()):
        sentences, reasons = corpora.remove_banned(corpora.split_sentences(text), banned)
        removed += len(reasons)
        kept += corpora.pack_blocks([sentences], banned=banned)
    assert removed > 10 and corpora.check_clean(kept, banned=banned)["texts"] > 20_000
