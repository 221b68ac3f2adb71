"The rules of VisualCSE and AudioCSE (09, 10, 91) on the numbers that their paper prints."
from scipy.stats import ttest_ind_from_stats

from sentnb import results

BACKBONES = ("BERT-base", "RoBERTa-base", "RoBERTa-large")
SEEDS = 5   # of Table 3


def cell(frame, row: str, column: str = "Avg.", field: str = "value") -> float:
    "One printed number."
    numbers = frame[(frame["row"] == row) & (frame["column"] == column)][field]
    assert len(numbers) == 1, f"{row}, {column}"
    return float(numbers.iloc[0])


def above(difference: float, quantity: str): return results.settle((difference, difference), ">", 0, quantity)


def below(difference: float, quantity: str): return results.settle((difference, difference), "<", 0, quantity)


def gains(frame, method: str, backbones=BACKBONES) -> list[float]:
    return [cell(frame, f"{method}-{name}") - cell(frame, f"SimCSE-{name}") for name in backbones]


def images_improve(tables):
    found = gains(tables["nonling_table1"], "VisualCSE")
    return [above(gain, f"{name}: VisualCSE minus SimCSE") for name, gain in zip(BACKBONES, found)]


def sounds_improve(tables):
    found = gains(tables["nonling_table2"], "AudioCSE")
    return [above(gain, f"{name}: AudioCSE minus SimCSE") for name, gain in zip(BACKBONES, found)]


def gain_is_significant(tables):
    frame, parts = tables["nonling_table3"], []
    for name in BACKBONES[:2]:
        rows = [f"{method}-{name}" for method in ("VisualCSE", "SimCSE")]
        summaries = [(cell(frame, row), cell(frame, row, field="std"), SEEDS) for row in rows]
        p = ttest_ind_from_stats(*summaries[0], *summaries[1]).pvalue
        difference = summaries[0][0] - summaries[1][0]
        parts.append(results.settle_p_value(p, f"{name}: unpaired t-test over seeds:", difference))
    return parts


def simclr_works(tables):
    verdicts = []
    for table in ("nonling_table4", "nonling_tableG1"):
        for short, name in (("BERT", "BERT-base"), ("RoBERTa", "RoBERTa-base")):
            simclr, supcon = (cell(tables[table], f"{short} ({loss})") for loss in ("SimCLR", "SupCon"))
            simcse = cell(tables["nonling_table1"], f"SimCSE-{name}")
            shown = above(simclr - supcon, f"{table}, {name}: SimCLR minus SupCon")
            decides = above(simclr - simcse, f"{name}: SimCLR minus SimCSE")
            verdicts.append(results.settle_by(decides, [shown]))
    return verdicts


def other_languages_gain(tables):
    frame = tables["nonling_table5"]
    means = {row: frame[frame["row"] == row]["value"].mean() for row in ("SimCSE", "VisualCSE")}
    return above(means["VisualCSE"] - means["SimCSE"], "VisualCSE minus SimCSE, over languages")


def supervised_gain_is_smaller(tables):
    parts = []
    for method, table in (("VisualCSE", "nonling_table1"), ("AudioCSE", "nonling_table2")):
        supervised, = gains(tables["nonling_table6"], method, BACKBONES[:1])
        unsupervised, = gains(tables[table], method, BACKBONES[:1])
        parts += [above(supervised, f"supervised {method} minus supervised SimCSE"),
                  below(supervised - unsupervised, f"{method}: gain, supervised minus unsupervised")]
    return parts


def blurry_images_help_less(tables):
    frame, parts = tables["nonling_tableH1"], []
    for name in BACKBONES[:2]:
        blurry, sharp = (cell(frame, f"VisualCSE-{name} ({kind})") for kind in ("CIFAR", "ImageNet"))
        parts += [above(blurry - cell(frame, f"SimCSE-{name}"), f"{name}: CIFAR minus SimCSE"),
                  below(blurry - sharp, f"{name}: CIFAR minus VisualCSE")]
    return parts


def transfer_improves(tables):
    frame = tables["nonling_tableE1"]
    return [above(gain, f"{name}: {method} minus SimCSE, transfer") for method in ("VisualCSE", "AudioCSE")
            for name, gain in zip(BACKBONES, gains(frame, method))]


RULES = {"nonling-1": images_improve, "nonling-2": sounds_improve, "nonling-3": gain_is_significant,
         "nonling-4": simclr_works, "nonling-5": other_languages_gain,
         "nonling-6": supervised_gain_is_smaller, "nonling-10": blurry_images_help_less,
         "nonling-11": transfer_improves}

CONTRADICTIONS = {}

NO_NUMBERS = {
    "nonling-7": "only in Figure 2, without numbers",
    "nonling-8": "only in Figure 3, without numbers",
    "nonling-9": "only in Figure 4, without numbers",
    "nonling-12": "Table D.1 shows captions of one seed, and the rule compares seeds",
    "nonling-13": "'about twice as long' is said in words, without times"}
