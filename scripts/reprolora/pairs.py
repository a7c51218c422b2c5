"""Pairs of question and answer, each with the chunk that it was made from.

A generator gives the questions and answers of one chunk. Pairs that a reviewer rejected go back to it: it is asked
again, in another attempt, for as many as were rejected. A pair is known by its content, so that what a reviewer
said of it holds as long as it reads the same, and no longer.
"""

import hashlib
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from reprolora.corpus import Chunk
from reprolora.errors import UserError
from reprolora.files import write_json, write_jsonl


@dataclass(frozen=True)
class Draft:
    """A question and its answer, as a generator gives them."""

    question: str
    answer: str


class Generator(Protocol):
    """Makes drafts from a chunk. `attempts` is how often a rejected pair can be asked for, the first time included."""

    attempts: int

    def drafts(self, chunk: Chunk, attempt: int, rejected: Sequence[Draft], wanted: int) -> list[Draft]:
        """The drafts of a chunk; in a later `attempt`, as many as are `wanted` in place of `rejected` ones."""


@dataclass(frozen=True)
class Pair:
    """A question and answer about a chunk.

    `support` is the share of the answer's words that the chunk has; `attempt` counts from 0; a `rejected` pair is no
    longer part of the data, and stays on record.
    """

    id: str
    document: str
    chunk: str
    instruction: str
    output: str
    attempt: int
    support: float
    rejected: bool

    def row(self) -> dict[str, Any]:
        return asdict(self)


def make_pairs(chunk: Chunk, generator: Generator, rejected: Collection[str]) -> list[Pair]:
    """The pairs of one chunk, those that replace rejected ones after them. `rejected` are ids of pairs."""
    pairs: list[Pair] = []
    for attempt in range(generator.attempts):
        wanted = sum(pair.rejected and pair.attempt == attempt - 1 for pair in pairs)
        if attempt and not wanted:
            break
        bad = [Draft(pair.instruction, pair.output) for pair in pairs if pair.rejected]
        known = {pair.id for pair in pairs}
        for draft in generator.drafts(chunk, attempt, bad, wanted):
            identity = _identity(chunk, draft)
            if identity not in known:
                known.add(identity)
                share = round(support(draft.answer, chunk.text), 4)
                pairs.append(
                    Pair(
                        identity,
                        chunk.document,
                        chunk.id,
                        draft.question,
                        draft.answer,
                        attempt,
                        share,
                        identity in rejected,
                    )
                )
    return pairs


def _identity(chunk: Chunk, draft: Draft) -> str:
    text = "\0".join([chunk.document, chunk.text, draft.question, draft.answer])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def support(answer: str, source: str) -> float:
    """The share of the answer's words that the source has; 1 for an answer without any.

    Words of four letters and more count and all numbers, without endings (their first six letters); of scripts that do
    not separate words, every two neighbouring characters.
    """
    terms = list(_terms(answer))
    known = set(_terms(source))
    return sum(term in known for term in terms) / len(terms) if terms else 1.0


# Han, kana, and the scripts of South-East Asia.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"


def _terms(text: str) -> Iterator[str]:
    text = text.casefold()
    for run in re.findall(f"[{UNSPACED}]+", text):
        yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))
    for word in re.findall(r"[^\W_]+", re.sub(f"[{UNSPACED}]+", " ", text)):
        if len(word) >= 4 or word.isdigit():
            yield word[:6]


def write_pairs(
    path: Path, summary: Path, chunks: Sequence[Chunk], pairs: Sequence[Pair], facts: dict[str, Any]
) -> None:
    """Write the pairs, and beside them what was made of how many chunks.

    Raises:
        UserError: there is not one pair.
    """
    kept = [pair for pair in pairs if not pair.rejected]
    if not kept:
        failures = facts.get("failures", {})
        reason = f"; the first of {len(failures)} failures: {next(iter(failures.values()))}" if failures else ""
        raise UserError(f"no questions from {len(chunks)} chunks{reason}; try another generator")
    replaced = {pair.chunk for pair in kept if pair.attempt}
    lost = [pair for pair in pairs if pair.rejected and pair.chunk not in replaced]
    for pair in lost:
        logging.info("%s: dropped, since it was rejected and nothing replaces it: %s", pair.document, pair.instruction)
    asked_about = {pair.document for pair in kept}
    silent = [name for name in dict.fromkeys(chunk.document for chunk in chunks) if name not in asked_about]
    if silent:
        logging.warning("no questions from %d documents: %s", len(silent), ", ".join(silent))
    write_jsonl(path, (pair.row() for pair in pairs))
    write_json(
        summary,
        {
            "pairs": len(kept),
            "rejected": len(pairs) - len(kept),
            "replacements": sum(pair.attempt > 0 for pair in kept),
            "chunks_without_pairs": len(chunks) - len({pair.chunk for pair in kept}),
            "documents_without_pairs": silent,
            **facts,
        },
    )
