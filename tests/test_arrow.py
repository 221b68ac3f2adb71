"""Examples by the million: what comes from the Hub stays in its file, and is read like a list."""
import os
import subprocess
import sys
from pathlib import Path

import fake_hub
import pyarrow
import pyarrow.parquet
import pytest

from sentnb import corpora, recipes
from sentnb.core.arrow import BLOCK
from sentnb.corpora import provenance
from sentnb.training import Rows

SPANS = "gowitheflow/wiki-span"
N, LETTERS = 100_000, 150 # pairs, and letters of a text

CODE = f"""
import datasets, pandas
from sentnb import corpora, recipes
from sentnb.training import Stage

def peak():
    with open("/proc/self/status") as lines: # not getrusage's: a child begins with that of its parent
        return next(int(line.split()[1])*1024 for line in lines if line.startswith("VmHWM"))

corpora.open_split("{SPANS}")
before = peak()
rows, view = recipes.load_training_data("papers", ("documents",), exclude_tests=()).topical
settings = Stage("topical", rows, steps=1).settings()
print(len(rows), peak() - before)
held = list(rows)
print(peak() - before, Stage("topical", held, steps=1).settings() == settings)
"""


def many_spans(folder, name):
    def texts(side): return [f"{i:09d} {side} ".ljust(LETTERS, "x") for i in range(N)]
    columns = dict(sentence1=texts("left"), sentence2=texts("right"))
    columns["sentence2"][7] = None # of the published sets some lack a text
    pyarrow.parquet.write_table(pyarrow.table(columns), folder/"train.parquet")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_rows_of_the_hub_stay_in_their_file(tmp_path, monkeypatch):
    "Loaded, cleaned, checked and fingerprinted in less memory than a list of the same texts would take."
    monkeypatch.setitem(fake_hub.MAKERS["datasets"], SPANS, many_spans)
    with fake_hub.Hub(tmp_path/"hub") as hub:
        hub.repository("datasets", SPANS)
        places = dict(HF_ENDPOINT=hub.address, HF_HOME=str(tmp_path/"home"), HF_HUB_DISABLE_XET="1")
        env = {name: value for name, value in os.environ.items() if name != "SENTNB_HUB"} | places
        def run(code): return subprocess.check_output([sys.executable, "-c", code], env=env, text=True)
        run(f"from sentnb import corpora; corpora.open_split('{SPANS}')") # writes what is then mapped
        count, in_rows, in_list, alike = run(CODE).split()
    assert int(count) == N - 1 and alike == "True"
    letters = 2*N*LETTERS
    assert int(in_rows) < 1.6*letters < int(in_list) # a list has the mapped letters once more, and heads


def test_a_commit_is_read_once_for_its_fingerprint(tmp_path, monkeypatch):
    requests = []
    def stream_rows(*args, **options):
        requests.append(args)
        return iter([dict(sentence1="a", sentence2="b")])
    monkeypatch.delenv("SENTNB_HUB", raising=False)
    monkeypatch.setattr(provenance, "stream_rows", stream_rows)
    monkeypatch.setattr(provenance, "get_commit", lambda name, revision: revision or "declared")
    provenance._at_commit.cache_clear()
    try: entries = [corpora.get_provenance(SPANS, revision=revision) for revision in (None, "0"*40, None)]
    finally: provenance._at_commit.cache_clear()
    assert entries[0] == entries[2] and entries[0]["rows"] == 1 and len(requests) == 2
    assert entries[0]["sha256"] == corpora.rows_sha256([dict(sentence2="b", sentence1="a")])


def test_what_reads_a_list_reads_rows():
    pairs = [("A man plays.", "He plays."), ("Two dogs.", "It rains."), ("One.", "A man plays!")]
    kept, dropped = corpora.decontaminate(Rows(pairs), {"amanplays"})
    assert isinstance(kept, Rows) and kept == pairs[1:2] and dropped == 2
    clean = recipes.TestFilter(())
    clean.banned = {"amanplays": "a test"}
    for rows in (pairs, Rows(pairs)):
        kept = clean.drop_test_rows("pairs", rows)
        assert type(kept) is type(rows) and kept == pairs[1:2]
    data = recipes.data.TrainingData(english=dict(nli=Rows(pairs[:2]), captions=pairs[2:]))
    assert isinstance(data.pairs, Rows) and data.pairs == pairs
    assert recipes.data.TrainingData(english=dict(nli=pairs)).pairs == pairs


def test_rows_on_disk_are_those_in_memory(tmp_path):
    "Two blocks, one row at a time; a task has the same fingerprint, and what breaks leaves no file."
    rows = [(f"first {i}", f"second {i}") for i in range(BLOCK + 3)]
    on_disk = Rows.stored(iter(rows), tmp_path/"pairs.arrow")
    assert on_disk == rows and len(on_disk.parts) == 2 and on_disk.select_columns(1)[-1] == rows[-1][1]
    assert Rows.mapped(tmp_path/"pairs.arrow") == Rows(rows)
    with pytest.raises(ValueError, match="no rows to write"): Rows.stored([], tmp_path/"none.arrow")
    with pytest.raises(ValueError, match="a tuple of 2"):
        Rows.stored([*rows, ("one",)], tmp_path/"broken.arrow")
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.arrow"]


def test_tuples_of_one_stay_tuples_and_files_without_the_entry_are_read_as_before(tmp_path):
    for rows in ([("a",), ("b",)], ["a", "b"], [("a", 1), ("b", 2)]):
        assert Rows.stored(rows, tmp_path/"rows.arrow") == rows == Rows.mapped(tmp_path/"rows.arrow")
    for table, rows in ((pyarrow.table({"0": ["a", "b"]}), ["a", "b"]),
                        (pyarrow.table({"0": ["a"], "1": [1]}), [("a", 1)])):
        with pyarrow.ipc.new_file(str(tmp_path/"old.arrow"), table.schema) as writer:
            writer.write_table(table)
        assert Rows.mapped(tmp_path/"old.arrow") == rows
