"The script of docs/scale.md, started by its command as two machines, against one process."
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sentnb.experiments.running import _free_port

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT/"docs"/"scale.md").read_text(encoding="utf-8")
SCRIPT, = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
COMMAND, = re.findall(r"^accelerate launch .*$", PAGE, re.M)


def start(words: list[str], folder: Path, name: str) -> subprocess.Popen:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                   "SENTNB_ROOT": str(ROOT), "SENTNB_CACHE": str(folder/name)}
    if sys.platform == "linux": environment["GLOO_SOCKET_IFNAME"] = "lo"   # a host name need not resolve
    return subprocess.Popen([sys.executable, *words], cwd=folder, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def losses(processes: list[subprocess.Popen]) -> list[float]:
    try: outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes: process.kill()
    assert [process.returncode for process in processes] == [0]*len(processes), "\n".join(outputs)
    return [float(re.search(r"loss of the last step: ([\d.]+)", output)[1]) for output in outputs]


@pytest.mark.skipif(sys.platform == "win32", reason="torch has no gloo for several processes there")
def test_two_machines_have_the_loss_of_one_process(tmp_path):
    (tmp_path/"train.py").write_text(SCRIPT, encoding="utf-8")
    program, launch, *options = shlex.split(COMMAND)
    assert (program, launch) == ("accelerate", "launch")
    values = {"--num_processes": "2", "--main_process_ip": "127.0.0.1",
              "--main_process_port": str(_free_port())}
    machines = []
    for rank in range(2):
        own = values | {"--machine_rank": str(rank)}
        words = [own.get(option, word) for option, word in zip(["", *options], options)]
        machines.append(start(["-m", "accelerate.commands.launch", *words], tmp_path, f"cache-{rank}"))
    first, second = losses(machines)
    alone, = losses([start(["train.py"], tmp_path, "cache-alone")])
    assert first == second == pytest.approx(alone, abs=2e-4)
    written = [len(list((tmp_path/f"cache-{rank}").rglob("*.safetensors"))) for rank in range(2)]
    assert written[0] > 0 and written[1] == 0, "the first machine alone writes"
