"""C4 is read row by row from the Hub, at its commit: no file is fetched, and it ends where it is cut."""
import os
import subprocess
import sys

import fake_hub

from sentnb import corpora

CODE = """
import itertools
from sentnb import corpora
corpora.open_split("allenai/c4")
first = list(itertools.islice(corpora.documents("allenai/c4"), 5))
assert list(corpora.documents("allenai/c4", n=5)) == first
print(len(first), len(list(corpora.documents("allenai/c4-de"))))
try: next(corpora.documents("allenai/c4", revision="0"*40))
except FileNotFoundError as error: print(error)
import huggingface_hub
huggingface_hub.is_offline_mode = lambda: True
try: next(corpora.documents("allenai/c4"))
except FileNotFoundError as error: print(error)
"""


def test_pages_are_read_row_by_row(tmp_path):
    with fake_hub.Hub(tmp_path/"hub") as hub:
        places = dict(HF_ENDPOINT=hub.address, HF_HOME=str(tmp_path/"home"), HF_HUB_DISABLE_XET="1",
                          HF_HUB_OFFLINE="0")
        env = {name: value for name, value in os.environ.items() if name != "SENTNB_HUB"} | places
        done = subprocess.run([sys.executable, "-c", CODE], env=env, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr[-2000:]
        counts, absent, offline = done.stdout.splitlines()
        assert counts == "5 10"
        assert "cannot read allenai/c4 at 0000000 from the Hub" in absent and "row by row" in offline
        commit = corpora.get_dataset("allenai/c4").revision
        assert {revision for _, _, revision in hub.asked} == {commit, "0"*40}
    fetched = [file for file in (tmp_path/"home").rglob("*") if file.is_file()]
    assert all(file.stat().st_size < 2_000 for file in fetched)
