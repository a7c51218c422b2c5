"""Runs from elsewhere, and runs that do not go as planned: what they leave behind, and what the next run does."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from projects import Project, environment, jobs

ARM = "results/parity/tiny/lora/seed1"
# What a run makes again byte for byte, on the same machine with the same threads.
REPRODUCIBLE = (
    "adapter/adapter_model.safetensors",
    "training.json",
    "reload_probe.jsonl",
    "predictions.jsonl",
    "metrics.json",
)
SPLIT = "results/parity/splits/seed1/summary.json"


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_from_another_folder(fresh, tmp_path):
    """The project stays as it is; results lie in the working folder, and the user's data are found all the same."""
    work = tmp_path / "another folder"
    work.mkdir()
    before = set(files(fresh.folder))
    snakefile = ["--snakefile", fresh.folder / "Snakefile"]
    done = fresh.snakemake(*snakefile, SPLIT, cwd=work)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((work / SPLIT).read_text())["rows"] == {"train": 24, "validation": 10, "test": 15}
    # The same with --directory, from a third place.
    again = fresh.snakemake(*snakefile, "--directory", work, "--dry-run", SPLIT, cwd="/")
    assert jobs(again.stdout + again.stderr) == {}
    assert set(files(fresh.folder)) == before


def test_moved_as_a_whole(another, tmp_path):
    moved = another.folder.rename(tmp_path / "moved elsewhere")
    assert Project(moved, another._snakemake).dry_run() == {}


def test_a_mistake_in_the_data_is_said_on_the_terminal_and_in_the_log(fresh):
    file = fresh.folder / "my data/numbers.jsonl"
    file.write_text(file.read_text() + '{"number": 60, "words": "", "kind": 1}\n')
    done = fresh.snakemake(SPLIT)
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: my data/numbers.jsonl:61: column 'words': empty text")
    assert (fresh.folder / "results/logs/prepare_dataset/numbers.log").read_text().splitlines()[-1] == line
    assert not (fresh.folder / "results/datasets/numbers/rows.jsonl").exists()


@pytest.mark.parametrize(("hardware", "expected"), [("cpu", 8), ("cuda", 4), ("rocm", 4)])
def test_threads_are_shared_out_and_gpus_asked_for(fresh, hardware, expected):
    """Eight cores and two GPUs: a job on the CPU takes all cores, a job on a GPU its share."""
    options = ["--dry-run", "--printshellcmds", "--resources", "gpu=2", "--config", f"hardware={hardware}"]
    done = fresh.snakemake(*options, cores=8)
    assert done.returncode == 0, done.stderr[-3000:]
    commands = [line for line in done.stdout.splitlines() + done.stderr.splitlines() if "--threads" in line]
    assert len(commands) == 5
    assert all(line.endswith(f"--threads {expected}") for line in commands)


READ_GPUS = """
import json, sys
from pathlib import Path
from snakemake.api import SnakemakeApi
from snakemake.settings.types import ConfigSettings, OutputSettings, Quietness, ResourceSettings
with SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
    config = ConfigSettings(config={"hardware": sys.argv[1]})
    workflow = api.workflow(resource_settings=ResourceSettings(), config_settings=config, snakefile=Path("Snakefile"))
    rules = workflow._workflow.rules
    print(json.dumps({rule.name: rule.resources["gpu"].value for rule in rules if "gpu" in rule.resources}))
"""


@pytest.mark.parametrize(("hardware", "expected"), [("cpu", 0), ("cuda", 1), ("rocm", 1)])
def test_only_steps_with_a_model_ask_for_a_gpu(fresh, hardware, expected):
    command = [sys.executable, "-c", READ_GPUS, hardware]
    done = subprocess.run(command, cwd=fresh.folder, capture_output=True, text=True, check=True)
    asking = json.loads(done.stdout.splitlines()[-1])
    with_a_model = ("train_adapter", "evaluate_adapter", "evaluate_prompted", "generate_pairs_locally", "doctor")
    with_a_model += ("evaluate_adapter_answers", "evaluate_base_answers", "evaluate_export", "evaluate_export_answers")
    assert asking == dict.fromkeys(with_a_model, expected)


def test_the_report_of_snakemake(finished, tmp_path):
    page = tmp_path / "report.html"
    done = finished.snakemake("--report", page)
    assert done.returncode == 0, done.stderr[-3000:]
    text = page.read_text()
    for words in ("Accuracy and F1", "Confusion matrices", "Loss and learning rate", "Memory and time", "Report"):
        assert f'"what": "{words}"' in text, words
    assert 'categories = {"parity": ' in text
    assert "An answer\\nthat is none of the labels counts as wrong." in text


def test_killed_while_training_and_run_again(another, finished):
    """Nothing half-made is taken for a result, and the second try ends in the same bytes."""
    (another.folder / ARM / "adapter/adapter_config.json").unlink()
    command = [sys.executable, "-m", "snakemake", "--cores", "2"]
    options = {"cwd": another.folder, "env": environment(), "stdin": subprocess.DEVNULL, "start_new_session": True}
    training_log = another.folder / "results/logs/train_adapter/parity/tiny/lora/seed1.log"
    training_log.unlink()
    with (another.folder / "killed.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, **options)
        try:
            while not training_log.exists() or "step" not in training_log.read_text():
                assert process.poll() is None
                time.sleep(0.05)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert not (another.folder / ARM / "training.json").exists()
    targets = [f"{ARM}/training.json", f"{ARM}/metrics.json"]
    refused = another.snakemake(*targets)
    assert refused.returncode == 1 and "--unlock" in refused.stderr
    assert another.snakemake("--unlock").returncode == 0
    done = another.snakemake(*targets)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in REPRODUCIBLE:
        assert (another.folder / ARM / name).read_bytes() == (finished.folder / ARM / name).read_bytes(), name


def test_leaked_test_rows_stop_the_run_before_anything_is_trained(another):
    """One of the 15 test rows, `one and three tens`, is nearly the training row `nine and three tens`."""
    limit = another.override({"experiment": {"parity": {"audit": {"max_leaked_test_fraction": "0.06"}}}})
    adapter = another.folder / ARM / "adapter/adapter_model.safetensors"
    answers = another.folder / "results/parity/classical/majority/seed0/predictions.jsonl"
    check = another.folder / "results/parity/splits/seed1/leakage.json"
    for file in (adapter, answers, check):
        file.unlink()
    done = another.snakemake(*limit)
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: experiment parity: 1 of 15 test rows (6.67 %) are nearly the same as a row that")
    assert not any(file.exists() for file in (adapter, answers, check))
    # A limit that is lowered after the training stops the run at the audit.
    check.write_text("{}")
    done = another.snakemake("results/parity/splits/seed1/audit.json", *limit)
    assert done.returncode == 1 and f"\n{line}\n" in done.stderr


def test_one_arm_fails_and_the_others_go_on(another):
    """An adapter that is not the trained one any more fails its check; the next run leaves its arm out."""
    from safetensors.torch import load_file, save_file

    weights = another.folder / ARM / "adapter/adapter_model.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(weights).items()}, weights)
    other = another.folder / "results/parity/tiny/qlora/seed1/predictions.jsonl"
    other.unlink()
    first = another.snakemake()
    assert first.returncode == 1
    assert "arm parity/tiny/lora/seed1 failed in evaluate_adapter: the reloaded adapter is not" in first.stderr
    assert f"delete '{ARM}/failure.json'" in first.stderr
    assert other.exists()
    failure = json.loads((another.folder / ARM / "failure.json").read_text())
    assert (failure["arm"]["method"], failure["stage"]) == ("lora", "evaluate_adapter")

    assert not {"train_adapter", "evaluate_adapter"} & another.dry_run().keys()
    table = "results/parity/tables/metrics.csv"
    second = another.snakemake(table)
    assert second.returncode == 0, second.stderr[-3000:]
    assert "failed" not in second.stderr
    with (another.folder / table).open() as stream:
        status = {row["method"]: row["status"] for row in csv.DictReader(stream)}
    assert (status["qlora"], status["lora"]) == ("ok", "failed in evaluate_adapter")
    assert another.dry_run(table) == {}
    # Another setting, or no record of the failure, and the arm is tried again.
    changed = another.override({"experiment": {"parity": {"prompt": {"system": "Another"}}}})
    assert another.dry_run(*changed)["evaluate_adapter"] == 2
    (another.folder / ARM / "failure.json").unlink()
    assert another.dry_run()["evaluate_adapter"] == 1
