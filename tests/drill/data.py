"""A file of a mirror with a manifest is damaged: an error that names it, never other rows."""
from pathlib import Path
from unittest import mock

import pyarrow
import pyarrow.parquet

from sentnb import corpora
from sentnb.core import file_sha256

from .damage import spoil

SHORT = 24
NAME = "mteb/sts12-sts"
FILES = "  data_files:\n  - split: test\n    path: test.parquet\n"
HEADER = f"---\nconfigs:\n- config_name: default\n{FILES}---\n"


def make_mirror(folder: Path, rows: list[dict]) -> Path: # the file
    file = folder/NAME/"test.parquet"
    file.parent.mkdir(parents=True)
    (file.parent/"README.md").write_text(HEADER)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    (folder/"MANIFEST.tsv").write_text(f"path\tsha256\n{NAME}/test.parquet\t{file_sha256(file)}\n")
    return file


def read(folder: Path) -> list[dict]:
    with mock.patch.dict("os.environ", SENTNB_HUB=str(folder)):
        return corpora.load(NAME, split="test")


def attempt(rng, folder) -> None:
    rows = [dict(sentence1=f"a {i}", sentence2=f"b {i}", score=float(i % 6)) for i in range(50)]
    file = make_mirror(folder, rows)
    assert read(folder) == rows
    content = file.read_bytes()
    fault = spoil(file, rng)
    try:
        loaded = read(folder)
    except (ValueError, OSError) as error:
        assert str(file) in str(error), f"{fault}: {error}"
    else:
        assert loaded == rows and file.read_bytes() == content, fault
