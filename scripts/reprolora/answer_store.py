"""Answers of a generator on disk, by the content of the request: what was asked once is never asked again."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reprolora.files import canonical_json, write_json


class AnswerStore:
    """A folder with one file for each answer, named by its request.

    An answer is written as it comes, under another name first, so that a run that is killed leaves only whole ones.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def get(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a request, if there is one."""
        try:
            return json.loads(self._file(request).read_text(encoding="utf-8"))["answer"]
        except FileNotFoundError:
            return None

    def put(self, request: dict[str, Any], answer: dict[str, Any]) -> None:
        write_json(self._file(request), {"request": request, "answer": answer})

    def answers(self) -> Iterator[dict[str, Any]]:
        """Every answer in the store."""
        for file in self.folder.glob("*/[!.]*.json"):
            yield json.loads(file.read_text(encoding="utf-8"))["answer"]

    def _file(self, request: dict[str, Any]) -> Path:
        name = hashlib.sha256(canonical_json(request).encode()).hexdigest()
        return self.folder / name[:2] / f"{name}.json"
