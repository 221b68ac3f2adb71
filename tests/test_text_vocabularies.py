"Vocabularies of one's own: WordPiece, characters and bytes, the same from the same texts in every process."
import numpy as np
import pytest
from tiny_text import TEXTS, tiny

from sentnb.encoders import MaskedLanguageModel, TextEncoder
from sentnb.encoders.text import SPECIAL_TOKENS, byte_tokenizer, train_characters, train_wordpiece


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece(TEXTS, vocab_size=150, max_alphabet=60)


# WordPiece

def test_the_vocabulary_is_the_same_in_every_process(python):
    code = """
import random
from sentnb.core import fingerprint
from sentnb.encoders.text import train_wordpiece
rng = random.Random(0); parts = "ka lo mi tu re zé po ñi sch ый на 睡".split()
texts = [" ".join("".join(rng.choices(parts, k=rng.randint(1, 5))) for _ in range(20)) for _ in range(300)]
print(fingerprint(train_wordpiece(texts, vocab_size=600).get_vocab()),
      fingerprint(train_wordpiece(iter(texts), vocab_size=300, max_alphabet=20).get_vocab()))
"""
    assert len({python(code, TOKENIZERS_PARALLELISM=parallel) for parallel in ("false", "true")}) == 1


def test_special_tokens_come_first_and_words_survive(tokenizer):
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3, 4]
    names = ("pad_token_id", "unk_token_id", "cls_token_id", "sep_token_id", "mask_token_id")
    assert [getattr(tokenizer, name) for name in names] == [0, 1, 2, 3, 4]
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer))) and len(tokenizer) <= 150
    ids = tokenizer("The OLD cat. Кошка спит")["input_ids"]
    assert tokenizer.decode(ids) == "[CLS] the old cat. кошка спит [SEP]" and 1 not in ids
    assert tokenizer("a [MASK] b")["input_ids"].count(4) == 1
    assert tokenizer.tokenize("cat ω dog") == ["cat", "[UNK]", "dog"]


def test_case_and_accents_are_arguments():
    texts = ["Naïve Katze und Älter Кошка"]*5
    def pieces(text, **options): return train_wordpiece(texts, vocab_size=120, **options).tokenize(text)
    assert pieces("Katze") == pieces("KATZE") == ["katze"]
    assert pieces("Katze", lowercase=False) == ["Katze"] != pieces("katze", lowercase=False)
    assert pieces("naive") != ["naive"] and pieces("naïve") == pieces("nai\u0308ve") == ["naïve"]
    assert pieces("naïve", strip_accents=True) == ["naive"]


def test_pieces_that_cannot_continue_a_word_take_no_place(tokenizer):
    vocabulary = tokenizer.get_vocab()
    assert "猫" in vocabulary and "##猫" not in vocabulary and "##." not in vocabulary and "##c" in vocabulary


def test_what_cannot_be_learned_is_refused():
    with pytest.raises(ValueError, match="is too small"):
        train_wordpiece(TEXTS, vocab_size=30, max_alphabet=100)
    with pytest.raises(ValueError, match="no character"): train_wordpiece([])
    with pytest.raises(ValueError, match="vocab_size=3: expected"): train_wordpiece(TEXTS, vocab_size=3)
    with pytest.raises(ValueError, match="max_alphabet=0: expected"): train_wordpiece(TEXTS, max_alphabet=0)
    with pytest.raises(TypeError, match="one str"): train_wordpiece("text")
    with pytest.raises(TypeError, match=r"texts\[1\] is int"): train_wordpiece(["text", 1])


# characters and bytes

BOTH = [lambda texts: train_characters(texts, 60), lambda texts: byte_tokenizer()]


@pytest.mark.parametrize("make", BOTH, ids=["characters", "bytes"])
def test_characters_and_bytes_are_tokenisers_like_the_others(make, tmp_path):
    tokenizer = make(TEXTS)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3, 4]
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))
    assert make(iter(TEXTS)).get_vocab() == tokenizer.get_vocab()
    ids = tokenizer("The OLD кошка. 猫", return_attention_mask=False)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the old кошка. 猫"
    assert (ids[0], ids[-1]) == (2, 3) and 1 not in ids
    encoder = tiny(tokenizer)
    MaskedLanguageModel(encoder).save_pretrained(tmp_path/"m")
    again, texts = TextEncoder.from_pretrained(tmp_path/"m"), TEXTS[:5] + ["", "\ud800 lone", "a\0b\n"]
    assert again.settings() == encoder.settings() and again.token_ids(texts) == encoder.token_ids(texts)
    np.testing.assert_array_equal(again.encode(TEXTS[:9]), encoder.encode(TEXTS[:9]))


def test_a_character_is_a_token_and_a_byte_is_one():
    characters, octets = train_characters(["abc ab a äß"], vocab_size=9), byte_tokenizer()
    kept = {*SPECIAL_TOKENS, "a", "b", " ", "c"}
    assert set(characters.get_vocab()) == kept, "the most frequent four; of equal ones the first"
    assert characters.tokenize("a ä b") == ["a", " ", "[UNK]", " ", "b"]
    assert len(octets) == 261
    for text in ("a cat", "ß", "кошка", "猫", "🙂 "): assert len(octets.tokenize(text)) == len(text.encode())
    assert octets.tokenize("A") == octets.tokenize("a")
    assert byte_tokenizer(lowercase=False).tokenize("A") != octets.tokenize("a")
    assert octets("a[MASK]b")["input_ids"][2] == 4
    # one typo: all the tokens of a word, or one of them
    assert octets.tokenize("nai\u0308ve") == octets.tokenize("naïve")


def test_characters_that_cannot_be_learned_are_refused():
    with pytest.raises(TypeError, match="one str"): train_characters("text")
    with pytest.raises(ValueError, match="no character"): train_characters([""])
    with pytest.raises(ValueError, match="leave no room"): train_characters(["a"], 5)
