"""The values here were worked out by hand; scikit-learn and a row-by-row bootstrap are the second opinion."""

import numpy as np
import pytest
from scipy.stats import bootstrap
from sklearn.metrics import f1_score
from statsmodels.stats.proportion import proportion_confint

from reprolora.labels import INVALID
from reprolora.metrics import (
    calibration,
    classification_metrics,
    macro_f1_interval,
    macro_f1_of_counts,
)
from reprolora.rounding import rounded

NAMES = ["negative", "neutral", "positive"]
# Five positive (4 right, 1 INVALID), three negative (2 right, 1 called positive), two neutral (0 right).
LABELS = ["positive"] * 5 + ["negative"] * 3 + ["neutral"] * 2
PREDICTIONS = ["positive"] * 4 + [INVALID] + ["negative", "negative", "positive"] + ["positive", INVALID]


def test_values_worked_out_by_hand():
    metrics = classification_metrics(LABELS, PREDICTIONS, NAMES)
    assert metrics["n"] == 10
    assert metrics["accuracy"] == 0.6
    assert metrics["invalid_rate"] == 0.2
    # positive: precision 4/6, recall 4/5, F1 8/11; negative: precision 2/2, recall 2/3, F1 4/5; neutral: 0.
    assert metrics["per_class"]["positive"] == {"precision": 0.666667, "recall": 0.8, "f1": 0.727273, "support": 5}
    assert metrics["per_class"]["negative"] == {"precision": 1.0, "recall": 0.666667, "f1": 0.8, "support": 3}
    assert metrics["per_class"]["neutral"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 2}
    assert metrics["macro_f1"] == pytest.approx((8 / 11 + 4 / 5) / 3, abs=1e-6)
    assert metrics["weighted_f1"] == pytest.approx((5 * 8 / 11 + 3 * 4 / 5) / 10, abs=1e-6)
    assert metrics["confusion"] == {
        "labels": NAMES,
        "predicted": [*NAMES, INVALID],
        "matrix": [[2, 0, 1, 0], [0, 0, 1, 1], [0, 0, 4, 1]],
    }
    # Wilson: (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) for p = 0.6, n = 10, z = 1.959964.
    assert (metrics["accuracy_low"], metrics["accuracy_high"]) == pytest.approx((0.312674, 0.831820), abs=1e-6)
    assert metrics["macro_f1_low"] < metrics["macro_f1"] < metrics["macro_f1_high"]
    assert "calibration" not in metrics


def test_the_interval_of_accuracy_is_wilsons_as_newcombe_tabulates_it():
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263, 15 of 148 and 0 of 20, method 3.
    for hits, n, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        metrics = classification_metrics(["a"] * n, ["a"] * hits + ["b"] * (n - hits), ["a", "b"], resamples=10)
        assert (metrics["accuracy_low"], metrics["accuracy_high"]) == pytest.approx((low, high), abs=5e-5)


def test_an_invalid_answer_counts_against_accuracy_and_recall_but_is_no_class_of_the_macro_f1():
    metrics = classification_metrics(["a", "a", "b", "b"], ["a", INVALID, "b", "b"], ["a", "b"])
    assert metrics["accuracy"] == 0.75
    assert metrics["per_class"]["a"]["recall"] == 0.5
    assert metrics["per_class"]["a"]["precision"] == 1.0
    assert metrics["macro_f1"] == pytest.approx((2 / 3 + 1) / 2, abs=1e-6)


def test_nothing_but_invalid_answers_scores_zero_everywhere():
    metrics = classification_metrics(["a", "b"], [INVALID, INVALID], ["a", "b"])
    assert (metrics["accuracy"], metrics["macro_f1"], metrics["weighted_f1"], metrics["invalid_rate"]) == (0, 0, 0, 1)
    assert metrics["accuracy_low"] == 0 < metrics["accuracy_high"]


def test_the_f1_of_counts_is_that_of_scikit_learn_also_for_a_class_without_rows():
    rng = np.random.default_rng(5)
    names = [*NAMES, "absent"]
    for _ in range(20):
        labels = rng.choice(NAMES, 30)
        predictions = rng.choice([*names, INVALID], 30)
        metrics = classification_metrics(labels.tolist(), predictions.tolist(), names, resamples=10)
        counts = np.array(metrics["confusion"]["matrix"])
        expected = f1_score(labels, predictions, labels=names, average="macro", zero_division=0)
        assert macro_f1_of_counts(counts) == pytest.approx(expected)
        assert metrics["macro_f1"] == pytest.approx(expected, abs=1e-6)


def test_the_interval_of_counts_is_scipys_of_resampled_rows():
    # A rare class, so that the interval is skewed: the plain percentiles are off by more than the tolerance.
    matrix = np.array([[4, 1, 3, 0], [4, 60, 14, 2], [4, 8, 100, 0]])
    cells = np.repeat(np.arange(matrix.size), matrix.ravel())

    def macro_f1(rows, axis=-1):
        counts = (rows[..., None] == np.arange(matrix.size)).sum(axis=-2)
        return macro_f1_of_counts(counts.reshape(*rows.shape[:-1], *matrix.shape))

    options = {"n_resamples": 4000, "batch": 500, "vectorized": True, "rng": np.random.default_rng(1)}
    expected = bootstrap((cells,), macro_f1, method="BCa", **options).confidence_interval
    assert macro_f1_interval(matrix, resamples=4000) == pytest.approx(tuple(expected), abs=0.006)
    percentiles = bootstrap((cells,), macro_f1, method="percentile", **options).confidence_interval
    assert macro_f1_interval(matrix, resamples=4000)[0] != pytest.approx(percentiles.low, abs=0.006)


def test_an_interval_is_a_point_where_all_draws_score_the_same():
    assert macro_f1_interval(np.array([[30, 0, 0], [0, 40, 0]])) == (1, 1)
    assert macro_f1_interval(np.array([[0, 0, 3], [0, 0, 4]])) == (0, 0)


# Joint shares of true labels and answers: the default experiment, a class that is rare, and nearly all right.
TWEETS = ((0.19, 0.02, 0.04, 0.01), (0.03, 0.07, 0.07, 0.01), (0.03, 0.04, 0.49, 0.0))
RARE = ((0.02, 0.005, 0.015, 0.0), (0.02, 0.30, 0.08, 0.01), (0.02, 0.04, 0.49, 0.0))
NEARLY_ALL = ((0.255, 0.002, 0.003, 0.0), (0.003, 0.175, 0.002, 0.0), (0.004, 0.001, 0.555, 0.0))


@pytest.mark.parametrize(
    ("cells", "n"), [(TWEETS, 840), (RARE, 400), (NEARLY_ALL, 400)], ids=["tweets", "rare class", "nearly all right"]
)
def test_intervals_cover_the_truth_as_often_as_they_say(cells, n):
    cells = np.array(cells)
    truth = {"accuracy": cells.trace(), "macro_f1": macro_f1_of_counts(cells)}
    draws = np.random.default_rng(n).multinomial(n, cells.ravel(), size=1500).reshape(-1, *cells.shape)
    intervals = {
        "accuracy": np.stack(proportion_confint(draws[:, :, :3].trace(axis1=1, axis2=2), n, method="wilson"), axis=1),
        "macro_f1": np.array([macro_f1_interval(matrix, resamples=500) for matrix in draws]),
    }
    for measure, ends in intervals.items():
        covered = np.mean((ends[:, 0] <= truth[measure]) & (truth[measure] <= ends[:, 1]))
        # The standard error of a share of 1,500 near 0.95 is 0.006.
        assert 0.93 <= covered <= 0.97, measure


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    matrix = np.array([[5, 2, 0], [1, 7, 1]])
    assert macro_f1_interval(matrix, seed=3) == macro_f1_interval(matrix, seed=3)
    assert macro_f1_interval(matrix, seed=3, resamples=50) != macro_f1_interval(matrix, seed=4, resamples=50)


def test_calibration_worked_out_by_hand():
    labels = ["a", "a", "b", "b"]
    predictions = ["a", "a", "a", "b"]
    probabilities = [{"a": 0.95, "b": 0.05}, {"a": 0.85, "b": 0.15}, {"a": 0.85, "b": 0.15}, {"a": 0.4, "b": 0.6}]
    result = calibration(labels, predictions, ["a", "b"], probabilities)
    # Bins: 0.95 (1 row, right), 0.85 (2 rows, half right), 0.6 (1 row, right; upper ends belong to their bin).
    assert result["ece"] == pytest.approx(0.25 * 0.05 + 0.5 * 0.35 + 0.25 * 0.4, abs=1e-6)
    # Brier: 2 x 0.05^2, 2 x 0.15^2, 2 x 0.85^2, 2 x 0.4^2, mean of the four.
    assert result["brier"] == pytest.approx((0.005 + 0.045 + 1.445 + 0.32) / 4, abs=1e-6)
    assert [row["n"] for row in result["bins"]] == [0, 0, 0, 0, 0, 1, 0, 0, 2, 1]
    assert result["bins"][8] == {"low": 0.8, "high": 0.9, "n": 2, "confidence": 0.85, "accuracy": 0.5}
    assert result["bins"][0] == {"low": 0.0, "high": 0.1, "n": 0, "confidence": None, "accuracy": None}


def test_probabilities_add_the_calibration():
    metrics = classification_metrics(["a", "b"], ["a", "a"], ["a", "b"], [{"a": 1, "b": 0}, {"a": 0.5, "b": 0.5}])
    assert metrics["calibration"]["ece"] == pytest.approx(0.25)
    assert metrics["calibration"]["brier"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], ["a", "b"], ["a", "b"]), "1 labels but 2 predictions"),
        (([], [], ["a"]), "no rows"),
        ((["a"], ["c"], ["a", "b"]), "unknown prediction 'c'; known are a, b, INVALID"),
        (([INVALID], ["a"], ["a", "b"]), "unknown label 'INVALID'"),
        ((["a"], ["a"], ["a", INVALID]), "no label can have that name"),
        ((["a"], ["a"], ["a", "b"], [{"a": 0.7, "b": 0.7}]), "add up to 1"),
        ((["a"], ["a"], ["a", "b"], []), "1 labels but 0 rows of probabilities"),
    ],
)
def test_what_cannot_be_scored_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        classification_metrics(*arguments)


def test_rounded_gives_plain_types():
    value = rounded({"a": np.float64(1 / 3), "b": [np.int64(2), np.array([0.1234567])], "c": None, "d": True})
    assert value == {"a": 0.333333, "b": [2, [0.123457]], "c": None, "d": True}
    assert type(value["a"]) is float and type(value["b"][0]) is int
