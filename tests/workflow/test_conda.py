"""`--sdm conda`: Snakemake makes the environment that a rule names and runs the rule's script in it.

There is no conda channel here, so a stand-in plays conda (docs/environments.md says what this does not prove).
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet

ROOT = Path(__file__).parents[2]
DATA = [{"text": f"row {number}", "label": "odd" if number % 2 else "even"} for number in range(20)]


def test_a_rule_runs_in_the_environment_that_it_names(tmp_path):
    stand_in = tmp_path / "conda"
    shutil.copytree(ROOT / "tests" / "workflow" / "stand_in_conda", stand_in)
    data = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(DATA), data)
    overrides = tmp_path / "overrides.yaml"
    overrides.write_text(
        json.dumps(
            {
                "datasets": {
                    "parity": {
                        "description": "Rows for this test",
                        "license": "none",
                        "files": {"all": {"source": f"file:{data}"}},
                        "format": "parquet",
                        "columns": {"text": "text", "label": "label"},
                        "labels": ["odd", "even"],
                    }
                },
            }
        )
    )
    work = tmp_path / "a work folder"
    rows = "results/datasets/parity/rows.jsonl"
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", work]
    command += ["--configfile", overrides, "--sdm", "conda", "--cores", "1", "--", rows]
    # Neither a package nor a Python from outside may do the work of the environment's, so both are there and fail.
    leak = tmp_path / "leak"
    leak.mkdir()
    (leak / "pyarrow.py").write_text("raise ImportError('this pyarrow comes from outside the environment')\n")
    python = stand_in / "bin" / "python"
    python.write_text("#!/bin/sh\necho this Python comes from outside the environment >&2\nexit 1\n")
    python.chmod(0o755)
    path = os.pathsep.join([str(python.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(leak)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr

    assert [json.loads(line)["label"] for line in (work / rows).read_text().splitlines()] == [r["label"] for r in DATA]
    [python] = (work / ".snakemake" / "conda").glob("*/bin/python")
    listed = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True)
    pins = [line.strip("- ") for line in (ROOT / "envs" / "data.yaml").read_text().splitlines() if "==" in line]
    assert sorted(listed.stdout.split()) == sorted(pins)
