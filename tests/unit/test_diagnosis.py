"""A training that learns too little is noticed, with the likely causes first."""

import pytest

import toy
from reprolora.diagnosis import find_problems, likely_causes
from reprolora.errors import Undertrained
from reprolora.failures import recorded_failure
from reprolora.files import read_json


def curve(*losses: float, every: int = 10) -> list[tuple[int, float]]:
    return [(every * number, loss) for number, loss in enumerate(losses, 1)]


def steps_of(problems) -> list[int]:
    return [problem["step"] for problem in problems]


def test_a_loss_that_falls_below_the_limit_is_no_problem():
    assert find_problems(curve(4, 3, 2.1, 1.9), 2.0, 20, is_over=True) == []


def test_a_loss_above_the_limit_is_a_problem_from_the_limit_s_step_on():
    losses = curve(4, 3.5, 3, 2.5, 2.4, 2.3, 2.2, 2.1)
    assert find_problems(losses[:4], 2.0, 80, is_over=False) == []
    # The last quarter of eight are 2.2 and 2.1.
    [problem] = find_problems(losses, 2.0, 80, is_over=False)
    assert problem == {"step": 80, "problem": "the loss is still 2.15, above 2"}
    assert find_problems(losses, 2.0, 80, is_over=True) == [problem]
    # A training that ends before has no such limit.
    assert find_problems(losses, 2.0, 81, is_over=True) == []


def test_a_loss_that_does_not_fall_is_a_problem_at_the_limit_s_step_and_at_the_end():
    flat = curve(1, 1, 1, 1, 1, 1, 1, 1)
    assert steps_of(find_problems(flat, 2.0, 40, is_over=False)) == [40]
    assert steps_of(find_problems(flat, 2.0, 40, is_over=True)) == [40, 80]
    assert steps_of(find_problems(curve(1, 0.9, 0.8, 0.7, 0.9, 1, 1.1, 1.2), 2.0, 40, is_over=True)) == [80]


def test_too_few_losses_say_nothing():
    assert find_problems(curve(1, 2, 3), 2.0, 1000, is_over=True) == []
    assert find_problems([], 2.0, 10, is_over=True) == []


@pytest.mark.parametrize(
    ("losses", "rate", "full", "share", "first"),
    [
        ((4, 4, 4, 4), 1e-3, False, 0.5, "the learning rate 0.001 is too high: try 0.0002"),
        ((4, 4, 4, 4), 1e-6, False, 0.5, "the learning rate 1e-06 is too low: try 5e-06"),
        ((4, 4, 4, 4), 2e-4, True, 0.5, "the learning rate 0.0002 is too high: try 4e-05"),
        ((4, 2, 3, 4), 2e-4, False, 0.5, "the learning rate 0.0002 is too high: try 4e-05"),
        ((4, 4, 4, 4), 2e-4, False, 0.01, "only 1.0% of the tokens are answers"),
    ],
)
def test_the_cause_that_something_speaks_for_comes_first(losses, rate, full, share, first):
    causes = likely_causes(losses, rate, full, share)
    assert causes[0].startswith(first) and len(causes) == (4 if share < 0.02 else 3)


def test_without_a_suspect_the_common_causes_remain():
    rate, *others = likely_causes([4, 3.9, 3.8, 3.7], 2e-4, False, 0.5)
    assert rate == "the learning rate 0.0002 does not suit the model: try 4e-05 and 0.001" and len(others) == 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy.make(tmp_path_factory.mktemp("toy"))


def limited(loss: float, **training) -> dict:
    return toy.changed(**training) | {"diagnosis": {"loss": loss, "steps": 5}}


def test_training_goes_on_with_a_warning_that_is_recorded(folder, tmp_path, caplog):
    out = toy.train(folder, tmp_path, limited(1e-6))
    [*_, last] = read_json(out / "training.json")["diagnosis"]["findings"]
    assert last["step"] == 40 and "above 1e-06" in last["problem"]
    assert read_json(out / "training.json")["diagnosis"]["causes"][0].startswith("the learning rate 0.01 is too high")
    assert "after 40 steps the loss is still" in caplog.text and "likely causes: (1) the learning rate" in caplog.text


def test_training_without_a_problem_has_none_recorded(folder, tmp_path):
    out = toy.train(folder, tmp_path)
    assert read_json(out / "training.json")["diagnosis"] == {"findings": [], "causes": []}


def test_training_stops_and_says_that_its_diagnosis_did_it(folder, tmp_path):
    settings = limited(1e-6)
    with pytest.raises(Undertrained, match="after 8 steps the loss is still"):
        toy.train(folder, tmp_path / "arm", settings, on_problem="stop")
    assert not (tmp_path / "arm/training.json").exists() and not (tmp_path / "arm/checkpoints").exists()
    with pytest.raises(Undertrained), recorded_failure(tmp_path, settings["arm"], "train_adapter", "{}", []):
        raise Undertrained("the loss does not fall")
    assert read_json(tmp_path / "failure.json")["diagnosed"] is True
