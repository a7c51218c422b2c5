"""From a configuration to arms, settings and failures."""

import hashlib
import json
from pathlib import Path

import pytest

from reprolora import plan
from reprolora.configuration import load_configuration
from reprolora.files import canonical_json

ROOT = Path(__file__).parents[2]


def load(**experiment):
    """The configuration with the experiment `sentiment` changed."""
    return load_configuration(ROOT, [("test", {"experiment": {"sentiment": experiment}})])[0]


def test_arms_are_models_by_methods_by_seeds_and_baselines_run_once():
    configuration = load(
        models=["smollm2-135m", "qwen2.5-0.5b"], methods=["majority", "zero-shot", "lora"], seeds=[3, 5]
    )
    assert [str(arm) for arm in plan.arms(configuration, "sentiment")] == [
        "sentiment/classical/majority/seed0",
        "sentiment/smollm2-135m/zero-shot/seed0",
        "sentiment/qwen2.5-0.5b/zero-shot/seed0",
        "sentiment/smollm2-135m/lora/seed3",
        "sentiment/smollm2-135m/lora/seed5",
        "sentiment/qwen2.5-0.5b/lora/seed3",
        "sentiment/qwen2.5-0.5b/lora/seed5",
    ]


def test_a_few_shot_baseline_has_an_arm_for_each_seed():
    configuration = load(methods=["few-shot"], seeds=[3, 5])
    arms = plan.arms(configuration, "sentiment")
    assert [str(arm) for arm in arms] == [f"sentiment/smollm2-135m/few-shot/seed{seed}" for seed in (3, 5)]
    assert plan.SETTINGS["evaluate_prompted"](configuration, arms[0])["shots"] == 6


def test_a_method_s_own_learning_rate_goes_before_the_experiment_s():
    configuration = load(methods=["lora", "full"], training={"learning_rate": 0.0002})
    lora, full = plan.arms(configuration, "sentiment")
    assert plan.SETTINGS["train_adapter"](configuration, lora)["training"]["learning_rate"] == 0.0002
    settings = plan.SETTINGS["train_adapter"](configuration, full)
    assert settings["training"]["learning_rate"] == 0.00005 and settings["method"]["full"] is True
    assert plan.stages(configuration, full) == ("train_adapter", "evaluate_adapter")


@pytest.mark.parametrize("stage", plan.SETTINGS)
def test_settings_are_plain_data(stage):
    configuration, _ = load_configuration(ROOT, [("test", {"experiments": ["sentiment", "flask-docs"]})])
    arms = [arm for name in configuration.experiments for arm in plan.arms(configuration, name)]
    [arm, *_] = [arm for arm in arms if stage in plan.stages(configuration, arm)]
    settings = plan.SETTINGS[stage](configuration, arm)
    assert json.loads(canonical_json(settings)) == settings
    assert settings["arm"] == {
        "experiment": arm.experiment,
        "model": arm.model,
        "method": arm.method,
        "seed": arm.seed,
        "split_seed": 1,
    }


def test_arms_with_instructions_are_trained_alike_and_evaluated_by_rules_of_their_own():
    override = {"experiment": {"flask-docs": {"prompt": {"template": "alpaca"}, "answers": {"max_new_tokens": 7}}}}
    configuration, _ = load_configuration(ROOT, [("test", {"experiments": ["flask-docs"]}), ("test", override)])
    base, lora, _ = plan.arms(configuration, "flask-docs")
    assert plan.stages(configuration, base) == ("evaluate_base_answers",)
    assert plan.stages(configuration, lora) == ("train_adapter", "evaluate_adapter_answers")
    trained = plan.SETTINGS["train_adapter"](configuration, lora)
    assert trained["task"] == "instruction" and trained["prompt"] == {"system": None, "template": "alpaca"}
    assert "labels" not in trained and "answers" not in trained
    asked = plan.SETTINGS["evaluate_adapter_answers"](configuration, lora)
    assert asked["prompt"] == trained["prompt"] and asked["answers"]["max_new_tokens"] == 7


def test_rows_are_clusters_where_they_are_made_from_documents():
    file = {"description": "Orders", "license": "MIT", "files": {"all": {"source": "file:README.md"}}}
    override = {"instructions": {"orders": file}, "experiment": {"flask-docs": {"comparison": {"margin": 0.02}}}}
    chosen = ("test", {"experiments": ["flask-docs"]})
    configuration, _ = load_configuration(ROOT, [chosen, ("test", override)])
    assert plan.summarize_answers_settings(configuration, "flask-docs") == {"by_document": True}
    assert plan.compare_answers_settings(configuration, "flask-docs") == {"by_document": True, "margin": 0.02}
    assert plan.list_answers_settings(configuration, "flask-docs") == {"before": ["zero-shot"]}
    assert plan.write_answers_report_settings(configuration, "flask-docs")["dataset"]["license"] == "BSD-3-Clause"
    crate = plan.write_crate_settings(configuration, "flask-docs")["dataset"]
    assert crate["documents"]["source"] == "pypi:flask==3.1.3"
    override["experiment"]["flask-docs"]["dataset"] = "orders"
    configuration, _ = load_configuration(ROOT, [chosen, ("test", override)])
    assert plan.plot_changes_settings(configuration, "flask-docs") == {"by_document": False, "before": ["zero-shot"]}


def test_a_prompt_has_the_keys_that_its_task_reads():
    configuration = load(methods=["lora"])
    [arm] = plan.arms(configuration, "sentiment")
    assert plan.SETTINGS["train_adapter"](configuration, arm)["prompt"].keys() == {"system", "user"}


def test_quotes_delimit_fields_in_csv_and_are_plain_in_tsv_unless_said_otherwise():
    dataset = {
        "description": "d",
        "license": "l",
        "files": {"all": {"source": "file:x"}},
        "columns": {"text": "t", "label": "l"},
        "labels": ["a", "b"],
    }
    for form, said, expected in (("csv", {}, True), ("tsv", {}, False), ("tsv", {"quoting": True}, True)):
        override = {"datasets": {"mine": dataset | {"format": form} | said}}
        configuration, _ = load_configuration(ROOT, [("test", override)])
        assert plan.prepare_dataset_settings(configuration, "mine")["quoting"] is expected


def write_failure(folder: Path, arm: plan.Arm, stage: str, settings: dict, **inputs: str) -> Path:
    file = folder / arm.folder / "failure.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    digests = {"settings_sha256": hashlib.sha256(canonical_json(settings).encode()).hexdigest()}
    digests["inputs_sha256"] = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in inputs.items()}
    file.write_text(json.dumps({"stage": stage, "reason": "the loss is NaN"} | digests))
    return file


@pytest.mark.parametrize("stage", ["train_adapter", "evaluate_adapter"])
def test_a_failure_counts_until_the_settings_of_its_stage_change(tmp_path, stage):
    configuration = load(methods=["lora"])
    [arm] = plan.arms(configuration, "sentiment")
    assert plan.failure(configuration, arm, tmp_path) is None
    file = write_failure(tmp_path, arm, stage, plan.SETTINGS[stage](configuration, arm))
    assert plan.failure(configuration, arm, tmp_path)["reason"] == "the loss is NaN"
    other = load(methods=["lora"], prompt={"system": "Another one"})
    assert plan.failure(other, arm, tmp_path) is None
    elsewhere = load(methods=["lora"], title="Another one")
    assert plan.failure(elsewhere, arm, tmp_path)
    file.unlink()
    assert plan.failure(configuration, arm, tmp_path) is None


def test_a_failure_counts_until_a_file_that_it_read_is_another(tmp_path):
    configuration = load(methods=["lora"])
    [arm] = plan.arms(configuration, "sentiment")
    settings = plan.SETTINGS["train_adapter"](configuration, arm)
    write_failure(tmp_path, arm, "train_adapter", settings, **{"train.jsonl": "rows"})
    (tmp_path / "train.jsonl").write_text("rows")
    assert plan.failure(configuration, arm, tmp_path)
    (tmp_path / "train.jsonl").write_text("other rows")
    assert plan.failure(configuration, arm, tmp_path) is None


def test_a_failed_evaluation_is_tried_again_when_the_training_is_to_be_another(tmp_path):
    configuration = load(methods=["lora"])
    [arm] = plan.arms(configuration, "sentiment")
    write_failure(tmp_path, arm, "evaluate_adapter", plan.SETTINGS["evaluate_adapter"](configuration, arm))
    training = {"settings": plan.SETTINGS["train_adapter"](configuration, arm)}
    (tmp_path / arm.folder / "training.json").write_text(json.dumps(training))
    assert plan.failure(configuration, arm, tmp_path)
    assert plan.failure(load(methods=["lora"], training={"learning_rate": 1e-5}), arm, tmp_path) is None


def test_an_arm_that_its_diagnosis_stopped_is_tried_again_when_it_should_only_be_warned_of(tmp_path):
    stops = load(methods=["lora"], diagnosis={"action": "stop"})
    [arm] = plan.arms(stops, "sentiment")
    file = write_failure(tmp_path, arm, "train_adapter", plan.SETTINGS["train_adapter"](stops, arm))
    assert plan.failure(load(methods=["lora"]), arm, tmp_path)  # failed otherwise, which the action does not change
    file.write_text(json.dumps(json.loads(file.read_text()) | {"diagnosed": True}))
    assert plan.failure(stops, arm, tmp_path)
    assert plan.failure(load(methods=["lora"]), arm, tmp_path) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"stage": "train_adapter"}', '{"stage": "x", "settings_sha256": "y"}']
)
def test_a_failure_file_that_says_nothing_is_no_failure(tmp_path, text):
    configuration = load(methods=["lora"])
    [arm] = plan.arms(configuration, "sentiment")
    file = write_failure(tmp_path, arm, "train_adapter", {})
    file.write_text(text)
    assert plan.failure(configuration, arm, tmp_path) is None
