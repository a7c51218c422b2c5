"""The base model as it is: the examples of a few-shot prompt are drawn by seed, balanced, shown and recorded."""

import argparse
import json
from collections import Counter

import pytest

import evaluate_prompted
import toy
from reprolora.errors import ArmFailed
from reprolora.examples import draw_examples
from reprolora.files import read_json, read_jsonl
from toy import EVALUATION, LABELS, SETTINGS

ROWS = [{"id": str(n), "text": f"text {n}", "label": "abc"[min(n // 10, 2)]} for n in range(21)]  # 10 a, 10 b, 1 c


@pytest.mark.parametrize("shots, counts", [(3, [1, 1, 1]), (5, [1, 2, 2]), (9, [1, 4, 4]), (21, [1, 10, 10])])
def test_examples_are_balanced_as_far_as_there_are_rows(shots, counts):
    for seed in range(20):
        drawn = draw_examples(ROWS, "abc", shots, seed)
        assert len({row["id"] for row in drawn}) == shots
        assert sorted(Counter(row["label"] for row in drawn).values()) == counts


def test_seed_decides_the_examples_and_the_order_of_the_rows_does_not():
    drawn = [draw_examples(ROWS, "abc", 6, seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert draw_examples(ROWS[::-1], "abc", 6, 1) == drawn[0]


def test_one_example_is_of_any_label_and_the_labels_come_in_any_order():
    assert {draw_examples(ROWS, "abc", 1, seed)[0]["label"] for seed in range(30)} == set("abc")
    orders = {"".join(row["label"] for row in draw_examples(ROWS, "abc", 3, seed)) for seed in range(60)}
    assert len(orders) == 6


def test_more_examples_than_rows_fail():
    with pytest.raises(ArmFailed, match="asked for 22 examples, but there are 21 training rows"):
        draw_examples(ROWS, "abc", 22, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy.make(tmp_path_factory.mktemp("toy"))


def ask(folder, out, shots, seed=1) -> dict:
    """metrics.json of the tiny model, asked with so many examples."""
    settings = {key: SETTINGS[key] for key in ("labels", "prompt", "accelerator")}
    settings |= {"arm": SETTINGS["arm"] | {"seed": seed}, "evaluation": EVALUATION, "precision": "fp32", "shots": shots}
    args = argparse.Namespace(
        model=str(folder / "model/manifest.json"),
        train=str(folder / "train.jsonl") if shots else "",
        test=str(folder / "test.jsonl"),
        settings=json.dumps(settings),
        predictions=str(out / "predictions.jsonl"),
        metrics=str(out / "metrics.json"),
        resources=str(out / "resources.json"),
        threads=1,
    )
    evaluate_prompted.evaluate_prompted(args, settings)
    return read_json(out / "metrics.json")


def test_examples_change_the_answers_and_are_recorded(folder, tmp_path):
    zero, few, again = (ask(folder, tmp_path / name, shots) for name, shots in (("0", None), ("4", 4), ("4b", 4)))
    assert "baseline" not in zero and few == again
    train = {row["id"]: row for row in read_jsonl(folder / "train.jsonl")}
    shown = few["baseline"]["examples"]
    assert Counter(train[row]["label"] for row in shown) == dict.fromkeys(LABELS, 2)
    assert ask(folder, tmp_path / "other", 4, seed=2)["baseline"]["examples"] != shown

    def probabilities(name):
        return [row["probabilities"] for row in read_jsonl(tmp_path / name / "predictions.jsonl")][12:]

    assert probabilities("4") == probabilities("4b") != probabilities("0")
    assert read_json(tmp_path / "4/resources.json")["engine"] == "shared-prefix"


def test_prompt_longer_than_the_model_knows_fails_before_it_is_asked(folder, tmp_path):
    with pytest.raises(
        ArmFailed, match=r"take \d+ tokens, but the model knows 512 positions; lower the method's shots"
    ):
        ask(folder, tmp_path, 20)
    assert not (tmp_path / "metrics.json").exists()
