"""The paper column of the tables of settings against data/paper/hyperparameters.csv, row by row of the five
papers: the same number, or why there is none."""
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
            ("batch", "dropout", "gating", "hidden", "margin")}
VISUAL, AUDIO = "09_visualcse", "10_audiocse"   # "text_lr 0" is the first of that row
BOTH = VISUAL, AUDIO

# a row -> (notebook, setting, what the table has) each, or why no setting has it
USED = {
    ("pixel", "base checkpoint"): [
        ("03_alignment", "starts 0", "Team-PIXEL/pixel-base"),
        ("04_language_models", "PIXEL", "Team-PIXEL/pixel-base"),
        ("05_leapfrog", "base", "Team-PIXEL/pixel-base"),
        ("06_retrieval", "starts 0", "Team-PIXEL/pixel-base")],
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
    ("pixel", "lambda and p of Eq. 1"): "losses.penalized_regression takes both; the paper gives no value",
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
    ("pixel", "small bilingual sets S_n"): "the limit of recipes.load_training_data('papers'); "
                                           "test_constants",
    ("pixel", "Ted parallel data"): "the printed counts are ten times too small; P_10 as published",
    ("pixel", "languages in P_10, P_18, P_XL"): "the published sets; test_sets_of_leapfrog",
    ("pixel", "P_XL corpora"): "the published set; test_sets_of_leapfrog",
    ("pixel", "iterations"): [("05_leapfrog", "iterations", 3)],
    ("pixel", "pairing"): "every set of translations is beside English",
    ("pixel", "checkpoint selection"): "on dev, where the scripts select on test",
    ("pixel", "anisotropy estimate"): "geometry.anisotropy of the first sentences, language by language",
    ("pixel", "evaluation languages"): "core.LANGUAGES; test_constants",
    ("pixel", "visual augmentations tried"): "IMAGE_VIEWS of 03: the five",
    ("pixel", "retrieval cut-offs"): "retrieval.MEASURES; test_constants",
    ("pixel", "LM ablation pooling"): "the mean, as 04 starts its encoders of tokens",
    ("micse", "base model"): [("07_micse_lowshot", "base", "google-bert/bert-base-uncased"),
                              ("08_micse_attention", "base", "google-bert/bert-base-uncased")],
    ("micse", "temperature tau"): "SimCSE's default; test_constants",
    ("micse", "lambda"): [("08_micse_attention", "weights", [2.5e-3])],
    ("micse", "lambda coarse grid"): "07 searches it at each size; test_lambda_grid",
    ("micse", "lambda fine grid"): "07 adds the paper's choice to the coarse grid; test_lambda_grid",
    ("micse", "batch size"): [(name, "batch", 50) for name in MICSE],
    ("micse", "learning rate"): [("08_micse_attention", "lr", 3e-5)],
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
    ("micse", "head pooling"): "AMI's default; losses.mutual_information",
    ("micse", "number of slices R"): "AMI's default; losses.mutual_information",
    ("micse", "sampled attention pairs"): "AMI's default; test_constants",
    ("micse", "attention sampling"): "losses.mutual_information",
    ("micse", "attention model"): "losses.mutual_information",
    ("micse", "pooling"): [("08_micse_attention", "pooling", "cls")],
    ("micse", "views"): "SimCSE's: two draws of dropout",
    ("micse", "evaluation"): "sts.aggregate, all subsets together; SentEval is not run",
    ("micse", "baselines"): "`authors` of 07: the scripts of CT, Mirror-BERT and SCD; test_baselines",
    ("micse", "data size of the text claim"): "the share 0.5% of 07's sizes",
    ("micse", "slices in Figure 8"): [("08_micse_attention", "slices", (3, 4))],
    ("micse", "dependency parser"): [("08_micse_attention", "trees", "en_core_web_sm")],
    ("lensing", "base models"): [(LENSING, "BERT", "google-bert/bert-large-uncased"),
                                 (LENSING, "mBERT", "google-bert/bert-base-multilingual-cased"),
                                 (MINING, "mBERT", "google-bert/bert-base-multilingual-cased")],
    ("lensing", "reduction"): "encoders.lens: the maximum over time, and MeanPool",
    ("lensing", "non-linearity"): "encoders.lens",
    ("lensing", "number of convolution layers M"): "the paper does not state it; LensConfig's default",
    ("lensing", "sentence dimension"): [(name, row, width) for name in (LENSING, MINING)
                                        for row, width in (("width", 1024), ("wide", 4096))],
    ("lensing", "Batch size (random search range)"): SEARCHED["batch"],
    ("lensing", "Warmup steps (random search range)"): "1k to 16k, test_search_ranges",
    ("lensing", "Embedding dropout rate (random search range)"): SEARCHED["dropout"],
    ("lensing", "Gating layer size (random search range)"): SEARCHED["gating"],
    ("lensing", "Hidden layer size (Classifier) (random search range)"): SEARCHED["hidden"],
    ("lensing", "Margin (Ranker) (random search range)"): SEARCHED["margin"],
    ("lensing", "values chosen by the search"): "the paper does not state them; chosen by each run",
    ("lensing", "number of random search trials"): "the paper does not state it",
    ("lensing", "optimizer"): "AdamW without decay of weights; Ranking and Classifying have its schedule",
    ("lensing", "initial learning rate"): [(name, row, None) for name in (LENSING, MINING)
                                           for row in ("lr", "sums_lr", "nli_lr")],
    ("lensing", "parallel data sizes N"): "SIZES of 13, of OPUS; test_sizes_of_lensing",
    ("lensing", "epochs, 100M"): "one pass, of OPUS: train_on_translations of 13",
    ("lensing", "model selection, translation"): "matching error on newstest2013, or held-out translations",
    ("lensing", "model selection, NLI"): "early stopping by the loss on held-out NLI: DevLoss",
    ("lensing", "NLI data"): "gowitheflow/allnli-sup, made of both",
    ("lensing", "translation data"): "TED talks; OPUS where the setting opus names a folder of it",
    ("lensing", "classifier"): "training.margin.pair_features and Entailment(product=True)",
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
    ("nonling", "base models"): [(name, f"bases {position}", base) for name in BOTH for position, base in
                                 enumerate(["google-bert/bert-base-uncased", "FacebookAI/roberta-base",
                                           "FacebookAI/roberta-large"])],
    ("nonling", "temperature tau, text losses"): "SimCSE's default; test_constants",
    ("nonling", "temperature tau, SupCon image loss"): [(name, "temperature", .07) for name in BOTH],
    ("nonling", "omega_image (loss weight)"): "not given; under Adam it does little: training.pictures",
    ("nonling", "text batch sizes searched"): [(name, "text_batch", [64, 128, 256]) for name in BOTH]
    + [(name, "nli_batch", 128) for name in BOTH],   # as released
    ("nonling", "text learning rates searched"): [(name, "text_lr", [3e-5, 2e-5, 1e-5]) for name in BOTH]
    + [(name, "nli_lr", 3e-5) for name in BOTH],
    ("nonling", "image/audio batch size"): [(VISUAL, "image_batch", 48), (AUDIO, "sound_batch", 48)],
    ("nonling", "image/audio learning rates searched"): "the paper's choice is taken",
    ("nonling", "optimizer"): "training.loop's, AdamW",
    ("nonling", "epochs"): [(name, f"steps {position}", 1_000_000//batch) for name in BOTH
                            for position, batch in enumerate([64, 128, 256])],
    ("nonling", "model selection"): "the best on STS-B dev are kept: Stage(keep='best')",
    ("nonling", "random seed"): [(name, "seeds", 5) for name in BOTH],
    ("nonling", "text data"): "SimCSE's file of a million; triples of gowitheflow/allnli-sup, SNLI and MNLI",
    ("nonling", "image data"): "60 classes of Caltech-101; ImageNet from a folder of it",
    ("nonling", "image shape"): [(VISUAL, "image_size", 224)],
    ("nonling", "image augmentations"): "not stated; those of the released code, augmenters.photograph_view",
    ("nonling", "audio data"): "spoken digits, and ESC-10; LibriSpeech from a folder of it",
    ("nonling", "audio shape"): [(AUDIO, "bands", 128)],   # of frames as many as the sounds in its place have
    ("nonling", "audio augmentation"): "two draws of dropout: PictureSupCon(views='dropout')",
    ("nonling", "pooling"): "[CLS], as 09 and 10 read their bases",
    ("nonling", "CIFAR images"): "drawn larger by corpora.load_images, as all",
    ("nonling", "hardware"): "of the authors", ("nonling", "software"): "of the authors",
    ("nonling", "language models"): "one multilingual BERT: no commit of these is declared",
    ("nonling", "language training data"): "as many, of translated talks: language_sentences of 09",
    ("nonling", "language evaluation"): "chosen on dev and measured on test, where the paper prints dev",
    ("nonling", "NLI subset equal to unsupervised VisualCSE"): "one of the sizes of 09",
    ("nonling", "noise levels"): "a range around the printed one: LEVELS of 09",
    ("nonling", "retrieval database"): "captions of Multi30K, a part of Flickr30k's",
    ("nonling", "transfer classifier"): "evaluation.transfer's",
    ("nonling", "training time"): "91_speed times a step"}

# Table C.1: text batch and rate, of each base in turn; batch and rates of images and of sounds
OF_BASES = {"BERT-base": (64, 3e-5, [1e-6], [2e-7]), "RoBERTa-base": (128, 2e-5, [5e-7], [2e-7]),
            "RoBERTa-large": (256, 1e-5, [5e-7], [5e-6])}
IN_TABLE = "Text Bsz", "Text LR", "Img/Audio Bsz", "Img/Audio LR"
for position, (base, (batch, text_lr, *second)) in enumerate(OF_BASES.items()):
    for kind, notebook, word, lrs in zip(("Visual", "Audio"), BOTH, ("image", "sound"), second):
        settings = {f"text_batch {position}": batch, f"text_lr {position}": text_lr, f"{word}_batch": 48,
                    f"{word}_lrs {position}": lrs}
        for row, (setting, value) in zip(IN_TABLE, settings.items()):
            USED["nonling", f"{kind}CSE-{base}: {row}"] = [(notebook, setting, value)]
        USED["nonling", f"{kind}CSE-{base}: GPU"] = "of the authors"

CMLM, MANY = "11_cmlm", "12_cmlm_multilingual"
BOTH_CMLM, OF_THE_AUTHORS = (CMLM, MANY), "of the authors"
COUNTED = "test_many_languages"
for row, entry in {
        "English training data": "Common Crawl is out of reach: C4, which was made of it",
        "data filter": "of the authors; C4 has its own",
        "vocabulary, English": "that of the bases",
        "share of swapped sentence order": "the paper's is missing in our text; ConditionalMasked's default",
        "sequence length of each of the two sequences": [(name, "max_length", 256) for name in BOTH_CMLM],
        "masked tokens in second sequence": [(CMLM, "masked", 80)],
        "masked tokens tried": [(CMLM, "masks", [40, 60, 100])],
        "masking procedure": "MaskedLanguageModel's",
        "batch size": [(CMLM, "batch", 2048), (MANY, "batch", 2048), (MANY, "retrieval_batch", 2048)],
        "batch size above 2048": "one batch is taken",
        "training steps, English": [(CMLM, "steps", 1_000_000)],
        "optimizer": "AdamW; there is no LAMB here, and 11_cmlm says so",
        "learning rate and LAMB constants": "missing in our text; the rate is ours",
        "warm-up": "a share of the steps; test_warm_up_of_cmlm",
        "model sizes": "of the bases, BERT base and large",
        "number of projections, English": [(CMLM, "projections", 15)],
        "number of projections, multilingual": f"missing in our text; those of English, {COUNTED}",
        "projection counts tried": "missing in our text; 11_cmlm says how it is read",
        "projection network": "encoders.conditional.Projections",
        "pooling": "the mean; Table 9 has the others",
        "conditioning": "encoders.conditional",
        "classifier on SentEval": "evaluation.transfer",
        "runs averaged": [(CMLM, "runs", 5)],
        "hardware and time": OF_THE_AUTHORS,
        "NSP accuracy": "next sentences are not predicted here",
        "languages, monolingual data": "English and the 36 of Tatoeba; mC4",
        "vocabulary, multilingual": "that of mBERT",
        "language smoothing exponent (vocabulary)": "that of mBERT",
        "additive margin of bitext retrieval": "missing in our text; the margin is ours",
        "weight of bitext retrieval loss": "missing in our text; the weight is ours",
        "training steps, multilingual CMLM only": [(MANY, "cmlm_steps", 2_000_000)],
        "training steps S1 and S3": [(MANY, "first_steps", 1_500_000), (MANY, "second_steps", 1_000_000)],
        "training steps S2": f"of its two stages together, {COUNTED}",
        "transformer, multilingual": [(MANY, "multilingual", "google-bert/bert-base-multilingual-cased")],
        "learning rate and optimizer, multilingual": "AdamW; the rate is ours",
        "number of steps per stage chosen on": "the paper's numbers are taken",
        "bitext": "TED talks in nine languages; the paper's are not public",
        "NLI finetuning": "facebook/xnli, whose train part is MNLI translated into 14 languages",
        "XEVAL": "not public; probes on XNLI, which say that they are a substitute",
        "Amazon reviews split": [(MANY, "reviews", 6_000)],
        "Tatoeba languages": f"lists, {COUNTED}",
        "PCR components removed": "geometry.remove_principal_component"}.items():
    USED["cmlm", row] = entry


def rows():
    with open(ROOT/"data"/"paper"/"hyperparameters.csv", newline="", encoding="utf-8") as file:
        return {(row["paper"], row["setting"]): row["value"] for row in csv.DictReader(file)}


def numbers_in(text):
    "Those of '(1.0 * 10^3)', '3e-6', '1,000', '1.5 million' and '12'."
    found = []
    parts = r"(\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)(?:\^(\d+))?( million)?"
    for mantissa, exponent, million in re.findall(parts, text):
        value = float(mantissa.replace(",", ""))*(1e6 if million else 1)
        found.append(value**int(exponent) if exponent else value)
    return found


def of_paper(notebook, setting):
    "What the table has; of 'bases 1' the second of the row."
    name, _, position = setting.partition(" ")
    value = table_of(next((ROOT/"nbs").glob(f"{notebook}.ipynb")))[name][1]
    return value[int(position)] if position else value


def test_every_row_is_used_or_listed():
    wanted = {key for key in rows() if key[0] in ("pixel", "cmlm", "micse", "lensing", "nonling")}
    assert set(USED) == wanted


CHECKED = {key: entries for key, entries in USED.items() if not isinstance(entries, str)}


@pytest.mark.parametrize("key", CHECKED, ids=" ".join)
def test_the_paper_column_says_the_same(key):
    row_text = rows()[key]
    for notebook, setting, expected in CHECKED[key]:
        assert of_paper(notebook, setting) == expected, f"{notebook}, {setting}"
        if setting.partition(" ")[0] in ("ensemble", "steps"): continue # four; an epoch, or "1 million"
        if isinstance(expected, str):
            words = {"trees": "spaCy", "pooling": "CLS", "base": "BERT-base", "bases 0": "BERT-base",
                     "bases 1": "RoBERTa-base", "bases 2": "RoBERTa-large",
                     "multilingual": "BERT base"}.get(setting, "PIXEL")
            words = dict(pixel="PIXEL", lensing="BERT").get(key[0], words)
            assert words in row_text
            continue
        if expected is None or key == ("lensing", "ranker"): continue # a rule of the paper; none by the sum
        if setting == "known": expected = 100*expected
        for number in expected if isinstance(expected, (list, tuple)) else [expected]:
            assert number in numbers_in(
                row_text), f"{notebook}: {setting} is {number}, the paper has {row_text}"


def test_search_ranges():
    "The space of 13 at paper is the paper's Table 3."
    searches = {row.split(" (")[0]: value for (paper, row), value in rows().items() if "random search" in row}
    names = {"batch": "Batch size", "dropout": "Embedding dropout rate", "gating": "Gating layer size",
             "hidden": "Hidden layer size", "margin": "Margin", "warmup": "Warmup steps"}
    path = ROOT/"nbs"/f"{LENSING}.ipynb"
    space = spaces_of(path)["SPACE"]
    assert space.keys() == names.keys()
    for name, row in names.items():
        thousands = 1000 if name == "warmup" else 1
        searched = [thousands*number for number in numbers_in(searches[row])]
        assert space[name] == searched and of_paper(MINING, name) in searched


def spaces_of(path):
    "Name -> what a notebook searches: dicts of literals."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return {node.targets[0].id: {word.arg: ast.literal_eval(word.value) for word in node.value.keywords}
            for node in ast.parse(code).body if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call) and getattr(node.targets[0], "id", "") in ("SPACE", "TINY")}


def test_sizes_of_lensing():
    "10k to 100M."
    sizes = of_paper(LENSING, "sizes")
    names = [f"{n//1000}k" if n < 1e6 else f"{n//1_000_000}M" for n in sizes]
    assert names == rows()["lensing", "parallel data sizes N"].split(", ")


def test_sbert_reads_the_pairs_of_the_lens():
    "At demo as many, None; at paper its authors' one epoch."
    assert table_of(ROOT/"nbs"/f"{LENSING}.ipynb")["sbert_epochs"] == (None, 1)


def test_numbers_are_read():
    assert numbers_in("1 for 10^6, 3.0e-5; 384 (5k)") == [1, 1e6, 3e-5, 384, 5]
    assert numbers_in("first 1.5 million, then 1,000") == [1.5e6, 1_000]


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
    larger = of_paper("05_leapfrog", "larger_steps")
    rows = dict(P_18=49_500*128 + a, P_XL=26_232_029)   # steps of the scripts and A; the card
    for name, steps in larger.items():
        assert steps*of_paper("05_leapfrog", "batch")/rows[name] == pytest.approx(1, abs=.001)
    for notebook in BOTH: # three epochs of triples, "1 unsupervised, 3 supervised"
        assert epochs(notebook, "nli_steps", "nli_batch", a) == pytest.approx(3, abs=.001)


def test_sets_of_leapfrog():
    "P_18 and P_XL have the paper's numbers of languages, and are trained once, with A."
    from sentnb import corpora
    languages = numbers_in(rows()["pixel", "languages in P_10, P_18, P_XL"].partition("(")[0])
    sets = corpora.datasets_with_role("mixtures", collection="papers")
    assert [dataset.train.name for dataset in sets] == list(of_paper("05_leapfrog", "larger_steps"))
    for dataset, number in zip(sets, languages[1:], strict=True):
        assert f"{number:.0f} languages" in dataset.note and "+ A" in dataset.note
    assert of_paper("05_leapfrog", "larger_seeds") == 1


def test_lambda_grid():
    "Powers of ten from 1e-5 to 1, and the value that the paper found between them."
    coarse = numbers_in(rows()["micse", "lambda coarse grid"])
    grid = of_paper("07_micse_lowshot", "ami_weights")
    found, = numbers_in(rows()["micse", "lambda"])
    assert grid[0] == coarse[-1] == 1e-5 and grid[-1] == coarse[0] == 1
    assert grid == sorted([*(10.**-k for k in range(6)), found])


def test_baselines():
    "One pass over a million sentences; CT as many steps as its script has; the constants are the defaults."
    from sentnb.training import SCD, ContrastiveTension, MirrorBERT
    authors = of_paper("07_micse_lowshot", "authors")
    for method in ("Mirror-BERT", "Mirror (avg.)", "SCD"):
        assert authors[method]["steps"] == 1_000_000//authors[method]["batch"]
    assert authors["CT"]["batch"] == 2*(1 + 2*ContrastiveTension().negatives)
    assert (MirrorBERT().temperature, MirrorBERT().hidden, MirrorBERT().shortest) == (.04, 5, 30)
    assert (SCD().dropout, SCD().temperature, SCD().alpha, SCD().off_diagonal, SCD().projection) == (
        (.05, .155), .05, .005225, .012, of_paper("07_micse_lowshot", "projection"))


def test_warm_ups_are_the_scripts():
    for notebook in ("03_alignment", "05_leapfrog", "06_retrieval"):
        shares = of_paper(notebook, "warmup")
        of_scripts = dict(visual=(100, 1_300), topical=(5_050, 50_500), reasoning=(200, 2_600))
        for stage, (warm, steps) in of_scripts.items(): assert round(shares[stage]*steps) == warm
    assert of_paper("05_leapfrog", "warmup")["cross-lingual"] == pytest.approx(20_000/202_600, abs=.001)


def test_warm_up_of_cmlm():
    warm, = numbers_in(rows()["cmlm", "warm-up"])
    assert warm == of_paper(CMLM, "warmup")*of_paper(CMLM, "steps") == 10_000
    assert "1 million" in rows()["cmlm", "training steps, English"]


def test_many_languages():
    "What 12 has as lists, as shares, and of two stages together."
    printed = rows()
    def read(setting): return of_paper(MANY, setting)
    warm, = numbers_in(printed["cmlm", "warm-up"])
    assert warm == read("warmup")*read("cmlm_steps")
    assert read("mask_ratio") == of_paper(CMLM, "masked")/256
    assert read("projections") == of_paper(CMLM, "projections")
    assert numbers_in(printed["cmlm", "training steps S2"]) == [2*read("s2_steps")]
    assert read("s1_steps") == read("first_steps") + read("second_steps")
    assert numbers_in(printed["cmlm", "Tatoeba languages"])[:2] == [len(read("searched")),
                                                                    len(read("removed"))]
    assert set(read("languages")) == {"en", *read("searched")}


def test_constants():
    "What no table has, because nothing changes it."
    from sentnb.core import LANGUAGES
    from sentnb.encoders import PixelConfig, PixelEncoder
    from sentnb.encoders.lens import binary_vectors
    from sentnb.evaluation import retrieval
    from sentnb.evaluation.bitext import mine
    from sentnb.recipes.sources import SOURCES
    from sentnb.training import AMI, InfoNCE, Momentum, PictureSupCon, SimCSE
    printed = rows()
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
        assert value in numbers_in(printed[key]), f"{key}: {value}, the paper has {printed[key]}"
    cut_offs = re.findall(r"(?:nDCG|recall)@\d+", printed["pixel", "retrieval cut-offs"])
    assert set(retrieval.MEASURES) == set(cut_offs)
    assert SOURCES["papers"].LIMITS["bilingual"] == 5_000
    assert "5k" in printed["pixel", "small bilingual sets S_n"]
    tiny = PixelConfig(16, 1, 1, 16)
    assert PixelEncoder(tiny).config.pooling == printed["pixel", "pooling"] == "mean"