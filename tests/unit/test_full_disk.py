"""No space left, while data is fetched, prepared and split: one line that names the file, and nothing half-written.

On a file system of its own that really is too small, where the machine lets us mount one; else with writes that fail.
"""

import errno
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import fetch_dataset
import prepare_dataset
import split_dataset
from reprolora.errors import run_script as run_main
from running import contents, run_script_on_small_disk, user_error
from servers import PackageIndex
from unit.test_package_index import DATA, wheel

KILOBYTES = 16
MAINS = {"fetch_dataset": fetch_dataset, "prepare_dataset": prepare_dataset, "split_dataset": split_dataset}
LONG = "x" * 200


def check(name: str, arguments: list[Any], disk: Path, monkeypatch, capsys, environment: dict[str, str]) -> str:
    """The message with which the script ends when `disk` is full; nothing may be left on it."""
    result = run_script_on_small_disk(name, *arguments, disk=disk, kilobytes=KILOBYTES, environment=environment)
    if result is not None:
        done, left = result
        assert left == []
        return user_error(done)
    texts = [json.dumps(argument) if isinstance(argument, dict) else str(argument) for argument in arguments]
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys, "argv", [name, *texts])
    monkeypatch.setattr(Path, "open", _failing(Path.open))
    with pytest.raises(SystemExit) as end:
        run_main(MAINS[name].main)
    monkeypatch.undo()
    assert end.value.code == 2 and contents(disk) == []
    return capsys.readouterr().err.splitlines()[-1].removeprefix("error: ")


def _failing(original):
    def opened(self: Path, mode: str = "r", *rest: Any, **more: Any):
        stream = original(self, mode, *rest, **more)
        if "w" in mode:

            def write(data: object) -> int:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            stream.write = write
        return stream

    return opened


def test_fetching_a_package(tmp_path, monkeypatch, capsys):
    content = wheel(DATA)
    assert len(content) > KILOBYTES << 10
    with PackageIndex(files={"words": {"words-1.0-py3-none-any.whl": content}}).running() as index:
        environment = {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"{index.url}/simple",
            "PIP_NO_CACHE_DIR": "1",
            "HOME": f"{tmp_path}-home",
        }
        sha256 = hashlib.sha256(content).hexdigest()
        settings = {"source": "pypi:words==1.0", "member": "words/data.tsv", "sha256": sha256}
        output = tmp_path / "disk" / "all"
        arguments = ["--settings", settings, "--output", output]
        message = check("fetch_dataset", arguments, tmp_path / "disk", monkeypatch, capsys, environment)
    assert message == f"{output}: no space left on the device; free some space and run again"


def test_preparing_rows(tmp_path, monkeypatch, capsys):
    rows = [{"text": f"{LONG} {number}", "label": ["joy", "anger"][number % 2]} for number in range(200)]
    (tmp_path / "data").write_text("\n".join(map(json.dumps, rows)))
    settings = {
        "format": "jsonl",
        "header": False,
        "quoting": False,
        "columns": {"text": "text", "label": "label"},
        "labels": ["anger", "joy"],
        "files": {"all": {"source": "file:data"}},
    }
    output = tmp_path / "disk" / "rows.jsonl"
    arguments = ["--raw", f"all={tmp_path / 'data'}", "--settings", settings, "--rows", output]
    arguments += ["--manifest", tmp_path / "disk" / "manifest.json"]
    message = check("prepare_dataset", arguments, tmp_path / "disk", monkeypatch, capsys, {})
    assert message == f"{output}: no space left on the device; free some space and run again"


def test_splitting_rows(tmp_path, monkeypatch, capsys):
    rows = [
        {"id": str(number), "text": f"{LONG} {number}", "label": ["joy", "anger"][number % 2], "part": "all"}
        for number in range(200)
    ]
    (tmp_path / "rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
    limits = {"train": None, "validation": None, "test": None}
    split = {"seed": 1, "train": 0.6, "validation": 0.2, "test": 0.2, "limits": limits}
    outputs = [f"--{name}={tmp_path / 'disk' / name}" for name in ("train", "validation", "test", "summary")]
    arguments = ["--rows", tmp_path / "rows", "--settings", {"split": split, "labels": ["anger", "joy"]}, *outputs]
    message = check("split_dataset", arguments, tmp_path / "disk", monkeypatch, capsys, {})
    assert message == f"{tmp_path / 'disk' / 'train'}: no space left on the device; free some space and run again"
