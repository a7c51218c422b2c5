"""The bootstrap of rows and seeds: against a naive one, and by simulation."""

import numpy as np
import pytest
from scipy.stats import t

from fake_runs import random_runs, run
from reprolora.bootstrap import Measure, difference_estimates, mean_estimates, pool_seeds, score_runs
from reprolora.metrics import macro_f1_of_counts

FIRST, SECOND = np.array([0]), np.array([1])


def test_the_draws_are_a_bootstrap_of_rows_that_all_runs_share():
    runs = random_runs(np.random.default_rng(3), n=40)
    scores = score_runs(runs, resamples=25, seed=7)
    weights = np.random.default_rng(7).multinomial(40, np.full(40, 1 / 40), size=25)
    for k, one in enumerate(runs):
        for draw, weight in enumerate(weights):
            rows = np.repeat(np.arange(40), weight)
            labels, predictions = one.labels[rows], one.predictions[rows]
            counts = np.bincount(labels * 4 + predictions, minlength=12).reshape(3, 4)
            assert scores.measures["accuracy"].draws[k, draw] == pytest.approx((labels == predictions).mean())
            assert scores.measures["macro_f1"].draws[k, draw] == pytest.approx(macro_f1_of_counts(counts))
        assert scores.measures["accuracy"].values[k] == pytest.approx((one.labels == one.predictions).mean())


def test_blocks_do_not_change_the_draws(monkeypatch):
    runs = random_runs(np.random.default_rng(3), n=40)
    whole = score_runs(runs, resamples=25, seed=7)
    monkeypatch.setattr("reprolora.bootstrap.BLOCK", 100)
    parts = score_runs(runs, resamples=25, seed=7)
    assert (whole.measures["accuracy"].draws == parts.measures["accuracy"].draws).all()
    assert (whole.measures["macro_f1"].draws == parts.measures["macro_f1"].draws).all()
    estimates = difference_estimates(whole.measures["accuracy"], whole.seeds, FIRST, SECOND)
    difference = whole.measures["accuracy"].draws[0] - whole.measures["accuracy"].draws[1]
    assert (estimates.low[0], estimates.high[0]) == pytest.approx(tuple(np.quantile(difference, [0.025, 0.975])))
    assert estimates.error[0] == pytest.approx(difference.std()) and estimates.freedom[0] == np.inf


def test_seeds_that_differ_no_more_than_rows_explain_add_nothing():
    labels = np.arange(300) % 3
    predictions = np.where(np.arange(300) % 7 == 0, 3, labels)
    runs = [run(labels, predictions, "x", seed) for seed in (1, 2, 3)]
    scores = score_runs(runs, resamples=100)
    pooled = pool_seeds(scores, [[0, 1, 2]])
    assert pooled.measures["accuracy"].seed_variance[0] == 0
    assert (pooled.measures["accuracy"].draws[0] == scores.measures["accuracy"].draws[0]).all()


def test_seeds_that_differ_widen_the_interval():
    labels = np.arange(900) % 3
    runs = [
        run(labels, np.where(np.arange(900) < wrong, 3, labels), "x", seed)
        for seed, wrong in ((1, 100), (2, 200), (3, 300))
    ]
    pooled = pool_seeds(score_runs(runs, resamples=2000), [[0, 1, 2]])
    values = np.array([800, 700, 600]) / 900
    assert pooled.measures["accuracy"].values[0] == pytest.approx(values.mean())
    assert pooled.measures["accuracy"].seed_variance[0] == pytest.approx(values.var(ddof=1) / 3)
    assert pooled.measures["accuracy"].draws[0].var() > 0.9 * values.var(ddof=1) / 3
    # Nearly all of the variance is that of three seeds: two degrees of freedom, as in the textbook's t interval.
    estimates = mean_estimates(pooled.measures["accuracy"], pooled.seeds)
    assert estimates.freedom[0] == pytest.approx(2, abs=0.4)
    half = t.isf(0.025, 2) * values.std(ddof=1) / np.sqrt(3)
    assert (estimates.high[0] - estimates.low[0]) / 2 == pytest.approx(half, rel=0.15)


@pytest.mark.parametrize(
    ("seeds", "spread"), [(1, 0.0), (3, 0.0), (3, 0.2)], ids=["one seed", "equal seeds", "seeds that differ"]
)
def test_intervals_of_differences_cover_the_truth_as_often_as_they_say(seeds, spread):
    """With one seed, with three that differ no more than rows explain, and with three that do."""
    rng = np.random.default_rng(seeds)
    groups = [list(range(seeds)), list(range(seeds, 2 * seeds))]
    covered = {"accuracy": 0, "macro_f1": 0}
    repeats = 700
    for repeat in range(repeats):
        runs = random_runs(rng, n=400, seeds=range(seeds), seed_spread=spread)
        pooled = pool_seeds(score_runs(runs, resamples=200, seed=repeat), groups, seed=repeat)
        for name in covered:
            ends = difference_estimates(pooled.measures[name], pooled.seeds, FIRST, SECOND)
            # Both methods are drawn alike, so the true difference is 0.
            covered[name] += ends.low[0] <= 0 <= ends.high[0]
    for count in covered.values():
        assert 0.93 <= count / repeats <= 0.97


def test_two_methods_that_agree_on_nearly_all_rows_have_a_finite_interval():
    """Their seeds vary more than their difference does, of which Satterthwaite's formula knows nothing."""
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 0.01, 20_000)
    draws = np.stack([0.70 + rows, 0.69 + rows + rng.normal(0, 0.001, 20_000)])
    measure = Measure(np.array([0.70, 0.69]), draws, np.full(2, 4e-5), np.full(2, np.inf))
    found = difference_estimates(measure, np.array([3, 3]), np.array([0]), np.array([1]))
    assert found.freedom == 2
    # 4.303 is Student's quantile for two degrees of freedom.
    assert found.low == pytest.approx(0.01 - 4.303 * 0.001, abs=2e-4)
    assert found.high == pytest.approx(0.01 + 4.303 * 0.001, abs=2e-4)
