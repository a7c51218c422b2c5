"""The wrong answers among which a model has to find the right one: those to other questions of the same document."""

import hashlib
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reprolora.answer_scores import squad_tokens

Row = Mapping[str, Any]


def draw_distractors(rows: Sequence[Row], others: Sequence[Iterable[Row]], count: int, seed: int) -> list[list[Row]]:
    """For each of `rows`, `count` rows of its document whose outputs are other answers; or none, if it has not so many.

    They come from `rows` themselves as long as there are enough, and then from each of `others` in turn: training rows
    last, since a model that learned them finds their answers likely whatever the question. The rows of a document lie
    on a circle in an order that the seed and their ids decide, and a row's distractors are those that follow it; so
    neither the order of the rows in a file matters, nor which other documents there are.

    An answer is another one when exact match tells it from the reference and from the other distractors. Rows with the
    same question are passed over: they may have another right answer.
    """
    drawn: list[list[Row]] = [[] for _ in rows]
    for source in (rows, *others):
        waiting = {row["document"] for row, found in zip(rows, drawn, strict=True) if len(found) < count}
        circles = _circles((row for row in source if row["document"] in waiting), seed)
        for row, found in zip(rows, drawn, strict=True):
            if circle := circles.get(row["document"]):
                _draw(row, found, circle, count, seed)
    return [found if len(found) == count else [] for found in drawn]


def _circles(rows: Iterable[Row], seed: int) -> dict[str, list[tuple[int, Row]]]:
    """The rows of each document with their places on its circle, in order."""
    circles = defaultdict(list)
    for row in rows:
        circles[row["document"]].append((_place(row, seed), row))
    for circle in circles.values():
        circle.sort(key=lambda item: item[0])
    return circles


def _draw(row: Row, found: list[Row], circle: list[tuple[int, Row]], count: int, seed: int) -> None:
    """Complete `found` with rows that follow `row` on the circle."""
    start = bisect(circle, _place(row, seed), key=lambda item: item[0])
    answers = [squad_tokens(known["output"]) for known in (row, *found)]
    for step in range(len(circle)):
        if len(found) == count:
            return
        candidate = circle[(start + step) % len(circle)][1]
        answer = squad_tokens(candidate["output"])
        if answer not in answers and _question(candidate) != _question(row):
            answers.append(answer)
            found.append(candidate)


def _question(row: Row) -> tuple[list[str], list[str], Any]:
    return squad_tokens(row["instruction"]), squad_tokens(row["input"]), row.get("history")


def _place(row: Row, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}\n{row['id']}".encode(), digest_size=8).digest(), "big")
