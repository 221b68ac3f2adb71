"""The rules of Contextual Lensing's claims, on the numbers that the paper prints."""
import numpy as np

from sentnb import results

LANGUAGES = ("DE", "FR", "RU", "ZH")
BASELINE, NLI = "mBERT BOW", "CL(mBERT; NLI)"
NARROW, SIMPLE, WIDE = "CL(mBERT; 100M)", "sCL(mBERT; 100M) †", "CL(mBERT; 100M) †"


def scores(table, row, columns):
    "float [columns]: what a row of a published table has."
    rows = table[table["row"] == row].set_index("column")["value"]
    return np.array([float(rows[column]) for column in columns])


def settle(value, direction, margin, quantity):
    value = float(value)
    return results.settle((value, value), direction, margin, quantity)


def gain(tables, row):
    "The mean gain over the mean of BERT's states, Table 2."
    return scores(tables["lensing_table2"], row, ["Δ"])[0]


def best_of_others(tables):
    lens = gain(tables, "sCL(BERT-Large; NLI)")
    return [settle(lens - gain(tables, row), ">", 0, f"mean of the tasks: the lens minus {row}")
            for row in ("Glove BOW", "InferSent", "USE")]


def nearly_sbert(tables):
    "The mean of BERT's states has a gain of 0."
    lead = gain(tables, "sCL(BERT-Large; NLI)") - gain(tables, "SBERT")/2
    return settle(lead, ">", 0, "mean of the tasks: the lens minus midway between SBERT and BERT BOW")


def mining(tables, row, over, margin=0., part="training"):
    "The mean over the languages decides, each language is shown."
    columns = [f"{language} ({part})" for language in LANGUAGES]
    leads = scores(tables["lensing_table5"], row, columns) - scores(tables["lensing_table5"], over, columns)
    shown = [settle(lead, ">", margin, f"F1, {language}") for language, lead in zip(LANGUAGES, leads)]
    return results.settle_by(settle(leads.mean(), ">", margin, "mean F1"), shown)


def one_threshold(tables):
    published = tables["lensing_table5"]
    spreads = [scores(published, row, ["Std(τ)"])[0] for row in (NARROW, SIMPLE, WIDE)]
    widest = published[published["column"] == "Std(τ)"]["value"].astype(float).max()
    return settle(np.mean(spreads), "<", widest, "standard deviation of the threshold over languages")


def unseen_languages(tables):
    table = tables["lensing_table4"]
    languages = table["row"].unique()
    gains = [scores(table, language, ["LASER"])[0] - scores(table, language, ["Ours"])[0]
             for language in languages]
    assert len(gains) == 29
    return settle(np.mean(gains), ">", 0, "LASER's error minus that of the lens")


RULES = {
    "lensing-1": best_of_others,
    "lensing-2": nearly_sbert,
    "lensing-5": lambda tables: mining(tables, NLI, BASELINE),
    "lensing-6": lambda tables: mining(tables, SIMPLE, WIDE, margin=-2),
    "lensing-7": lambda tables: mining(tables, WIDE, NARROW),
    "lensing-9": one_threshold,
    "lensing-10": lambda tables: mining(tables, "LASER", WIDE, part="test"),
    "lensing-12": unseen_languages}
CONTRADICTIONS = {}
NO_NUMBERS = {
    "lensing-3": "its errors are printed in Figure 1 only",
    "lensing-4": "its errors are printed in Figure 1 only",
    "lensing-8": "its errors are printed in Figure 2 only, its share of active units in words",
    "lensing-11": "its errors are printed in Figure 3 only",
    "lensing-13": "its vectors are printed in Figure 4 only",
    "lensing-14": "three accuracies stand in the words of section 4.6, in no table, and none of Simple"}
