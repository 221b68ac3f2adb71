"The rules of 11_cmlm and 12_cmlm_multilingual, on the numbers that the paper prints."
from sentnb.results import settle
from sentnb.results.verdicts import settle_by


def point(tables, table, row, column):
    "A printed number; row_group and row are joined where the table has groups."
    rows = tables[f"cmlm_table{table}"]
    groups = rows["row_group"].fillna("").astype(str)
    labels = [f"{group} | {row_}" if group else row_ for group, row_ in zip(groups, rows["row"].astype(str))]
    found = rows[[label == row and name == column for label, name in zip(labels, rows["column"])]]
    value, = found["value"]
    return float(value)


def above(first, second, quantity):
    "The part of a rule that a difference is above 0, without an interval."
    return settle((first - second,)*2, ">", 0., quantity)


def mean(values):
    values = list(values)
    return sum(values)/len(values)


def senteval(tables, row): return point(tables, 1, f"BERT-based models | {row}", "Avg.")


def best_average(tables):
    parts = []
    for size in ("base", "large"):
        ours = senteval(tables, f"CMLM {size} (ours)")
        rivals = [f"SBERT (NLI, {size})", f"English BERT {size} (CC)", f"English BERT {size}"]
        rivals += ["RoBERTa (large)"]*(size == "large")
        parts += [above(ours, senteval(tables, rival), rival) for rival in rivals]
    return parts


def entailment(tables):
    def score(row): return point(tables, 1, f"BERT-based models | {row}", "SICK-E")
    return [above(score(f"CMLM {size} (ours)"), score(f"SBERT (NLI, {size})"), size)
            for size in ("base", "large")]


def similarity(tables):
    def score(row, column="Avg."): return point(tables, 2, row, column)
    parts = [above(score(f"CMLM {size} (ours)"), score(row), f"{size}, {row}") for size in ("base", "large")
             for row in ("BERT Mean embeddings", "Avg. GloVe embeddings")]
    base, large = (score(f"CMLM {size} (ours)", "STSB") for size in ("base", "large"))
    return [*parts, above(base, large, "STS-B")]


def projections(tables):
    def score(row): return point(tables, 7, row, "Avg.")
    unnamed = [f"projection spaces (label missing) | (missing {k})" for k in (1, 2, 3, 5)]
    best = score("projection spaces (label missing) | (missing 4)")
    parts = [above(best, score(row), row) for row in (*unnamed, "skip")]
    return [*parts, above(score("proj"), senteval(tables, "English BERT base (CC)"), "averaged, BERT (CC)")]


def masks_and_pooling(tables):
    masks = [above(point(tables, 10, "80", "Avg."), point(tables, 10, str(n), "Avg."), f"{n} masked")
             for n in (40, 60, 100)]
    means = [above(point(tables, 9, "CMLM MEAN", "Avg."), point(tables, 9, f"CMLM {name}", "Avg."), name)
             for name in ("MAX", "CLS")]
    return masks + means


def columns(tables, table, row):
    rows = tables[f"cmlm_table{table}"]
    chosen = rows[rows["row"].astype(str) == row]
    return [name for name in chosen["column"] if name not in ("Avg.", "Mean")]


def over_languages(tables, table, first, second, second_table=None):
    "The mean over the languages decides, each language is shown."
    names = columns(tables, table, first)
    pairs = [(point(tables, table, first, l), point(tables, second_table or table, second, l)) for l in names]
    pooled = above(mean(a for a, _ in pairs), mean(b for _, b in pairs), f"{first} minus {second}")
    return settle_by(pooled, [above(a, b, l) for l, (a, b) in zip(names, pairs)])


def monolingual(tables):
    return [over_languages(tables, 3, "CMLM", row) for row in ("mBERT", "MLM (CC)", "XLM-R")]


def strategies(tables): return [over_languages(tables, 4, "S3", row) for row in ("S1", "S2", "LASER")]


def inference(tables):
    retrieval = above(point(tables, 5, "CMLM+BR", "Mean"), point(tables, 5, "CMLM+BR+NLI", "Mean"), "Tatoeba")
    return [over_languages(tables, 4, "S3+NLI", "S3"), retrieval]


def further_training(tables): return over_languages(tables, 4, "f-mBERT", "mBERT", 3)


def retrieval(tables):
    baselines = ("mBERT", "MLM (CC)", "XLM", "XLM-R", "LASER", "CMLM")
    names = columns(tables, 5, "CMLM+BR")
    known = {row: set(columns(tables, 5, row)) for row in baselines}
    ours = {l: point(tables, 5, "CMLM+BR", l) for l in names}
    best = {l: max(point(tables, 5, row, l) for row in baselines if l in known[row]) for l in names}
    assert sum(ours[l] > best[l] for l in names) == 30, "the paper's 30 of 36"
    return above(mean(ours.values()), mean(best.values()), "mean over languages")


def sentiment(tables):
    halves = [f"Encoder parameters are {kind} during finetuning | " for kind in ("frozen", "trained")]
    languages = ("English", "French", "German", "Japanese")
    def score(row): return mean(point(tables, 6, half + row, l) for half in halves for l in languages)
    return [above(score("CMLM"), score("mBERT"), "mBERT"),
            above(score("CMLM"), score("MLM (CC)"), "MLM (CC)"),
            above(score("CMLM+ BR + NLI"), score("CMLM"), "BR and NLI")]


def component_removal(tables):
    return [above(point(tables, 8, f"{row} + PCR", "Avg."), point(tables, 8, row, "Avg."), row)
            for row in ("mBERT", "ours")]


RULES = {"cmlm-1": best_average, "cmlm-2": entailment, "cmlm-3": similarity, "cmlm-4": monolingual,
         "cmlm-5": strategies, "cmlm-6": inference, "cmlm-7": further_training, "cmlm-8": retrieval,
         "cmlm-9": sentiment, "cmlm-10": projections, "cmlm-13": component_removal,
         "cmlm-14": masks_and_pooling}
CONTRADICTIONS = {}
NO_NUMBERS = {"cmlm-11": "Figure 2 is a picture, and its numbers are not printed",
              "cmlm-12": "Figure 2 is a picture, and its numbers are not printed"}
