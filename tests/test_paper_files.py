"""What the papers read and no Hub has in a form to pin: OPUS and newstest2012, in files of one's own.

Notebooks run to the end of their data here; what follows reads rows of files as rows of the Hub, from which
test_paper_profile_too.py runs them whole."""
import json

import pytest
from test_paper_profile import ROOT, at_paper, hub # noqa: F401

from sentnb import corpora

SIX = ("en", "fr", "es", "de", "cs", "ru")


def lines(file, texts): file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


@pytest.fixture
def files(tmp_path):
    "Folders: OPUS in two languages, and the news in six."
    folders = {name: tmp_path/name for name in ("opus", "newstest")}
    for folder in folders.values(): folder.mkdir()
    world = corpora.Microworld(seed=0)
    for language, pair in dict(de="de-en", fr="en-fr").items():
        for side, texts in zip(("en", language), zip(*world.parallel("en", language, n=60))):
            lines(folders["opus"]/f"Europarl.{pair}.{side}", texts)
    for language in SIX: # Czech is not of the microworld
        texts = world.sentences("pl" if language == "cs" else language, n=12, split="test")
        lines(folders["newstest"]/f"newstest2012.{language}", texts)
        lines(folders["newstest"]/f"newstest2013.{language}", texts[::-1])
    return {name: str(folder) for name, folder in folders.items()}


def read_by(folder): return json.loads((folder/"run.json").read_text(encoding="utf-8"))["data"]


@pytest.mark.parametrize("name", ["13_lensing", "14_mining"])
def test_files_take_the_place_of_the_hub(name, at_paper, hub, files): # noqa: F811
    hub.asked.clear()
    replaced = {declared.hub_id for declared in corpora.datasets_with_role("parallel", collection="papers")}
    assert replaced
    options = files if name == "13_lensing" else dict(opus=files["opus"])
    folder = at_paper(ROOT/"nbs"/f"{name}.ipynb", last="Data", **options)
    data = read_by(folder)
    assert data["files in de"]["rows"] == data["files in fr"]["rows"] == 60
    assert not replaced & {repository for _, repository, _ in hub.asked}
    if name != "13_lensing": return
    assert data["newstest2012"]["rows"] == data["newstest2013"]["rows"] == 12
    assert data["newstest2012"]["fingerprint"] != data["newstest2013"]["fingerprint"]
    executed = (folder/f"{name}.ipynb").read_text(encoding="utf-8")
    assert "15 pairs of lists" in executed, "dev is newstest2013: each language with each other"
