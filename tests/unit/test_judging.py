"""The judge of answers, with the real client against a stand-in: both orders, what it asks for, and its figures."""

import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from openai_server import KEY, OpenAIServer
from reprolora import chat_endpoint
from reprolora.answer_store import AnswerStore
from reprolora.chat_endpoint import ChatEndpoint
from reprolora.configuration import Judge
from reprolora.errors import UserError
from reprolora.files import sha256_of, write_json, write_jsonl
from reprolora.judging import Judgement, Pair, agreement, judge_pair, sample_pairs, summarize

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server():
    with OpenAIServer().running() as running:
        yield running


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(chat_endpoint, "FIRST_PAUSE", 0.001)


def settings(server: OpenAIServer, **changes) -> dict:
    given = {"model": "gpt", "base_url": server.url, "tries": 2, "timeout": 5}
    return Judge(**given | changes).model_dump(exclude={"labels"})


def endpoint(server: OpenAIServer, folder: Path, **changes) -> ChatEndpoint:
    return ChatEndpoint(settings(server, **changes), "answers.judge", AnswerStore(folder), {"OPENAI_API_KEY": KEY})


def arm(method: str = "lora", seed: int = 1) -> dict:
    return {"model": "tiny", "method": method, "seed": seed}


def row(name: str, answer: str) -> dict:
    known = {
        "id": name,
        "document": "d.md",
        "instruction": f"What is {name}?",
        "input": "",
        "reference": f"It is {name}.",
    }
    return known | {"reference": f"It is {name}.", "answer": answer}


def pair(before: str, after: str, name: str = "x") -> Pair:
    return Pair(arm(), row(name, after), before)


@pytest.mark.parametrize(
    ("before", "after", "better", "expected", "verdict"),
    [
        ("short", "a longer one", None, ("win", "win"), "win"),
        ("a longer one", "short", None, ("loss", "loss"), "loss"),
        ("one", "two", None, ("tie", "tie"), "tie"),
        # A judge that always likes the first place, or sometimes: no verdict that both orders share.
        ("one", "two", lambda a, b: "A", ("loss", "win"), "tie"),
        ("one", "two", lambda a, b: "B" if b == "two" else "tie", ("win", "tie"), "tie"),
    ],
)
def test_a_verdict_counts_when_both_orders_share_it(server, tmp_path, before, after, better, expected, verdict):
    server.better = better or server.better
    found = judge_pair(pair(before, after), endpoint(server, tmp_path))
    assert (found.before_first, found.after_first) == expected and found.verdict == verdict
    first, second = (body["messages"][1]["content"] for body in server.requests)
    for asked, a, b in ((first, before, after), (second, after, before)):
        assert f"<answer_A>\n{a}\n</answer_A>" in asked and f"<answer_B>\n{b}\n</answer_B>" in asked
        assert "<question>\nWhat is x?\n</question>" in asked and "<reference>\nIt is x.\n</reference>" in asked
    schema = server.requests[0]["response_format"]["json_schema"]
    assert schema["strict"] and schema["schema"]["properties"]["better"]["enum"] == ["A", "B", "tie"]


def test_equal_answers_are_a_tie_that_nobody_is_asked_about(server, tmp_path):
    assert judge_pair(pair("the same", "the  same\n"), endpoint(server, tmp_path)).verdict == "tie"
    assert not server.requests


def test_what_was_answered_is_never_asked_again(server, tmp_path):
    for _ in range(2):
        judge_pair(pair("one", "another"), endpoint(server, tmp_path))
    assert server.answered == 2
    judge_pair(pair("one", "yet another"), endpoint(server, tmp_path))
    judge_pair(pair("one", "another"), endpoint(server, tmp_path, instructions="Be strict."))
    assert server.answered == 6


def test_a_malformed_comparison_is_asked_again_and_a_refusal_leaves_the_pair_unjudged(server, tmp_path):
    server.script = ["malformed", "ok", "ok", "refusal"]
    assert judge_pair(pair("one", "another"), endpoint(server, tmp_path)).verdict == "win"
    refused = judge_pair(pair("one", "yet another"), endpoint(server, tmp_path))
    assert refused == Judgement(None, None, "refused: I will not.") and refused.verdict is None


def test_the_budget_is_the_judge_s(server, tmp_path):
    asking = endpoint(server, tmp_path, budget={"requests": 2})
    judge_pair(pair("one", "another"), asking)
    with pytest.raises(UserError, match=r"budget of 2 requests is spent; raise answers\.judge\.budget\.requests"):
        judge_pair(pair("one", "yet another"), asking)
    server.script = ["404"]
    with pytest.raises(UserError, match=r"check answers\.judge\.model and answers\.judge\.base_url"):
        judge_pair(pair("one", "yet another"), endpoint(server, tmp_path))


def answers(method: str, count: int, seed: int = 1) -> tuple[dict, list[dict]]:
    return {"arm": arm(method, seed)}, [row(str(n), f"{method} {n}") for n in range(count)]


def test_every_arm_is_judged_on_the_same_rows_whatever_their_order():
    arms = [answers("zero-shot", 30), answers("lora", 30), answers("lora", 30, seed=2), answers("qlora", 30)]
    pairs = sample_pairs(arms, "zero-shot", 7, 1)
    names = [[p.row["id"] for p in pairs[start : start + 7]] for start in (0, 7, 14)]
    assert len(pairs) == 21 and names[0] == names[1] == names[2]
    assert all(p.before == f"zero-shot {p.row['id']}" and p.after == f"{p.arm['method']} {p.row['id']}" for p in pairs)
    shuffled = [(metrics, random.Random(0).sample(rows, 30)) for metrics, rows in arms]
    assert sample_pairs(shuffled, "zero-shot", 7, 1) == pairs
    assert [p.row["id"] for p in sample_pairs(arms, "zero-shot", 7, 2)[:7]] != names[0]
    assert len(sample_pairs(arms, "zero-shot", 99, 1)) == 90
    assert sample_pairs(arms[1:], "zero-shot", 7, 1) == []  # the arm to compare with has failed


def test_the_figures_of_an_arm():
    # Eight wins, one tie that both orders share, one that they do not, one pair unjudged.
    found = [Judgement("win", "win", "")] * 8 + [Judgement("tie", "tie", ""), Judgement("win", "loss", "")]
    judged = [(pair("old", f"new {n}", str(n)), one) for n, one in enumerate([*found, Judgement(None, None, "no")])]
    labels = {("0", "old", "new 0"): "win", ("8", "old", "new 8"): "win", ("10", "old", "new 10"): "win"}
    [line] = summarize(judged, labels, "gpt")
    # Wilson: (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) for p = 0.8, n = 10, z = 1.959964.
    assert (line.pop("win_rate_low"), line.pop("win_rate_high")) == pytest.approx((0.490162, 0.943318), abs=1e-6)
    assert line == {
        **arm(),
        **{"judge": "gpt", "n": 10, "wins": 8, "ties": 2, "losses": 0, "unjudged": 1},
        **{"inconsistent": 0.1, "win_rate": 0.8, "labelled": 2, "agreement": 0.5, "kappa": 0.0},
    }


def test_agreement_with_a_person():
    # Two readers of 50 proposals: both yes 20, both no 15, the first alone 5, the second alone 10. Chance gives
    # 0.5 * 0.6 + 0.5 * 0.4 = 0.5, so kappa is (0.7 - 0.5) / (1 - 0.5).
    both = [("win", "win")] * 20 + [("win", "loss")] * 5 + [("loss", "win")] * 10 + [("loss", "loss")] * 15
    assert agreement(both) == {"agreement": 0.7, "kappa": pytest.approx(0.4)}
    assert agreement([("win", "win")] * 3) == {"agreement": 1.0, "kappa": None}
    assert agreement([]) == {"agreement": None, "kappa": None}


def run(server: OpenAIServer, folder: Path, *more: str, **changes) -> subprocess.CompletedProcess:
    files = []
    for method, text in (("zero-shot", "short"), ("lora", "a longer answer"), ("qlora", "short")):
        here = folder / method
        write_jsonl(here / "predictions.jsonl", [row(str(n), f"{text}, NA") for n in range(4)])
        digest = sha256_of(here / "predictions.jsonl")
        write_json(here / "metrics.json", {"arm": arm(method), "predictions_sha256": digest})
        files.append(str(here / "metrics.json"))
    given = json.dumps({"judge": settings(server, **changes), "before": "zero-shot"})
    command = [sys.executable, str(ROOT / "scripts/judge_answers.py"), "--metrics", *files, "--settings", given, *more]
    for name in ("answers", "table", "verdicts"):
        command += [f"--{name}", str(folder / name)]
    return subprocess.run(command, env=os.environ | {"OPENAI_API_KEY": KEY}, capture_output=True, text=True)


def table(file: Path) -> list[dict]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_script_writes_the_table_and_verdicts_that_a_person_can_fill_in(server, tmp_path):
    done = run(server, tmp_path, rows=3)
    assert done.returncode == 0, done.stderr
    lora, qlora = table(tmp_path / "table")
    assert (lora["method"], lora["n"], lora["wins"], lora["win_rate"], lora["labelled"]) == (
        "lora",
        "3",
        "3",
        "1.0",
        "0",
    )
    assert (qlora["method"], qlora["n"], qlora["ties"], qlora["kappa"]) == ("qlora", "3", "3", "")
    assert server.answered == 6
    lines = table(tmp_path / "verdicts")
    assert len(lines) == 6 and lines[0]["before"] == "short, NA" and lines[0]["label"] == ""
    for line, label in zip(lines, ("win", "Loss", "", "", "tie", ""), strict=True):
        line["label"] = label
    with (tmp_path / "labels.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    assert run(server, tmp_path, "--labels", str(tmp_path / "labels.csv"), rows=3).returncode == 0
    lora, qlora = table(tmp_path / "table")
    assert (lora["labelled"], lora["agreement"], qlora["labelled"], qlora["agreement"]) == ("2", "0.5", "1", "1.0")
    assert server.answered == 6, "labels ask nothing again"
    assert not any(KEY.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_a_label_that_is_none_is_named(server, tmp_path):
    (tmp_path / "labels.csv").write_text("id,before,after,label\n1,a,b,\n2,a,b,better\n")
    done = run(server, tmp_path, "--labels", str(tmp_path / "labels.csv"))
    assert done.returncode == 2
    assert "labels.csv:3: label 'better' is none of win, tie and loss" in done.stderr
