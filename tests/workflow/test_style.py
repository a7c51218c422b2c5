"""The workflow as its tools see it: linted, formatted, and quick to plan."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from projects import PARTS, jobs, seconds

ROOT = Path(__file__).parents[2]
CHECKS = {
    "snakemake --lint": [["snakemake", "--lint"]],
    "snakefmt": [["snakefmt", "--check", "Snakefile", "rules"]],
    "ruff": [["ruff", "check", "."], ["ruff", "format", "--check", "."]],
}
# What breaks each of them.
FAULTS = {
    "snakemake --lint": (
        "rules/data.smk",
        'rule bare:\n    output:\n        "results/bare",\n    shell:\n        "touch {output}"\n',
    ),
    "snakefmt": ("rules/data.smk", "rule  untidy :\n  output: 'x'\n"),
    "ruff": ("scripts/doctor.py", "import os\n"),
}


def check(name: str, folder: Path) -> list[subprocess.CompletedProcess]:
    commands = [[sys.executable, "-m", *command] for command in CHECKS[name]]
    return [subprocess.run(command, cwd=folder, capture_output=True, text=True) for command in commands]


@pytest.mark.parametrize("name", CHECKS)
def test_a_tool_finds_nothing(name):
    for done in check(name, ROOT):
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CHECKS)
def test_a_tool_would_find_something(name, tmp_path):
    for part in (*PARTS, "pyproject.toml"):
        source = ROOT / part
        shutil.copytree(source, tmp_path / part) if source.is_dir() else shutil.copy(source, tmp_path / part)
    file, text = FAULTS[name]
    with (tmp_path / file).open("a") as stream:
        stream.write("\n\n" + text)
    assert any(done.returncode for done in check(name, tmp_path))


def test_planning_a_thousand_jobs_takes_little_more_than_starting(fresh):
    """On two idle cores: starting 0.6 s, this plan under 3 s."""
    start = seconds(lambda: fresh.snakemake("--version"))
    seeds = {"experiment": {"parity": {"seeds": list(range(1, 331)), "methods": ["lora"]}}}
    planned = []
    plan = seconds(lambda: planned.append(fresh.snakemake("--dry-run", *fresh.override(seeds))))
    assert planned[0].returncode == 0, planned[0].stderr[-2000:]
    counts = jobs(planned[0].stdout + planned[0].stderr)
    assert (counts["train_adapter"], counts["evaluate_adapter"]) == (330, 330)
    assert plan < 8 * start
