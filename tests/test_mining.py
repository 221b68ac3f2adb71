"evaluation.mining: files in, pairs out, the same bytes after a stop; the inverted file, beside the exact."
import numpy as np
import pytest

from sentnb.corpora import Microworld
from sentnb.encoders.base import SentenceEncoder
from sentnb.evaluation import bitext, mining, nearest


class Known(SentenceEncoder):
    "Vectors by text: translations are near each other. It stops at a given text."
    width = 32

    def __init__(self, pairs):
        rng = np.random.default_rng(0)
        meaning = rng.normal(size=(len(pairs), 32))
        self.vectors = {text: row + .3*rng.normal(size=32)
                        for pair, row in zip(pairs, meaning) for text in pair}
        self.stop, self.read = None, []

    def encode_window(self, texts, *options):
        if self.stop in texts: raise KeyboardInterrupt
        self.read += texts
        return np.stack([self.vectors[text] for text in texts]).astype(np.float32)


@pytest.fixture
def two_files(tmp_path):
    pairs = list(dict(Microworld(seed=0).parallel("ru", "en", split="test", n=300)).items())
    pairs = list({english: (other, english) for other, english in pairs}.values())
    paths = [tmp_path/name for name in ("ru.txt", "en.txt")]
    for path, side in zip(paths, zip(*pairs)):
        path.write_text("\n".join([*sorted(side), "", side[0]]), "utf-8")
    return pairs, *paths, tmp_path/"pairs.tsv"


def test_a_stopped_run_writes_the_bytes_of_one_that_was_not(two_files):
    pairs, first, second, output = two_files
    whole = Known(pairs)
    assert mining.mine_files(whole, first, second, output) > .9*len(pairs)
    expected, reads = output.read_bytes(), len(whole.read)
    samples = 2 + 2*4   # by which the encoder is recognised: of both files together, and of each
    assert reads == 2*len(pairs) + samples   # each distinct line once, and no blank one
    output.unlink()
    broken = Known(pairs)
    broken.stop = sorted(english for _, english in pairs)[-1]
    with pytest.raises(KeyboardInterrupt): mining.mine_files(broken, first, second, output)
    assert not output.exists()
    broken.stop = None
    mining.mine_files(broken, first, second, output)
    assert output.read_bytes() == expected and len(broken.read) == reads + 2 + 4
    assert sorted(path.name for path in output.parent.iterdir()) == ["en.txt", "pairs.tsv", "ru.txt"]


def test_it_is_mine_of_the_vectors(two_files):
    pairs, first, second, output = two_files
    encoder, options = Known(pairs), dict(k=3, retrieval="intersect", threshold=1.05)
    n = mining.mine_files(encoder, first, second, output, **options)
    sides = [list(mining.SentenceFile(path)) for path in (first, second)]
    vectors = [encoder.encode(side).astype(np.float16) for side in sides]
    expected = bitext.mine(*vectors, **options)
    rows = [line.split("\t") for line in output.read_text("utf-8").splitlines()]
    assert n == len(rows) == len(expected)
    assert [(one, other) for _, one, other in rows] == [(sides[0][i], sides[1][j]) for i, j, _ in expected]
    scores = [score for *_, score in expected]
    assert [float(score) for score, *_ in rows] == pytest.approx(scores, abs=1e-6)
    assert len({row[1] for row in rows} - {one for one, _ in pairs}) == 0


def test_what_an_old_run_left_is_not_taken_for_this_one(two_files):
    pairs, first, second, output = two_files
    encoder = Known(pairs)
    encoder.stop = sorted(english for _, english in pairs)[0]
    with pytest.raises(KeyboardInterrupt): mining.mine_files(encoder, first, second, output)
    first.write_text(pairs[3][0] + "\n" + pairs[4][0], "utf-8")
    encoder.stop = None
    mining.mine_files(encoder, first, second, output, k=1)
    rows = [line.split("\t") for line in output.read_text("utf-8").splitlines()]
    assert {one for _, one, _ in rows} == {pairs[3][0], pairs[4][0]} and len(rows) == 2
    assert not list(output.parent.glob(".*"))


@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_a_byte_order_mark_is_no_character(start, tmp_path):
    path = tmp_path/"a.txt"
    path.write_bytes((start + "a cat\na cat\n\ufeffa dog\n").encode())
    file = mining.SentenceFile(path)
    assert [*file] == ["a cat", "\ufeffa dog"] and file.repeated == 1 and file[0] == "a cat"


def test_before_any_work(two_files, tmp_path):
    pairs, first, second, output = two_files
    encoder = Known(pairs)
    for position, error, wrong in (
            (output, ValueError, dict(retrieval="all")), (tmp_path, IsADirectoryError, {}),
            (output, ValueError, dict(margin="x")), (first/"x.tsv", OSError, {})):
        with pytest.raises(error): mining.mine_files(encoder, first, second, position, **wrong)
    with pytest.raises(FileNotFoundError): mining.mine_files(encoder, first, tmp_path/"none.txt", output)
    assert not encoder.read and not output.exists()


def test_the_inverted_file_with_all_its_lists_is_exact():
    pytest.importorskip("faiss", reason="the extra `faiss` is not installed")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 8)), rng.normal(size=(500, 8))
    exact = nearest.neighbours(x, y, 4)
    settings = [("flat", 1, 1.)] + [(index, *row) for index in ("ivf", "disk")
                                    for row in ((16, 1.), (4, .6), (1, .2))]
    for index, probes, floor in settings:
        nearly = nearest.faiss_neighbours(x, y, 4, index, lists=16, probes=probes, block=128)
        for one, other in zip(nearly, exact):
            assert one[1].shape == other[1].shape and (one[1] >= 0).all()
            assert nearest.recall(one[1], other[1]) >= floor
            assert (one[0] <= other[0] + 1e-6).all()
    assert nearest.recall(exact[0][1], exact[0][1]) == 1
    with pytest.raises(ValueError, match="expected the same"): nearest.recall(exact[0][1], exact[1][1])


def test_lists_on_disk_are_those_in_memory(tmp_path, monkeypatch):
    pytest.importorskip("faiss", reason="the extra `faiss` is not installed")
    monkeypatch.setattr(nearest, "_PART", 100)   # several parts, which are merged
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(300, 8)), rng.normal(size=(350, 8))
    options = dict(lists=20, probes=3, block=64)
    memory = nearest.faiss_neighbours(x, y, 4, "ivf", **options)
    disk = nearest.faiss_neighbours(x, y, 4, "disk", folder=tmp_path, **options)
    for one, other in zip(memory, disk):
        assert np.array_equal(one[1], other[1]) and np.array_equal(one[0], other[0])
    assert not list(tmp_path.iterdir())


def test_mined_pairs_of_each_index(two_files):
    pytest.importorskip("faiss", reason="the extra `faiss` is not installed")
    pairs, first, second, output = two_files
    mined = {}
    for index in (None, "flat", "ivf", "disk"):
        options = {} if index in (None, "flat") else dict(probes=16)
        mining.mine_files(Known(pairs), first, second, output, index=index, **options)
        mined[index] = {tuple(line.split("\t")[1:]) for line in output.read_text("utf-8").splitlines()}
    assert mined["flat"] == mined[None] and mined["ivf"] == mined["disk"]
    assert len(mined["ivf"] & mined[None]) > .9*len(mined[None])
    assert not list(output.parent.glob(".*"))


def test_few_in_a_list_are_filled_from_others():
    pytest.importorskip("faiss", reason="the extra `faiss` is not installed")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 4))
    (_, places), _ = nearest.faiss_neighbours(x, x, 20, lists=30, probes=1)
    assert (places >= 0).all() and all(len(set(row)) == 20 for row in places)


def test_without_faiss_it_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(ModuleNotFoundError, match=r"sentnb\[faiss\]"):
        bitext.mine(np.eye(3), np.eye(3), k=1, index="ivf")
