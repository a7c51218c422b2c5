"""The bootstrap over test rows, and the hierarchical bootstrap over training seeds and test rows.

All arms are resampled together: a draw takes the same rows for every arm, so the difference of two arms is paired in
each draw. Several seeds of one method are pooled to one contender, whose score is their mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t

from reprolora.arms import Run
from reprolora.metrics import CONFIDENCE_LEVEL, RESAMPLES, macro_f1_of_counts, tail_quantiles

# How many numbers a block of draws holds, so that many arms or rows do not fill the memory.
BLOCK = 5_000_000


@dataclass(frozen=True)
class Measure:
    """One measure of some contenders: arms, or methods with their seeds pooled."""

    values: np.ndarray  # (contenders,)
    draws: np.ndarray  # (contenders, resamples)
    # (contenders,): the variance of the mean over seeds as its k seeds show it, which has k - 1 degrees of freedom;
    # 0 where the seeds differ no more than rows explain, and for a single arm.
    seed_variance: np.ndarray
    freedom: np.ndarray  # (contenders,): the degrees of freedom of the variance over rows; infinite for many rows


@dataclass(frozen=True)
class Scores:
    """What contenders scored on the same rows."""

    measures: Mapping[str, Measure]  # the first is the share of rows that are right, which is what is tested
    correct: np.ndarray  # (contenders, rows): 1 where right, 0 where wrong; pooled: the share of the seeds
    seeds: np.ndarray  # (contenders,): how many seeds are pooled
    clusters: np.ndarray | None = None  # (rows,): which rows depend on each other, by number; None where none do


@dataclass(frozen=True)
class Estimates:
    """The 95 % interval of some estimates, their standard error and its degrees of freedom.

    Those are infinite where nothing but independent rows varies.
    """

    low: np.ndarray
    high: np.ndarray
    error: np.ndarray
    freedom: np.ndarray


def score_runs(runs: Sequence[Run], *, resamples: int = RESAMPLES, seed: int = 0) -> Scores:
    """The accuracy and macro-F1 of every run, on its rows and on `resamples` draws of rows that all runs share."""
    labels = runs[0].labels
    n, classes = len(labels), len(runs[0].label_names)
    predictions = np.stack([run.predictions for run in runs])
    correct = predictions == labels
    cells = labels * (classes + 1) + predictions
    counts = np.stack([np.bincount(row, minlength=classes * (classes + 1)) for row in cells])
    accuracy_draws = np.empty((len(runs), resamples))
    macro_f1_draws = np.zeros((len(runs), resamples))
    rng = np.random.default_rng(seed)
    # Whole numbers of rows are exact in single precision, and half the work.
    rows_of = [(labels == k, correct[:, labels == k].astype(np.float32), (predictions == k).astype(np.float32))
               for k in range(classes)]  # fmt: skip
    step = max(1, BLOCK // n)
    for start in range(0, resamples, step):
        block = slice(start, min(start + step, resamples))
        weights = rng.multinomial(n, np.full(n, 1 / n), size=block.stop - block.start).astype(np.float32)
        hits_in_all = 0
        for members, correct_of_class, predicted_class in rows_of:
            weights_of_class = weights[:, members]
            hits = correct_of_class @ weights_of_class.T
            total = weights_of_class.sum(axis=1) + predicted_class @ weights.T
            macro_f1_draws[:, block] += np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)
            hits_in_all = hits_in_all + hits
        accuracy_draws[:, block] = hits_in_all / n
    macro_f1 = macro_f1_of_counts(counts.reshape(len(runs), classes, classes + 1))
    nothing, unlimited = np.zeros(len(runs)), np.full(len(runs), np.inf)
    return Scores(
        measures={
            "accuracy": Measure(correct.mean(axis=1), accuracy_draws, nothing, unlimited),
            "macro_f1": Measure(macro_f1, macro_f1_draws / classes, nothing, unlimited),
        },
        correct=correct.astype(float),
        seeds=np.ones(len(runs), dtype=int),
    )


def sums_by_cluster(values: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """`values` (contenders, rows) added up over the rows of each cluster: (contenders, clusters)."""
    return np.stack([np.bincount(clusters, row) for row in values])


def pool_seeds(scores: Scores, groups: Sequence[Sequence[int]], *, seed: int = 0) -> Scores:
    """The scores of each group of runs (one method's seeds) as one contender: the mean over its seeds.

    The hierarchical bootstrap draws rows (the same for every seed and method, for they answered the same rows) and
    then seeds. Drawing seeds alone would count the noise of the rows, which is in every seed's score, a second time,
    and would understate the spread of k seeds by (k - 1) / k. So the drawn seeds' deviation is scaled to the unbiased
    estimate of the variance between seeds; it is 0 where the seeds differ no more than the rows explain. That this
    estimate rests on few seeds is made up for in the intervals (`_widened`).
    """
    rng = np.random.default_rng([seed, 1])
    resamples = next(iter(scores.measures.values())).draws.shape[1]
    drawn = [rng.integers(len(group), size=(resamples, len(group))) for group in groups]
    return Scores(
        measures={name: _pool(measure, groups, drawn) for name, measure in scores.measures.items()},
        correct=np.stack([scores.correct[group].mean(axis=0) for group in groups]),
        seeds=np.array([len(group) for group in groups]),
        clusters=scores.clusters,
    )


def _pool(measure: Measure, groups: Sequence[Sequence[int]], drawn: Sequence[np.ndarray]) -> Measure:
    draws = np.empty((len(groups), measure.draws.shape[1]))
    seed_variance = np.zeros(len(groups))
    for index, (group, seeds) in enumerate(zip(groups, drawn, strict=True)):
        values, k = measure.values[group], len(group)
        mean = measure.draws[group].mean(axis=0)
        draws[index] = mean
        spread = values.var(ddof=1) if np.ptp(values) else 0.0
        noise = (measure.draws[group] - mean).var(axis=1).mean() * k / (k - 1) if spread else 0.0
        if spread > noise:
            scale = np.sqrt((spread - noise) / spread * k / (k - 1))
            draws[index] += scale * (values[seeds].mean(axis=1) - values.mean())
            seed_variance[index] = spread / k
    values = np.array([measure.values[group].mean() for group in groups])
    return Measure(values, draws, seed_variance, np.array([measure.freedom[group].min() for group in groups]))


def mean_estimates(measure: Measure, seeds: np.ndarray) -> Estimates:
    """The estimates of the contenders' own scores."""
    low, high = _tails(np.sort(measure.draws, axis=1))
    error = measure.draws.std(axis=1)
    uncertain = measure.seed_variance**2 / np.maximum(seeds - 1, 1)
    uncertain += _of_rows(error, measure.seed_variance) ** 2 / measure.freedom
    return _widened(low, high, measure.draws.mean(axis=1), error, uncertain, _least_freedom(measure, seeds))


def pooled_estimates(runs: Sequence[Run], groups: Sequence[Sequence[int]]) -> dict[str, Estimates]:
    """For each measure the estimates of groups of runs, each a method's seeds (`pool_seeds`)."""
    scores = pool_seeds(score_runs(runs), groups)
    return {name: mean_estimates(measure, scores.seeds) for name, measure in scores.measures.items()}


def difference_estimates(measure: Measure, seeds: np.ndarray, first: np.ndarray, second: np.ndarray) -> Estimates:
    """The estimates of the differences first - second, of pairs of contenders."""
    low, high, error, center = np.empty((4, len(first)))
    step = max(1, BLOCK // measure.draws.shape[1])
    for start in range(0, len(first), step):
        block = slice(start, start + step)
        difference = measure.draws[first[block]] - measure.draws[second[block]]
        error[block], center[block] = difference.std(axis=1), difference.mean(axis=1)
        difference.sort(axis=1)
        low[block], high[block] = _tails(difference)
    of_seeds = measure.seed_variance**2 / np.maximum(seeds - 1, 1)
    of_rows = _of_rows(error, measure.seed_variance[first] + measure.seed_variance[second])
    freedom = np.minimum(measure.freedom[first], measure.freedom[second])
    uncertain = of_seeds[first] + of_seeds[second] + of_rows**2 / freedom
    least = _least_freedom(measure, seeds)
    return _widened(low, high, center, error, uncertain, np.minimum(least[first], least[second]))


def _least_freedom(measure: Measure, seeds: np.ndarray) -> np.ndarray:
    """The fewest degrees of freedom of a part of each contender's variance."""
    return np.where(measure.seed_variance > 0, np.minimum(seeds - 1, measure.freedom), measure.freedom)


def _of_rows(error: np.ndarray, seed_variance: np.ndarray) -> np.ndarray:
    """The part of a variance that is not between seeds."""
    return np.maximum(0, error**2 - seed_variance)


def _tails(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the percentile intervals of sorted draws; `np.quantile` takes four times as long as sorting them."""
    positions = np.array(tail_quantiles()) * (draws.shape[1] - 1)
    whole = np.floor(positions).astype(int)
    part = positions - whole
    low, high = (draws[:, whole] * (1 - part) + draws[:, whole + 1] * part).T
    return low, high


def _widened(
    low: np.ndarray, high: np.ndarray, center: np.ndarray, error: np.ndarray, uncertain: np.ndarray, least: np.ndarray
) -> Estimates:
    """Percentile intervals, widened by Student's quantile over the normal one.

    The variance over many independent rows has in effect no end of degrees of freedom, that between k seeds k - 1;
    their sum has those that Satterthwaite's formula gives, in which `uncertain` is the sum of the squared variances,
    each over its degrees of freedom. They are at least those of the part that has `least`, also where two contenders
    agree on nearly all rows, so that their difference varies less than either's seeds. Nothing changes where no seeds
    are pooled, or where they differ no more than such rows explain.
    """
    freedom = np.divide(error**4, uncertain, out=np.full(len(error), np.inf), where=uncertain > 0)
    freedom = np.maximum(freedom, least, out=freedom, where=uncertain > 0)
    wider = t.isf((1 - CONFIDENCE_LEVEL) / 2, freedom) / norm.isf((1 - CONFIDENCE_LEVEL) / 2)
    return Estimates(center + (low - center) * wider, center + (high - center) * wider, error, freedom)
