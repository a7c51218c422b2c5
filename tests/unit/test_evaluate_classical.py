"""The baselines without a language model."""

import json
import random
import sys

import pytest

import evaluate_classical
from reprolora.errors import UserError
from reprolora.files import read_json, read_jsonl, write_jsonl

LABELS = ["negative", "neutral", "positive"]
WORDS = {
    "negative": ["awful", "sad", ":("],
    "neutral": ["table", "tomorrow", "..."],
    "positive": ["great", "fun", ":)"],
}


def rows(count, seed, labels=LABELS):
    rng = random.Random(seed)
    common = ["the", "a", "day", "was", "is", "we"]
    result = []
    for k in range(count):
        label = rng.choice(labels if rng.random() < 0.5 else labels[-1:])
        text = [*rng.choices(common, k=4), rng.choice(WORDS[label])]
        rng.shuffle(text)
        result.append({"id": f"r{k}", "text": " ".join(text), "label": label})
    return result


@pytest.fixture
def evaluate(tmp_path, monkeypatch):
    def call(baseline, train, test, seed=0, folder="out"):
        write_jsonl(tmp_path / "train.jsonl", train)
        write_jsonl(tmp_path / "test.jsonl", test)
        out = tmp_path / folder
        arm = {"experiment": "e", "model": "classical", "method": "m", "seed": seed, "split_seed": 1}
        settings = json.dumps({"arm": arm, "labels": LABELS, "baseline": baseline})
        files = {name: out / name for name in ("predictions", "metrics", "resources")}
        command = ["evaluate_classical.py", "--train", tmp_path / "train.jsonl", "--test", tmp_path / "test.jsonl"]
        command += ["--settings", settings, *(part for name, file in files.items() for part in (f"--{name}", file))]
        monkeypatch.setattr(sys, "argv", [str(part) for part in command])
        evaluate_classical.main()
        return list(read_jsonl(files["predictions"])), read_json(files["metrics"]), read_json(files["resources"]), files

    return call


def test_majority_answers_the_commonest_class_of_the_training_rows(evaluate):
    test = rows(50, 1)
    train = [*rows(80, 0), *({"id": f"x{k}", "text": "t", "label": "neutral"} for k in range(200))]
    predictions, metrics, resources, _ = evaluate("majority", train, test)
    assert [row["id"] for row in predictions] == [row["id"] for row in test]
    assert {row["prediction"] for row in predictions} == {"neutral"}
    share = sum(row["label"] == "neutral" for row in train) / len(train)
    assert predictions[0]["probabilities"]["neutral"] == pytest.approx(share, abs=1e-6)
    scores = metrics["modes"]["classical"]
    assert scores["accuracy"] == sum(row["label"] == "neutral" for row in test) / 50
    assert metrics["baseline"] == {"name": "majority", "train_rows": 280, "class": "neutral"}
    assert resources["examples"] == 50 and resources["device"] == "cpu"
    for phase in ("load", "train", "evaluate"):
        assert resources[f"{phase}_seconds"] >= 0 and resources[f"{phase}_peak_bytes"] > 1e6


def test_tfidf_learns_words_and_emoticons_and_reports_its_strength(evaluate):
    predictions, metrics, _, _ = evaluate("tfidf-logistic-regression", rows(300, 0), rows(100, 1))
    scores = metrics["modes"]["classical"]
    assert scores["accuracy"] > 0.95
    assert metrics["baseline"]["C"] in evaluate_classical.STRENGTHS
    assert metrics["baseline"]["cross_validated_macro_f1"] > 0.95
    assert {"ece", "brier", "bins"} == scores["calibration"].keys()
    row = predictions[0]
    assert row.keys() == {"id", "mode", "text", "label", "prediction", "raw", "probabilities"}
    assert row["mode"] == "classical" and row["raw"] is None
    assert max(row["probabilities"], key=row["probabilities"].get) == row["prediction"]


def test_the_strength_is_chosen_on_training_rows_alone(evaluate):
    train = rows(200, 0)
    _, first, _, _ = evaluate("tfidf-logistic-regression", train, rows(50, 1))
    _, second, _, _ = evaluate("tfidf-logistic-regression", train, rows(70, 2, LABELS[:1]))
    assert first["baseline"] == second["baseline"]


def test_the_same_rows_give_the_same_bytes(evaluate):
    train, test = rows(200, 0), rows(50, 1)
    *_, first = evaluate("tfidf-logistic-regression", train, test, folder="one")
    *_, second = evaluate("tfidf-logistic-regression", train, test, folder="two")
    for name in ("predictions", "metrics"):
        assert first[name].read_bytes() == second[name].read_bytes()


def test_a_class_without_training_rows_gets_no_probability(evaluate):
    train = [row for row in rows(200, 0) if row["label"] != "neutral"]
    predictions, _, _, _ = evaluate("tfidf-logistic-regression", train, rows(50, 1))
    assert all(row["probabilities"]["neutral"] == 0 for row in predictions)


def test_a_class_with_one_training_row_is_not_cross_validated(evaluate):
    train = [row for row in rows(200, 0) if row["label"] != "neutral"]
    train.append({"id": "one", "text": "tomorrow", "label": "neutral"})
    _, metrics, _, _ = evaluate("tfidf-logistic-regression", train, rows(50, 1))
    assert metrics["baseline"]["C"] == evaluate_classical.DEFAULT_STRENGTH
    assert metrics["baseline"]["cross_validated_macro_f1"] is None


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([], r"train.jsonl: no rows"),
        ([{"id": "7", "text": "t", "label": "other"}], r"train.jsonl: row '7' has the label 'other', not one of neg"),
        ([{"id": "7", "text": "t", "label": "neutral"}], r"train.jsonl: all rows have the label 'neutral'"),
    ],
)
def test_rows_that_nothing_can_be_learned_from_are_refused(evaluate, tmp_path, train, message):
    with pytest.raises(UserError, match=message):
        evaluate("tfidf-logistic-regression", train, rows(10, 1))
    assert not (tmp_path / "out").exists()
