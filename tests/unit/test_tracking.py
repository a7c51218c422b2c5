"""Curves reach the trackers, which change nothing of the training; one that is not installed is named."""

import os

import pytest

import toy
from reprolora.errors import UserError
from reprolora.files import read_jsonl
from reprolora.tracking import VARIABLES, check_tracker
from toy import changed, train

SETTINGS = changed(epochs=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy.make(tmp_path_factory.mktemp("a toy"))


@pytest.fixture(scope="module")
def untracked(folder, tmp_path_factory):
    return train(folder, tmp_path_factory.mktemp("untracked"), SETTINGS)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """The variables as a user has them, none; those that a training sets do not outlive it."""
    for name in {name for variables in VARIABLES.values() for name in variables}:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def assert_same_training(ours, untracked):
    for name in ("training.json", "adapter/adapter_model.safetensors", "reload_probe.jsonl"):
        assert (ours / name).read_bytes() == (untracked / name).read_bytes(), name


def losses(out) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in read_jsonl(out / "training_log.jsonl") if "loss" in row}


def test_tensorboard_gets_the_curves_of_the_last_training_only(folder, untracked, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):
        out = train(folder, tmp_path, SETTINGS, tracking="tensorboard")
    assert_same_training(out, untracked)
    home = out / "tracking/tensorboard/toy/tiny/lora/seed1"
    assert len(list(home.iterdir())) == 1
    events = EventAccumulator(str(home)).Reload()
    found = {event.step: event.value for event in events.Scalars("train/loss")}
    assert found == pytest.approx(losses(out), rel=1e-5) and len(found) == 5
    assert events.Scalars("eval/loss")


def test_mlflow_gets_the_curves_in_a_folder_of_files(folder, untracked, tmp_path):
    import mlflow

    try:
        out = train(folder, tmp_path / "with spaces", SETTINGS, tracking="mlflow")
    finally:
        mlflow.set_tracking_uri(None)
    assert_same_training(out, untracked)
    client = mlflow.MlflowClient(str(out / "tracking/mlflow"))
    [experiment] = [e for e in client.search_experiments() if e.name == "toy"]
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "toy/tiny/lora/seed1" and run.info.status == "FINISHED"
    found = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "loss")}
    assert found == pytest.approx(losses(out), rel=1e-5) and len(found) == 5


def test_what_the_environment_says_is_kept(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "mine"))
    out = train(folder, tmp_path, SETTINGS, tracking="tensorboard")
    assert list((tmp_path / "mine").iterdir()) and not (out / "tracking/tensorboard/toy").exists()


@pytest.mark.parametrize("tracker", ["wandb", "trackio", "swanlab"])
def test_tracker_that_is_not_installed_is_refused_in_one_line(folder, tmp_path, monkeypatch, tracker):
    monkeypatch.setattr("reprolora.tracking.find_spec", lambda name: None)
    with pytest.raises(UserError, match=f"^tracking: {tracker}: .* not installed; pip install {tracker}, or set"):
        train(folder, tmp_path, SETTINGS, tracking=tracker)
    assert not os.listdir(tmp_path)


def test_no_tracker_needs_no_package(monkeypatch):
    monkeypatch.setattr("reprolora.tracking.find_spec", lambda name: None)
    check_tracker("none")
