"""Paired comparisons against worked examples, naive bootstraps, statsmodels and simulation."""

from math import comb

import numpy as np
import pytest
from scipy.stats import norm
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_effectsize

from fake_results import FakeMethod, make_results
from reprolora.arms import Run, read_runs
from reprolora.metrics import macro_f1_of_counts
from reprolora.statistics import (
    ALL_SEEDS,
    COLUMNS,
    _difference_interval,
    compare_runs,
    mcnemar_p_values,
    other_side,
    pool_seeds,
    score_runs,
    sentence,
    smallest_detectable_difference,
)

NAMES = ("a", "b", "c")


def run(labels, predictions, method="x", seed=1, model="m", mode="generate"):
    ids = tuple(str(k) for k in range(len(labels)))
    return Run(model, method, seed, mode, NAMES, ids, np.asarray(labels), np.asarray(predictions))


def random_runs(rng, n=300, methods=("x", "y"), seeds=(1,), accuracy=0.8, seed_spread=0.0):
    """Answers with rows that are hard for everyone, rows that are hard for a method, and seeds that are worse."""
    labels = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    hard = rng.normal(np.log(accuracy / (1 - accuracy)) * 1.3, 1.5, n)
    runs = []
    for method in methods:
        own = rng.normal(0, 0.7, n)
        for seed in seeds:
            right = rng.random(n) < 1 / (1 + np.exp(-(hard + own + rng.normal(0, seed_spread))))
            runs.append(run(labels, np.where(right, labels, (labels + rng.integers(1, 4, n)) % 4), method, seed))
    return runs


def test_mcnemar_worked_by_hand_and_as_statsmodels_has_it():
    # 2 x (C(9,0) + C(9,1)) / 2^9
    assert mcnemar_p_values(np.array([1]), np.array([8]))[0] == pytest.approx(20 / 512)
    # The approval ratings in Agresti, Categorical Data Analysis: 86 and 150 changed their minds.
    exact = 2 * sum(comb(236, k) for k in range(87)) / 2**236
    p = mcnemar_p_values(np.array([86, 0, 5, 3]), np.array([150, 0, 5, 1]))
    assert p[0] == pytest.approx(exact)
    for value, (b, c) in zip(p, [(86, 150), (0, 0), (5, 5), (3, 1)], strict=True):
        assert value == pytest.approx(mcnemar([[0, b], [c, 0]], exact=True).pvalue if b + c else 1)


def test_the_draws_are_a_bootstrap_of_rows_that_all_runs_share():
    runs = random_runs(np.random.default_rng(3), n=40)
    scores = score_runs(runs, resamples=25, seed=7)
    weights = np.random.default_rng(7).multinomial(40, np.full(40, 1 / 40), size=25)
    for k, one in enumerate(runs):
        for draw, weight in enumerate(weights):
            rows = np.repeat(np.arange(40), weight)
            labels, predictions = one.labels[rows], one.predictions[rows]
            counts = np.bincount(labels * 4 + predictions, minlength=12).reshape(3, 4)
            assert scores.accuracy_draws[k, draw] == pytest.approx((labels == predictions).mean())
            assert scores.macro_f1_draws[k, draw] == pytest.approx(macro_f1_of_counts(counts))
        assert scores.accuracy[k] == pytest.approx((one.labels == one.predictions).mean())


def test_blocks_do_not_change_the_draws(monkeypatch):
    runs = random_runs(np.random.default_rng(3), n=40)
    whole = score_runs(runs, resamples=25, seed=7)
    monkeypatch.setattr("reprolora.statistics.BLOCK", 100)
    parts = score_runs(runs, resamples=25, seed=7)
    assert (whole.accuracy_draws == parts.accuracy_draws).all()
    assert (whole.macro_f1_draws == parts.macro_f1_draws).all()
    first, second = np.array([0]), np.array([1])
    interval = _difference_interval(whole.accuracy_draws, np.zeros(2), np.ones(2), first, second)
    difference = whole.accuracy_draws[0] - whole.accuracy_draws[1]
    assert interval[0][0] == pytest.approx(np.quantile(difference, 0.025))
    assert interval[1][0] == pytest.approx(np.quantile(difference, 0.975))


def test_a_comparison_worked_by_hand():
    labels = [0] * 10 + [1] * 6 + [2] * 4
    first = run(labels, labels, "first")
    # Wrong on two rows of a (called b) and INVALID on one of c.
    second = run(labels, [1, 1, *labels[2:19], 3], "second")
    [row] = compare_runs([first, second]).to_dict("records")
    assert list(row) == COLUMNS
    assert (row["level"], row["n"], row["seed_a"], row["test"]) == ("method", 20, 1, "McNemar exact")
    assert (row["accuracy_a"], row["accuracy_b"], row["accuracy_difference"]) == (1.0, 0.85, 0.15)
    assert (row["only_a_right"], row["only_b_right"]) == (3, 0)
    assert row["p_value"] == row["p_value_holm"] == 0.25
    # F1: a 16/18, b 12/14, c 6/7.
    assert row["macro_f1_difference"] == pytest.approx(1 - (16 / 18 + 12 / 14 + 6 / 7) / 3, abs=1e-6)
    assert row["cohens_h"] == pytest.approx(2 * np.arcsin(1) - 2 * np.arcsin(np.sqrt(0.85)), abs=1e-6)
    assert row["cohens_h"] == pytest.approx(proportion_effectsize(1.0, 0.85), abs=1e-6)
    assert not row["difference_shown"]
    # Six rows on one side are the fewest that reach 5 %.
    assert row["smallest_detectable_difference"] >= 6 / 20
    assert row["accuracy_difference_low"] == 0 and 0.25 <= row["accuracy_difference_high"] <= 0.35


def test_holms_correction_is_made_over_all_pairs():
    runs = random_runs(np.random.default_rng(1), methods=("u", "v", "w", "x"), n=200)
    runs.append(run(runs[0].labels, np.full(200, 3), "bad"))
    table = compare_runs(runs)
    assert len(table) == 10
    p = table["p_value"].to_numpy()
    order = np.argsort(p)
    by_hand = np.maximum.accumulate(p[order] * np.arange(10, 0, -1)).clip(max=1)
    assert table["p_value_holm"].to_numpy()[order] == pytest.approx(by_hand, rel=1e-5)
    assert table.loc[table["method_b"] == "bad", "difference_shown"].all()
    assert (table["difference_shown"] == (table["p_value_holm"] < 0.05)).all()


def test_arms_that_agree_everywhere_differ_by_nothing():
    labels = np.arange(60) % 3
    [row] = compare_runs([run(labels, labels, "x"), run(labels, labels, "y")]).to_dict("records")
    assert (row["accuracy_difference"], row["accuracy_difference_low"], row["accuracy_difference_high"]) == (0, 0, 0)
    assert row["p_value"] == 1 and row["smallest_detectable_difference"] == 0.1
    assert row["sentence"].startswith("X and y have the same accuracy to a tenth of a point")


def test_the_smallest_detectable_difference_solves_connors_formula():
    n, share = 840, np.array([0.05, 0.15, 0.4])
    d = smallest_detectable_difference(n, share)
    a, b = norm.isf(0.025), norm.isf(0.2)
    assert ((a * np.sqrt(share) + b * np.sqrt(share - d**2)) ** 2 / d**2) == pytest.approx(n)
    # Power by simulation: the share of experiments of that size that find a difference of d.
    rng = np.random.default_rng(0)
    counts = rng.multinomial(n, [(0.15 + d[1]) / 2, (0.15 - d[1]) / 2, 0.85], size=4000)
    assert np.mean(mcnemar_p_values(counts[:, 0], counts[:, 1]) < 0.05) == pytest.approx(0.8, abs=0.04)


def test_each_seed_meets_its_own_and_a_baseline_meets_them_all():
    rng = np.random.default_rng(2)
    runs = random_runs(rng, n=100, seeds=(1, 2, 3))
    runs.append(run(runs[0].labels, runs[0].labels, "tfidf", seed=0, model="classical", mode="classical"))
    table = compare_runs(runs)
    methods, seeds = (table[table["level"] == level] for level in ("method", "seed"))
    assert methods[["method_a", "seed_a", "method_b", "seed_b"]].to_numpy().tolist() == [
        ["x", ALL_SEEDS, "y", ALL_SEEDS],
        ["x", ALL_SEEDS, "tfidf", 0],
        ["y", ALL_SEEDS, "tfidf", 0],
    ]
    pairs = set(seeds[["method_a", "seed_a", "method_b", "seed_b"]].itertuples(index=False, name=None))
    assert pairs == {("x", s, "y", s) for s in (1, 2, 3)} | {(m, s, "tfidf", 0) for m in "xy" for s in (1, 2, 3)}
    assert set(methods["test"]) == {"t, hierarchical bootstrap"} and set(seeds["test"]) == {"McNemar exact"}
    assert methods["accuracy_a"].iloc[0] == pytest.approx(seeds["accuracy_a"].iloc[:3].mean(), abs=1e-6)
    assert "(seed 2)" in seeds["sentence"].iloc[1] and "seed" not in methods["sentence"].iloc[0]


def test_modes_are_compared_within_themselves_and_with_the_baselines(tmp_path):
    results = make_results(tmp_path, rows=50, modes=("generate", "likelihood"))
    runs = [r for pair in zip(results.metrics, results.predictions, strict=True) for r in read_runs(*pair)]
    table = compare_runs(runs)
    # 2 baselines; 3 arms in each of 2 modes: one pair of baselines, 2 x 3 x 2 with a baseline, 3 x 2 without.
    assert table["mode"].value_counts().to_dict() == {"generate": 9, "likelihood": 9, "classical": 1}
    assert len(table) == 19


def test_one_arm_has_nobody_to_be_compared_with():
    table = compare_runs([run([0, 1, 2], [0, 1, 2])])
    assert table.empty and list(table.columns) == COLUMNS


def test_seeds_that_differ_no_more_than_rows_explain_add_nothing():
    labels = np.arange(300) % 3
    predictions = np.where(np.arange(300) % 7 == 0, 3, labels)
    runs = [run(labels, predictions, "x", seed) for seed in (1, 2, 3)]
    scores = score_runs(runs, resamples=100)
    pooled = pool_seeds(scores, [[0, 1, 2]])
    assert pooled.accuracy_seed_variance[0] == 0
    assert (pooled.accuracy_draws[0] == scores.accuracy_draws[0]).all()


def test_seeds_that_differ_widen_the_interval():
    labels = np.arange(900) % 3
    runs = [
        run(labels, np.where(np.arange(900) < wrong, 3, labels), "x", seed)
        for seed, wrong in ((1, 100), (2, 200), (3, 300))
    ]
    pooled = pool_seeds(score_runs(runs, resamples=2000), [[0, 1, 2]])
    values = np.array([800, 700, 600]) / 900
    # The variance between seeds over their number, less the noise of rows, which is small here.
    assert pooled.accuracy_seed_variance[0] == pytest.approx(values.var(ddof=1) / 3, rel=0.05)
    assert pooled.accuracy[0] == pytest.approx(values.mean())
    assert pooled.accuracy_draws[0].var() > 0.9 * values.var(ddof=1) / 3


@pytest.mark.parametrize(("seeds", "spread"), [((1,), 0.0), ((1, 2, 3), 0.0), ((1, 2, 3), 0.1)])
def test_intervals_cover_the_truth_about_as_often_as_they_say(seeds, spread):
    rng = np.random.default_rng(len(seeds))
    groups = [list(range(len(seeds))), list(range(len(seeds), 2 * len(seeds)))]
    first, second = np.array([0]), np.array([1])
    covered = {"accuracy": 0, "macro_f1": 0}
    repeats = 400
    for repeat in range(repeats):
        runs = random_runs(rng, n=300, seeds=seeds, seed_spread=spread)
        pooled = pool_seeds(score_runs(runs, resamples=200, seed=repeat), groups, seed=repeat)
        for name in covered:
            draws, variance = getattr(pooled, f"{name}_draws"), getattr(pooled, f"{name}_seed_variance")
            low, high, _, _ = _difference_interval(draws, variance, pooled.seeds, first, second)
            # Both methods are drawn alike, so the true difference is 0.
            covered[name] += low[0] <= 0 <= high[0]
    for count in covered.values():
        assert 0.93 <= count / repeats <= 0.97


def test_a_sentence_says_it_from_the_first_ones_side_and_from_the_others():
    labels = np.zeros(1000, dtype=int)
    better, worse = np.zeros(1000, dtype=int), np.zeros(1000, dtype=int)
    better[:100], worse[50:190] = 1, 1
    runs = [run(labels, better, "lora"), run(labels, worse, "qlora")]
    [row] = compare_runs(runs).to_dict("records")
    assert row["sentence"].startswith("LoRA is 4.0 points above QLoRA in accuracy (95 % interval ")
    assert "the difference is shown (p < 0.001 after Holm" in row["sentence"]
    turned = other_side(row)
    assert sentence(turned, "QLoRA", "LoRA").startswith("QLoRA is 4.0 points below LoRA in accuracy (95 % interval -")
    assert turned["accuracy_difference_low"] == -row["accuracy_difference_high"]
    assert (turned["only_a_right"], turned["only_b_right"]) == (row["only_b_right"], row["only_a_right"])
    assert turned["method_a"] == "qlora" and turned["cohens_h"] == -row["cohens_h"]
    assert turned["smallest_detectable_difference"] == row["smallest_detectable_difference"]
    assert other_side(turned) == row


def test_a_sentence_says_what_the_test_could_have_shown(tmp_path):
    methods = {"lora": FakeMethod(0.86), "qlora": FakeMethod(0.855)}
    results = make_results(tmp_path, methods=methods)
    runs = [r for pair in zip(results.metrics, results.predictions, strict=True) for r in read_runs(*pair)]
    [row] = compare_runs(runs).to_dict("records")
    could = f"{row['smallest_detectable_difference'] * 100:.1f}"
    assert row["sentence"].endswith(f"this test could show {could} points.")
    assert "no difference shown (p = " in row["sentence"]
