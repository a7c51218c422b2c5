"""Distractors: from the same document, other answers to other questions, whatever the order of the rows."""

import random

import pytest

from reprolora.choices import draw_distractors


def row(name: str, document: str = "d", output: str | None = None, question: str | None = None, **more) -> dict:
    output = f"answer {name}" if output is None else output
    return {
        "id": name,
        "document": document,
        "instruction": question or f"question {name}",
        "input": "",
        "output": output,
    } | more


def ids(drawn: list[list[dict]]) -> list[list[str]]:
    return [[row["id"] for row in found] for found in drawn]


def test_they_are_other_rows_of_the_same_document():
    rows = [row(f"{document}{n}", document) for document in "de" for n in range(6)]
    for own, found in zip(rows, ids(draw_distractors(rows, [], 3, 1)), strict=True):
        assert len(set(found)) == 3 and own["id"] not in found
        assert all(name[0] == own["document"] for name in found)


def test_they_do_not_depend_on_the_order_of_rows_or_on_other_documents_but_on_the_seed():
    rows = [row(str(n)) for n in range(20)]
    expected = dict(zip([r["id"] for r in rows], ids(draw_distractors(rows, [], 3, 1)), strict=True))
    shuffled = random.Random(0).sample([*rows, *(row(f"e{n}", "e") for n in range(5))], 25)
    found = dict(zip([r["id"] for r in shuffled], ids(draw_distractors(shuffled, [], 3, 1)), strict=True))
    assert {name: found[name] for name in expected} == expected
    assert dict(zip(expected, ids(draw_distractors(rows, [], 3, 2)), strict=True)) != expected


def test_every_row_is_shown_as_often_as_any_other():
    drawn = ids(draw_distractors([row(str(n)) for n in range(20)], [], 3, 1))
    assert sorted(name for found in drawn for name in found) == sorted(str(n) for n in range(20) for _ in range(3))


def test_equal_answers_and_equal_questions_are_passed_over():
    rows = [
        row("a", output="The same."),
        row("b", output="the  same"),
        row("c", output="other"),
        row("d", output="Other!"),
        row("e", output="third"),
        row("f", output="fourth", question="Question A?"),
        row("g", output="fifth", question="question a", history=[["x", "y"]]),
    ]
    for seed in range(10):
        found = ids(draw_distractors(rows, [], 3, seed))[0]
        assert len(found) == 3 and {"e", "g"} < set(found) and len({"c", "d"} & set(found)) == 1


@pytest.mark.parametrize(
    ("validation", "expected"),
    [(0, {"test": 1, "train": 2}), (1, {"test": 1, "validation": 1, "train": 1}), (5, {"test": 1, "validation": 2})],
)
def test_a_document_with_too_few_rows_borrows_from_validation_and_then_from_train(validation, expected):
    rows = [row("test0"), row("test1")]
    others = [row(f"validation{n}") for n in range(validation)], iter([row(f"train{n}") for n in range(9)])
    found = ids(draw_distractors(rows, others, 3, 1))[0]
    assert {part: sum(name.startswith(part) for name in found) for part in expected} == expected and len(found) == 3


def test_a_row_has_the_number_that_was_asked_for_or_none():
    rows = [row("a"), row("b"), row("c"), row("lone", "e")]
    assert ids(draw_distractors(rows, [[row("x", "e"), row("y", "e")]], 3, 1)) == [[], [], [], []]
    assert [len(found) for found in draw_distractors(rows, [[]], 2, 1)] == [2, 2, 2, 0]
    assert draw_distractors(rows, [], 0, 1) == [[], [], [], []]
