"""Questions from an endpoint, with the real client against a stand-in: what it asks, keeps, pays, and says."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from openai_server import KEY, OpenAIServer
from reprolora import chat_endpoint
from reprolora.answer_store import AnswerStore
from reprolora.chat_endpoint import ChatEndpoint
from reprolora.configuration import Generator
from reprolora.corpus import Chunk, as_row
from reprolora.errors import UserError
from reprolora.openai_questions import OpenAIQuestions
from reprolora.pairs import make_pairs

ROOT = Path(__file__).parents[2]


def chunk(number: int) -> Chunk:
    text = f"Pump number {number} needs its oil changed after {100 + number} hours."
    return Chunk(f"chunk{number}", f"doc{number}.md", ("Pumps", f"Oil {number}"), 0, len(text), 9, text)


@pytest.fixture
def server():
    with OpenAIServer().running() as running:
        yield running


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(chat_endpoint, "FIRST_PAUSE", 0.001)


def settings(server: OpenAIServer, **changes) -> dict:
    given = {"kind": "openai", "model": "gpt", "base_url": server.url, "pairs_per_chunk": 2, "tries": 3, "timeout": 5}
    return Generator(**given | changes).model_dump(exclude={"precision"})


def generator(server: OpenAIServer, folder: Path, key: str = KEY, **changes) -> OpenAIQuestions:
    environment = {"OPENAI_API_KEY": key}
    return OpenAIQuestions(ChatEndpoint(settings(server, **changes), "generator", AnswerStore(folder), environment))


def test_the_request_is_a_chat_completion_with_a_strict_schema(server, tmp_path):
    pairs = make_pairs(chunk(1), generator(server, tmp_path, subject="pumps"), ())
    [body] = server.requests
    assert body["model"] == "gpt" and body["temperature"] == 0 and body["max_completion_tokens"] == 1024
    schema = body["response_format"]["json_schema"]
    assert schema["strict"] and schema["schema"]["additionalProperties"] is False
    assert schema["schema"]["required"] == ["pairs"]
    system, user = body["messages"]
    assert "The documents are about pumps." in system["content"]
    assert user["content"].endswith("Text from doc1.md > Pumps > Oil 1:\n\n" + chunk(1).text)
    assert [pair.instruction for pair in pairs] == [f"Question {n}: Pump number 1 needs ?" for n in (0, 1)]
    assert all(pair.chunk == "chunk1" and pair.support == 1 and not pair.rejected for pair in pairs)


def test_what_was_answered_is_never_asked_again(server, tmp_path):
    for _ in range(2):
        first = generator(server, tmp_path)
        made = [make_pairs(chunk(n), first, ()) for n in range(3)]
    assert server.answered == 3 and all(len(pairs) == 2 for pairs in made)
    make_pairs(chunk(3), generator(server, tmp_path), ())
    assert server.answered == 4, "a new chunk asks for its own questions only"
    make_pairs(chunk(0), generator(server, tmp_path, model="other"), ())
    assert server.answered == 5, "another model is asked anew"


@pytest.mark.parametrize("failure", ["429", "500", "503", "html"])
def test_a_failure_that_passes_is_tried_again(server, tmp_path, failure):
    server.script = [failure, failure]
    asking = generator(server, tmp_path)
    assert len(make_pairs(chunk(1), asking, ())) == 2
    assert len(server.requests) == 3 and asking.endpoint.spent()["answered_requests"] == 1


def test_the_pause_is_what_the_endpoint_asks_for_or_grows(server, tmp_path, monkeypatch):
    monkeypatch.setattr(chat_endpoint, "FIRST_PAUSE", 0.05)
    for told, least, most in (("0.4", 0.8, 5), (None, 0.05 + 0.1, 0.7)):
        server.retry_after, server.script = told, ["429", "429"]
        start = time.monotonic()
        make_pairs(chunk(1), generator(server, tmp_path / str(told)), ())
        assert least <= time.monotonic() - start < most


STOPPING = {
    "time-out": (["hang"] * 3, {"timeout": 0.2}, r"no answer within 0\.2 s, 3 times in a row"),
    "rate limit": (["429"] * 3, {}, "the endpoint answered 429: .*failure 429.*, 3 times in a row"),
    "quota": (["quota"], {}, "the account has no quota left"),
    "unknown model": (["404"], {}, r"404: .*check generator\.model and generator\.base_url"),
    "bad request": (["400"], {}, r"400: .*check generator\.model"),
}


@pytest.mark.parametrize("case", STOPPING)
def test_a_failure_that_stays_stops_the_run_and_keeps_what_was_made(server, tmp_path, case):
    script, changes, message = STOPPING[case]
    server.script = ["ok", *script]
    asking = generator(server, tmp_path, **changes)
    make_pairs(chunk(1), asking, ())
    with pytest.raises(UserError, match=message + r".*\(1 answers are kept and will not be asked for again\)"):
        make_pairs(chunk(2), asking, ())
    assert len(server.requests) == 1 + len(script)
    server.script = []
    again = generator(server, tmp_path)
    assert all(make_pairs(chunk(n), again, ()) for n in (1, 2))
    assert server.answered == 2


@pytest.mark.parametrize("key", ["sk-wrong-key", "", "  "])
def test_a_wrong_or_missing_key_is_said_and_never_shown(server, tmp_path, key, caplog):
    with pytest.raises(UserError, match="environment variable OPENAI_API_KEY") as error:
        make_pairs(chunk(1), generator(server, tmp_path, key), ())
    assert "sk-wrong" not in str(error.value) + caplog.text
    assert len(server.requests) == (1 if key.strip() else 0), "a wrong key is not tried again"


def test_no_connection(tmp_path):
    nobody = OpenAIServer(url="http://127.0.0.1:9/v1")
    with pytest.raises(UserError, match=r"no connection .*3 times in a row"):
        make_pairs(chunk(1), generator(nobody, tmp_path), ())


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("malformed", "malformed answer: Invalid JSON"),
        ("empty", "malformed answer: no questions"),
        ("length", r"cut off by generator\.max_tokens"),
    ],
)
def test_malformed_answers_are_asked_again_and_at_last_left_out(server, tmp_path, word, reason):
    server.script = [word]
    content = {"malformed": None, "empty": None, "length": "x"}[word]
    if content:  # an answer that was cut off has no end
        server.script = []
        server.completion = lambda _, body, whole=server.completion: cut_off(whole("length", body))
        asking = generator(server, tmp_path)
        assert make_pairs(chunk(1), asking, ()) == []
    else:
        asking = generator(server, tmp_path)
        assert len(make_pairs(chunk(1), asking, ())) == 2 and not asking.failures
        server.script = [word] * 3
        assert make_pairs(chunk(2), asking, ()) == []
    [(place, said)] = asking.failures.items()
    assert place.startswith("doc") and re.match(reason, said)
    # They may have been paid for: reading them again asks nothing.
    before = len(server.requests)
    again = generator(server, tmp_path)
    make_pairs(chunk(1 if content else 2), again, ())
    assert len(server.requests) == before and again.failures == asking.failures


def cut_off(completion: dict) -> dict:
    message = completion["choices"][0]["message"]
    message["content"] = message["content"][:30]
    return completion


@pytest.mark.parametrize(
    ("word", "reason"), [("refusal", "refused: I will not."), ("filter", "refused: content filter")]
)
def test_a_refusal_leaves_the_chunk_out_and_is_not_asked_again(server, tmp_path, word, reason):
    server.script = [word]
    for _ in range(2):
        asking = generator(server, tmp_path)
        assert make_pairs(chunk(1), asking, ()) == []
        assert list(asking.failures.values()) == [reason]
        assert make_pairs(chunk(2), asking, ())
    assert len(server.requests) == 2


def test_the_budget_of_requests_counts_earlier_runs(server, tmp_path):
    asking = generator(server, tmp_path, budget={"requests": 2})
    for number in (1, 2):
        make_pairs(chunk(number), asking, ())
    for _ in range(2):
        with pytest.raises(UserError, match=r"the budget of 2 requests is spent; raise generator\.budget\.requests"):
            make_pairs(chunk(3), generator(server, tmp_path, budget={"requests": 2}), ())
    assert len(server.requests) == 2
    assert make_pairs(chunk(1), generator(server, tmp_path, budget={"requests": 2}), ()), "what is there costs nothing"


def test_a_budget_of_money_needs_an_endpoint_that_counts_tokens(server, tmp_path):
    server.usage = None
    priced = {"prices": {"input": 10, "output": 20}, "budget": {"dollars": 5}}
    for _ in range(2):
        with pytest.raises(UserError, match=r"how many tokens .* set generator\.budget\.requests in place"):
            for number in range(5):
                make_pairs(chunk(number), generator(server, tmp_path, **priced), ())
    assert server.answered == 1, "the first answer told, and the second run asked nothing"


def test_the_budget_of_money_is_never_exceeded(server, tmp_path):
    """100 tokens of request at 10 dollars a million and 50 of answer at 20 are 0.002 dollars."""
    priced = {"prices": {"input": 10, "output": 20}, "max_tokens": 60}
    asking = generator(server, tmp_path, **priced, budget={"dollars": 0.02})
    with pytest.raises(UserError, match=r"of the budget of 0.02 dollars are spent, and a request could take"):
        for number in range(100):
            make_pairs(chunk(number), asking, ())
    assert asking.endpoint.dollars == pytest.approx(0.002 * server.answered)
    assert server.answered >= 2 and asking.endpoint.dollars <= 0.02
    assert generator(server, tmp_path, **priced).endpoint.dollars == pytest.approx(asking.endpoint.dollars)


def test_rejected_pairs_go_back_to_the_generator(server, tmp_path):
    first, second = make_pairs(chunk(1), generator(server, tmp_path), ())
    pairs = make_pairs(chunk(1), generator(server, tmp_path), {first.id})
    assert [(pair.attempt, pair.rejected) for pair in pairs] == [(0, True), (0, False), (1, False)]
    assert pairs[1] == second and pairs[2].instruction.startswith("againQuestion 0")
    asked = server.requests[-1]["messages"][1]["content"]
    assert "Write 1 question with answers" in asked and f"- {first.instruction}" in asked
    # A rejected replacement is asked for once more, and after the last attempt given up.
    server.completion = lambda _, body, whole=server.completion: json.loads(
        json.dumps(whole("ok", body)).replace("againQuestion", "Another question")
    )
    pairs = make_pairs(chunk(1), generator(server, tmp_path), {first.id, pairs[2].id})
    assert [(pair.attempt, pair.rejected) for pair in pairs] == [(0, True), (0, False), (1, True), (2, False)]
    last = make_pairs(chunk(1), generator(server, tmp_path), {first.id, pairs[2].id, pairs[3].id})
    assert [pair.attempt for pair in last if not pair.rejected] == [0]
    assert server.answered == 3


def script(server: OpenAIServer, tmp_path: Path, chunks: int, **changes) -> list[str]:
    file = tmp_path / "chunks.jsonl"
    file.write_text("".join(json.dumps(as_row(chunk(n))) + "\n" for n in range(chunks)))
    command = [sys.executable, str(ROOT / "scripts/generate_pairs.py"), "--chunks", str(file)]
    command += ["--settings", json.dumps(settings(server, **changes)), "--answers", str(tmp_path / "answers")]
    return [*command, "--pairs", str(tmp_path / "pairs.jsonl"), "--summary", str(tmp_path / "pairs.json")]


def environment(key: str = KEY) -> dict[str, str]:
    return os.environ | {"OPENAI_API_KEY": key}


def test_killed_in_the_middle_and_started_again_it_repeats_no_paid_request(server, tmp_path):
    server.script = ["ok"] * 5 + ["hang"] * 2
    process = subprocess.Popen(script(server, tmp_path, 12, parallel=2), env=environment())
    deadline = time.monotonic() + 60
    stored = []
    while len(stored) < 5 or len(server.requests) < 7:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
        stored = list((tmp_path / "answers").glob("*/[!.]*.json"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "pairs.jsonl").exists() and server.answered == 5
    done = subprocess.run(script(server, tmp_path, 12, parallel=2), env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert server.answered == 12
    assert len((tmp_path / "pairs.jsonl").read_text().splitlines()) == 24
    summary = json.loads((tmp_path / "pairs.json").read_text())
    assert summary["pairs"] == 24 and summary["spent"] == {"answered_requests": 12, "dollars": 0, "sent_in_this_run": 7}


def test_the_key_is_in_no_file_and_no_message(server, tmp_path):
    server.script = ["429", "ok", "malformed", "refusal", "html"]
    run = subprocess.run(script(server, tmp_path, 6, parallel=1), env=environment(), capture_output=True, text=True)
    wrong = subprocess.run(
        script(server, tmp_path, 9, parallel=3), env=environment("sk-wrong-key"), capture_output=True, text=True
    )
    assert run.returncode == 0 and wrong.returncode == 2 and "Traceback" not in wrong.stderr
    assert wrong.stderr.count("\n") == 1 and "does not accept the key (401)" in wrong.stderr
    written = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    for key in (KEY, "sk-wrong-key"):
        assert key not in written + run.stdout + run.stderr + wrong.stdout + wrong.stderr
