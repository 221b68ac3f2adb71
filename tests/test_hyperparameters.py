"""The paper column of the tables of settings against data/paper/hyperparameters.csv, row by row of the four
papers whose settings are compared: the same number, or why there is none."""
import ast
import csv
import inspect
import json
import re

import pytest
from test_paper_profile import ROOT, table_of

PIXEL = ("03_alignment", "04_language_models", "05_leapfrog", "06_retrieval")
MICSE = ("07_micse_lowshot", "08_micse_attention")
LENSING, MINING = "13_lensing", "14_mining"

SEARCHED = {row: f"a range, which test_search_ranges compares: {row}" for row in
            ("batch", "dropout", "gating", "margin")}
VISUAL = "09_visualcse"   # "text_lr 0" is the first of that row
SOUNDS, LARGE = "sounds are not run", "RoBERTa-large is not run"
SUPERVISED = "the supervised setting is not run"

# a row -> (notebook, setting, what the table has) each, or why no setting has it
USED = {
    ("pixel", "base checkpoint"): [
        (notebook, setting, "Team-PIXEL/pixel-base") for notebook, setting in zip(
            PIXEL, ("base", "PIXEL", "start", "base"))],
    ("pixel", "text renderer"): "the only one there is: sentnb.renderer draws by PangoCairo",
    ("pixel", "learning rate, visual alignment"): [(name, "visual_lr", 3e-6) for name in PIXEL],
    ("pixel", "learning rate, all other steps"): [
        ("03_alignment", "lr", 3e-5), ("04_language_models", "reasoning_lr", 3e-5),
        ("05_leapfrog", "lr", 3e-5), ("05_leapfrog", "cross_lr", 3e-5), ("05_leapfrog", "revisit_lr", 3e-5),
        ("06_retrieval", "lr", 3e-5)],
    ("pixel", "epochs"): "steps are set; test_steps_are_one_epoch",
    ("pixel", "temperature tau"): "InfoNCE's default; test_constants",
    ("pixel", "max sequence (patch) length"): [
        ("03_alignment", "max_patches", 64), ("04_language_models", "patch_limit", 64),
        ("05_leapfrog", "max_patches", 64), ("06_retrieval", "max_patches", 64)],
    ("pixel", "pooling"): "an encoder's default; test_constants",
    ("pixel", "normalisation"): "InfoNCE compares, and `encode` gives, vectors of length 1",
    ("pixel", "loss"): "InfoNCE, symmetric, negatives of the batch",
    ("pixel", "lambda and p of Eq. 1"): "the paper gives no value, and trains by its loss",
    ("pixel", "batch size"): "the paper does not state it; the released scripts' 768 and 128",
    ("pixel", "optimizer, weight decay, warm-up"): "the paper does not state them; the released scripts'",
    ("pixel", "random seeds"): "the paper does not state them",
    ("pixel", "STS-b correlation type"): "the paper does not state it; Spearman is reported",
    ("pixel", "visual alignment corpus"): "the papers' sets, made of it: gowitheflow/wiki1M-*",
    ("pixel", "typo types"): "written out in the papers' sets",
    ("pixel", "substitution candidates"): "written out in the papers' sets",
    ("pixel", "typo tool"): "written out in the papers' sets",
    ("pixel", "word shuffling types"): "written out in the papers' sets",
    ("pixel", "share of perturbed characters or words"): "written out in the papers' sets",
    ("pixel", "topical alignment corpus"): "the paper's set: gowitheflow/wiki-span",
    ("pixel", "spans per document"): "written out in the paper's set",
    ("pixel", "span length"): "written out in the paper's set",
    ("pixel", "reasoning corpus"): "the paper's set, gowitheflow/allnli-sup, ten times the printed counts",
    ("pixel", "NLI pairs used"): "entailment only: the role of gowitheflow/allnli-sup",
    ("pixel", "checkpoints in the ensemble"): [
        (name, "ensemble", ["character", "word-condition", "word-random", "mixture"])
        for name in ("05_leapfrog", "06_retrieval")],
    ("pixel", "small bilingual sets S_n"): "the limit of recipes.training_data('papers'); test_constants",
    ("pixel", "Ted parallel data"): "the printed counts are ten times too small; P_10 as published",
    ("pixel", "languages in P_10, P_18, P_XL"): "P_10 alone: English and nine others",
    ("pixel", "P_XL corpora"): "P_XL is not trained",
    ("pixel", "iterations"): [("05_leapfrog", "iterations", 3)],
    ("pixel", "pairing"): "every set of translations is beside English",
    ("pixel", "checkpoint selection"): "on dev, where the scripts select on test",
    ("pixel", "anisotropy estimate"): "geometry.anisotropy of the first sentences, language by language",
    ("pixel", "evaluation languages"): "core.LANGUAGES; test_constants",
    ("pixel", "visual augmentations tried"): "IMAGE_VIEWS of 03: the five",
    ("pixel", "retrieval cut-offs"): "retrieval.MEASURES; test_constants",
    ("pixel", "LM ablation pooling"): "the mean, as 04 starts its encoders of tokens",
    ("micse", "base model"): [(name, "base", "google-bert/bert-base-uncased") for name in MICSE],
    ("micse", "temperature tau"): "SimCSE's default; test_constants",
    ("micse", "lambda"): [("07_micse_lowshot", "ami_weights", [2.5e-3]),
                          ("08_micse_attention", "weights", [2.5e-3])],
    ("micse", "lambda coarse grid"): "the paper's choice is taken",
    ("micse", "lambda fine grid"): "the paper's choice is taken",
    ("micse", "batch size"): [(name, "batch", 50) for name in MICSE],
    ("micse", "learning rate"): [("08_micse_attention", "lr", 3e-5),
                                 ("07_micse_lowshot", "second_rate", 3e-5)],
    ("micse", "warm-up steps"): [(name, "warmup", 250) for name in MICSE],
    ("micse", "optimization steps"): "one number of steps for all sizes: 07 has one row `steps`",
    ("micse", "epochs"): [(name, "steps", 1_000_000//50) for name in MICSE],
    ("micse", "sample queue size |Q|"): [(name, "queue", 384) for name in MICSE],
    ("micse", "momentum factor"): "Momentum's default; test_constants",
    ("micse", "dropout"): [(name, setting, rate) for name in MICSE
                           for setting, rate in (("dropout", .1), ("momentum_dropout", .3))],
    ("micse", "hardware and time"): "of the authors",
    ("micse", "training set sizes"): "shares of the pool: SIZES of 07",
    ("micse", "seeds"): [("07_micse_lowshot", "draws", 5), ("08_micse_attention", "seeds", 5)],
    ("micse", "layers used"): "AMI's default, the last four",
    ("micse", "head pooling"): "AMI's default; losses.attention",
    ("micse", "number of slices R"): "AMI's default; losses.attention",
    ("micse", "sampled attention pairs"): "AMI's default; test_constants",
    ("micse", "attention sampling"): "losses.attention",
    ("micse", "attention model"): "losses.attention",
    ("micse", "pooling"): [("08_micse_attention", "pooling", "cls")],
    ("micse", "views"): "SimCSE's: two draws of dropout",
    ("micse", "evaluation"): "sts.aggregate, all subsets together; SentEval is not run",
    ("micse", "baselines"): "their rates are from memory, and cited so",
    ("micse", "data size of the text claim"): "the share 0.5% of 07's sizes",
    ("micse", "slices in Figure 8"): [("08_micse_attention", "slices", (3, 4))],
    ("micse", "dependency parser"): [("08_micse_attention", "trees", "en_core_web_sm")],
    ("lensing", "base models"): [(LENSING, "english", "google-bert/bert-large-uncased"),
                                 (LENSING, "multilingual", "google-bert/bert-base-multilingual-cased"),
                                 (MINING, "base", "google-bert/bert-base-multilingual-cased")],
    ("lensing", "reduction"): "encoders.lens: the maximum over time, and MeanPool",
    ("lensing", "non-linearity"): "encoders.lens",
    ("lensing", "number of convolution layers M"): "the paper does not state it; LensConfig's default",
    ("lensing", "sentence dimension"): [(name, row, width) for name in (LENSING, MINING)
                                        for row, width in (("width", 1024), ("wide", 4096))],
    ("lensing", "Batch size (random search range)"): SEARCHED["batch"],
    ("lensing", "Warmup steps (random search range)"): "1k to 16k, test_search_ranges",
    ("lensing", "Embedding dropout rate (random search range)"): SEARCHED["dropout"],
    ("lensing", "Gating layer size (random search range)"): SEARCHED["gating"],
    ("lensing", "Hidden layer size (Classifier) (random search range)"): [
        (name, "hidden", 512) for name in (LENSING, MINING)],
    ("lensing", "Margin (Ranker) (random search range)"): SEARCHED["margin"],
    ("lensing", "values chosen by the search"): "the paper does not state them; chosen by each run",
    ("lensing", "number of random search trials"): "the paper does not state it",
    ("lensing", "optimizer"): "AdamW without decay of weights; its schedule falls in a line",
    ("lensing", "initial learning rate"): [(name, row, None) for name in (LENSING, MINING)
                                           for row in ("lr", "sums_lr", "nli_lr")],
    ("lensing", "parallel data sizes N"): "10k, 100k and 1M of TED talks; not 10M, nor 100M",
    ("lensing", "epochs, 100M"): "not run",
    ("lensing", "model selection, translation"): "matching error on held-out translations",
    ("lensing", "model selection, NLI"): "early stopping, on the dev set of STS-B",
    ("lensing", "NLI data"): "gowitheflow/allnli-sup, made of both",
    ("lensing", "translation data"): "TED talks: OPUS is not declared",
    ("lensing", "classifier"): "training.bitext.relation and Entailment",
    ("lensing", "ranker"): [(name, "sums", 0.) for name in (LENSING, MINING)],
    ("lensing", "hardware"): "of the authors",
    ("lensing", "retrieval"): "bitext.tatoeba, and by_cosine of 13",
    ("lensing", "binary threshold"): "binary_vectors' default; test_constants",
    ("lensing", "nearest neighbours k"): [(MINING, "neighbours", 4)],
    ("lensing", "margin function"): "bitext.mine's default",
    ("lensing", "mining threshold"): "bitext.best_threshold",
    ("lensing", "language vector"): "language_vectors of 13",
    ("lensing", "language classifier"): [(LENSING, "known", .01)],
    ("lensing", "random seeds"): "the paper does not state them",
    ("nonling", "base models"): [(VISUAL, "bases 0", "google-bert/bert-base-uncased"),
                                 (VISUAL, "bases 1", "FacebookAI/roberta-base")],
    ("nonling", "temperature tau, text losses"): "SimCSE's default; test_constants",
    ("nonling", "temperature tau, SupCon image loss"): "PictureSupCon's default; test_constants",
    ("nonling", "omega_image (loss weight)"): "not given; under Adam it does little: training.pictures",
    ("nonling", "text batch sizes searched"): [(VISUAL, "text_batch", [64, 128])],
    ("nonling", "text learning rates searched"): [(VISUAL, "text_lr", [3e-5, 2e-5])],
    ("nonling", "image/audio batch size"): [(VISUAL, "image_batch", 48)],
    ("nonling", "image/audio learning rates searched"): "the paper's choice is taken",
    ("nonling", "optimizer"): "training.loop's, AdamW",
    ("nonling", "epochs"): [(VISUAL, "steps 0", 1_000_000//64), (VISUAL, "steps 1", 1_000_000//128)],
    ("nonling", "model selection"): "the best on STS-B dev are kept: Stage(keep='best')",
    ("nonling", "random seed"): [(VISUAL, "seeds", 5)],
    ("nonling", "text data"): "SimCSE's file of a million; the supervised setting is not run",
    ("nonling", "image data"): "60 classes of Caltech-101: images of ImageNet may not be handed on",
    ("nonling", "image shape"): [(VISUAL, "image_size", 224)],
    ("nonling", "image augmentations"): "not stated; those of the released code, augmenters.photograph_view",
    ("nonling", "audio data"): SOUNDS, ("nonling", "audio shape"): SOUNDS,
    ("nonling", "audio augmentation"): SOUNDS,
    ("nonling", "pooling"): "[CLS], as 09 reads its bases",
    ("nonling", "CIFAR images"): "drawn larger by corpora.image_set, as all",
    ("nonling", "hardware"): "of the authors", ("nonling", "software"): "of the authors",
    ("nonling", "language models"): "other languages are not run",
    ("nonling", "language training data"): "other languages are not run",
    ("nonling", "language evaluation"): "other languages are not run",
    ("nonling", "NLI subset equal to unsupervised VisualCSE"): SUPERVISED,
    ("nonling", "noise levels"): SUPERVISED,
    ("nonling", "retrieval database"): "retrieval of captions is not run",
    ("nonling", "transfer classifier"): "transfer is not run",
    ("nonling", "training time"): "of the authors"}

# Table C.1: text batch and rate, image batch and rate, of each base in turn
OF_BASES = {"BERT-base": (64, 3e-5, 48, [1e-6]), "RoBERTa-base": (128, 2e-5, 48, [5e-7])}
IN_TABLE = {"Text Bsz": "text_batch {}", "Text LR": "text_lr {}", "Img/Audio Bsz": "image_batch",
            "Img/Audio LR": "image_lrs {}"}
for place, (base, values) in enumerate(OF_BASES.items()):
    for (row, setting), value in zip(IN_TABLE.items(), values):
        USED["nonling", f"VisualCSE-{base}: {row}"] = [(VISUAL, setting.format(place), value)]
    for row in IN_TABLE: USED["nonling", f"AudioCSE-{base}: {row}"] = SOUNDS
    for kind in ("Visual", "Audio"): USED["nonling", f"{kind}CSE-{base}: GPU"] = "of the authors"
for row in ("GPU", *IN_TABLE):
    for kind in ("Visual", "Audio"): USED["nonling", f"{kind}CSE-RoBERTa-large: {row}"] = LARGE



def rows():
    with open(ROOT/"data"/"paper"/"hyperparameters.csv", newline="", encoding="utf-8") as file:
        return {(row["paper"], row["setting"]): row["value"] for row in csv.DictReader(file)}


def numbers_in(text):
    "Those of '(1.0 * 10^3)', '3e-6', '1,000' and '12'."
    found = []
    for mantissa, exponent in re.findall(r"(\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)(?:\^(\d+))?", text):
        value = float(mantissa.replace(",", ""))
        found.append(value**int(exponent) if exponent else value)
    return found


def of_paper(notebook, setting):
    "What the table has; of 'bases 1' the second of the row."
    name, _, place = setting.partition(" ")
    value = table_of(next((ROOT/"nbs").glob(f"{notebook}.ipynb")))[name][1]
    return value[int(place)] if place else value


def test_every_row_is_used_or_told():
    wanted = {key for key in rows() if key[0] in ("pixel", "micse", "lensing", "nonling")}
    assert set(USED) == wanted


CHECKED = {key: entries for key, entries in USED.items() if not isinstance(entries, str)}


@pytest.mark.parametrize("key", CHECKED, ids=" ".join)
def test_the_paper_column_says_the_same(key):
    said = rows()[key]
    for notebook, setting, expected in CHECKED[key]:
        assert of_paper(notebook, setting) == expected, f"{notebook}, {setting}"
        if setting.partition(" ")[0] in ("ensemble", "steps"): continue # four; an epoch stands there
        if isinstance(expected, str):
            words = {"trees": "spaCy", "pooling": "CLS", "base": "BERT-base", "bases 0": "BERT-base",
                     "bases 1": "RoBERTa-base"}.get(setting, "PIXEL")
            words = dict(pixel="PIXEL", lensing="BERT").get(key[0], words)
            assert words in said
            continue
        if expected is None or key == ("lensing", "ranker"): continue # a rule of the paper; none by the sum
        if setting == "known": expected = 100*expected
        for number in expected if isinstance(expected, (list, tuple)) else [expected]:
            assert number in numbers_in(said), f"{notebook}: {setting} is {number}, the paper has {said}"


def test_search_ranges():
    "The space of 13 at paper is the paper's Table 3."
    said = {row.split(" (")[0]: value for (paper, row), value in rows().items() if "random search" in row}
    names = {"batch": "Batch size", "dropout": "Embedding dropout rate", "gating": "Gating layer size",
             "margin": "Margin", "warmup": "Warmup steps"}
    path = ROOT/"nbs"/f"{LENSING}.ipynb"
    space = spaces_of(path)["SPACE"]
    assert space.keys() == names.keys()
    for name, row in names.items():
        thousands = 1000 if name == "warmup" else 1
        searched = [thousands*number for number in numbers_in(said[row])]
        assert space[name] == searched and of_paper(MINING, name) in searched


def spaces_of(path):
    "Name -> what a notebook searches: dicts of literals."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return {node.targets[0].id: {word.arg: ast.literal_eval(word.value) for word in node.value.keywords}
            for node in ast.parse(code).body if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call) and getattr(node.targets[0], "id", "") in ("SPACE", "TINY")}


def test_numbers_are_read():
    assert numbers_in("1 for 10^6, 3.0e-5; 384 (5k)") == [1, 1e6, 3e-5, 384, 5]


def test_steps_are_one_epoch():
    "At the sizes of the published sets, batches of the table; the paper's S_n has 5,000 pairs."
    a, p, spans, sentences = 314_315, 3_322_980, 6_460_000, 1_000_000
    def epochs(notebook, steps, batch, examples):
        return of_paper(notebook, steps)*of_paper(notebook, batch)/examples
    for notebook in ("03_alignment", "05_leapfrog", "06_retrieval"):
        assert epochs(notebook, "visual_steps", "visual_batch", sentences) == pytest.approx(1, abs=.01)
        assert epochs(notebook, "topical_steps", "batch", spans) == pytest.approx(1, abs=.01)
        assert epochs(notebook, "reasoning_steps", "batch", a) == pytest.approx(1, abs=.06)
    assert epochs("05_leapfrog", "revisit_steps", "batch", a) == pytest.approx(1, abs=.06)
    assert epochs("05_leapfrog", "parallel_steps", "batch", p + a) == pytest.approx(1, abs=.01)
    assert epochs("05_leapfrog", "bilingual_steps", "batch", 5_000 + a) == pytest.approx(1, abs=.01)
    assert of_paper("05_leapfrog", "inference") == "once"


def test_warm_ups_are_the_scripts():
    for notebook in ("03_alignment", "05_leapfrog", "06_retrieval"):
        shares = of_paper(notebook, "warmup")
        of_scripts = dict(visual=(100, 1_300), topical=(5_050, 50_500), reasoning=(200, 2_600))
        for stage, (warm, steps) in of_scripts.items(): assert round(shares[stage]*steps) == warm
    assert of_paper("05_leapfrog", "warmup")["cross-lingual"] == pytest.approx(20_000/202_600, abs=.001)


def test_constants():
    "What no table has, because nothing changes it."
    from sentnb.core import LANGUAGES
    from sentnb.encoders import PixelConfig, PixelEncoder
    from sentnb.encoders.lens import binary_vectors
    from sentnb.evaluation import retrieval
    from sentnb.evaluation.bitext import mine
    from sentnb.recipes.sources import SOURCES
    from sentnb.training import AMI, InfoNCE, Momentum, PictureSupCon, SimCSE
    said = rows()
    def default(function, name): return inspect.signature(function).parameters[name].default
    for key, value in {("pixel", "temperature tau"): InfoNCE().temperature,
                       ("micse", "temperature tau"): SimCSE().temperature,
                       ("nonling", "temperature tau, text losses"): SimCSE().temperature,
                       ("nonling", "temperature tau, SupCon image loss"): PictureSupCon.temperature,
                       ("micse", "momentum factor"): Momentum().decay,
                       ("micse", "dropout"): Momentum().dropout,
                       ("micse", "sampled attention pairs"): AMI().samples,
                       ("lensing", "binary threshold"): default(binary_vectors, "threshold"),
                       ("lensing", "nearest neighbours k"): default(mine, "k"),
                       ("pixel", "evaluation languages"): len(LANGUAGES)}.items():
        assert value in numbers_in(said[key]), f"{key}: {value}, the paper has {said[key]}"
    cut_offs = re.findall(r"(?:nDCG|recall)@\d+", said["pixel", "retrieval cut-offs"])
    assert set(retrieval.MEASURES) == set(cut_offs)
    assert SOURCES["papers"].LIMITS["bilingual"] == 5_000
    assert "5k" in said["pixel", "small bilingual sets S_n"]
    tiny = PixelConfig(16, 1, 1, 16)
    assert PixelEncoder(tiny).config.pooling == said["pixel", "pooling"] == "mean"
