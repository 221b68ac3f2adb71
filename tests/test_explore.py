"""The controls of 30_explore, driven in a kernel as a reader drives them in Lab."""
import nbformat
from experiment_runs import ROOT
from nbclient import NotebookClient

from sentnb.experiments.running import _own_sockets

DRIVE = """
def seen():
    tables = [table.value for table in explorer.tables.values()]
    return explorer.message.value, bytes(explorer.picture.value), tables

def change(**values):
    "What is seen after controls were moved; the words and the picture are new."
    before = seen()
    for name, value in values.items(): getattr(explorer, name).value = value
    after = seen()
    assert before[0] != after[0] and before[1] != after[1], values
    return after

explorer = Explorer(sentence)
first = seen()
assert first[1].startswith(b"\\x89PNG") and list(explorer.tables) == names and sentence in first[2][0]
tables = [change(typo=typo)[2] for typo in typos if typo != "char_swap"]
assert all(tables[0][i] != first[2][i] for i in range(2)), "the cosines of both encoders move"
assert change(typo="char_swap") == first
change(draw=3)
assert len({str(each) for each in (first, change(draw=0), change(text="Zwei Hunde laufen."))}) == 2
change(text="<i>一只猫 sleeps.</i>")
assert "<i>" not in explorer.message.value and "&lt;" in explorer.message.value
change(text="a sentence of many words "*30)
assert "texts were truncated at 64 patches" in explorer.message.value
explorer.text.value = " "
assert explorer.message.value == "Type a sentence."
"""


def test_each_control_moves_the_picture_and_the_tables(tmp_path, monkeypatch, warm_kernels):
    monkeypatch.setenv("SENTNB_FIGURES", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    notebook = nbformat.read(ROOT/"nbs"/"30_explore.ipynb", 4)
    index = next(i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
    notebook.cells.insert(index + 1, nbformat.v4.new_code_cell("overrides = dict(draws=1)"))
    notebook.cells.append(nbformat.v4.new_code_cell(DRIVE))
    resources = {"metadata": {"path": str(ROOT)}}
    with _own_sockets() as config:
        options = dict(timeout=600, kernel_name="python3", resources=resources, config=config)
        NotebookClient(notebook, **options).execute()
