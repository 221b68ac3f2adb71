"""Experiments at demo, cut down to a few steps: two processes give the numbers of one.

Dropout is off, because each process draws its own. What is left are sums in another order, which steps of
AdamW make larger."""
import json
import sys

import pytest
from experiment_runs import sentnb

from sentnb import results

PLACES = dict(CUDA_VISIBLE_DEVICES="", GLOO_SOCKET_IFNAME="lo" if sys.platform == "linux" else "")
STEPS = dict(visual_steps=2, topical_steps=2, reasoning_steps=3)
CUT = {
    "05_leapfrog": STEPS | dict(iterations=1, bilingual_steps=2, parallel_steps=3,
                                revisit_steps=2, dev_pairs=20, test_pairs=20, cloud_sentences=10),
    "06_retrieval": STEPS | dict(topical_longer=[3]),
}


def numbers(name, folder, **more):
    overrides = json.dumps(CUT[name] | dict(dropout=0., threads=1))
    options = [word for key, value in more.items() for word in (f"--{key}", str(value))]
    places = PLACES | dict(SENTNB_FIGURES=str(folder), SENTNB_CACHE=str(folder/"cache"))
    done = sentnb("run", name, "--quiet", "-P", f"overrides={overrides}", *options, **places)
    assert done.returncode == 0, done.stderr[-3000:]
    run, = (folder/name).glob("demo*/run.json")
    frame = results.load_run(run.parent).numbers
    return {(row["table"], row["row"], row["column"]): row["value"] for row in frame.to_dict("records")}


@pytest.mark.parametrize("name", CUT)
def test_two_processes_give_the_numbers_of_one(name, tmp_path):
    one, two = (numbers(name, tmp_path/str(n), **dict(processes=n) if n > 1 else {}) for n in (1, 2))
    assert list(one) == list(two)
    def near(value): return pytest.approx(value, abs=.02, rel=1e-3)
    assert not {key: (one[key], two[key]) for key in one if two[key] != near(one[key])}
