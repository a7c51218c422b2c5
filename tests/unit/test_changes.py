"""Counting the answers that an export changed."""

import pytest

from reprolora.changes import count_changes
from reprolora.errors import ArmFailed


def predictions(answers: str, mode: str | None = "generate") -> list[dict]:
    named = {"mode": mode} if mode else {}
    return [{"id": str(n), "prediction": answer, **named} for n, answer in enumerate(answers)]


def test_two_of_ten_answers_changed():
    """Wilson's interval of 2 in 10 by hand: (0.2 + 1.92073 / 10 -+ ...) / (1 + 3.84146 / 10) = 0.0567 to 0.5098."""
    found = count_changes(predictions("aaaaabbbbb"), predictions("abaaabbbab"), "prediction")
    assert (found["n"], found["changed"], found["share"]) == (10, 2, 0.2)
    assert (found["share_low"], found["share_high"]) == (
        pytest.approx(0.0567, abs=1e-4),
        pytest.approx(0.5098, abs=1e-4),
    )
    assert found["examples"] == [
        {"id": "1", "before": "a", "after": "b"},
        {"id": "8", "before": "b", "after": "a"},
    ]


def test_fewer_rows_than_before_and_another_order():
    found = count_changes(predictions("abc"), predictions("ax")[::-1], "prediction")
    assert (found["n"], found["changed"]) == (2, 1)
    assert found["examples"] == [{"id": "1", "before": "b", "after": "x"}]


def test_modes_are_compared_each_with_itself():
    before = [*predictions("ab"), *predictions("ba", "likelihood")]
    found = count_changes(before, [*predictions("ab"), *predictions("bb", "likelihood")], "prediction")
    assert (found["n"], found["changed"]) == (4, 1)


def test_predictions_without_a_mode():
    assert count_changes(predictions("ab", None), predictions("ac", None), "prediction")["changed"] == 1


def test_a_row_that_was_not_answered_before():
    with pytest.raises(ArmFailed, match="row '2' was not answered before the export"):
        count_changes(predictions("ab"), predictions("abc"), "prediction")


def test_no_rows():
    found = count_changes([], [], "prediction")
    assert (found["n"], found["share"], found["share_low"]) == (0, None, None)
