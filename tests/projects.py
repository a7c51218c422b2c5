"""Copies of the project to run Snakemake in, with an experiment on a tiny model that takes a minute."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny
from forking import Snakemake

ROOT = Path(__file__).parents[1]
PARTS = (".gitignore", "CITATION.cff", "Snakefile", "config", "envs", "profiles", "report", "rules", "scripts")
# One seed, both kinds of adapter, every baseline; the names differ from those of the shipped files.
DATASET = {
    "description": "Numbers and what they are",
    "license": "CC0-1.0",
    "citation": None,
    "url": "https://example.org",
    "files": {"all": {"source": "file:my data/numbers.jsonl", "member": [], "sha256": None}},
    "format": "jsonl",
    "header": True,
    "quoting": None,
    "columns": {"id": "number", "text": "words", "label": "kind"},
    "label_names": {"0": "even", "1": "odd"},
    "labels": ["even", "odd"],
}
MODEL = {"description": "A random Llama", "license": "CC0-1.0", "citation": None, "source": "file:my data/model"}
EXPERIMENT = {
    "title": "Even or odd",
    "question": "Does it run?",
    "dataset": "numbers",
    "models": ["tiny"],
    "methods": ["majority", "tfidf", "zero-shot", "lora", "qlora"],
    "seeds": [1],
    "split": {"seed": 1, "train": 0.5, "validation": 0.25, "test": 0.25, "limits": {"train": 24, "validation": 10}},
    # Numbers that are written out look much alike.
    "audit": {"max_leaked_test_fraction": 1},
    "prompt": {"system": "Even or odd?", "user": "{text}"},
    "training": {"batch_size": 8, "max_length": 128, "learning_rate": 0.0005, "precision": "fp32"},
    "evaluation": {"modes": ["generate"]},
}


class Project:
    """A copy of the project, with a small experiment `parity` as the one that a run makes."""

    def __init__(self, folder: Path, snakemake: Snakemake):
        self.folder, self._snakemake = folder, snakemake

    def snakemake(self, *arguments: str, cores: int = 2, **options) -> subprocess.CompletedProcess:
        """A run as a user starts it."""
        command = [sys.executable, "-m", "snakemake", "--cores", str(cores), *map(str, arguments)]
        options = {"cwd": self.folder, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True} | options
        return subprocess.run(command, env=environment(), **options)

    def dry_run(self, *arguments: str) -> dict[str, int]:
        """How often each rule would run; the target rule `all` is left out."""
        status, text = self.start("--dry-run", *arguments)
        assert status == 0, text[-3000:]
        return jobs(text)

    def start(self, *arguments: str) -> tuple[int, str]:
        """A run that is about the workflow, not about its jobs: exit status and output."""
        return self._snakemake(self.folder, ["--cores", "2", *arguments])

    def override(self, value: dict) -> list[str]:
        """Arguments that override the configuration."""
        return ["--config", *(f"{key}={json.dumps(inner)}" for key, inner in value.items())]


def environment() -> dict[str, str]:
    """The environment of a user who activated ours."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def jobs(text: str) -> dict[str, int]:
    """Snakemake's own count of jobs for each rule, as it prints it."""
    table = text.partition("Job stats:\n")[2].partition("\n\n")[0]
    counts = dict(re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE))
    assert counts or "Nothing to be done" in text, text[-3000:]
    return {rule: int(count) for rule, count in counts.items() if rule not in ("all", "total")}


def copy_project(folder: Path) -> None:
    """The parts that a run needs, with the experiment `parity` and what it is made of."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / part)
    data = folder / "my data"
    data.mkdir()
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    rows = [
        {"number": n, "words": f"{words[n % 10]} and {words[n // 10]} tens", "kind": (n + 1) % 2} for n in range(60)
    ]
    (data / "numbers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tiny.model().save_pretrained(data / "model")
    tiny.tokenizer(words).save_pretrained(data / "model")
    for name, key, entry in (("datasets", "numbers", DATASET), ("models", "tiny", MODEL)):
        with (folder / "config" / f"{name}.yaml").open("a") as stream:
            stream.write(f"\n{json.dumps(key)}: {json.dumps(entry)}\n")
    (folder / "config/experiments/parity.yaml").write_text(json.dumps(EXPERIMENT, indent=1))
    (folder / "config/config.yaml").write_text("experiments: [parity]\nhardware: cpu\n")


def seconds(action: Callable[[], Any]) -> float:
    """Processor time that an action's processes took: unlike the clock, the same on a busy machine."""
    before = os.times()
    action()
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
