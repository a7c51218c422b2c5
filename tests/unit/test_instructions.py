"""Instruction files of every form, their malformed rows, and the splits."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from reprolora import instructions
from reprolora.errors import UserError
from reprolora.instructions import read_instructions
from reprolora.tables import DataFile

ROOT = Path(__file__).parents[2]
ALPACA = {"instruction": "Name a pump.", "input": "", "output": "Screw pump."}
SHAREGPT = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}
MESSAGES = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}


def read(tmp_path: Path, text: str, part: str = "all") -> list[dict]:
    (tmp_path / "rows.json").write_text(text, encoding="utf-8")
    return list(read_instructions(DataFile(tmp_path / "rows.json", "rows.json"), part))


def lines(*records) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def test_alpaca(tmp_path):
    more = {"instruction": "Add.", "input": "1, 2", "output": "3", "source": "sums.pdf", "system": "Be brief."}
    first, second = read(tmp_path, lines(ALPACA, more))
    assert first == ALPACA | {"id": "1", "source": "rows.json:1", "document": "rows.json", "chunk": "1", "part": "all"}
    assert second == more | {"id": "2", "document": "sums.pdf", "chunk": "2", "part": "all"}


@pytest.mark.parametrize("form", [SHAREGPT, MESSAGES], ids=["ShareGPT", "messages"])
def test_a_conversation_gives_a_row_for_each_answer(tmp_path, form):
    [(key, turns)] = form.items()
    role, content = turns[0]
    said = [
        ("system", "Be kind."),
        (turns[0][role], "A"),
        (turns[1][role], "B"),
        (turns[0][role], "C"),
        (turns[1][role], "D"),
    ]
    rows = read(tmp_path, lines({key: [{role: who, content: text} for who, text in said]}, form))
    assert [(row["id"], row["instruction"], row["output"], row["chunk"]) for row in rows] == [
        ("1.1", "A", "B", "1"),
        ("1.2", "C", "D", "1"),
        ("2", "Hi", "Hello", "2"),
    ]
    assert rows[0]["system"] == rows[1]["system"] == "Be kind." and "system" not in rows[2]
    assert rows[1]["history"] == [["A", "B"]] and "history" not in rows[0]


@pytest.mark.parametrize("read_at_once", [1 << 20, 7])
def test_a_json_list_gives_the_same_as_lines(tmp_path, monkeypatch, read_at_once):
    monkeypatch.setattr(instructions, "READ", read_at_once)
    records = [ALPACA | {"output": text} for text in ('One, "two" ]', "漢字 {", "three\n")]
    from_list = read(tmp_path, "\ufeff \n" + json.dumps(records, indent=1, ensure_ascii=False))
    from_lines = read(tmp_path, lines(*records))
    assert (
        [row["output"] for row in from_list] == [row["output"] for row in from_lines] == [r["output"] for r in records]
    )
    assert [row["source"] for row in from_list] == [f"rows.json: row {n}" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("{broken", "not JSON"),
        ("[1]", "not a JSON object"),
        (ALPACA | {"output": None}, "no output"),
        (ALPACA | {"output": "  "}, "empty output"),
        (ALPACA | {"input": 3}, "input is not text"),
        (ALPACA | {"instruction": "\ud800"}, "half of a surrogate pair in instruction"),
        (ALPACA | {"history": [["only a question"]]}, "history is not a list of [question, answer]"),
    ],
)
def test_malformed_rows_are_named_and_all_are_counted(tmp_path, record, reason):
    bad = record + "\n" if isinstance(record, str) else json.dumps(record) + "\n"
    with pytest.raises(UserError) as error:
        read(tmp_path, lines(ALPACA) + bad + lines(ALPACA) + bad)
    assert str(error.value).startswith(f"2 of 4 rows are malformed: rows.json:2: {reason}; rows.json:4: {reason}; mend")


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([], "no list conversations"),
        ([{"from": "gpt", "value": "Hi"}], "user and assistant do not take turns"),
        ([{"from": "human", "value": "Hi"}], "user and assistant do not take turns"),
        ([{"from": "robot", "value": "Hi"}], "turn 1: from is 'robot', none of system, human"),
        ([{"from": "human"}, {"from": "gpt", "value": "x"}], "turn 1: no value"),
        ([{"from": "system", "value": "Hi"}], "nobody asks or answers"),
    ],
)
def test_malformed_conversations(tmp_path, turns, reason):
    with pytest.raises(UserError, match="1 of 2 rows are malformed") as error:
        read(tmp_path, lines(SHAREGPT, {"conversations": turns}))
    assert f"rows.json:2: {reason}" in str(error.value)


def test_other_files(tmp_path):
    with pytest.raises(UserError, match=r"neither Alpaca .* nor messages; it has text, label"):
        read(tmp_path, lines({"text": "x", "label": "y"}))
    with pytest.raises(UserError, match="no rows"):
        read(tmp_path, "\n")
    with pytest.raises(UserError, match="row 2: the JSON list is broken here"):
        read(tmp_path, json.dumps([ALPACA, ALPACA])[:-20])
    (tmp_path / "latin").write_bytes(b'{"instruction": "\xe9"}')
    with pytest.raises(UserError, match="not UTF-8"):
        list(read_instructions(DataFile(tmp_path / "latin", "latin"), "all"))


# Splits


def rows(count: int = 400, part: str = "all", prefix: str = "") -> list[dict]:
    return [
        {
            "id": f"{prefix}{n}",
            "instruction": f"{prefix}What does part {n} do?",
            "input": "",
            "output": f"It does {n}.",
            "source": "s",
            "document": f"{prefix}d{n // 20}",
            "chunk": f"{prefix}c{n // 4}",
            "part": part,
        }
        for n in range(count)
    ]


def split(tmp_path: Path, rows: list[dict], **settings):
    settings = {"seed": 1, "train": 0.8, "validation": 0.1, "test": 0.1, "group": "pair"} | settings
    settings["limits"] = {"train": None, "validation": None, "test": None} | settings.get("limits", {})
    (tmp_path / "rows.jsonl").write_text(lines(*rows), encoding="utf-8")
    names = ("train", "validation", "test")
    command = [sys.executable, str(ROOT / "scripts/split_instructions.py"), "--rows", str(tmp_path / "rows.jsonl")]
    command += ["--settings", json.dumps(settings), "--summary", str(tmp_path / "summary.json")]
    for name in names:
        command += [f"--{name}", str(tmp_path / f"{name}.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(done.stderr)
    texts = {name: (tmp_path / f"{name}.jsonl").read_text() for name in names}
    made = {name: list(map(json.loads, text.splitlines())) for name, text in texts.items()}
    return made, json.loads((tmp_path / "summary.json").read_text()), texts


def test_eight_to_one_to_one_whatever_the_order_of_the_rows(tmp_path):
    made, summary, texts = split(tmp_path, rows())
    assert summary["rows"] == {"train": 320, "validation": 40, "test": 40}
    assert sorted(row["id"] for some in made.values() for row in some) == sorted(row["id"] for row in rows())
    assert all("part" not in row for row in made["train"])
    shuffled = rows()
    random.Random(5).shuffle(shuffled)
    assert split(tmp_path, shuffled)[2] == texts
    assert split(tmp_path, rows(), seed=2)[2] != texts
    fewer = split(tmp_path, rows(), limits={"train": 10, "test": 5})[2]
    assert texts["train"].startswith(fewer["train"]) and fewer["train"].count("\n") == 10
    assert fewer["validation"] == texts["validation"] and texts["test"].startswith(fewer["test"])


@pytest.mark.parametrize(("group", "size"), [("chunk", 4), ("document", 20)])
def test_groups_stay_together(tmp_path, group, size):
    made, summary, _ = split(tmp_path, rows(), group=group)
    of = {name: {row[group] for row in some} for name, some in made.items()}
    assert not of["train"] & of["test"] and not of["train"] & of["validation"] and not of["validation"] & of["test"]
    assert summary["rows"] == {"train": 320, "validation": 40, "test": 40}
    assert summary["groups"] == {"train": 320 // size, "validation": 40 // size, "test": 40 // size}


def test_equal_instructions_are_never_in_two_splits(tmp_path):
    twice = [
        *rows(100),
        *(row | {"id": f"x{row['id']}", "instruction": f" {row['instruction'].upper()} "} for row in rows(100)),
    ]
    made, _, _ = split(tmp_path, twice)
    where = [{row["instruction"].strip().lower() for row in some} for some in made.values()]
    assert not where[0] & where[1] and not where[0] & where[2] and not where[1] & where[2]
    assert sum(map(len, made.values())) == 200
    # By document, the twins are in documents of their own: train yields to test.
    other = [row | {"document": f"other {row['document']}"} if row["id"].startswith("x") else row for row in twice]
    made, summary, _ = split(tmp_path, other, group="document", test=0.3, validation=0.2, train=0.5)
    where = [{row["instruction"].strip().lower() for row in some} for some in made.values()]
    assert not where[0] & where[1] and not where[0] & where[2] and not where[1] & where[2]
    assert sum(summary["removed"].values()) == 200 - sum(map(len, made.values())) > 0


def test_a_conversation_stays_in_one_split(tmp_path):
    turns = [
        row | {"id": f"{row['id']}.2", "instruction": "And then?", "history": [[row["instruction"], "It does."]]}
        for row in rows(100)
    ]
    made, _, _ = split(tmp_path, [*rows(100), *turns])
    for some in made.values():
        assert {row["id"].removesuffix(".2") for row in some if ".2" in row["id"]} == {
            row["id"] for row in some if ".2" not in row["id"]
        }


def test_nearly_equal_instructions_on_both_sides_are_reported(tmp_path):
    made, summary, _ = split(tmp_path, rows(100))
    assert summary["near_duplicates"]["test"]["rows"] == 0
    held_out = made["test"][0]["instruction"]
    n = held_out.split()[3]
    near = rows(1)[0] | {"id": "near", "instruction": f"do: what does PART {n}"}
    for seed in range(20):  # until they are on both sides
        made, summary, _ = split(tmp_path, [*rows(100), near], seed=seed)
        sides = {name: {row["id"] for row in some} & {n, "near"} for name, some in made.items()}
        if len(sides["train"]) == len(sides["test"]) == 1:
            break
    assert summary["near_duplicates"]["test"]["rows"] == 1
    assert sorted(summary["near_duplicates"]["test"]["examples"][0]) == sorted([held_out, near["instruction"]])


def test_splits_of_their_own(tmp_path):
    data = [*rows(50, "train", "a"), *rows(10, "test", "b"), rows(1, "train", "b")[0] | {"id": "leak"}]
    made, summary, _ = split(tmp_path, data, train=None, test=None, validation=0.2)
    assert summary["rows"]["test"] == 10 and summary["rows"]["validation"] in (9, 10, 11)
    assert sum(summary["rows"].values()) == 60 and sum(summary["removed"].values()) == 1
    assert "leak" not in {row["id"] for some in made.values() for row in some}


def test_too_few_rows(tmp_path):
    with pytest.raises(
        UserError, match=r"split: (test|validation|train) gets no rows: 40 rows in 2 groups are too few"
    ):
        split(tmp_path, rows(40), group="document")
