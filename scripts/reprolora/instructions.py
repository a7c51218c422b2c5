"""Instruction data from elsewhere: Alpaca, ShareGPT and `messages` files, recognised, checked and brought to one form.

A row has `instruction`, `input` and `output`; a conversation gives a row for each answer, with the turns before it as
`history` (pairs of question and answer) and its system message as `system`. Files are read record by record, so that a
million rows take no memory.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reprolora.errors import UserError
from reprolora.tables import DataFile

READ = 1 << 20  # characters
LONGEST_RECORD = 1 << 26
ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
}
NAMED = 5  # malformed rows that a message names


class Malformed(Exception):
    """A record that is no instruction with its answer; says why."""


@dataclass(frozen=True)
class Form:
    """What a kind of file calls its conversation, and in it the speaker and what is said; Alpaca has none."""

    turns: str | None
    role: str = ""
    content: str = ""


FORMS = {
    "alpaca": Form(None),
    "sharegpt": Form("conversations", "from", "value"),
    "messages": Form("messages", "role", "content"),
}


def read_instructions(file: DataFile, part: str) -> Iterator[dict[str, Any]]:
    """The rows of a file: id, instruction, input, output, source, document, chunk, part; and system, history.

    Raises:
        UserError: at the end, if records were malformed; names the first of them by their place.
    """
    malformed: list[str] = []
    wrong, number, form = 0, 0, None
    for number, (place, record) in enumerate(_records(file), 1):
        try:
            if isinstance(record, Malformed):
                raise record
            form = form or _recognise(record)
            rows = list(_rows(record, form))
        except Malformed as error:
            wrong += 1
            if wrong <= NAMED:
                malformed.append(f"{place}: {error}")
            continue
        identity = str(number) if part == "all" else f"{part}-{number}"
        source = record.get("source")
        for turn, row in enumerate(rows, 1):
            yield {
                "id": identity if len(rows) == 1 else f"{identity}.{turn}",
                **row,
                "source": source if isinstance(source, str) else place,
                "document": source if isinstance(source, str) else file.path.name,
                "chunk": identity,
                "part": part,
            }
    if wrong:
        more = f"; and {wrong - NAMED} more" if wrong > NAMED else ""
        raise UserError(f"{wrong} of {number} rows are malformed: {'; '.join(malformed)}{more}; mend or remove them")
    if not number:
        raise UserError(f"{file.name}: no rows; give JSON Lines, or one JSON list")


# Records


def _records(file: DataFile) -> Iterator[tuple[str, Any]]:
    """Every record with its place: of a JSON list its number in it, of JSON Lines its line."""
    try:
        with file.path.open(encoding="utf-8-sig") as stream:
            start = stream.read(READ).lstrip()[:1]
            stream.seek(0)
            yield from _list_items(file, stream) if start == "[" else _lines(file, stream)
    except UnicodeDecodeError as error:
        raise UserError(f"{file.name}: not UTF-8 ({error.reason}); convert it, for example with iconv") from None


def _lines(file: DataFile, stream) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            try:
                yield f"{file.name}:{number}", json.loads(line)
            except (ValueError, RecursionError):
                yield f"{file.name}:{number}", Malformed("not JSON")


def _list_items(file: DataFile, stream) -> Iterator[tuple[str, Any]]:
    """The items of a JSON list, decoded one by one."""
    decoder = json.JSONDecoder()
    text, at, number, ended = stream.read(READ).lstrip("\ufeff \n\r\t"), 1, 0, False
    while True:
        at = _skip(text, at, " \n\r\t,") if number else _skip(text, at, " \n\r\t")
        if at < len(text) and text[at] == "]":
            return
        try:
            item, end = decoder.raw_decode(text, at)
            # A number at the end of what was read could go on; records are objects, so that this is one to refuse.
            number += 1
            yield f"{file.name}: row {number}", item
            at = end
        except (ValueError, RecursionError):
            if ended or len(text) - at > LONGEST_RECORD:
                raise UserError(
                    f"{file.name}: row {number + 1}: the JSON list is broken here; mend it, or give JSON Lines"
                ) from None
            more = stream.read(READ)
            ended = not more
            text, at = text[at:] + more, 0


def _skip(text: str, at: int, characters: str) -> int:
    while at < len(text) and text[at] in characters:
        at += 1
    return at


# Forms


def _recognise(record: Any) -> Form:
    if isinstance(record, dict):
        for form in FORMS.values():
            if form.turns in record or (form.turns is None and {"instruction", "output"} <= record.keys()):
                return form
    raise Malformed(
        "neither Alpaca (instruction, output) nor ShareGPT (conversations) nor messages"
        + (f"; it has {', '.join(map(str, list(record)[:8]))}" if isinstance(record, dict) else "")
    )


def _rows(record: Any, form: Form) -> Iterator[dict[str, Any]]:
    if not isinstance(record, dict):
        raise Malformed("not a JSON object")
    if form.turns is None:
        yield _alpaca_row(record)
        return
    system, turns = _turns(record, form)
    history: list[list[str]] = []
    for question, answer in turns:
        row: dict[str, Any] = {"instruction": question, "input": "", "output": answer}
        row |= ({"system": system} if system else {}) | ({"history": list(history)} if history else {})
        yield row
        history.append([question, answer])


def _alpaca_row(record: dict[str, Any]) -> dict[str, Any]:
    row = {
        "instruction": _text(record, "instruction"),
        "input": _text(record, "input", required=False),
        "output": _text(record, "output"),
    }
    if system := _text(record, "system", required=False):
        row["system"] = system
    if history := record.get("history"):
        pairs = history if isinstance(history, list) else [None]
        if not all(isinstance(pair, list) and [*map(type, pair)] == [str, str] for pair in pairs):
            raise Malformed("history is not a list of [question, answer]")
        row["history"] = history
    return row


def _turns(record: dict[str, Any], form: Form) -> tuple[str, list[tuple[str, str]]]:
    """The system message, and the pairs of question and answer."""
    turns = record.get(form.turns)
    if not isinstance(turns, list) or not turns:
        raise Malformed(f"no list {form.turns}")
    said = []
    for number, turn in enumerate(turns, 1):
        role = turn.get(form.role) if isinstance(turn, dict) else None
        if role not in ROLES:
            raise Malformed(f"turn {number}: {form.role} is {role!r}, none of {', '.join(ROLES)}")
        try:
            said.append((ROLES[role], _text(turn, form.content)))
        except Malformed as error:
            raise Malformed(f"turn {number}: {error}") from None
    system = "\n\n".join(text for role, text in said if role == "system")
    spoken = [(role, text) for role, text in said if role != "system"]
    if len(spoken) % 2 or any(role != ("user", "assistant")[place % 2] for place, (role, _) in enumerate(spoken)):
        raise Malformed("user and assistant do not take turns, beginning with the user and ending with the assistant")
    if not spoken:
        raise Malformed("nobody asks or answers")
    return system, [(spoken[at][1], spoken[at + 1][1]) for at in range(0, len(spoken), 2)]


def _text(record: dict[str, Any], key: str, required: bool = True) -> str:
    value = record.get(key)
    if value is None and not required:
        return ""
    if not isinstance(value, str):
        raise Malformed(f"no {key}" if value is None else f"{key} is not text")
    if required and not value.strip():
        raise Malformed(f"empty {key}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed(f"half of a surrogate pair in {key}") from None
    return value
