"""What is looked at before a training on instructions: tokens, what is cut, languages, the learning rate."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tiny
from reprolora.files import read_json, write_jsonl
from reprolora.writing import writing_system

SCRIPT = Path(__file__).parents[2] / "scripts/inspect_instructions.py"
SETTINGS = {
    "prompt": {"template": "chat", "system": None},
    "max_length": 512,
    "learning_rate": 2e-4,
    "high_learning_rate": 5e-4,
}
# Half of a row is longer than its prompt, so that all is well.
GOOD = [{"id": str(n), "instruction": f"Say {n}.", "input": "", "output": f"{n} it is. " * 9} for n in range(20)]
CHINESE = {"instruction": "请用中文回答这个问题。", "output": "这是一个很好的回答，" * 9}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny.tokenizer().save_pretrained(folder)
    return folder / "manifest.json"


def inspect(model, folder, rows, **settings):
    """The exit status, the last line said, and the content of prompts.json."""
    for split in ("train", "validation", "test"):
        write_jsonl(folder / f"{split}.jsonl", rows if split == "train" else GOOD[:4])
    arguments = [f"--{split}={folder / split}.jsonl" for split in ("train", "validation", "test")]
    command = [sys.executable, SCRIPT, "--model", model, "--settings", json.dumps(SETTINGS | settings), *arguments]
    done = subprocess.run([*command, "--output", folder / "prompts.json"], capture_output=True, text=True)
    output = folder / "prompts.json"
    return done.returncode, done.stderr.splitlines()[-1:], read_json(output) if output.exists() else None


def test_good_rows_have_no_warning(model, tmp_path):
    status, _, found = inspect(model, tmp_path, GOOD)
    assert status == 0 and found["warnings"] == []
    train = found["splits"]["train"]
    assert (train["rows"], train["truncated"], train["left_out"]) == (20, 0, 0)
    prompt = "<|im_start|>user\nSay 0.<|im_end|>\n<|im_start|>assistant\n"
    assert found["example"] == {"prompt": prompt, "completion": "0 it is. " * 9 + "<|im_end|>"}
    # A token for each letter, three for the prompt's marks and one for the terminator.
    letters = [len(f"user\nSay {n}.\nassistant\n") + 9 * len(f"{n} it is. ") for n in range(20)]
    assert train["tokens"] == sum(letters) + 20 * 4
    assert train["supervised_share"] == round(1 - sum(25 + (n > 9) for n in range(20)) / train["tokens"], 6)


@pytest.mark.parametrize(
    ("rows", "settings", "warning"),
    [
        # Of one-digit rows there are 107 tokens, of the others 117.
        (GOOD, {"max_length": 110}, "10 train rows are longer than training.max_length 110 and lose the end"),
        (
            [*GOOD, GOOD[0] | {"id": "x", "instruction": "x" * 600}],
            {},
            "1 train rows are longer than training.max_length 512 and are left out, since the prompt alone fills it: x",
        ),
        ([row | {"output": "ok"} for row in GOOD], {}, "% of the training tokens are answers"),
        (GOOD, {"learning_rate": 1e-3}, "the learning rate 0.001 is above 0.0005"),
        (
            [row | {"output": CHINESE["output"]} for row in GOOD],
            {},
            "20 of 20 training rows",
        ),
    ],
)
def test_what_is_likely_wrong_is_warned_of(model, tmp_path, rows, settings, warning):
    if "20 of 20" in warning:
        rows = [row | {"instruction": "What do you say to that?"} for row in rows]
    status, [said], found = inspect(model, tmp_path, rows, **settings)
    assert status == 0 and len(found["warnings"]) == 1
    assert warning in found["warnings"][0] == said


def test_nothing_to_learn_from_stops(model, tmp_path):
    status, [said], found = inspect(model, tmp_path, GOOD, max_length=20)
    assert status == 2 and found is None
    assert said.startswith("error: ") and "none of the 20 rows keeps a token of its answer" in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How do I test it?", "Latin"),
        ("Wie teste ich es?", "Latin"),  # not told from English
        (CHINESE["instruction"], "Chinese or Japanese"),
        ("请用 Flask 写一个函数", "Chinese or Japanese"),
        ("これは何ですか", "Chinese or Japanese"),
        ("Как это проверить?", "Cyrillic"),
        ("이것을 어떻게 시험합니까", "Hangul"),
        ("请看：\n```python\nprint('this is all code to look at')\n```\n然后运行", "Chinese or Japanese"),
        ("`flask run --debug`", None),
        ("42, 43!", None),
        ("", None),
    ],
)
def test_writing_system_of_a_text(text, expected):
    assert writing_system(text) == expected
