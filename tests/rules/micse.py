"The rules of miCSE (07, 08) on the numbers that its tables print."
import numpy as np

from sentnb import results

SIZES = {"0.1%": .001, "1%": .01, "10%": .1, "100%": 1.}
WITH_AMI = {"CT": "AMI+CT", "Mirror-BERT": "AMI+Mirror-BERT", "Mirror (avg.)": "AMI+Mirror-BERT (avg.)",
            "SimCSE": "AMI+SimCSE"}
ALONE = "miCSE (w/o negatives)", "SimCSE (w/o negatives)"


def printed(tables, table, column="value"):
    "(row, column) -> number."
    frame = tables[table]
    return {(row, size): value for row, size, value in zip(frame["row"], frame["column"], frame[column])}


def by_size(numbers, row): return np.array([numbers[row, size] for size in SIZES])


def part(value, quantity, margin=0.):
    "A part of a printed number: its interval has no width."
    return results.settle((float(value), float(value)), ">", margin, quantity)


def pooled(numbers, pairs):
    "The mean over pairs and sizes decides."
    cells = {f"{row} minus {other}, {size}": numbers[row, size] - numbers[other, size]
             for row, other in pairs for size in SIZES}
    parts = [part(value, name) for name, value in cells.items()]
    return results.settle_by(part(np.mean(list(cells.values())), "mean of all"), parts)


def slope(values): return np.polyfit(np.log10(list(SIZES.values())), values, 1)[0]


def ami_improves(tables):
    return pooled(printed(tables, "micse_table2"), [(added, row) for row, added in WITH_AMI.items()])


def gain_grows_as_data_shrink(tables):
    numbers = printed(tables, "micse_table2")
    gain = by_size(numbers, "AMI+SimCSE") - by_size(numbers, "SimCSE")
    return [part(gain[0], "gain at 0.1%"), part(-slope(gain), "minus the slope of the gain")]


def deviation_falls(tables):
    "The direction of the test: the paper prints no p value. With all sentences it prints no deviation."
    deviations = printed(tables, "micse_table2", "std")
    differences = {row: np.nanmean(by_size(deviations, row) - by_size(deviations, added))
                   for row, added in WITH_AMI.items()}
    parts = [part(value, row) for row, value in differences.items()]
    return results.settle_by(part(np.mean(list(differences.values())), "the four rows"), parts)


def comparable_and_above_simcse(tables):
    averages = {row: value for (row, column), value in printed(tables, "micse_table1").items()
                if column == "Avg."}
    best = max(value for row, value in averages.items() if row != "miCSE")
    return [part(averages["miCSE"] - best, "miCSE minus the best", -1),
            part(averages["miCSE"] - averages["SimCSE"], "miCSE minus SimCSE")]


def best_on_sick(tables):
    scores = {row: value for (row, column), value in printed(tables, "micse_table1").items()
              if column == "SICK-R"}
    return [part(scores["miCSE"] - value, f"miCSE minus {row}") for row, value in scores.items()
            if row != "miCSE"]


def above_baselines(tables):
    "SCD has a number for all sentences only."
    numbers, table_1 = printed(tables, "micse_table2"), printed(tables, "micse_table1")
    verdict = pooled(numbers, [("miCSE", "SimCSE")])
    lead = part(table_1["miCSE", "Avg."] - table_1["SCD", "Avg."], "miCSE minus SCD, 100%")
    return [verdict, lead]


def above_simcse_with_few(tables):
    numbers = printed(tables, "micse_table2")
    return part(numbers["miCSE", "0.1%"] - numbers["SimCSE", "0.1%"], "miCSE minus SimCSE, 0.1%")


def each_part_at_its_size(tables):
    numbers = printed(tables, "micse_table3")
    simcse, ami, moco, both = (by_size(numbers, row)
                               for row in ("SimCSE", "AMI+SimCSE", "MoCo+SimCSE", "miCSE"))
    assert slope(moco - simcse) < 0, "the rule that asked for a rising gain of MoCo failed the paper's own"
    return [part(slope(moco - ami), "slope of MoCo's gain minus AMI's"),
            part((both - ami).mean(), "miCSE minus AMI+SimCSE, mean of four sizes"),
            part((both - moco).mean(), "miCSE minus MoCo+SimCSE, mean of four sizes")]


def ami_improves_positive_pairs(tables): return pooled(printed(tables, "micse_table4"), [ALONE])


RULES = {"micse-1": ami_improves, "micse-2": gain_grows_as_data_shrink, "micse-3": deviation_falls,
         "micse-4": comparable_and_above_simcse, "micse-5": best_on_sick, "micse-6": above_baselines,
         "micse-8": above_simcse_with_few, "micse-9": each_part_at_its_size,
         "micse-10": ami_improves_positive_pairs}
CONTRADICTIONS = {}
NO_NUMBERS = {"micse-7": "the paper prints no score at 0.5 %",
              "micse-11": "only in Figure 5, without numbers",
              "micse-12": "only in Figure 6, without numbers",
              "micse-13": "only in Figure 7, without numbers",
              "micse-14": "only in Figure 8, without numbers"}
