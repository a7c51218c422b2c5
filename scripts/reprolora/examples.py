"""The training rows that a few-shot prompt shows."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from reprolora.errors import ArmFailed


def draw_examples(
    rows: Sequence[Mapping[str, Any]], labels: Sequence[str], shots: int, seed: int
) -> list[Mapping[str, Any]]:
    """Draw `shots` of `rows` without replacement, of all labels alike as far as there are rows, in random order.

    Label after label gives one row, over and over, in an order of the labels that is drawn; so no label gives two more
    than another that still has some. The same seed draws the same rows, whatever order they come in.

    Raises:
        ArmFailed: there are fewer rows than shots.
    """
    if shots > len(rows):
        raise ArmFailed(
            f"asked for {shots} examples, but there are {len(rows)} training rows; lower the method's shots"
        )
    draw = random.Random(seed)
    by_label: dict[str, list] = {label: [] for label in labels}
    for row in sorted(rows, key=lambda row: row["id"]):
        by_label[row["label"]].append(row)
    for those in by_label.values():
        draw.shuffle(those)
    order = draw.sample(list(labels), len(labels))
    chosen: list[Mapping[str, Any]] = []
    while len(chosen) < shots:
        chosen += [by_label[label].pop() for label in order if by_label[label]][: shots - len(chosen)]
    draw.shuffle(chosen)
    return chosen
