"Transfer: the solver against scikit-learn's, the protocols against SentEval's loops written out, the tasks."
import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from sentnb.corpora import Microworld
from sentnb.evaluation import logistic, sts, transfer
from sentnb.evaluation.logistic import LinearProbe
from sentnb.results import wilson


def theirs(x, y, c):
    return LogisticRegression(C=c, tol=1e-10, max_iter=100_000).fit(x, y)


class Letters:
    "Counts of characters; remembers what it was asked to encode."
    def __init__(self): self.seen, self.options = [], None
    def encode(self, texts, **options):
        self.seen += texts; self.options = options
        x = np.zeros((len(texts), 128), np.float32)
        for row, text in zip(x, texts):
            for c in text: row[ord(c) % 128] += 1
        return x


@given(st.integers(0, 10_000), st.integers(12, 90), st.integers(1, 40),
       st.sampled_from([.01, .25, 1., 8., 300.]), st.sampled_from([.01, 1., 30.]))
@settings(deadline=None, max_examples=40)
def test_solver_equals_scikit_learn_also_where_classes_are_separable(seed, n, d, c, size):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) + rng.normal(size=d)
    y = x @ rng.normal(size=d) + .3*rng.normal(size=n) > np.median(x.sum(1))/3
    y[:2], y[2:4] = True, False
    x *= size
    masks = rng.random((n, 5)) < .7
    masks[:4] = True
    weights, _ = logistic.fit_logistic(x, y, c, masks)
    def loss(w, rows):
        z = np.where(y[rows], 1, -1)*(x[rows] @ w[:-1] + w[-1])
        return np.logaddexp(0, -z).sum() + (w[:-1] @ w[:-1])/(2*c)
    for f in range(5):
        rows = masks[:, f]
        model = theirs(x[rows], y[rows], c)
        reference = loss(np.append(model.coef_[0], model.intercept_), rows)
        assert loss(weights[:, f], rows) <= reference*(1 + 1e-6) + 1e-6*n
        z = x[rows] @ weights[:-1, f] + weights[-1, f]
        p = 1/(1 + np.exp(-np.clip(z, -500, 500)))
        with_ones = np.append(x[rows], np.ones((rows.sum(), 1)), 1)
        gradient = np.append(weights[:-1, f]/c, 0) + with_ones.T @ (p - y[rows])
        assert np.abs(gradient).max() <= 1e-6*rows.sum()


def test_one_classifier_from_all_rows_and_from_a_mask_of_all_are_the_same():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 4)), rng.random(50) < .5
    one, whole = logistic.fit_logistic(x, y, 2)
    many, _ = logistic.fit_logistic(x, y, 2, np.ones((50, 3), bool), start=whole)
    assert one.shape == (5, 1) and (one[:, 0] == whole).all() and np.abs(many - one).max() < 1e-5


def accuracy(x, y, fit, cut, c):
    "Mean over the folds of a cut, with one fit for each."
    return np.mean([(fit(x[train], y[train], c)(x[test]) == y[test]).mean() for train, test in cut])


def reference_nested(x, y, folds, strengths, seed=1111):
    "SentEval's InnerKFoldClassifier, one fit at a time."
    folds = StratifiedKFold(folds, shuffle=True, random_state=seed)
    fit = lambda x, y, c: theirs(x, y, c).predict
    guess, chosen = np.empty(len(y), y.dtype), []
    for train, test in folds.split(x, y):
        cut = list(folds.split(x[train], y[train]))
        scores = [accuracy(x[train], y[train], fit, cut, c) for c in strengths]
        chosen.append(strengths[int(np.argmax(scores))])
        guess[test] = theirs(x[train], y[train], chosen[-1]).predict(x[test])
    return guess, chosen


def test_nested_equals_the_loops_written_out():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(150, 12))
    y = (x[:, 0] + x[:, 1]*x[:, 2] + rng.normal(size=150) > 0).astype(int)
    guess, chosen, dev = LinearProbe("none", folds=5).nested(x, y)
    expected, best = reference_nested(x, y, 5, logistic.STRENGTHS["none"])
    assert guess == expected.tolist() and chosen == best and 0 < dev <= 1
    assert len(set(chosen)) > 1, "the example should not always choose the same C"


def test_folds_and_split_equal_the_loops_written_out():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(260, 8))
    y = np.array(["a", "b", "c"])[(x[:, :3] + .8*rng.normal(size=(260, 3))).argmax(1)]
    train, dev, test = slice(0, 160), slice(160, 210), slice(210, 260)
    def rest(rows, labels, c): # one against the rest
        models = [theirs(rows, labels == k, c) for k in "abc"]
        def predict(rows):
            scores = np.stack([model.decision_function(rows) for model in models])
            return np.array(list("abc"))[scores.argmax(0)]
        return predict
    cut = list(StratifiedKFold(4, shuffle=True, random_state=1111).split(x[train], y[train]))
    strengths = logistic.STRENGTHS["none"]
    by_folds = [accuracy(x[train], y[train], rest, cut, c) for c in strengths]
    by_dev = [(rest(x[train], y[train], c)(x[dev]) == y[dev]).mean() for c in strengths]
    probe = LinearProbe("none", folds=4)
    for scores, more in ((by_folds, None), (by_dev, (x[dev], y[dev]))):
        guess, c, best = probe.held_out((x[train], y[train]), (x[test], y[test]), more)
        assert c == strengths[int(np.argmax(scores))] and abs(best - max(scores)) < 1e-12
        assert guess == rest(x[train], y[train], c)(x[test]).tolist()


def test_no_test_label_reaches_what_is_predicted():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(90, 5)), rng.integers(0, 2, 90)
    probe, train = LinearProbe(folds=3), (x[:60], y[:60])
    assert probe.held_out(train, (x[60:], 1 - y[60:])) == probe.held_out(train, (x[60:], y[60:]))
    noise, labels = rng.normal(size=(600, 100)), np.arange(600) % 2
    assert abs(np.mean(np.array(LinearProbe(folds=4).nested(noise, labels)[0]) == labels) - .5) < .08


@pytest.mark.parametrize("scaling", ["block", "each"])
def test_place_and_size_of_the_vectors_do_not_count(scaling):
    rng = np.random.default_rng(6)
    x = rng.normal(size=(80, 6))
    y = (x[:, 0] + .5*rng.normal(size=80) > 0).astype(int)
    probe, weak = LinearProbe(scaling, folds=4), LinearProbe(scaling, strengths=(.25,), folds=4)
    assert probe.nested(1e-3*x + 5, y) == probe.nested(x, y)
    stretched = weak.nested(x*np.array([1, 1, 1, 1, 1, 100.]), y)[0]
    assert (stretched == weak.nested(x, y)[0]) == (scaling == "each")


def test_the_scale_is_that_of_the_training_rows_and_of_each_block():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(120, 6))*np.array([1, 1, 1, .01, .01, .01]) + 3
    y = (x[:, 0] + 100*(x[:, 3] - 3) + rng.normal(size=120) > 3).astype(int)
    scaled = x - x[:80].mean(0)
    scaled = np.hstack([part/np.sqrt(part[:80].var(0).mean()) for part in np.split(scaled, 2, 1)])
    train, test, one = (x[:80], y[:80]), (x[80:], y[80:]), (x[80:81], y[80:81])
    for c in (.01, 1.):
        probe = LinearProbe(strengths=(c,))
        guess, *_ = probe.held_out(train, test, test, blocks=2)
        assert guess == theirs(scaled[:80], y[:80], c).predict(scaled[80:]).tolist() and 0 < sum(guess) < 40
        assert probe.held_out(train, one, test, blocks=2)[0] == guess[:1]
    assert guess != LinearProbe("none", strengths=(1.,)).held_out(train, test, test)[0]


def test_wilson_covers_as_often_as_it_says():
    rng = np.random.default_rng(7)
    for p in (.5, .9):
        intervals = [wilson(int(k), 200) for k in rng.binomial(200, p, 2000)]
        assert .93 < np.mean([low <= p <= high for low, high in intervals]) < .97


def test_each_distinct_sentence_once_and_dots_for_nothing():
    enc = Letters()
    rows = [("a cat", 0), ("a dog", 1), ("", 0), ("a cat", 0), (" ", 1), ("dogs", 1)]*3
    result = transfer.evaluate(enc, "toy", dict(train=rows), LinearProbe(folds=3),
                               encode_options=dict(normalize=False))
    assert enc.seen == [".", "dogs", "a cat", "a dog"] and enc.options == dict(normalize=False)
    assert result["n"] == result["n_train"] == 18 and result["protocol"] == "nested" and len(result["c"]) == 3


def test_microworld_task_is_learned_repeats_itself_and_goes_into_json():
    data = transfer.microworld_data(Microworld(), "place", n=200)
    assert {part: len(rows) for part, rows in data.items()} == dict(train=200, dev=100, test=100)
    assert not {text for text, _ in data["train"]} & {text for text, _ in data["test"]}
    first = transfer.evaluate(Letters(), "place", data)
    assert first["low"] > first["majority"] - .02 and first["low"] < first["accuracy"] < first["high"]
    assert json.dumps(transfer.evaluate(Letters(), "place", data)) == json.dumps(first)
    fewer = transfer.evaluate(Letters(), "place", data, max_train=80)
    assert fewer["n_train"] == 80 and fewer["n"] == first["n"]


def test_pairs_use_both_features_and_have_an_f1():
    words = ("x", "yy", "zzz", "wwww")
    rows = [(a, b, int(a == b)) for a in words for b in words for _ in range(4)]
    class OneHot:
        def encode(self, texts): return np.eye(5, dtype=np.float32)[[len(text) for text in texts]]
    result = transfer.evaluate(OneHot(), "equal", dict(train=rows, test=rows), LinearProbe(folds=4))
    assert result["accuracy"] == result["f1"] == 1


def test_items_say_which_rows_are_right():
    data = dict(train=[(word*3, len(word)) for word in "a bb ccc".split()*20])
    for parts in (data, data | dict(test=data["train"][:7])):
        plain = transfer.evaluate(Letters(), "t", parts)
        each = transfer.evaluate(Letters(), "t", parts, items=True)
        right = each.pop("right")
        assert each == plain and right.dtype == bool
        assert len(right) == plain["n"] and right.mean() == plain["accuracy"]


def test_relatedness_is_a_ridge_chosen_on_dev():
    rng = np.random.default_rng(3)
    vectors_by_text = {f"text {i}": rng.normal(size=6) for i in range(60)}
    class Known:
        def encode(self, texts): return np.array([vectors_by_text[text] for text in texts], np.float32)
    def pairs(n):
        drawn = [rng.choice(sorted(vectors_by_text), 2) for _ in range(n)]
        return [(str(a), str(b), float((vectors_by_text[a]*vectors_by_text[b]).sum() + rng.normal()))
                for a, b in drawn]
    data = dict(train=pairs(200), dev=pairs(80), test=pairs(100))
    found = transfer.relatedness(Known(), data)
    u, v = (np.float32([vectors_by_text[row[k]] for row in data["train"]]).astype(float) for k in (0, 1))
    a, b = (np.float32([vectors_by_text[row[k]] for row in data["test"]]).astype(float) for k in (0, 1))
    def scaled(x, scale): return np.hstack([(part - whole.mean(0))/np.sqrt(whole.var(0).mean())
                                            for part, whole in zip(x, scale)])
    scale = [abs(u - v), u*v]
    x, y = scaled(scale, scale), np.array([row[2] for row in data["train"]])
    ridge = np.linalg.solve(x.T @ x + found["penalty"]*len(y)*np.eye(12), x.T @ (y - y.mean()))
    np.testing.assert_allclose(found["guess"], scaled([abs(a - b), a*b], scale) @ ridge + y.mean(), atol=1e-8)
    assert found["gold"].tolist() == [row[2] for row in data["test"]] and found["pearson"] > .8
    assert found["pearson"] == sts.pearson(found["guess"], found["gold"])
    other = data | dict(test=data["test"][::-1])
    assert transfer.relatedness(Known(), other)["penalty"] == found["penalty"], "the test chooses nothing"
    with pytest.raises(ValueError, match="train, dev and test"): transfer.relatedness(Known(), dict(train=[]))


def test_what_is_refused():
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    class Broken:
        def encode(self, texts): return np.full((len(texts), 2), np.nan)
    class Short:
        def encode(self, texts): return np.zeros((1, 2))
    rows = dict(train=[("a", 0), ("b", 1)]*10)
    without_test = dict(train=rows["train"], dev=rows["train"])
    graded = [("aab", "abc", 1.), ("bcd", "jjj", 3.)]
    bad = [*graded, ("x", 1.)]
    for call, words in (
            (lambda: LinearProbe().nested(x[:30], y), "30"),
            (lambda: LinearProbe(folds=1), "at least 2"),
            (lambda: LinearProbe().nested(np.where(x == x[3, 1], np.nan, x), y), "the first at 3"),
            (lambda: LinearProbe().held_out((x, y), (x[:, :2], y)), "3, 2 coordinates"),
            (lambda: transfer.evaluate(Broken(), "t", rows), "'a'"),
            (lambda: transfer.evaluate(Short(), "t", rows), "2 sentences"),
            (lambda: transfer.evaluate(Letters(), "t", without_test), "train and test"),
            (lambda: transfer.evaluate(Letters(), "SNLI"), "MRPC"),
            (lambda: transfer.evaluate(Letters(), "t", dict(test=[("a", 0)], train=[])), "train has no rows"),
            (lambda: transfer.relatedness(Letters(), dict(dev=graded, train=graded, test=bad)),
             r"relatedness: row 2 of test is \('x', 1.0\): expected \(text, text, score\) throughout"),
            (lambda: transfer.relatedness(Letters(), dict(train=graded, dev=[], test=graded)),
             "relatedness: dev has no rows"),
            (lambda: transfer.relatedness(Letters(), dict.fromkeys(("train", "dev", "test"), rows["train"])),
             r"relatedness: row 0 of train is \('a', 0\)")):
        with pytest.raises(ValueError, match=words): call()


SIZES = dict(MR=(10662, 10662, 2), CR=(3775, 3775, 2), SUBJ=(10000, 10000, 2), MPQA=(10606, 10606, 2),
             SST2=(67349, 1821, 2), SST5=(8544, 2210, 5), TREC=(5452, 500, 6), MRPC=(4076, 1725, 2))


@pytest.mark.usefixtures("hub")
def test_tasks_have_the_sizes_of_senteval():
    assert set(SIZES) == set(transfer.TASKS)
    for name, (train, test, classes) in SIZES.items():
        data = transfer.task_data(name)
        rows, scored = data["train"], data.get("test", data["train"])
        assert (len(rows), len(scored), len({row[-1] for row in rows})) == (train, test, classes), name


@pytest.mark.usefixtures("hub")
def test_letters_beat_the_majority_on_real_tasks():
    enc = Letters()
    results = transfer.evaluate_all(enc, ("TREC", "MRPC", "CR"), show_progress=False)
    assert len(enc.seen) == len(set(enc.seen))
    trec, cr, mrpc = (results[name] for name in ("TREC", "CR", "MRPC"))
    assert trec["accuracy"] > trec["majority"] + .2 and cr["low"] > cr["majority"]
    assert mrpc["f1"] > mrpc["accuracy"]
    assert transfer.evaluate(Letters(), "TREC") == trec
    assert transfer.average(results, ("TREC", "CR")) == (trec["accuracy"] + cr["accuracy"])/2


def test_own_rows_of_several_tasks_are_evaluated_as_each_alone():
    world = Microworld(seed=0)
    tasks = {label: transfer.microworld_data(world, label, n=200) for label in ("place", "number")}
    together = transfer.evaluate_all(Letters(), tasks, show_progress=False)
    assert together == {label: transfer.evaluate(Letters(), label, rows) for label, rows in tasks.items()}


def test_importing_it_loads_no_torch(python):
    assert python("import sys, sentnb.evaluation.transfer; print('torch' in sys.modules)").strip() == "False"