"""A large experiment: 500 arms of 1,000 rows. Tables and report are made in a minute and in 1 GB, and can be read."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from fake_results import FakeMethod, make_results
from reprolora.files import read_json, write_json
from reprolora.report.sources import TEMPLATES

SCRIPTS = TEMPLATES.parents[1]
COPIES = 50
# A child's peak as its parent is told it begins with the parent's own, and these tests may have grown large by now:
# so a small process of its own starts the script, and asks what its children used.
MEASURED = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The arms of ten methods fifty times: what is counted costs as much as if all answers were different."""
    methods = {f"lora-{k}": FakeMethod(0.8 + 0.01 * k, quantized=k == 9) for k in range(10)}
    made = make_results(tmp_path_factory.mktemp("results"), methods=methods, rows=1000)
    originals = {name: list(getattr(made, name)) for name in ("metrics", "predictions", "evaluations", "trainings")}
    originals["resources"] = list(made.resources)
    for copy in range(1, COPIES):
        for method in methods:
            name = f"{method}-copy-{copy}"
            home = made.folder / "smollm2-135m" / name
            shutil.copytree(made.folder / "smollm2-135m" / method, home, copy_function=os.link)
            for file in ("metrics.json", "training.json"):
                content = read_json(home / "seed1" / file)
                write_json(home / "seed1" / file, content | {"arm": content["arm"] | {"method": name}})
            made.settings["methods"][name] = made.settings["methods"][method]
            for kind, files in originals.items():
                getattr(made, kind).append(home / "seed1" / files[0].name)
    return made


def run(script: str, *arguments) -> tuple[float, int]:
    """Run a script as its rule does: the seconds that it computed, and its peak memory in bytes."""
    command = [sys.executable, "-c", MEASURED, sys.executable, f"{script}.py", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=SCRIPTS, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seconds, peak = done.stdout.split()[-2:]
    return float(seconds), int(peak)


def test_500_arms_take_less_than_a_minute_and_a_gigabyte(results):
    tables, page = results.folder / "tables", results.folder / "report.html"
    pooled, main = tables / "metrics_pooled.csv", [tables / "main.tex", tables / "main.md"]
    errors = {name: tables / f"{name}.csv" for name in ("mistakes", "disagreements", "breakdown", "calibration")}
    metrics = ["--metrics", *results.metrics]
    costs = [
        run("summarize_metrics", *metrics, "--output", tables / "metrics.csv", "--pooled", pooled),
        run("write_main_table", "--metrics", pooled, "--tex", main[0], "--md", main[1]),
        run("compare_methods", "--settings", '{"margin": 0.01}', *metrics, "--output", tables / "comparison.csv"),
        run(
            "summarize_resources",
            *("--evaluate", *results.evaluations, "--train", *results.resources),
            *("--price-per-hour", 0.1, "--output", tables / "resources.csv"),
        ),
        run("analyze_errors", *metrics, *(part for name, file in errors.items() for part in (f"--{name}", file))),
    ]
    costs.append(
        run(
            "write_report",
            *("--settings", json.dumps(results.settings), "--metrics-table", tables / "metrics.csv"),
            *("--pooled-table", pooled, "--main-table", *main, "--comparison-table", tables / "comparison.csv"),
            *("--resources-table", tables / "resources.csv", *metrics, "--training", *results.trainings),
            *("--prompts", *results.prompts, "--models", *results.models, "--dataset", results.dataset),
            *("--error-tables", *errors.values(), "--audit", results.audit, "--audit-tables", *results.audit_tables),
            *("--split", results.split, "--bibliography", results.folder / "references.bib", "--output", page),
        )
    )
    seconds, peaks = zip(*costs, strict=True)
    assert sum(seconds) < 60, costs
    assert max(peaks) < 1e9, costs
    with (tables / "comparison.csv").open() as stream:
        assert sum(1 for _ in stream) == 1 + 500 * 499 // 2
    # The pairs are in the file; the page has the first of them, and can still be opened.
    text = page.read_text()
    assert "124,690 more comparisons are in the file." in text and page.stat().st_size < 5e6
