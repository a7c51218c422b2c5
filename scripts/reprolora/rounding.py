"""Numbers as files have them: rounded, since two builds of a linear algebra library may differ in the last bits."""

from collections.abc import Mapping
from typing import Any

import numpy as np

DIGITS = 6


def rounded(value: Any) -> Any:
    """`value` as plain JSON types, with every float rounded to DIGITS."""
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return rounded(value.tolist())
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return round(value, DIGITS) if isinstance(value, float) else value
