"""What documents and their chunks are, between the steps that make them."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Document:
    """A converted document: its path in the folder, its Markdown (or plain text), and the sha256 of its bytes."""

    name: str
    format: str
    encoding: str | None
    sha256: str
    text: str


@dataclass(frozen=True)
class Chunk:
    """A range `start` to `end` (characters) of a document's text, under the headings that lead to it, outermost first.

    `id` follows from the document's name, the headings and the text, so that it outlives changes elsewhere.
    """

    id: str
    document: str
    headings: tuple[str, ...]
    start: int
    end: int
    tokens: int
    text: str


def as_row(chunk: Chunk) -> dict[str, Any]:
    return asdict(chunk) | {"headings": list(chunk.headings)}


def from_row(row: dict[str, Any]) -> Chunk:
    return Chunk(**row | {"headings": tuple(row["headings"])})
