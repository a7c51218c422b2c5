"""Faults: what is wrong at which key, the error that says so, and the words that all messages share."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel

from reprolora.errors import UserError

# The keys and positions that lead to a value.
KeyPath = tuple[str | int, ...]


class Fault(BaseModel):
    """What is wrong, and the path of the key."""

    path: KeyPath
    message: str


class ConfigurationError(UserError):
    """One or more faults; `lines` has one line for each."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = list(lines)


def dotted(path: KeyPath) -> str:
    """A path as messages show it."""
    return ".".join(map(str, path))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one was probably meant to be."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message: the nearest known name, or nothing."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def kind_of(value: Any) -> str:
    """What a value is, in the words of YAML."""
    if value is None:
        return "empty"
    return {dict: "`key: value` lines", list: "a list", str: f"the text {value!r}"}.get(type(value), repr(value))
