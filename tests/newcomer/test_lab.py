"""JupyterLab as `make lab` starts it: links lead somewhere, and reading leaves nothing in git."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote, unquote
from urllib.request import Request, urlopen

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("nbs", "figures", "data", "Makefile", "jupyter_server_config.py", ".gitignore", "README.md",
         "CONTRIBUTING.md", "docs")
SECONDS = 60 # that a loaded machine may take for what is quick


def notebooks(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.ipynb")) if ".ipynb_checkpoints" not in path.parts]


def links(path: Path) -> list[str]:
    "What the text of a notebook leads to or shows, addresses on the web left out."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    pairs = re.findall(r"\]\(([^)\s]+)[^)]*\)|(?:src|href)=[\"']([^\"']+)", text)
    return [unquote(a or b) for a, b in pairs if "://" not in (a or b)]


def served(path: Path, link: str, root: Path=ROOT) -> Path | None:
    "The file that Lab opens for a link of this notebook; None if it serves none: a folder, a hidden file."
    name = link.partition("#")[0]
    target = (path.parent/name).resolve() if name else path
    if not target.is_file() or root not in target.parents: return None
    return None if any(part.startswith(".") for part in target.relative_to(root).parts) else target


EXECUTED = sorted((ROOT/"figures").glob("*/small/*.ipynb"))
NOTEBOOKS = [*notebooks(ROOT/"nbs"), *EXECUTED]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    assert [link for link in links(path) if not served(path, link)] == []


def test_a_dead_link_is_found(tmp_path):
    text = ("![a](../b.png) [c](c.ipynb#d) [e](https://e.org) <img src='f.png'> "
            "[g](../../g.md) [h](.h) [i](#i)")
    (tmp_path/"nbs").mkdir()
    for name in ("c.ipynb", ".h"): (tmp_path/"nbs"/name).touch()
    path = tmp_path/"nbs"/"a.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)]), path)
    dead = [link for link in links(path) if not served(path, link, tmp_path)]
    assert dead == ["../b.png", "f.png", "../../g.md", ".h"]


class Lab:
    "A running server, and the checkout that it serves."
    def __init__(self, checkout: Path, url: str, token: str):
        self.checkout, self.url, self.token = checkout, url, token

    def ask(self, path: str, method: str="GET", content: dict | None=None):
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        body = None if content is None else json.dumps(content).encode()
        return urlopen(Request(self.url + quote(path), body, headers, method=method), timeout=60)

    def open(self, path: str) -> dict:
        "A notebook, as Lab gets it; the first time Lab also makes a checkpoint."
        self.ask(f"api/contents/{path}/checkpoints", "POST", {}).close()
        with self.ask(f"api/contents/{path}") as answer: return json.load(answer)["content"]

    def save(self, path: str, notebook: dict) -> None:
        model = dict(type="notebook", format="json", content=notebook)
        self.ask(f"api/contents/{path}", "PUT", model).close()

    def changes(self) -> str: return git(self.checkout, "status", "--porcelain")


def git(folder: Path, *arguments: str) -> str:
    named = ["-c", "user.name=sentnb", "-c", "user.email=sentnb", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *named, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(runtime: Path, process: subprocess.Popen, log: Path) -> dict:
    "What a server that answers says of itself."
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        for path in runtime.glob("jpserver-*.json"):
            try:
                server = json.loads(path.read_text())
                urlopen(f"{server['url']}api?token={server['token']}", timeout=5).close()
                return server
            except (URLError, ValueError, ConnectionError, TimeoutError): pass
        time.sleep(0.2)
    raise AssertionError(f"no server:\n{log.read_text()}")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "The server that `make lab` starts, in a commit of the checkout as it stands."
    if not shutil.which("git") or not shutil.which("make"): pytest.skip("needs git and make")
    folder = tmp_path_factory.mktemp("lab")
    checkout, settings, log = folder/"checkout", folder/"settings", folder/"log"
    checkout.mkdir()
    ignored = shutil.ignore_patterns("cache", "demo", ".ipynb_checkpoints", "__pycache__")
    for name in PARTS:
        copy = shutil.copytree if (ROOT/name).is_dir() else shutil.copy
        copy(ROOT/name, checkout/name, **(dict(ignore=ignored) if (ROOT/name).is_dir() else {}))
    git(checkout, "init", "-q")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", "as it stands")
    options = f"--no-browser --ServerApp.port={free_port()} --LabApp.expose_app_in_browser=True"
    make_command = ["make", "-n", "-o", "setup", "lab", f"BIN={Path(sys.executable).parent}",
                    f"ARGS={options}"]
    lines = subprocess.run(make_command, cwd=checkout, capture_output=True, text=True, check=True).stdout
    command = lines[lines.index("JUPYTER_CONFIG_PATH="):]
    env = {**os.environ, "JUPYTER_CONFIG_DIR": str(settings), "JUPYTER_RUNTIME_DIR": str(folder/"runtime"),
           "JUPYTER_DATA_DIR": str(settings)}
    with open(log, "w") as file:
        process = subprocess.Popen(["bash", "-c", command], cwd=checkout, env=env, stdout=file, stderr=file,
                                   start_new_session=True)
    try:
        server = wait_for(folder/"runtime", process, log)
        yield Lab(checkout, server["url"], server["token"])
    finally:
        if process.poll() is None: os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def opened(notebook: dict) -> dict:
    "What Lab's autosave makes of a notebook that was only looked at."
    kernel = dict(display_name="Python 3 (ipykernel)", language="python", name="python3")
    language = dict(name="python", version="3.11.2", mimetype="text/x-python", file_extension=".py",
                    codemirror_mode=dict(name="ipython", version=3), pygments_lexer="ipython3")
    metadata = {**notebook["metadata"], "kernelspec": kernel, "language_info": language}
    cells = [{**cell, "metadata": {**cell["metadata"], "trusted": True}} for cell in notebook["cells"]]
    return {**notebook, "metadata": metadata, "cells": cells}


def run(notebook: dict) -> dict:
    "The same after each cell was run: numbered, timed, with a bar, a widget and a warning under it."
    notebook = opened(notebook)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, 1):
        cell["execution_count"] = count
        cell["metadata"] = {**cell["metadata"], "scrolled": True, "execution": {"iopub.status.busy": "2026"}}
        shown = {"text/plain": "IntProgress(value=0)",
                 "application/vnd.jupyter.widget-view+json": {"model_id": "1"}}
        cell["outputs"] = [dict(output_type="stream", name="stderr", text="50%|#\na warning"),
                           dict(output_type="display_data", data=shown, metadata={})]
    return notebook


def new_cell(source: str) -> dict:
    return dict(cell_type="code", id="0a1b2c3d", source=source, metadata={}, execution_count=None, outputs=[])


def write(cell: dict, text: str) -> None: cell["source"] += text


def first_code(notebook: dict) -> dict:
    return next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")


def test_it_opens_at_the_tour_and_serves_the_whole_checkout(lab):
    with lab.ask("lab/tree/nbs/index.ipynb") as page: assert page.status == 200
    with lab.ask("") as page: assert page.url.endswith("/lab/tree/nbs/index.ipynb")
    with lab.ask("api/contents/README.md") as file: assert "## Notebooks" in json.load(file)["content"]


def test_pictures_and_links_are_served(lab):
    targets = {served(path, link) for path in notebooks(ROOT/"nbs") for link in links(path)} - {None}
    pictures = 0
    for target in sorted(targets):
        with lab.ask(f"files/{target.relative_to(ROOT)}") as file:
            assert file.status == 200
            pictures += file.headers.get_content_type().startswith("image/")
    assert pictures > 10 and len(targets) > 50


def test_reading_and_running_leave_nothing_in_git(lab):
    "Every notebook, and some of the executed copies, is opened, run and saved."
    chosen = notebooks(lab.checkout/"nbs") + notebooks(lab.checkout/"figures")[:3]
    paths = [str(path.relative_to(lab.checkout)) for path in chosen]
    for path in paths:
        notebook = lab.open(path)
        if not path.startswith("nbs/api"): lab.save(path, opened(notebook)) # autosave, before a run
        lab.save(path, run(notebook))
    assert len(paths) > 50 and lab.changes() == ""
    seen = json.loads((lab.checkout/"lab"/"05_leapfrog.ipynb").read_text(encoding="utf-8"))
    assert "a warning" in json.dumps(first_code(seen)["outputs"]), "what was seen in Lab is kept in lab/"


def test_a_notebook_is_opened_with_the_metadata_of_its_kernel(lab):
    "Lab writes them into a notebook that lacks them, and then shows it as changed."
    manager, client = start_new_kernel(kernel_name="python3")
    try: language = client.kernel_info(reply=True, timeout=SECONDS)["content"]["language_info"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    with lab.ask("api/kernelspecs") as answer: spec = json.load(answer)["kernelspecs"]["python3"]["spec"]
    kernel = dict(name="python3", display_name=spec["display_name"], language=spec["language"])
    executed = next(path for path in notebooks(lab.checkout/"figures"))
    for path in ("nbs/index.ipynb", "nbs/05_leapfrog.ipynb", str(executed.relative_to(lab.checkout))):
        metadata = lab.open(path)["metadata"]
        assert metadata["kernelspec"] == kernel and metadata["language_info"] == language, path
        in_file = json.loads((lab.checkout/path).read_text(encoding="utf-8"))["metadata"]
        assert set(metadata) == {*in_file, "language_info"} and in_file["kernelspec"] != kernel


def test_an_edit_of_source_is_the_whole_difference(lab):
    for path in ("nbs/05_leapfrog.ipynb", "nbs/index.ipynb", "nbs/api/1_losses/02_contrastive.ipynb"):
        notebook = run(lab.open(path))
        write(first_code(notebook), "\nprint('mine')")
        notebook["cells"].append(new_cell("mine = 1"))
        for _ in range(2): lab.save(path, run(notebook)) # the second finds the edit in the file
        text = (lab.checkout/path).read_text(encoding="utf-8")
        assert "print('mine')" in text and "mine = 1" in text and "a warning" not in text
        before, after = json.loads(git(lab.checkout, "show", f"HEAD:{path}")), json.loads(text)
        edited, added = first_code(after), after["cells"].pop()
        assert edited["outputs"] == added["outputs"] == []
        edited.update(first_code(before))
        assert after == before
    git(lab.checkout, "checkout", "-q", "nbs")


def test_a_notebook_of_your_own_keeps_its_outputs(lab):
    notebook = dict(nbformat=4, nbformat_minor=5, metadata={}, cells=[new_cell("1")])
    for _ in range(2): lab.save("nbs/mine.ipynb", run(notebook))
    path = lab.checkout/"nbs"/"mine.ipynb"
    assert "a warning" in path.read_text(encoding="utf-8")
    path.unlink()


@pytest.mark.parametrize("edited", [False, True])
def test_make_clean_notebooks_undoes_what_another_jupyter_saved(lab, edited):
    for path in ("nbs/05_leapfrog.ipynb", "nbs/index.ipynb", "nbs/api/0_core/01_checks.ipynb"):
        notebook = nbformat.read(lab.checkout/path, 4)
        notebook = run(notebook)
        if edited: write(first_code(notebook), "\nprint('mine')")
        nbformat.write(nbformat.from_dict(notebook), lab.checkout/path)
    assert len(lab.changes().splitlines()) == 3
    command = ["make", "-o", "setup", "clean-notebooks", f"BIN={Path(sys.executable).parent}"]
    done = subprocess.run(command, cwd=lab.checkout, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("cleaned nbs/") == 3, done.stderr
    assert len(lab.changes().splitlines()) == 3*edited
    added = [line for line in git(lab.checkout, "diff").splitlines() if re.match(r"\+(?!\+\+)", line)]
    assert sum("print('mine')" in line for line in added) == 3*edited and len(added) <= 9*edited
    git(lab.checkout, "checkout", "-q", "nbs")


class Page:
    "A page of Chromium: `see` runs JavaScript in it."
    def __init__(self, port: int):
        websocket = pytest.importorskip("websocket")
        until = time.monotonic() + SECONDS
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{port}/json") as answer: pages = json.load(answer)
                address = next(page for page in pages if page["type"] == "page")["webSocketDebuggerUrl"]
                break
            except (URLError, StopIteration, ConnectionError):
                assert time.monotonic() < until, "Chromium does not answer"
                time.sleep(0.2)
        self.socket, self.count = websocket.create_connection(address, timeout=60, suppress_origin=True), 0

    def call(self, method: str, **values) -> dict:
        self.count += 1
        self.socket.send(json.dumps(dict(id=self.count, method=method, params=values)))
        while (answer := json.loads(self.socket.recv())).get("id") != self.count: pass
        return answer["result"]

    def see(self, script: str):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, script: str) -> None:
        until = time.monotonic() + SECONDS
        while not self.see(script):
            assert time.monotonic() < until, script
            time.sleep(0.3)


@pytest.fixture(scope="module")
def page(lab, tmp_path_factory):
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program: pytest.skip("the look into a browser: there is no chromium here")
    port = free_port()
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", f"--remote-debugging-port={port}",
               f"--user-data-dir={tmp_path_factory.mktemp('chromium')}", "--window-size=1400,1000",
               "about:blank"]
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process = subprocess.Popen(command, start_new_session=True, **quiet)
    try: yield Page(port)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


CURRENT = "window.jupyterapp?.shell.currentWidget"
PICTURES = "[...document.querySelectorAll('.jp-MarkdownOutput img')]"


def show(page: Page, lab: Lab, path: str) -> None:
    page.call("Emulation.setFocusEmulationEnabled", enabled=True)
    page.call("Page.navigate", url=f"{lab.url}lab?reset&token={lab.token}")
    page.wait("document.readyState === 'complete' && !!window.jupyterapp?.started")
    page.see("jupyterapp.restored.then(() => true)")
    command(page, "docmanager:open", path=path)
    page.wait(f"{CURRENT}?.context?.path === {json.dumps(path)} && {CURRENT}.context.isReady && "
              f"{CURRENT}.sessionContext?.session?.kernel?.status === 'idle'")


def command(page: Page, name: str, **values) -> None:
    page.see(f"jupyterapp.commands.execute({json.dumps(name)}, {json.dumps(values)}).then(() => true)")


def test_a_reader_sees_the_pictures(lab, page):
    path = next(path for path in notebooks(ROOT/"nbs") if any(link.endswith(".png") for link in links(path)))
    show(page, lab, f"nbs/{path.name}")
    page.wait(f"{PICTURES}.length > 0 && {PICTURES}.every(picture => picture.complete)")
    assert page.see(f"{PICTURES}.every(picture => picture.naturalWidth > 100)")


@pytest.mark.parametrize("path", ["nbs/index.ipynb", "nbs/05_leapfrog.ipynb",
                                  "figures/05_leapfrog/small/05_leapfrog.ipynb"])
def test_a_notebook_that_is_only_read_is_not_shown_as_changed(lab, page, path):
    show(page, lab, path)
    page.wait(f"{CURRENT}.context.model.getMetadata('language_info')?.version")
    assert page.see(f"{CURRENT}.context.model.dirty") is False
    command(page, "notebook:insert-cell-below")
    assert page.see(f"{CURRENT}.context.model.dirty") is True
    command(page, "notebook:delete-cell")
    command(page, "docmanager:save")
    assert page.see(f"{CURRENT}.context.model.dirty") is False and lab.changes() == ""


def test_nobody_asks_about_news(lab, page):
    show(page, lab, "nbs/index.ipynb")
    announcements = "@jupyterlab/apputils-extension:announcements"
    assert page.see(f"jupyterapp.hasPlugin('{announcements}')") is False
    assert page.see("jupyterapp.hasPlugin('@jupyterlab/apputils-extension:notification')") is True


def test_a_reader_who_writes_runs_and_deletes_leaves_nothing(lab, page):
    show(page, lab, "nbs/index.ipynb")
    cell = f"{CURRENT}.content.activeCell"
    command(page, "notebook:insert-cell-below")
    page.see(f"{cell}.model.sharedModel.setSource('print(chr(122)*3)')")
    command(page, "notebook:run-cell")
    page.wait(f"{cell}.node.querySelector('.jp-OutputArea-output')?.innerText.trim() === 'zzz'")
    command(page, "docmanager:save")
    change = git(lab.checkout, "diff")
    assert "print(chr(122)*3)" in change and "zzz" not in change
    command(page, "notebook:delete-cell")
    command(page, "docmanager:save") # Lab would ask here if it held the file for another's
    assert lab.changes() == ""