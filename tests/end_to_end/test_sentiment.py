"""The default experiment with the real model and real tweets, from the package index to the report, on few rows."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from projects import copy_project

FEW_ROWS = """
experiments: [sentiment]
experiment:
  sentiment:
    split: {limits: {train: 96, validation: 24, test: 60}}
    evaluation: {modes: [generate, likelihood]}
"""
RESULTS = Path("results/sentiment")
ARMS = {
    ("classical", "majority", 0),
    ("classical", "tfidf", 0),
    ("smollm2-135m", "zero-shot", 0),
    ("smollm2-135m", "lora", 1),
    ("smollm2-135m", "qlora", 1),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("end to end") / "a clone"
    copy_project(folder)
    (folder / "few.yaml").write_text(FEW_ROWS)
    run(folder)
    return folder


def run(folder: Path, *targets: Path) -> str:
    """The one command on few rows, for everything or some files; what it said."""
    command = [sys.executable, "-m", "snakemake", "--cores", "all", "--resources", "gpu=1", "--configfile", "few.yaml"]
    # Two jobs at once, one core each, take less time than one after another with two cores.
    command += ["--set-threads", *(f"{rule}=1" for rule in ("train_adapter", "evaluate_adapter", "evaluate_prompted"))]
    command += ["--", *map(str, targets)]
    # The rules' `python` is the one that runs the tests.
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout + done.stderr


def arm(project: Path, method: str, name: str) -> dict:
    return json.loads((project / RESULTS / "smollm2-135m" / method / name).read_text())


def test_every_arm_is_in_the_table(project):
    rows = list(csv.DictReader((project / RESULTS / "tables/metrics.csv").open()))
    assert {(row["model"], row["method"], int(row["seed"])) for row in rows} == ARMS
    assert {row["mode"] for row in rows if row["method"] == "lora"} == {"generate", "likelihood"}
    assert all(row["n"] == "60" for row in rows)


@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_fine_tuning_turns_a_model_that_cannot_answer_into_one_that_can(project, method):
    before = arm(project, "zero-shot/seed0", "metrics.json")["modes"]["generate"]
    after = arm(project, f"{method}/seed1", "metrics.json")["modes"]["generate"]
    assert before["invalid_rate"] > 0.3 and after["invalid_rate"] == 0
    assert after["accuracy"] > before["accuracy"] + 0.2


def test_what_was_trained_is_what_was_asked_for(project):
    lora, qlora = (arm(project, f"{method}/seed1", "training.json") for method in ("lora", "qlora"))
    assert lora["actual"]["quantization"] is None
    assert qlora["actual"]["quantization"]["type"] == "nf4" and qlora["actual"]["quantization"]["layers"] == 210
    assert lora["actual"]["trainable_parameters"] == qlora["actual"]["trainable_parameters"] == 4_884_480
    # The linear layers of 30 blocks: 4 bits a weight and 8 for each 64 of them (and 32 for each 256 of those).
    linear = 30 * (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536)
    bits = 4 + 8 / 64 + 32 / (64 * 256)
    whole = lora["actual"]["base_bytes"]
    width = whole / lora["actual"]["base_parameters"]
    assert width in (2, 4)
    assert qlora["actual"]["base_bytes"] == pytest.approx(whole - linear * (width - bits / 8), rel=0.001)
    assert lora["engine"]["used"] == "shared-prefix" and lora["engine"]["fused_layers"] == 210


def test_figures_and_report_are_there(project):
    for figure in ("accuracy", "confusion", "training", "resources"):
        for kind in ("png", "svg", "csv"):
            assert (project / RESULTS / f"figures/{figure}.{kind}").stat().st_size > 100
    report = (project / RESULTS / "report.html").read_text()
    assert "SmolLM2" in report and "QLoRA" in report


def test_again_from_scratch_every_answer_and_score_is_the_same(project):
    """The last test, since it makes the results anew."""
    assert "Nothing to be done" in run(project)
    first = (project / RESULTS).rename(project / "first")
    scores = [path.relative_to(first) for path in first.rglob("metrics.json")]
    assert len(scores) == len(ARMS)
    run(project, *(RESULTS / path for path in scores))
    for path in [*scores, *(path.with_name("predictions.jsonl") for path in scores)]:
        assert (project / RESULTS / path).read_bytes() == (first / path).read_bytes(), path
    for name in ("lora", "qlora"):
        weights = f"smollm2-135m/{name}/seed1/adapter/adapter_model.safetensors"
        assert (project / RESULTS / weights).read_bytes() == (first / weights).read_bytes()
