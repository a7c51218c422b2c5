"""An instruction experiment on a tiny model, to the scores of its answers and a judge's: what it makes, and what a
change runs again."""

import csv
import json

import pytest

from openai_server import KEY, OpenAIServer
from projects import Project, copy_project

DATASET = {"description": "Orders", "license": "CC0-1.0", "files": {"all": {"source": "file:my data/orders.jsonl"}}}
TASK = {
    "title": "Orders",
    "question": "Does it run?",
    "task": "instruction",
    "dataset": "orders",
    "models": ["tiny"],
    "methods": ["zero-shot", "lora"],
    "split": {"train": 0.6, "validation": 0.2, "test": 0.2},
    "training": {"batch_size": 8, "max_length": 256, "learning_rate": 0.0005, "precision": "fp32"},
    "answers": {"max_new_tokens": 4, "distractors": 2},
}
STEPS = ("train_adapter", "evaluate_adapter_answers", "evaluate_base_answers", "judge_answers")
EVALUATIONS = {"evaluate_adapter_answers": 1, "evaluate_base_answers": 1, "judge_answers": 1}


@pytest.fixture(scope="module")
def server():
    with OpenAIServer().running() as running:
        yield running


@pytest.fixture(scope="module")
def made(tmp_path_factory, snakemake, server) -> Project:
    """A project after a whole run; tests leave it as they found it."""
    folder = tmp_path_factory.mktemp("answers") / "a project"
    copy_project(folder)
    rows = [
        {"instruction": f"Say {n} in words.", "input": "loud" * (n % 2), "output": f"number {n}"} for n in range(40)
    ]
    (folder / "my data/orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (folder / "config/instructions.yaml").open("a") as stream:
        stream.write(f"\norders: {json.dumps(DATASET)}\n")
    judge = {"model": "gpt", "base_url": server.url, "rows": 5}
    experiment = TASK | {"answers": TASK["answers"] | {"judge": judge}}
    (folder / "config/experiments/orders.yaml").write_text(json.dumps(experiment))
    (folder / "config/config.yaml").write_text("experiments: [orders]\nhardware: cpu\n")
    project = Project(folder, snakemake)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        done = project.snakemake()
    assert done.returncode == 0, done.stderr[-5000:]
    return project


def rerun(project: Project, value: dict) -> dict[str, int]:
    """Which of the steps run again, and how often, with something else in the experiment."""
    jobs = project.dry_run(*project.override({"experiment": {"orders": value}}))
    return {rule: count for rule, count in jobs.items() if rule in STEPS}


def test_both_arms_answer_the_same_rows_and_are_judged(made):
    arms = {}
    for method, seed in (("zero-shot", 0), ("lora", 1)):
        folder = made.folder / f"results/orders/tiny/{method}/seed{seed}"
        metrics = json.loads((folder / "metrics.json").read_text())
        arms[method] = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
        assert metrics["task"] == "instruction" and metrics["n"] == metrics["n_choices"] == len(arms[method]) == 8
        assert all(value is not None for value in metrics["metrics"].values())
        assert json.loads((folder / "resources_evaluate.json").read_text())["examples"] == 8
    for before, after in zip(arms["zero-shot"], arms["lora"], strict=True):
        same = ("id", "document", "instruction", "input", "reference", "reference_tokens", "choices")
        assert [before[key] for key in same] == [after[key] for key in same]
        assert before["choice_scores"] != after["choice_scores"]
    with (made.folder / "results/orders/tables/judge.csv").open(newline="") as stream:
        [line] = csv.DictReader(stream)
    assert (line["method"], line["judge"], line["n"]) == ("lora", "gpt", "5")
    assert sum(int(line[name]) for name in ("wins", "ties", "losses")) == 5


def test_the_report_is_made_with_its_tables_figures_and_cards(made):
    results = made.folder / "results/orders"
    page = (results / "report.html").read_text()
    assert "has the highest domain accuracy" in page and "A public tutorial's claim" in page and 'id="judge"' in page
    with (results / "tables/metrics.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["method"] for row in rows] == ["zero-shot", "lora"] and {row["status"] for row in rows} == {"ok"}
    for name in ("answers", "changes", "training", "resources"):
        assert all((results / f"figures/{name}.{kind}").stat().st_size > 0 for kind in ("png", "svg", "csv"))
    card = (results / "tiny/lora/seed1/adapter/README.md").read_text()
    assert f"| Domain accuracy | {float(rows[1]['domain_accuracy']):.3f} |" in card
    crate = json.loads((results / "ro-crate-metadata.json").read_text())
    files = {entity["@id"] for entity in crate["@graph"]}
    assert {"report.html", "tables/answers.csv", "tables/judge.csv", "tiny/lora/seed1/predictions.jsonl"} <= files
    assert made.dry_run() == {}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, {}),
        ({"answers": {"judge": {"rows": 3}}}, {"judge_answers": 1}),
        ({"answers": {"judge": {"model": "other"}}}, {"judge_answers": 1}),
        ({"answers": {"judge": {"labels": "my data/orders.jsonl"}}}, {"judge_answers": 1}),
        ({"answers": {"judge": "null"}}, {}),
        ({"answers": {"max_new_tokens": 5}}, EVALUATIONS),
        ({"answers": {"distractors": 1}}, EVALUATIONS),
        ({"answers": {"choice_seed": 2}}, EVALUATIONS),
        ({"answers": {"batch_tokens": 512}}, EVALUATIONS),
        ({"prompt": {"template": "alpaca"}}, EVALUATIONS | {"train_adapter": 1}),
        ({"training": {"epochs": 2}}, {"train_adapter": 1, "evaluate_adapter_answers": 1, "judge_answers": 1}),
    ],
)
def test_a_key_reruns_what_reads_it(made, value, expected):
    assert rerun(made, value) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("answer_scores", EVALUATIONS),
        ("choices", EVALUATIONS),
        ("instruction_evaluation", EVALUATIONS),
        ("judging", {"judge_answers": 1}),
        ("chat_endpoint", {"judge_answers": 1}),
    ],
)
def test_a_module_reruns_what_imports_it(made, name, expected):
    file = made.folder / f"scripts/reprolora/{name}.py"
    before = file.read_text()
    file.write_text(before + "\n# changed\n")
    try:
        assert rerun(made, {}) == expected
    finally:
        file.write_text(before)


AFTER_SCORES = {"write_main_table", "plot_answers"}
AFTER_ALL = {"write_answers_report", "write_crate"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"comparison": {"margin": 0.02}}, {"compare_answers"}),
        ({"title": "Others"}, {"write_answers_card"}),
    ],
)
def test_a_key_makes_again_what_shows_it(made, value, expected):
    assert made.dry_run(*made.override({"experiment": {"orders": value}})).keys() == expected | AFTER_ALL


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("report/answers_page", set()),
        ("report/answers_method", set()),
        ("answer_figures", {"plot_answers", "plot_changes"}),
        ("answer_statistics", {"summarize_answers", "compare_answers", "write_answers_card"} | AFTER_SCORES),
        (
            "answer_runs",
            {"summarize_answers", "compare_answers", "write_answers_card", "list_answers", "plot_changes"}
            | AFTER_SCORES,
        ),
    ],
)
def test_a_module_makes_again_what_imports_it(made, name, expected):
    file = made.folder / f"scripts/reprolora/{name}.py"
    before = file.read_text()
    file.write_text(before + "\n# changed\n")
    try:
        assert made.dry_run().keys() == expected | AFTER_ALL
    finally:
        file.write_text(before)
