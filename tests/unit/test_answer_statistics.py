"""Scores of instruction experiments: worked by hand, against naive bootstraps, statsmodels and simulation."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm, t
from statsmodels.stats.proportion import proportion_confint

from fake_runs import answers, random_answers
from reprolora.answer_statistics import intervals, score_answers, wilson_interval
from reprolora.bootstrap import difference_estimates, mean_estimates
from reprolora.statistics import compare_scores, exchange_p_values, mcnemar_p_values

FIRST, SECOND = np.array([0]), np.array([1])


def test_scores_worked_by_hand():
    # Three documents; the only row of the last one has no distractors.
    run = answers(
        documents="aabbc", correct=[1, 0, 1, 1, None], rouge_l=[0.2, 0.4, 0.6, 0.8, 1.0], loss=[2, 4, 6, 8, 10],
        tokens=[1, 2, 3, 4, 20],
    )  # fmt: skip
    scores = score_answers([run], by_document=True, resamples=10)
    values = {name: measure.values[0] for name, measure in scores.measures.items()}
    assert values["domain_accuracy"] == 3 / 4
    assert values["rouge_l"] == pytest.approx(3 / 5)
    assert values["loss"] == 30 / 30
    assert intervals(scores, 5)["perplexity"][0] == pytest.approx(np.e, abs=1e-6)
    # (sum w)^2 / sum w^2: of 2 and 2 rows, of 2, 2 and 1 rows, of 3, 7 and 20 tokens; less one.
    freedom = {name: measure.freedom[0] for name, measure in scores.measures.items()}
    assert freedom["domain_accuracy"] == 16 / 8 - 1
    assert freedom["rouge_l"] == pytest.approx(25 / 9 - 1)
    assert freedom["loss"] == pytest.approx(900 / 458 - 1)
    # Only rows with distractors are tested.
    assert scores.correct.tolist() == [[1, 0, 1, 1]] and scores.clusters.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("by_document", [True, False])
def test_the_draws_are_a_bootstrap_of_documents_or_rows_that_all_arms_share(by_document):
    runs = random_answers(np.random.default_rng(2), sizes=[3, 1, 4, 2])
    scores = score_answers(runs, by_document=by_document, resamples=20, seed=5)
    units = np.array([int(name) for name in runs[0].documents]) if by_document else np.arange(10)
    count = units.max() + 1
    sizes = np.bincount(units)
    effective = sizes.sum() ** 2 / (sizes**2).sum()
    spread = np.sqrt(effective / (effective - 1)) if by_document else 1
    weights = np.random.default_rng(5).multinomial(count, np.full(count, 1 / count), size=20)
    measure = scores.measures["chrf"]
    for k, run in enumerate(runs):
        for draw, weight in enumerate(weights):
            rows = np.concatenate([np.repeat(np.flatnonzero(units == unit), n) for unit, n in enumerate(weight)])
            naive = run.scores["chrf"][rows.astype(int)].mean()
            assert measure.draws[k, draw] == pytest.approx(measure.values[k] + spread * (naive - measure.values[k]))


def test_blocks_do_not_change_the_draws(monkeypatch):
    runs = random_answers(np.random.default_rng(3), sizes=[3, 1, 4, 2] * 5)
    whole = score_answers(runs, by_document=True, resamples=25)
    monkeypatch.setattr("reprolora.answer_statistics.BLOCK", 100)
    parts = score_answers(runs, by_document=True, resamples=25)
    for name, measure in whole.measures.items():
        # But for the last bit: products of other shapes may add in another order.
        assert measure.draws == pytest.approx(parts.measures[name].draws, rel=1e-12)


def test_from_one_document_nothing_is_known_of_others():
    runs = random_answers(np.random.default_rng(1), sizes=[12])
    scores = score_answers(runs, by_document=True, resamples=50)
    columns = intervals(scores, 12)
    assert columns["rouge_l"][0] == pytest.approx(runs[0].scores["rouge_l"].mean(), abs=1e-6)
    assert all(np.isnan(columns[f"{name}_{end}"]).all() for name in scores.measures for end in ("low", "high"))
    [row] = compare_scores(runs, scores, margin=0.05).to_dict("records")
    assert row["p_value"] == 1 and row["equivalence"] == "undecided"


def test_without_distractors_exact_match_is_what_is_compared():
    runs = [answers("aabb", [None] * 4, exact_match=scores, method=m) for m, scores in (("x", "1111"), ("y", "1000"))]
    scores = score_answers(runs, by_document=True, resamples=50)
    assert "domain_accuracy" not in scores.measures
    [row] = compare_scores(runs, scores).to_dict("records")
    assert row["exact_match_difference"] == 0.75 and row["only_a_right"] == 3
    assert "75.0 points above" in row["sentence"] and "in exact match" in row["sentence"]


def test_wilsons_interval_of_independent_rows_and_of_rows_that_a_document_decides():
    correct = [1] * 13 + [0] * 7
    rows = answers([str(k) for k in range(20)], correct)
    scores = score_answers([rows], by_document=False)
    ends = wilson_interval(scores.measures["domain_accuracy"], 20)
    assert [float(end[0]) for end in ends] == pytest.approx(proportion_confint(13, 20, method="wilson"))
    # Ten rows of each of 20 documents, all right or all wrong: worth about one row each, less for what is not known.
    repeated = answers([str(k) for k in range(20) for _ in range(10)], np.repeat(correct, 10))
    scores = score_answers([repeated], by_document=True, resamples=20_000)
    low, high = wilson_interval(scores.measures["domain_accuracy"], 200)
    worth = 19 * (norm.isf(0.025) / t.isf(0.025, 19)) ** 2
    assert (low[0], high[0]) == pytest.approx(proportion_confint(0.65 * worth, worth, method="wilson"), abs=0.01)
    # Exact match is a share too, of all rows.
    rows = answers([str(k) for k in range(20)], [None] * 20, exact_match=correct)
    columns = intervals(score_answers([rows], by_document=False), 20)
    assert (columns["exact_match_low"][0], columns["exact_match_high"][0]) == pytest.approx(
        proportion_confint(13, 20, method="wilson"), abs=1e-6
    )
    # All right: nothing tells how alike the rows of a document are, so there are 20 of them.
    perfect = answers(repeated.documents, [1] * 200)
    low, _ = wilson_interval(score_answers([perfect], by_document=True).measures["domain_accuracy"], 200)
    worth = 20 * (norm.isf(0.025) / t.isf(0.025, 19)) ** 2
    assert low[0] == pytest.approx(proportion_confint(worth, worth, method="wilson")[0])


def test_exchanging_the_answers_to_documents_worked_by_hand_and_by_counting():
    # One row in each document: McNemar's test.
    single = np.array([[1] * 8 + [-1] * 1 + [0] * 5])
    assert exchange_p_values(single)[0] == pytest.approx(20 / 512)
    assert exchange_p_values(single)[0] == mcnemar_p_values(np.array([8]), np.array([1]))[0]
    # 3 - 1 + 2 = 4; of the eight sums 6, 4, 2, 0 and their opposites, four are as far from 0.
    assert exchange_p_values(np.array([[3, -1, 2, 0]]))[0] == 0.5
    assert exchange_p_values(np.array([[0, 0], [2, -2]])).tolist() == [1, 1]
    rng = np.random.default_rng(0)
    for differences in rng.integers(-4, 5, (5, 9)):
        sums = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=9)]
        expected = np.mean([value >= abs(differences.sum()) for value in sums])
        assert exchange_p_values(differences[None])[0] == pytest.approx(expected)


def test_a_comparison_worked_by_hand():
    documents = "aaabbbcccddd"
    first = answers(documents, [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, None], method="lora", rouge_l=[0.5] * 12)
    second = answers(documents, [0, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0, None], method="zero-shot", rouge_l=[0.25] * 12)
    scores = score_answers([first, second], by_document=True, resamples=500)
    [row] = compare_scores([first, second], scores).to_dict("records")
    assert (row["n"], row["only_a_right"], row["only_b_right"]) == (11, 5, 1)
    assert row["domain_accuracy_difference"] == pytest.approx(4 / 11, abs=1e-6)
    # By documents 3, 2, -1 and 0: of the sums 6, 4, 2, 0 and their opposites, four of eight are as far from 0 as 4.
    assert row["test"] == "exact, documents exchanged" and row["p_value"] == row["p_value_holm"] == 0.5
    assert row["rouge_l_difference"] == row["rouge_l_difference_low"] == row["rouge_l_difference_high"] == 0.25
    assert row["sentence"].startswith("LoRA is 36.4 points above zero-shot in domain accuracy (95 % interval ")
    assert row["smallest_detectable_difference"] >= 6 / 11


def test_rows_without_documents_are_compared_by_mcnemars_test():
    runs = random_answers(np.random.default_rng(4), sizes=[1] * 50)
    [row] = compare_scores(runs, score_answers(runs, by_document=False)).to_dict("records")
    assert row["test"] == "McNemar exact"
    p = mcnemar_p_values(np.array([row["only_a_right"]]), np.array([row["only_b_right"]]))[0]
    assert row["p_value"] == pytest.approx(p, rel=1e-5)


def test_intervals_over_documents_cover_the_truth_and_those_over_rows_do_not():
    """With few documents of unequal sizes, whose rows are alike. Both methods are drawn alike: they do not differ."""
    rng = np.random.default_rng(0)
    repeats, names = 150, ("domain_accuracy", "rouge_l", "loss")
    covered = {True: dict.fromkeys(names, 0), False: dict.fromkeys(names, 0)}
    for repeat in range(repeats):
        runs = random_answers(rng, sizes=np.minimum(20, rng.geometric(0.15, 12)))
        for by_document, counts in covered.items():
            scores = score_answers(runs, by_document=by_document, resamples=200, seed=repeat)
            for name in names:
                ends = difference_estimates(scores.measures[name], scores.seeds, FIRST, SECOND)
                counts[name] += ends.low[0] <= 0 <= ends.high[0]
    assert all(count >= 0.9 * repeats for count in covered[True].values()), covered
    assert covered[False]["rouge_l"] < 0.8 * repeats, covered


def test_a_single_arms_interval_does_not_depend_on_the_other_arms():
    runs = random_answers(np.random.default_rng(6), sizes=[4] * 10)
    both, alone = (score_answers(some, by_document=True) for some in (runs, runs[1:]))
    for name in both.measures:
        one, other = (mean_estimates(s.measures[name], s.seeds) for s in (both, alone))
        assert (one.low[1], one.high[1]) == pytest.approx((other.low[0], other.high[0]))
