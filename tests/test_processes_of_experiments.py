"""Every experiment that trains, at demo and cut down to a few steps: two processes give the numbers of one.

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
    "03_alignment": STEPS | dict(visual_longer=3, checkpoints=2, map_texts=80, pairs=20, redraws=5),
    "04_language_models": dict(visual_steps=2, reasoning_steps=2, pairs=20, blocks=64, redraws=5),
    "05_leapfrog": STEPS | dict(bilingual=["fr"], iterations=1, bilingual_steps=2, parallel_steps=3,
                                revisit_steps=2, dev_pairs=20, test_pairs=20, cloud_sentences=10),
    "06_retrieval": STEPS | dict(topical_longer=[3]),
    "07_micse_lowshot": dict(draws=1, steps=2, pairs=10, permutations=20, sentences=1_000, pool=1_200),
    "08_micse_attention": dict(seeds=1, steps=2, held_out=20, parsed=100, tree_pairs=20, pairs=20, redraws=5),
    "15_beyond": dict(seeds=1, sizes=[64], steps=2, held_out=20, pairs=20),
    "20_pretrain": dict(texts=300, steps=3, pilot_steps=2, align_steps=2, piece_steps=2, dev_texts=30,
                        redraws=5, transfer=["place"], transfer_train=100, align_dropout=0.),
    "21_sentnb_small": dict(pairs=600, distilled_texts=300, redraws=5, probe_train=100),
    "22_choices": dict(pairs=300, redraws=5, questions=["negatives"]),
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
