"""What is said to a language model that writes questions and answers, and how its answer is read."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from reprolora.corpus import Chunk
from reprolora.pairs import Draft
from reprolora.structured import Malformed, read_form


class _Item(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    question: str = Field(min_length=1)
    answer: str = Field(min_length=1)


class Answer(BaseModel):
    """The form of a model's answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    pairs: list[_Item]


def messages(
    chunk: Chunk, settings: dict[str, Any], rejected: Sequence[Draft] = (), wanted: int = 0
) -> list[dict[str, str]]:
    """The chat messages that ask for the pairs of a chunk, or for as many as are `wanted` in place of rejected ones."""
    count = wanted or settings["pairs_per_chunk"]
    about = f" The documents are about {settings['subject']}." if settings["subject"] else ""
    task = (
        f"Write {count} question{'s' * (count > 1)} with answers, as JSON: "
        '{"pairs": [{"question": "...", "answer": "..."}]}. Nothing else.'
    )
    if rejected:
        turned_down = "\n".join(f"- {draft.question}" for draft in rejected)
        task += f"\n\nA reviewer rejected these, so write others, or answer them better:\n{turned_down}"
    place = " > ".join([chunk.document, *chunk.headings])
    return [
        {"role": "system", "content": settings["instructions"] + about},
        {"role": "user", "content": f"{task}\n\nText from {place}:\n\n{chunk.text}"},
    ]


def parse_answer(text: str | None) -> list[Draft]:
    """The drafts in a model's answer.

    Raises:
        Malformed: the answer is not that JSON.
    """
    items = read_form(text, Answer).pairs
    drafts = [Draft(item.question.strip(), item.answer.strip()) for item in items]
    if not drafts or not all(draft.question and draft.answer for draft in drafts):
        raise Malformed("no questions, or empty ones")
    return drafts
