"""Experiments at demo, cut down to a few steps: two processes give the numbers of one.

Dropout is off, because each process draws its own. What is left are sums in another order, which steps of
AdamW make larger. All of it, a quarter of an hour of a CPU, runs with SENTNB_PROCESSES=all; without, the
quickest that trains pixels by tokens, in several stages: 25. The parts of the others (attention, momentum and
its queue, images, the best on dev, hidden patches and tokens) are in test_training_processes.py,
test_training_contract.py and test_momentum.py."""
import json
import os
import sys

import pytest
from experiment_runs import EXPERIMENTS, ROOT, copy_without_example, sentnb, sentnb_here

from sentnb import experiments, results

PLACES = dict(CUDA_VISIBLE_DEVICES="", GLOO_SOCKET_IFNAME="lo" if sys.platform == "linux" else "")
STEPS = dict(visual_steps=2, topical_steps=2, reasoning_steps=3)
STILL = dict(dropout=0., momentum_dropout=0.)
CUT = {
    "03_alignment": STEPS | dict(visual_longer=3, checkpoints=2, map_texts=80, pairs=20, redraws=5,
                                 simcse_steps=2, sbert_steps=2),
    "04_language_models": dict(visual_steps=2, reasoning_steps=2, pairs=20, blocks=64, redraws=5),
    "05_leapfrog": STEPS
    | dict(
        iterations=1,
        bilingual_steps=2,
        parallel_steps=3,
        revisit_steps=2,
        dev_pairs=20,
        test_pairs=20,
        cloud_sentences=10,
    ),
    "06_retrieval": STEPS | dict(topical_longer=[3]),
    "07_micse_lowshot": STILL
    | dict(draws=1, steps=2, batch=4, pairs=30, permutations=20, sentences=4_000, pool=4_500,
           eval_every=2, ami_weights=[2.5e-3]),
    "08_micse_attention": STILL
    | dict(
        seeds=1,
        steps=3,
        held_out=20,
        parsed=100,
        tree_pairs=20,
        pairs=20,
        redraws=5,
        fitted=5,
        sentences=300,
        weights=[2.5e-3],
    ),
    "09_visualcse": dict(
        seeds=1, steps=[4], nli_steps=2, language_steps=2, look_every=2, pairs=20, sentences=200
    ),
    "10_audiocse": dict(seeds=1, steps=[4], nli_steps=2, look_every=2, pairs=20, sentences=200),
    "11_cmlm": dict(
        base_steps=4,
        seeds=1,
        runs=1,
        steps=3,
        sbert_steps=3,
        counts=[1],
        masks=[40],
        redraws=5,
        held_out=20,
        pairs=20,
    ),
    "13_lensing": dict(
        base_steps=4,
        trials=2,
        search_steps=2,
        steps=3,
        nli_steps=3,
        look_every=2,
        pairs=20,
        sizes=[50, 100, 200],
        permutations=20,
    ),
    "14_mining": dict(steps=3, nli_steps=3, translations=100, nli=60, nli_dev=9, pairs=20, others=60),
    "15_beyond": STILL
    | dict(seeds=1, sizes=[64], steps=3, held_out=20, pairs=20, lens_pairs=60, lens_steps=5),
    "20_pretrain": dict(
        texts=300,
        steps=3,
        pilot_steps=2,
        align_steps=2,
        piece_steps=2,
        dev_texts=30,
        redraws=5,
        transfer=["place"],
        transfer_train=100,
        align_dropout=0.0,
    ),
    "21_sentnb_small": dict(
        pairs=200, distillation_texts=40, distillation_seen=200, redraws=5, probe_train=100
    ),
    "22_choices": dict(pairs=300, redraws=5, questions=["negatives"]),
    "24_substitutes": dict(
        points=[2, 3], simcse_steps=[2, 3], sentences=100, pairs=20, pairs_each=10, held_out=20
    ),
    "25_word_distillation": dict(
        targets=[[1, "squares", 1e-3]],
        pilot_steps=2,
        points=[3],
        pair_steps=2,
        blocks=200,
        pair_dropout=0.0,
        standardised=50,
        held_out=20,
        pairs=20,
        pairs_each=10,
        redraws=5,
    ),
}
DEFAULT = ("25_word_distillation",)
# what is named so cannot be equal, and why
APART = {
    "03_alignment": {"BERT-Flow": "a flow fitted to few vectors: one digit in the seventh place turns it"},
    "07_micse_lowshot": {
        "SCD": "two rates of dropout are its objective",
        "CT": "its dot products are of one size: what a layer's norm leaves of their gradient is rounding, "
              "and AdamW takes whole steps of it; by plain descent two are one (test_training_processes.py)",
        "four rows": "CT is one of them",
        "BERT-flow": "a flow fitted to few vectors: one digit in the seventh place turns it",
        "w/o negatives": "without dropout both views are one, and there is no gradient at all",
        "numerator only": "the same",
        "positive pairs alone": "the same"},
}
NOT_COMPARED = {
    "01_robustness": "trains at demo alone, substitutes for its bases, whose dropout is no setting",
    "02_vanilla_geometry": "as 01", "12_cmlm_multilingual": "the dropout of its bases is no setting",
    "23_beside": "trains nothing", "30_explore": "trains nothing", "90_report": "trains nothing",
    "91_speed": "trains nothing",
}
# Spearman of 30 pairs, some of whose cosines are nearly alike: two that change places are .04 points
NEAR = {"07_micse_lowshot": .1}


ROWS = {path.stem: set(experiments.notebooks.setting_names(path)) for path in EXPERIMENTS}


def numbers(name, folder, **more):
    no_dropout = dict(dropout=0.) if "dropout" in ROWS[name] else {}
    overrides = json.dumps(no_dropout | CUT[name] | dict(threads=1))
    options = [word for key, value in more.items() for word in (f"--{key}", str(value))]
    places = PLACES | dict(SENTNB_FIGURES=str(folder), SENTNB_CACHE=str(folder/"cache"))
    copy = copy_without_example(ROOT/"nbs"/f"{name}.ipynb", folder)
    call = sentnb if more else sentnb_here   # several processes have kernels of their own
    done = call("run", str(copy), "--quiet", "-P", f"overrides={overrides}", *options, **places)
    assert done.returncode == 0, done.stderr[-3000:]
    run, = (folder/name).glob("demo*/run.json")
    frame = results.load_run(run.parent).numbers
    return {(row["table"], row["row"], row["column"]): row["value"] for row in frame.to_dict("records")}


def test_every_experiment_is_compared_or_listed():
    assert {path.stem for path in EXPERIMENTS} == CUT.keys() | NOT_COMPARED.keys()
    assert not CUT.keys() & NOT_COMPARED.keys()
    assert all(CUT[name].keys() <= ROWS[name] for name in CUT), \
        {name: CUT[name].keys() - ROWS[name] for name in CUT}


@pytest.mark.parametrize("name", CUT if os.environ.get("SENTNB_PROCESSES") == "all" else DEFAULT)
def test_two_processes_give_the_numbers_of_one(name, tmp_path, warm_kernels):
    one, two = (numbers(name, tmp_path/str(n), **dict(processes=n) if n > 1 else {}) for n in (1, 2))
    assert list(one) == list(two)
    def near(value): return pytest.approx(value, abs=NEAR.get(name, .02), rel=1e-3)
    apart = {key for key in one if any(word in part for word in APART.get(name, ()) for part in key)}
    compared = one.keys() - apart
    assert len(compared) > .5*len(one)
    assert not {key: (one[key], two[key]) for key in compared if two[key] != near(one[key])}
