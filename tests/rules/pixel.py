"""The rules of Pixel-Linguist's claims on the paper's own numbers, as intervals without width.

A rule that compares with a control which the paper does not print keeps its other parts."""
import numpy as np

from sentnb.core import FAMILIES, LANGUAGES
from sentnb.results import settle, settle_by

TYPOS = [f"Charcter-level | {name}" for name in ("Insertion", "Deletion", "Substitution", "Neighbor Swap")]
SHUFFLES = [f"Word-level | {name} Shuffle" for name in ("Random", "Condition")]
VIEWS = ("Character-level Typos", "Word Conditioned Shuffling", "Word Random Shuffling", "Text Pert. Mixure")
IMAGE_VIEWS = ("Cropping", "Horizontal Flip", "Vertical Flip", "Gaussian Blurring", "Aug. Mixture")
OTHERS = LANGUAGES[1:]
ENGLISH, ELSEWHERE = "English | STS-b", "OOD Languages (9) | STS-b"


def cells(tables, name):
    "(row, column) -> the printed number."
    from sentnb.results import row_key
    rows = tables[name].to_dict("records")
    return {(row_key(row["row_group"], row["row"]), row["column"]): row["value"] for row in rows}


def point(value, direction=">", margin=0., quantity="difference"):
    return settle((float(value), float(value)), direction, margin, quantity)


def family(rows, baseline, direction=">", margin=0.):
    "The mean of the rows less the baseline decides; each is shown."
    pooled = point(np.mean(rows) - np.mean(baseline), direction, margin, "mean")
    singles = [point(row - other, direction, margin) for row in np.atleast_1d(rows)
               for other in np.atleast_1d(baseline)]
    return settle_by(pooled, singles)


def pixel_1(tables):
    changes = cells(tables, "pixel_table1")
    bert = [changes[row, "BERT | Semantics"] for row in (*TYPOS, *SHUFFLES)]
    shuffled = changes[SHUFFLES[0], "BERT | Semantics"]
    rest = [changes[row, "BERT | Semantics"] for row in (*TYPOS, SHUFFLES[1])]
    return [family(bert, 0., "<"), family([shuffled], rest, "<")]


def pixel_2(tables):
    changes = cells(tables, "pixel_table1")
    pixel, bert = ([changes[row, f"{base} | Semantics"] for row in (*TYPOS, *SHUFFLES)]
                   for base in ("PIXEL", "BERT"))
    return [family(pixel, 0.), point(np.mean(pixel) - np.mean(bert))]


def pixel_3(tables):
    cones = cells(tables, "pixel_table2")
    gaps = {language: cones["PIXEL", language] - cones["BERT", language] for language in LANGUAGES}
    return [family([gaps[language] for language in OTHERS], 0., "<"), point(gaps["en"])]


def pixel_4(tables):
    scores, cones = cells(tables, "pixel_table3"), cells(tables, "pixel_table9")
    row = "Sentence Semantics | mean"
    return [point(scores[row, "PIXEL"] - scores[row, "BERT"], "<"),
            point(cones["en", "[CLS]-pooling | PIXEL"], ">", 0.99)]


def after_nli(scores, column):
    "The rows of PIXEL that end with allNLI, by name."
    return {row: value for (row, its_column), value in scores.items()
            if its_column == column and row.startswith("PIXEL | ") and row.endswith("allNLI")}


def pixel_5(tables):
    scores = cells(tables, "pixel_table4")
    return family([scores[f"PIXEL | + {view}", ENGLISH] for view in VIEWS],
                  [scores["PIXEL | + SimCSE-unsup", ENGLISH]])


def pixel_6(tables):
    rows = after_nli(cells(tables, "pixel_table4"), ENGLISH)
    alone = rows.pop("PIXEL | + allNLI")
    assert len(rows) == 6
    return family(list(rows.values()), [alone])


def pixel_7(tables):
    scores = cells(tables, "pixel_table4")
    ensemble, spans = (scores[f"PIXEL | + Ensemble{end}", ELSEWHERE] for end in ("", " + WikiSpan"))
    members = [scores[f"PIXEL | + {view}", ELSEWHERE] for view in VIEWS]
    rows = after_nli(scores, ELSEWHERE)
    last = rows.pop("PIXEL | + Ensemble + WikiSpan + allNLI")
    rest = [*rows.values(), scores["BERT | SBERT", ELSEWHERE]]
    return [point(ensemble - np.mean(members)), point(spans - ensemble, "<"), family([last], rest)]


def pixel_8(tables):
    scores = cells(tables, "pixel_table4")
    best = max(after_nli(scores, ENGLISH).values())
    names = ("SBERT", "BERT-Flow + allNLI", "Whitening + allNLI")
    baselines = [scores[f"BERT | {name}", ENGLISH] for name in names]
    return family([best], baselines, ">", min(best - baseline for baseline in baselines))


def pixel_9(tables):
    scores = cells(tables, "pixel_table5")
    group = {language: name for name, members in FAMILIES.items() for language in members}
    def mean(rows, column): return np.mean([scores[f"A + S_n | {n}", column] for n in rows])
    contrasts = []
    for column in OTHERS:
        rest = [n for n in OTHERS if n != column]
        own = [n for n in rest if group[n] == group[column]]
        if own: contrasts.append(mean(own, column) - mean([n for n in rest if n not in own], column))
    def chinese_row(column): # against the other rows; the column's own language is left out
        return mean(["zh"], column) - mean([n for n in OTHERS if n not in ("zh", column)], column)
    return [point(np.mean(contrasts)), point(chinese_row("ru")), point(chinese_row("zh"), "<")]


def ceiling(tables): return max(after_nli(cells(tables, "pixel_table4"), ENGLISH).values())


def pixel_10(tables):
    return point(cells(tables, "pixel_table5")["P_10 + A | Iter.3", "en"] - ceiling(tables))


def pixel_11(tables):
    scores = cells(tables, "pixel_table4")
    start = "PIXEL | + Ensemble + WikiSpan + allNLI"
    average = (scores[start, ENGLISH] + 9*scores[start, ELSEWHERE])/10
    rounds = [average, *(cells(tables, "pixel_table5")[f"P_10 + A | Iter.{i}", "avg."] for i in (1, 2, 3))]
    return family(np.diff(rounds), 0.)


def pixel_12(tables):
    scores = cells(tables, "pixel_table6")
    before, after = ([scores[f"+ {view}{end}", "STS-b"] for view in IMAGE_VIEWS] for end in ("", " + allNLI"))
    alone = cells(tables, "pixel_table4")["PIXEL | + allNLI", ENGLISH]
    return [family(before, [scores["PIXEL-vanilla", "STS-b"]], "<"), family(after, [alone], "<")]


def pixel_13(tables):
    scores = cells(tables, "pixel_table7")
    models, views = ("BERT", "mBERT", "CANINE", "ByT5"), [view.replace("Mixure", "Mixture") for view in VIEWS]
    def gain(model, end, without): # of the four perturbations on average
        return np.mean([scores[f"+ {view}{end}", model] for view in views]) - scores[without, model]
    return [family([gain(model, *ends) for model in models], 0.)
            for ends in (("", "Vanilla"), (" + allNLI", "+ allNLI"))]


def pixel_14(tables):
    scores = cells(tables, "pixel_table8")
    rows = {row: value for (row, column), value in scores.items() if column == "nDCG@10"}
    last = rows.pop("+ ensemble + wikispan + allNLI")
    return [point(rows["+ ensemble + wikispan"] - rows["+ ensemble"], "<"), family([last], [*rows.values()])]


RULES = {f"pixel-{i}": rule for i, rule in enumerate(
    (pixel_1, pixel_2, pixel_3, pixel_4, pixel_5, pixel_6, pixel_7, pixel_8, pixel_9, pixel_10, pixel_11,
     pixel_12, pixel_13, pixel_14), 1)}
CONTRADICTIONS = {}
NO_NUMBERS = {}
