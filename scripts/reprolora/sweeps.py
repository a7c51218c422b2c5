"""Settings that are swept: the candidates that a grid or a list makes, and what each is called.

A candidate's name is made of its own settings alone, in the order of the alphabet. So it stays the same when a value is
added, when keys or values change places, and when a value is written in another way (`1e-4`, `0.0001`).
"""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

# Leaves room in a file name's 255 bytes, and in a table's column.
LONGEST_VALUE, LONGEST_NAME = 40, 180
# What a key begins with and its name leaves out. No two keys differ in this alone: PEFT has none of training's names.
SECTIONS = ("method.peft.", "method.quantization.", "training.")


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of a grid's keys, the first key varying slowest."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def candidate_name(settings: Mapping[str, Any]) -> str:
    """What settings are called in paths and tables, such as `learning_rate=0.0005,r=8`."""
    parts = sorted(f"{short_key(key)}={_fitting(_text(value), LONGEST_VALUE)}" for key, value in settings.items())
    return _fitting(",".join(parts), LONGEST_NAME)


def short_key(key: str) -> str:
    """A swept key without the section that it stands in."""
    return next((key.removeprefix(section) for section in SECTIONS if key.startswith(section)), key)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, list) and all(isinstance(item, str | int) for item in value):
        return "+".join(map(str, value))
    return json.dumps(value, sort_keys=True)


def _fitting(text: str, longest: int) -> str:
    """`text` where it can stand in a path; otherwise what of it can, and a digest that tells it from others."""
    safe = re.sub(r"[^\w.+,=-]+", "-", text, flags=re.ASCII)
    if safe == text and len(text) <= longest:
        return text
    return f"{safe[: longest - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
