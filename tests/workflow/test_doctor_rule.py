"""The rule `doctor`, as `make doctor` calls it: a table on the terminal, and the same as a file."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_doctor_looks_at_the_methods_of_the_chosen_experiments(tmp_path):
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", tmp_path]
    command += ["--cores", "1", "--forcerun", "doctor", "--quiet", "host", "progress", "reason", "rules"]
    command += ["--", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "results" / "environment.json").read_text())
    [experiment] = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())["experiments"]
    chosen = yaml.safe_load((ROOT / "config" / "experiments" / f"{experiment}.yaml").read_text())["methods"]
    assert sorted(report["methods"]) == sorted(chosen)
    # The default experiment runs on every machine.
    assert all(method["can_run"] for method in report["methods"].values()), done.stdout
    for method in chosen:
        assert f"\nmethod {method} " in done.stdout
