"""analyze_errors: the worst mistakes, disagreements, breakdown and calibration of arms, worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from reprolora.arms import Run
from reprolora.labels import INVALID
from reprolora.mistakes import (
    breakdown_table,
    calibration_table,
    contenders,
    disagreements_table,
    length_groups,
    mistakes_table,
)

NAMES = ("no", "yes")
IDS = ("r1", "r2", "r3", "r4")
LABELS = np.array([0, 0, 1, 1])
TEXTS = ["a", "bb", "ccc", "dddd"]


def run(method, predictions, *, seed=1, mode="generate", yes=None, model="m"):
    """`yes` are the probabilities of the second label."""
    probabilities = None if yes is None else np.array([[1 - p, p] for p in yes])
    return Run(model, method, seed, mode, NAMES, IDS, LABELS, np.array(predictions), probabilities)


# Right about 2, 3, 4 rows; the last always says yes.
POOR = run("poor", [1, 0, 2, 1])
GOOD = run("good", [1, 0, 1, 1])
SAME = run("same", [1, 1, 1, 1])


def test_seeds_are_one_contender_that_answers_as_most_of_them():
    found = contenders([run("x", [0, 1, 2, 2], seed=1), run("x", [0, 1, 1, 2], seed=2), run("x", [1, 0, 1, 0], seed=3)])
    assert [(c.name, c.seeds) for c in found] == [("x", 3)]
    assert found[0].answers.tolist() == [0, 1, 1, 2]
    np.testing.assert_allclose(found[0].right, [2 / 3, 1 / 3, 2 / 3, 0])
    tied = contenders([run("x", [0, 1, 2, 0], seed=1), run("x", [1, 0, 1, 2], seed=2)])[0]
    assert tied.answers.tolist() == [0, 0, 1, 0], "of equals the first label, INVALID last"


def test_seeds_with_probabilities_answer_by_their_mean():
    one = run("x", [1, 0, 1, 1], seed=1, mode="likelihood", yes=[0.6, 0.1, 0.9, 0.9])
    two = run("x", [0, 0, 1, 1], seed=2, mode="likelihood", yes=[0.1, 0.2, 0.7, 0.8])
    found = contenders([one, two])[0]
    assert found.answers.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(found.confidence, [0.65, 0.85, 0.8, 0.85])


def test_with_probabilities_the_most_confident_mistakes_come_first():
    sure = run("sure", [1, 1, 0, 1], mode="likelihood", yes=[0.7, 0.95, 0.2, 0.6])
    table = mistakes_table(contenders([sure, GOOD]), sure, TEXTS)
    mine = table[table["method"] == "sure"]
    assert mine["id"].tolist() == ["r2", "r3", "r1"]
    assert mine["confidence"].tolist() == pytest.approx([0.95, 0.8, 0.7])
    assert mine["answer"].tolist() == ["yes", "no", "yes"] and mine["text"].tolist() == ["bb", "ccc", "a"]
    assert mine["arms_wrong"].tolist() == [1, 1, 2], "of both arms, only r1 is wrong in the other too"


def test_without_probabilities_the_rows_that_most_arms_get_wrong_come_first():
    table = mistakes_table(contenders([POOR, GOOD, SAME]), POOR, TEXTS)
    mine = table[table["method"] == "poor"]
    assert mine["id"].tolist() == ["r1", "r3"] and mine["arms_wrong"].tolist() == [3, 1]
    assert mine["answer"].tolist() == ["yes", INVALID] and mine["confidence"].isna().all()
    assert table[table["method"] == "same"]["id"].tolist() == ["r1", "r2"]


def test_a_mistake_of_all_seeds_comes_before_one_of_most():
    seeds = [run("x", [1, 1, 0, 1], seed=1), run("x", [1, 1, 0, 1], seed=2), run("x", [0, 1, 1, 1], seed=3)]
    table = mistakes_table(contenders([*seeds, GOOD]), GOOD, TEXTS)
    mine = table[table["method"] == "x"]
    # r1 is wrong in two seeds and in the other arm too, r3 in two seeds.
    assert list(zip(mine["id"], mine["seeds_wrong"], strict=True)) == [("r2", 3), ("r1", 2), ("r3", 2)]


def test_disagreements_leave_out_who_always_says_the_same():
    table = disagreements_table(contenders([POOR, GOOD, SAME]), POOR, TEXTS)
    assert table.to_dict("records") == [
        {
            **{"id": "r3", "label": "yes", "right": 1, "arms": 2},
            **{"answer of poor": INVALID, "answer of good": "yes", "text": "ccc"},
        }
    ]
    assert disagreements_table(contenders([SAME]), SAME, TEXTS).empty


def test_the_most_evenly_divided_come_first():
    answers = {"a": [1, 0, 1, 0], "b": [0, 0, 1, 0], "c": [0, 0, 1, 1], "d": [0, 1, 1, 1]}
    runs = [run(method, predictions) for method, predictions in answers.items()]
    table = disagreements_table(contenders(runs), runs[0], TEXTS)
    assert table["id"].tolist() == ["r4", "r1", "r2"], "2 of 4, then 3 of 4; on r3 all agree"
    assert table["right"].tolist() == [2, 3, 3]


def test_the_breakdown_counts_rows_once_however_many_seeds_there_are():
    seeds = [run("x", [0, 1, 1, 1], seed=1), run("x", [0, 0, 1, 0], seed=2)]
    table = breakdown_table(contenders(seeds), seeds[0], TEXTS)
    by_label = table[table["by"] == "label"].set_index("group")
    assert by_label["n"].to_dict() == {"no": 2, "yes": 2}
    assert by_label["accuracy"].to_dict() == {"no": 0.75, "yes": 0.75}
    # Wilson: (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), with p = 0.75, n = 2, z = 1.959964.
    assert by_label.loc["no", "accuracy_low"] == pytest.approx(0.197867, abs=1e-6)
    assert by_label.loc["no", "accuracy_high"] == pytest.approx(0.973323, abs=1e-6)
    by_length = table[table["by"] == "characters"]
    assert by_length["group"].tolist() == ["1-1", "2-2", "3-3", "4-4"]
    assert by_length["accuracy"].tolist() == [1, 0.5, 1, 0.5]


def test_length_groups_are_quarters_and_ties_stay_together():
    groups = length_groups([8, 1, 2, 3, 4, 5, 6, 7])
    assert [name for name, _ in groups] == ["1-2", "3-4", "5-6", "7-8"]
    assert [np.flatnonzero(inside).tolist() for _, inside in groups] == [[1, 2], [3, 4], [5, 6], [0, 7]]
    tied = length_groups([5, 5, 5, 5, 9])
    assert [(name, int(inside.sum())) for name, inside in tied] == [("5-5", 4), ("9-9", 1)]


def test_calibration_is_that_of_the_metrics():
    arm = {"model": "m", "method": "x", "seed": 1}
    scores = {"n": 4, "accuracy": 0.75, "calibration": {"ece": 0.1, "brier": 0.4, "bins": []}}
    metrics = [{"arm": arm, "modes": {"generate": {"n": 4, "accuracy": 0.5}, "likelihood": scores}}]
    expected = {**arm, "mode": "likelihood", "n": 4, "accuracy": 0.75, "ece": 0.1, "brier": 0.4}
    pd.testing.assert_frame_equal(calibration_table(metrics), pd.DataFrame([expected]))
