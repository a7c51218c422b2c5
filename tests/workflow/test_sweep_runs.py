"""Sweeps and learning curves: what they train, what answers the test rows, and what one more value costs."""

import hashlib
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from projects import EXPERIMENT, Project, copy_project, jobs, seconds
from reprolora import plan
from reprolora.configuration import load_configuration
from reprolora.files import canonical_json, read_json, write_json

SWEEP = EXPERIMENT | {
    "methods": ["tfidf", "lora"],
    "sweep": {"grid": {"method.peft.r": [2, 4], "training.learning_rate": [1e-9]}},
}
CURVE = EXPERIMENT | {"methods": ["majority", "tfidf", "lora"], "learning_curve": {"rows": [12]}}
# With a rate of 1e-9 nothing is learned, so that the smaller adapter ties, and wins; with 0.01 something is.
SMALL, LARGE = "learning_rate=1e-09,r=2", "learning_rate=1e-09,r=4"
# What a table or figure of arms is, and what shows them.
TABLES = {"summarize_metrics", "write_main_table", "compare_methods", "summarize_resources", "analyze_errors"}
FIGURES = {"plot_accuracy", "plot_confusion", "plot_training", "plot_resources"}
SHOWN = TABLES | FIGURES | {"write_report", "write_crate"}


@pytest.fixture(scope="module")
def swept(tmp_path_factory, snakemake) -> Project:
    """A project after a run of a sweep and of a learning curve; tests leave it as they found it."""
    folder = tmp_path_factory.mktemp("sweeps") / "finished"
    copy_project(folder)
    for name, experiment in (("sweep", SWEEP), ("curve", CURVE)):
        (folder / f"config/experiments/{name}.yaml").write_text(json.dumps(experiment))
    (folder / "config/config.yaml").write_text("experiments: [sweep, curve]\nhardware: cpu\n")
    project = Project(folder, snakemake)
    done = project.snakemake()
    assert done.returncode == 0, done.stderr[-10000:]
    return project


@pytest.fixture
def another(swept, tmp_path, snakemake) -> Project:
    """A copy of the finished run, to do with as one likes."""
    shutil.copytree(swept.folder, tmp_path / "another", symlinks=True)
    return Project(tmp_path / "another", snakemake)


def sweep(project: Project, **grid) -> list[str]:
    """Arguments that give the sweep other values."""
    names = {"r": "method.peft.r", "rate": "training.learning_rate"}
    values = {"r": [2, 4], "rate": [1e-9]} | grid
    return project.override({"experiment": {"sweep": {"sweep": {"grid": {names[key]: values[key] for key in values}}}}})


def curve(project: Project, *rows: int) -> list[str]:
    return project.override({"experiment": {"curve": {"learning_curve": {"rows": rows}}}})


def table_of(project: Project) -> pd.DataFrame:
    return pd.read_csv(project.folder / "results/sweep/tables/sweep.csv")


def test_nothing_after_a_finished_run(swept):
    assert swept.dry_run() == {}


def test_the_selected_candidate_alone_answers_the_test_rows(swept):
    home = swept.folder / "results/sweep/tiny/lora"
    assert {path.name for path in home.iterdir()} == {SMALL, LARGE, "seed1"}
    assert {path.name for path in (home / "seed1").iterdir()} >= {"metrics.json", "predictions.jsonl"}
    assert not list(home.glob("learning_rate*/**/metrics.json"))
    table = table_of(swept)
    assert table["candidate"].tolist() == [SMALL, LARGE] and table["selected"].tolist() == [True, False]
    trained = [read_json(home / name / "seed1/training.json") for name in table["candidate"]]
    assert [training["settings"]["method"]["peft"]["r"] for training in trained] == [2, 4]
    assert [training["settings"]["training"]["learning_rate"] for training in trained] == [1e-9, 1e-9]
    assert table["validation_loss"].tolist() == [training["best_validation_loss"] for training in trained]
    resources = pd.read_csv(swept.folder / "results/sweep/tables/resources.csv").set_index("method")
    assert resources.loc["lora", "trainable_parameters"] == trained[0]["actual"]["trainable_parameters"]
    page = (swept.folder / "results/sweep/report.html").read_text()
    assert "2 candidates were tried. Selected: <code>learning_rate=1e-09,r=2</code>" in page


def test_another_order_or_spelling_runs_nothing(swept):
    grid = {"training.learning_rate": ["1.0e-9"], "method.peft.r": ["4", "2"]}
    file = swept.folder / "config/experiments/sweep.yaml"
    before = file.read_text()
    file.write_text(json.dumps(SWEEP | {"sweep": {"grid": grid}}))
    try:
        assert swept.dry_run() == {}
    finally:
        file.write_text(before)


def test_one_more_value_trains_one_arm(swept):
    """What answers the test rows is open until then, so the plan has that too."""
    expected = dict.fromkeys(SHOWN | {"train_adapter", "select_candidates", "evaluate_adapter"}, 1)
    assert swept.dry_run(*sweep(swept, r=[2, 3, 4])) == expected
    assert swept.dry_run(*sweep(swept, rate=[1e-9, 0.01])) == expected | {"train_adapter": 2}


def test_one_more_number_of_rows_trains_one_arm_of_each_method(swept):
    rules = ("draw_rows", "train_adapter", "evaluate_adapter", "evaluate_classical", "plot_learning_curve")
    assert swept.dry_run(*curve(swept, 18, 12)) == dict.fromkeys((*rules, "write_report", "write_crate"), 1)


def test_each_seed_has_its_own_candidates_and_rows(swept):
    seeds = swept.override({"experiment": {"sweep": {"seeds": [1, 2]}, "curve": {"seeds": [1, 2]}}})
    planned = swept.dry_run(*seeds)
    # Of the sweep two candidates, of the curve a point and the arm on all rows; TF-IDF's point also, on the same rows.
    assert (planned["train_adapter"], planned["draw_rows"], planned["evaluate_classical"]) == (4, 1, 1)


def test_the_test_rows_are_answered_again_only_by_another_candidate(another):
    """A value less: the same candidate is selected or another one, and what was trained is there."""
    predictions = another.folder / "results/sweep/tiny/lora/seed1/predictions.jsonl"
    time = predictions.stat().st_mtime_ns
    for values, changed in (([2], False), ([2, 4], False), ([4], True)):
        arguments = sweep(another, r=values)
        done = another.snakemake(*arguments)
        assert done.returncode == 0, done.stderr[-3000:]
        assert "Training " not in done.stderr
        assert (predictions.stat().st_mtime_ns != time) is changed, values
        assert another.dry_run(*arguments) == {}
    assert table_of(another)["candidate"].tolist() == [LARGE]


def fail(project: Project, experiment: str, **fields) -> Path:
    """Say that arms of the method LoRA with these fields failed while they were trained with their settings."""
    configuration, _ = load_configuration(project.folder)
    arms = plan.candidates(configuration, experiment) + plan.curve_points(configuration, experiment)
    for arm in arms:
        if arm.method == "lora" and all(getattr(arm, key) == value for key, value in fields.items()):
            settings = plan.train_adapter_settings(configuration, arm)
            failure = {"arm": settings["arm"], "stage": "train_adapter", "reason": "the loss is NaN"}
            failure["inputs_sha256"] = {}
            failure["settings_sha256"] = hashlib.sha256(canonical_json(settings).encode()).hexdigest()
            write_json(project.folder / arm.folder / "failure.json", failure)


def test_a_failed_candidate_is_left_out_and_shown(another):
    fail(another, "sweep", variant=SMALL)
    assert "train_adapter" not in another.dry_run()
    done = another.snakemake()
    assert done.returncode == 0, done.stderr[-3000:]
    table = table_of(another).set_index("candidate")
    assert table["selected"].to_dict() == {LARGE: True, SMALL: False}
    assert table.loc[SMALL, "status"] == "failed in train_adapter"
    page = (another.folder / "results/sweep/report.html").read_text()
    assert f"tiny/lora/{SMALL}/seed1" in page and "of which 1 failed" in page
    assert another.dry_run() == {}


def test_when_all_candidates_failed_the_arm_is_failed_and_the_others_are_shown(another):
    fail(another, "sweep")
    fail(another, "curve", variant="rows=12")
    done = another.snakemake()
    assert done.returncode == 0, done.stderr[-3000:]
    metrics = pd.read_csv(another.folder / "results/sweep/tables/metrics.csv").set_index("method")
    assert metrics["status"].to_dict() == {"tfidf": "ok", "lora": "failed in train_adapter"}
    points = pd.read_csv(another.folder / "results/curve/figures/learning_curve.csv")
    assert points.groupby("method")["rows"].apply(list).to_dict() == {"lora": [24], "tfidf": [12, 24]}
    assert "tiny/lora/rows=12/seed1" in (another.folder / "results/curve/report.html").read_text()
    assert another.dry_run() == {}


def test_a_point_is_trained_on_its_rows_and_is_in_no_table_of_arms(swept):
    splits = swept.folder / "results/curve/splits/seed1"
    drawn, every = (set((splits / name).read_text().splitlines()) for name in ("train/12-seed1.jsonl", "train.jsonl"))
    assert drawn < every and (len(drawn), len(every)) == (12, 24)
    training = read_json(swept.folder / "results/curve/tiny/lora/rows=12/seed1/training.json")
    assert training["train_rows"] == 12
    baseline = read_json(swept.folder / "results/curve/classical/tfidf/rows=12/seed1/metrics.json")
    assert baseline["baseline"]["train_rows"] == 12
    metrics = pd.read_csv(swept.folder / "results/curve/tables/metrics.csv")
    assert metrics["method"].tolist() == ["majority", "tfidf", "lora"]
    assert 'id="figure-learning_curve"' in (swept.folder / "results/curve/report.html").read_text()


def test_planning_a_thousand_candidates_takes_little_more_than_starting(fresh):
    """On two idle cores: starting 0.6 s, this plan under 4 s."""
    start = seconds(lambda: fresh.snakemake("--version"))
    grid = {"method.peft.r": list(range(1, 26)), "training.learning_rate": [k / 1e5 for k in range(1, 41)]}
    override = {"experiment": {"parity": {"methods": ["lora"], "sweep": {"grid": grid}}}}
    planned = []
    plan_seconds = seconds(lambda: planned.append(fresh.snakemake("--dry-run", *fresh.override(override))))
    assert planned[0].returncode == 0, planned[0].stderr[-2000:]
    counts = jobs(planned[0].stdout + planned[0].stderr)
    assert (counts["train_adapter"], counts["evaluate_adapter"]) == (1000, 1)
    assert plan_seconds < 8 * start
