"""Kernels forked from a process that has loaded the large packages: a library notebook starts in no time.

Nothing of sentnb is loaded in it: a kernel imports the library as any other does. Where a process that is no
child cannot be waited for (all but Linux), kernels start as they always do."""
import functools
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading

from jupyter_client.provisioning import local_provisioner

LOADED = ("torch", "transformers", "transformers.masking_utils", "torch.distributed.tensor",
          "transformers.models.auto.modeling_auto", "transformers.models.bert.modeling_bert",
          "transformers.models.distilbert.modeling_distilbert", "pandas",
          "scipy.stats", "sklearn.linear_model", "datasets", "matplotlib.pyplot",
          "matplotlib.backends.backend_svg", "matplotlib.backends.backend_pdf", "pangocairocffi", "pytest",
          "tornado.platform.asyncio", "IPython.core.debugger", "ipykernel.kernelapp")
INLINE = "module://matplotlib_inline.backend_inline"   # a kernel names it before matplotlib is loaded
COLD = "COLD_KERNEL"   # in its environment: a kernel that starts as it always does
READ_AT_IMPORT = ("PYTHON", "HF_", "OMP_", "MKL_", "TRANSFORMERS_", "MPL")
launch, one_at_a_time = local_provisioner.launch_kernel, threading.Lock()


def serve():
    "Read a command a line, fork, and answer with the number of the process that became it."
    import importlib
    os.environ.setdefault("MPLBACKEND", INLINE)
    sys.modules["debugpy"] = None   # nobody steps through a test, and each kernel would load it
    for name in LOADED: importlib.import_module(name)
    import yaml   # its loader in Python takes 0.15 s for the README of a data set with 160 configurations
    yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    gc.collect()
    gc.freeze()   # what is loaded stays: a collection in a child need not look at it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)   # nobody waits for the children
    for line in sys.stdin:
        request = json.loads(line)
        if child := os.fork():
            os.setpgid(child, child)   # before anyone asks for its group
            print(child, flush=True)
        else: become(**request)


def become(arguments: list[str], env: dict[str, str], cwd: str|None):
    "The kernel that `python -m ipykernel_launcher` would be."
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1): os.dup2(nothing, stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd or ".")
    for name in [name for name in sys.modules if name.partition(".")[0] == "tqdm"]:
        del sys.modules[name]   # it asks at its import whether this is a notebook
    sys.argv = ["ipykernel_launcher", *arguments]
    from ipykernel import kernelapp
    kernelapp.launch_new_instance()
    os._exit(0)


class Forked:
    "What jupyter_client asks of a kernel's process."
    stdin = stdout = stderr = None

    def __init__(self, pid: int): self.pid, self.handle, self.returncode = pid, os.pidfd_open(pid), None

    def poll(self):
        if self.returncode is None and select.select([self.handle], [], [], 0)[0]:
            os.close(self.handle)
            self.returncode = 0   # that it has ended is all that can be known
        return self.returncode

    def wait(self, timeout=None):
        if self.poll() is None: select.select([self.handle], [], [], timeout)
        return self.poll()

    def send_signal(self, which):
        if self.poll() is None: os.kill(self.pid, which)

    def kill(self): self.send_signal(signal.SIGKILL)
    def terminate(self): self.send_signal(signal.SIGTERM)


@functools.cache
def server(names: tuple) -> subprocess.Popen:
    "One for all kernels whose packages read the same environment."
    return subprocess.Popen([sys.executable, __file__], env={**os.environ, **dict(names)}, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def warm(command, env=None, cwd=None, **others):
    "In the place of `launch_kernel`."
    env = dict(os.environ if env is None else env)
    if command[1:3] != ["-m", "ipykernel_launcher"] or not hasattr(os, "pidfd_open") or COLD in env:
        return launch(command, env=env, cwd=cwd, **others)
    read = tuple(sorted((name, value) for name, value in env.items() if name.startswith(READ_AT_IMPORT)))
    with one_at_a_time:
        process = server(read)
        env["JPY_PARENT_PID"] = str(process.pid)
        process.stdin.write(json.dumps(dict(arguments=command[3:], env=env, cwd=cwd)) + "\n")
        process.stdin.flush()
        return Forked(int(process.stdout.readline()))


if __name__ == "__main__":
    del sys.path[0]   # this folder
    serve()
