"""What a list of predictions is worth: accuracy, F1, intervals, confusion matrix, calibration.

An answer that is none of the labels is INVALID. It stays in the denominator of everything: it is a miss of the row's
class, and a column of the confusion matrix. The macro-F1 is the mean over the label names alone, since INVALID is no
class; a class with neither rows nor predictions counts 0, as in scikit-learn.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from statsmodels.stats.proportion import proportion_confint

from reprolora.labels import INVALID
from reprolora.rounding import rounded

CONFIDENCE_LEVEL = 0.95
RESAMPLES = 2000
CALIBRATION_BINS = 10


def classification_metrics(
    labels: Sequence[str],
    predictions: Sequence[str],
    label_names: Sequence[str],
    probabilities: Sequence[Mapping[str, float]] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Score `predictions` against `labels`; each prediction is one of `label_names` or INVALID.

    Accuracy comes with its Wilson interval, macro-F1 with a BCa bootstrap interval over rows. `probabilities`
    (for each row, the probability of each label) adds the calibration of the predictions.
    """
    label_names = list(label_names)
    n = len(labels)
    _check(labels, predictions, label_names)
    columns = [*label_names, INVALID]
    matrix = confusion_matrix(labels, predictions, labels=columns)[: len(label_names)]
    precision, recall, f1, support = precision_recall_fscore_support(
        labels, predictions, labels=label_names, average=None, zero_division=0
    )
    correct = int(np.trace(matrix))
    accuracy_low, accuracy_high = proportion_confint(correct, n, alpha=1 - CONFIDENCE_LEVEL, method="wilson")
    macro_f1_low, macro_f1_high = macro_f1_interval(matrix, resamples=resamples, seed=seed)
    metrics = {
        "n": n,
        "accuracy": correct / n,
        "accuracy_low": accuracy_low,
        "accuracy_high": accuracy_high,
        "macro_f1": f1.mean(),
        "macro_f1_low": macro_f1_low,
        "macro_f1_high": macro_f1_high,
        "weighted_f1": np.average(f1, weights=support),
        "invalid_rate": matrix[:, -1].sum() / n,
        "per_class": {
            name: {"precision": precision[k], "recall": recall[k], "f1": f1[k], "support": support[k]}
            for k, name in enumerate(label_names)
        },
        "confusion": {"labels": label_names, "predicted": columns, "matrix": matrix},
    }
    if probabilities is not None:
        metrics["calibration"] = calibration(labels, predictions, label_names, probabilities)
    return rounded(metrics)


def macro_f1_of_counts(counts: np.ndarray) -> np.ndarray:
    """The macro-F1 of one or of many confusion matrices: shape (..., labels, labels + 1) gives shape (...)."""
    classes = counts.shape[-2]
    hits = np.diagonal(counts[..., :classes], axis1=-2, axis2=-1)
    total = counts.sum(axis=-1) + counts[..., :classes].sum(axis=-2)
    return np.divide(2 * hits, total, out=np.zeros(hits.shape), where=total > 0).mean(axis=-1)


def macro_f1_interval(matrix: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float]:
    """The bootstrap interval of the macro-F1, bias-corrected and accelerated (BCa; Efron, JASA 82, 1987).

    The plain percentiles cover 92 % only where a class is rare or nearly all answers are right, since the macro-F1 is
    skewed there. Drawing n rows with replacement gives each cell of the confusion matrix a multinomial count, so the
    counts are drawn at once instead of the rows; leaving a row out, which the acceleration takes, is the same for all
    rows of a cell.
    """
    n = int(matrix.sum())
    value = macro_f1_of_counts(matrix)
    draws = np.random.default_rng(seed).multinomial(n, matrix.ravel() / n, size=resamples)
    scores = macro_f1_of_counts(draws.reshape(resamples, *matrix.shape))
    cells = np.flatnonzero(matrix)
    rows = matrix.ravel()[cells]
    without = macro_f1_of_counts((matrix.ravel() - np.eye(matrix.size)[cells]).reshape(-1, *matrix.shape))
    influence = np.average(without, weights=rows) - without
    scale = 6 * (rows @ influence**2) ** 1.5
    acceleration = (rows @ influence**3) / scale if scale else 0.0  # leaving out a row changes nothing
    below = (np.mean(scores < value) + np.mean(scores <= value)) / 2
    bias = norm.ppf(np.clip(below, 1 / resamples, 1 - 1 / resamples))
    shifted = bias + norm.ppf(tail_quantiles())
    low, high = np.quantile(scores, norm.cdf(bias + shifted / (1 - acceleration * shifted)))
    return float(low), float(high)


def tail_quantiles() -> tuple[float, float]:
    """The two quantiles between which the confidence level lies."""
    return (1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2


def calibration(
    labels: Sequence[str],
    predictions: Sequence[str],
    label_names: Sequence[str],
    probabilities: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    """The expected calibration error, the Brier score and the bins of a reliability diagram.

    The confidence of a row is the probability of its prediction. The bins are of equal width, each with its upper end
    but without its lower; the expected calibration error is the mean gap between accuracy and confidence in a bin,
    weighted by rows. The Brier score is the mean over rows of the squared distance to the right answer, summed over
    the labels: 0 is best, 2 is worst.
    """
    label_names = list(label_names)
    position = {name: k for k, name in enumerate(label_names)}
    p = _probability_matrix(probabilities, label_names, len(labels))
    rows = np.arange(len(labels))
    truth = np.array([position[label] for label in labels])
    # An INVALID prediction has no probability of its own: confidence 0.
    predicted = np.array([position.get(prediction, -1) for prediction in predictions])
    confidence = np.where(predicted >= 0, p[rows, predicted], 0.0)
    hit = predicted == truth
    target = np.zeros_like(p)
    target[rows, truth] = 1

    edges = np.linspace(0, 1, CALIBRATION_BINS + 1)
    bin_of_row = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, CALIBRATION_BINS - 1)
    bins, gap = [], 0.0
    for index in range(CALIBRATION_BINS):
        inside = bin_of_row == index
        count = int(inside.sum())
        mean_confidence = confidence[inside].mean() if count else None
        mean_hit = hit[inside].mean() if count else None
        if count:
            gap += count / len(labels) * abs(mean_hit - mean_confidence)
        bins.append(
            {
                "low": edges[index],
                "high": edges[index + 1],
                "n": count,
                "confidence": mean_confidence,
                "accuracy": mean_hit,
            }
        )
    return rounded({"ece": gap, "brier": ((p - target) ** 2).sum(axis=1).mean(), "bins": bins})


def _check(labels: Sequence[str], predictions: Sequence[str], label_names: Sequence[str]) -> None:
    if len(labels) != len(predictions):
        raise ValueError(f"{len(labels)} labels but {len(predictions)} predictions")
    if not len(labels):
        raise ValueError("no rows to score")
    if INVALID in label_names:
        raise ValueError(f"{INVALID!r} is what an unusable answer is called, so no label can have that name")
    _check_known(labels, label_names, "label")
    _check_known(predictions, [*label_names, INVALID], "prediction")


def _check_known(values: Iterable[str], known: Sequence[str], what: str) -> None:
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(f"unknown {what} {unknown[0]!r}; known are {', '.join(known)}")


def _probability_matrix(probabilities: Sequence[Mapping[str, float]], label_names: Sequence[str], n: int) -> np.ndarray:
    if len(probabilities) != n:
        raise ValueError(f"{n} labels but {len(probabilities)} rows of probabilities")
    p = np.array([[row[name] for name in label_names] for row in probabilities], dtype=float)
    if (p < 0).any() or not np.allclose(p.sum(axis=1), 1, atol=1e-3):
        raise ValueError("the probabilities of a row's labels must not be negative and must add up to 1")
    return p
