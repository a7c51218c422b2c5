"""Paired comparisons against worked examples, naive bootstraps, statsmodels and simulation."""

from math import comb

import numpy as np
import pytest
from scipy.stats import norm
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_effectsize
from statsmodels.stats.weightstats import ttost_paired

from fake_results import FakeMethod, make_results
from fake_runs import random_runs, run
from reprolora.arms import ALL_SEEDS, read_all_runs
from reprolora.statistics import (
    columns,
    compare_runs,
    equivalence_p_values,
    equivalence_verdicts,
    mcnemar_p_values,
    other_side,
    sentence,
    smallest_detectable_difference,
)


def test_mcnemar_worked_by_hand_and_as_statsmodels_has_it():
    # 2 x (C(9,0) + C(9,1)) / 2^9
    assert mcnemar_p_values(np.array([1]), np.array([8]))[0] == pytest.approx(20 / 512)
    # The approval ratings in Agresti, Categorical Data Analysis: 86 and 150 changed their minds.
    exact = 2 * sum(comb(236, k) for k in range(87)) / 2**236
    p = mcnemar_p_values(np.array([86, 0, 5, 3]), np.array([150, 0, 5, 1]))
    assert p[0] == pytest.approx(exact)
    for value, (b, c) in zip(p, [(86, 150), (0, 0), (5, 5), (3, 1)], strict=True):
        assert value == pytest.approx(mcnemar([[0, b], [c, 0]], exact=True).pvalue if b + c else 1)


def test_a_comparison_worked_by_hand():
    labels = [0] * 10 + [1] * 6 + [2] * 4
    first = run(labels, labels, "first")
    # Wrong on two rows of a (called b) and INVALID on one of c.
    second = run(labels, [1, 1, *labels[2:19], 3], "second")
    [row] = compare_runs([first, second]).to_dict("records")
    assert list(row) == columns(["accuracy", "macro_f1"])
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


def test_two_one_sided_tests_as_lakens_works_them():
    # Lakens, Social Psychological and Personality Science 8 (2017), the replication of Eskine's study: means 5.25 and
    # 5.22, standard deviations 0.95 and 0.83, 95 and 89 people, a margin of 0.43 pooled standard deviations: Welch's
    # t(181) = -2.69, p = .004.
    variances = np.array([0.95**2 / 95, 0.83**2 / 89])
    margin = 0.43 * np.sqrt((0.95**2 + 0.83**2) / 2)
    freedom = variances.sum() ** 2 / (variances**2 / [94, 88]).sum()
    error = np.sqrt(variances.sum())
    assert (0.03 - margin) / error == pytest.approx(-2.69, abs=0.005) and freedom == pytest.approx(181, abs=0.5)
    # So many rows that the floor under the error, which is for shares of rows, is out of the way.
    p = equivalence_p_values(np.array([0.03, -0.03]), np.full(2, error), np.full(2, freedom), 10**9, margin)
    assert p == pytest.approx([0.004, 0.004], abs=0.0005)


def test_few_rows_that_differ_are_judged_as_tango_does():
    # Tango, Statistics in Medicine 17 (1998), two ways to disinfect soft contact lenses: one of 44 people disagrees,
    # the margin is 0.1: z = 1.709, p = 0.044.
    labels = np.zeros(44, dtype=int)
    [row] = compare_runs([run(labels, labels, "x"), run(labels, [1, *labels[1:]], "y")], margin=0.1).to_dict("records")
    assert row["equivalence_p_value"] == pytest.approx(0.044, abs=0.0005)
    assert norm.isf(row["equivalence_p_value"]) == pytest.approx(1.709, abs=0.0005)
    # Arms that agree on each of ten rows are not equivalent within a point.
    [row] = compare_runs([run(labels[:10], labels[:10], "x"), run(labels[:10], labels[:10], "y")], margin=0.01).to_dict(
        "records"
    )
    assert row["equivalence"] == "undecided"


def test_equivalence_of_many_rows_is_statsmodels_paired_test():
    first, second = random_runs(np.random.default_rng(5), n=840)
    [row] = compare_runs([first, second], margin=0.05, resamples=20_000).to_dict("records")
    right = [np.asarray(one.predictions == one.labels, dtype=float) for one in (first, second)]
    assert row["equivalence_p_value"] == pytest.approx(ttost_paired(*right, -0.05, 0.05)[0], rel=0.05)


def test_equivalence_is_shown_refuted_or_undecided():
    p = np.array([0.01, 0.2, 0.9, 0.97, 0.97])
    low, high = np.array([-0.01, -0.03, 0.005, 0.021, -0.05]), np.array([0.015, 0.01, 0.05, 0.06, -0.021])
    verdicts = equivalence_verdicts(p, low, high, 0.02).tolist()
    assert verdicts == ["shown", "undecided", "undecided", "refuted", "refuted"]


@pytest.mark.parametrize("difference", [0.0, 0.05])
def test_equivalence_is_seldom_shown_at_the_margin_and_refuted_seldom_within_it(difference):
    """At a true difference of the margin both verdicts are errors, of at most 5 % and 2.5 %; at 0 only the second."""
    n, share, repeats = 400, 0.2, 3000
    only_a, only_b, _ = (
        np.random.default_rng(3)
        .multinomial(n, [(share + difference) / 2, (share - difference) / 2, 1 - share], size=repeats)
        .T
    )
    observed = (only_a - only_b) / n
    error = np.sqrt(((only_a + only_b) / n - observed**2) / n)
    p = equivalence_p_values(observed, error, np.full(repeats, np.inf), n, 0.05)
    verdicts = equivalence_verdicts(p, observed - 1.96 * error, observed + 1.96 * error, 0.05)
    shown, refuted = (np.mean(verdicts == verdict) for verdict in ("shown", "refuted"))
    assert refuted <= 0.035
    # The power is 2 Phi(margin / error - 1.645) - 1.
    power = 2 * norm.cdf(0.05 / np.sqrt(share / n) - norm.isf(0.05)) - 1
    assert shown == pytest.approx(0.05 if difference else power, abs=0.03)


def test_holms_correction_as_the_manual_of_pingouin_has_it(monkeypatch):
    # Five pairs: of two classical baselines with each other, and of each with a method in two modes.
    monkeypatch.setattr("reprolora.statistics.mcnemar_p_values", lambda a, b: np.array([0.5, 0.003, 0.32, 0.054, 3e-4]))
    labels = np.arange(60) % 3
    runs = [run(labels, labels, name, model="classical", mode="classical") for name in ("majority", "tfidf")]
    runs += [run(labels, labels, "x", mode=mode) for mode in ("generate", "likelihood")]
    assert compare_runs(runs)["p_value_holm"].tolist() == [0.64, 0.012, 0.64, 0.162, 0.0015]


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
    runs = read_all_runs(results.metrics)
    table = compare_runs(runs)
    # 2 baselines; 3 arms in each of 2 modes: one pair of baselines, 2 x 3 x 2 with a baseline, 3 x 2 without.
    assert table["mode"].value_counts().to_dict() == {"generate": 9, "likelihood": 9, "classical": 1}
    assert len(table) == 19


def test_one_arm_has_nobody_to_be_compared_with():
    table = compare_runs([run([0, 1, 2], [0, 1, 2])])
    assert table.empty and list(table.columns) == columns(["accuracy", "macro_f1"])


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
    runs = read_all_runs(results.metrics)
    [row] = compare_runs(runs).to_dict("records")
    could = f"{row['smallest_detectable_difference'] * 100:.1f}"
    assert row["sentence"].endswith(f"this test could show {could} points.")
    assert "no difference shown (p = " in row["sentence"]
