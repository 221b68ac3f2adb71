"""How Jupyter saves the notebooks of this checkout: `make lab` lets it read this file.

A save keeps source and no outputs: a cell that stands in the file with the same source stays as it is
there, a new or edited one is written without outputs. So whoever opens, runs and closes notebooks leaves no
change in git, and edits of source are the whole difference. The outputs of the library come from
`make notebooks`, those of an experiment stand in the executed copy beside its figures, and what was seen in
Lab is kept in lab/, which git ignores.

A notebook is opened with the metadata of the kernel that it will get (the file has none): otherwise Lab adds
them, shows each notebook as changed, and asks whether to save it when it is closed.

Run as a program (`make clean-notebooks`), it does the same to notebooks that another Jupyter has saved, with
the last commit in place of the file.
"""
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent
KERNEL = dict(display_name="python3", language="python", name="python3")


def git(*arguments: str) -> bytes | None:
    "What git answers in this checkout; None if it refuses, or is not there."
    try: return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError): return None


def written(cell: dict) -> tuple:
    "What the author of a cell decides."
    tags, attachments = cell["metadata"].get("tags", []), cell.get("attachments", {})
    return cell["cell_type"], "".join(cell["source"]), tags, attachments


def bare(cell: dict) -> dict:
    "A cell as its author wrote it."
    tags = cell["metadata"].get("tags")
    cell = {**cell, "metadata": dict(tags=tags) if tags else {}}
    return {**cell, "outputs": [], "execution_count": None} if cell["cell_type"] == "code" else cell


def only_source(notebook: dict, before: dict) -> dict:
    "The notebook, with the outputs and the metadata that it had before."
    known = {cell["id"]: cell for cell in before["cells"] if "id" in cell}
    def kept(cell):
        old = known.get(cell.get("id"))
        return old if old and written(old) == written(cell) else bare(cell)
    return {**notebook, "cells": [kept(cell) for cell in notebook["cells"]], "metadata": before["metadata"]}


def write(path: Path, notebook: dict) -> None:
    "Jupyter's own form, whole or not at all."
    import nbformat
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    nbformat.write(nbformat.from_dict(notebook), new)
    os.replace(new, path)


def before_saving(model: dict, path: str, contents_manager, **_) -> None:
    "Jupyter's pre-save hook; a notebook that git does not know is the user's own, and is saved as it is."
    file = Path(contents_manager.root_dir, path.strip("/")).resolve()
    if model["type"] != "notebook" or not file.is_file(): return
    if git("ls-files", "--error-unmatch", str(file)) is None: return
    notebook = model["content"]
    was_run = any(cell.get("execution_count") for cell in notebook["cells"])
    if was_run and ROOT/"nbs" in file.parents:
        seen = ROOT/"lab"/file.relative_to(ROOT/"nbs")
        write(seen, notebook)
        contents_manager.log.info("The outputs of %s are in %s", path, seen.relative_to(ROOT))
    model["content"] = only_source(notebook, json.loads(file.read_text(encoding="utf-8")))


def clean() -> None:
    "Undo what any Jupyter has changed in notebooks besides their source; say in which."
    for path in sorted((ROOT/"nbs").rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts: continue
        notebook = json.loads(path.read_text(encoding="utf-8"))
        committed = git("show", f"HEAD:./{path.relative_to(ROOT)}")
        experiment = path.parent == ROOT/"nbs" and path.name[0].isdigit()
        if not committed and not experiment: continue # a new notebook of the library keeps what it shows
        before = json.loads(committed) if committed else dict(cells=[], metadata=dict(kernelspec=KERNEL))
        if (cleaned := only_source(notebook, before)) == notebook: continue
        write(path, cleaned)
        print("cleaned", path.relative_to(ROOT))
    if git("rev-parse", "HEAD") is None:
        print("There is no commit to take outputs from: only experiments were emptied; for the library's, "
              "type: make notebooks")


def kernel_metadata(specs) -> dict:
    "What Lab writes into a notebook of the kernel `python3`; specs: the server's manager of kernels."
    from ipykernel.ipkernel import IPythonKernel
    spec = specs.get_kernel_spec("python3")
    kernel = dict(name="python3", display_name=spec.display_name, language=spec.language)
    return dict(kernelspec=kernel, language_info=dict(IPythonKernel.language_info))


def contents_manager_class() -> type:
    "Jupyter's own manager of files, which gives notebooks the metadata of their kernel as they are opened."
    from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

    class NotebooksWithKernel(AsyncLargeFileManager):
        async def get(self, path, *arguments, **options):
            model = await super().get(path, *arguments, **options)
            if model["type"] != "notebook" or not model["content"]: return model
            metadata = model["content"]["metadata"]
            if metadata.get("kernelspec", {}).get("name") == "python3":
                metadata.update(kernel_metadata(self.parent.kernel_spec_manager))
            return model

    return NotebooksWithKernel


def without_news(_, page: dict) -> dict:
    "Lab's page, which asks no other host for news and nobody whether it may."
    news = "@jupyterlab/apputils-extension:announcements"
    return {**page, "disabledExtensions": [*page.get("disabledExtensions", []), news]}


if "get_config" in globals(): # Jupyter reads it
    c = get_config() # noqa: F821
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE") # of the kernels: idle threads sleep, see help(sentnb)
    c.ServerApp.root_dir = str(ROOT) # notebooks show figures/ and lead to data/
    c.LabApp.default_url = "/lab/tree/nbs/index.ipynb"
    c.ServerApp.tornado_settings = dict(page_config_hook=without_news)
    c.ServerApp.contents_manager_class = contents_manager_class()
    c.FileContentsManager.pre_save_hook = before_saving
elif __name__ == "__main__": clean()
