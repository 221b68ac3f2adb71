"""What the tests share: real data, golden files, and the sentence with which a test skips without them."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("SENTNB_ROOT", str(ROOT))
# `make test` runs two files at once: threads that wait by spinning would starve the other's
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ: os.environ.setdefault("OMP_NUM_THREADS", "1") # one each
# hundreds of processes import torch: where this is set, each would compile it, a fifth of the suite's time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


# minutes each: begun first, so that no worker is left alone with one of them at the end
LONG = ("test_demos_of_papers", "test_paper_profile_too", "test_demos_of_ours", "test_library_notebooks",
        "test_paper_profile", "test_experiments", "test_howto", "test_checkpoints")


def pytest_collection_modifyitems(items):
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.stem, len(LONG)))


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def hub() -> Path:
    "The local mirror of the public data."
    named = os.environ.get("SENTNB_HUB")
    if not named: pytest.skip("real data: set SENTNB_HUB to a mirror of the public data sets")
    if not Path(named).is_dir(): pytest.fail(f"SENTNB_HUB={named!r} is not a folder")
    return Path(named).resolve()


@pytest.fixture(scope="session")
def golden() -> Path:
    "Golden pictures, models and losses of the reference implementations."
    folder = ROOT.parent/"shared"/"golden"
    if not folder.is_dir(): pytest.skip("golden parity: there is no folder shared/golden beside the checkout")
    return folder


@pytest.fixture(scope="session")
def fonts() -> Path:
    "The font files that the golden pictures were drawn with."
    folder = ROOT.parent/"shared"/"fonts"
    if not folder.is_dir(): pytest.skip("golden parity: there is no folder shared/fonts beside the checkout")
    return folder


@pytest.fixture(scope="session")
def warm_kernels():
    "Kernels that this process starts have torch loaded already."
    from jupyter_client.provisioning import local_provisioner
    from warm_kernels import warm
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_provisioner, "launch_kernel", warm)
        yield


@pytest.fixture(scope="session")
def paper_hub(tmp_path_factory):
    "A Hub of its own, one for all tests of the paper profile: what is made and kept once serves the others."
    from fake_hub import Hub
    with Hub(tmp_path_factory.mktemp("hub")) as hub: yield hub


@pytest.fixture
def one_thread():
    "As the processes that a run is compared with: sums in another order are other numbers."
    import torch
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def two_processes():
    "Run a test file as rank 0 and rank 1: two_processes(file, folder) -> what each left in folder/RANK.npz."
    def call(file: str, folder: Path) -> list[dict]:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        if sys.platform == "linux": environment["GLOO_SOCKET_IFNAME"] = "lo"  # a host name need not resolve
        options = dict(env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        commands = [[sys.executable, file, str(rank), str(folder)] for rank in range(2)]
        processes = [subprocess.Popen(command, **options) for command in commands]
        try: outputs = [process.communicate(timeout=240)[0] for process in processes]
        finally:
            for process in processes: process.kill()
        assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
        return [dict(np.load(folder/f"{rank}.npz", allow_pickle=False)) for rank in range(2)]
    return call


@pytest.fixture(scope="session")
def python():
    "Run code in a fresh interpreter in the project's root: python(code) -> its stdout; an error is shown."
    def call(code: str, **env: str) -> str:
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **env},
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return call
