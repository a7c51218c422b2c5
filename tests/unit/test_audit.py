"""audit_splits and check_leakage: what they count, and that leakage above the limit stops."""

import csv
import json
import sys

import pandas as pd
import pytest

import audit_splits
import check_leakage
from reprolora import audit, leakage
from reprolora.errors import UserError, run_script
from reprolora.files import read_json, write_jsonl
from reprolora.splits import SPLITS

LIMITS = {"near_duplicate_similarity": 0.8, "max_leaked_test_fraction": 0.25}
# Twenty letters have 16 shingles; one more letter at an end adds one: 16 / 17 are shared.
TWENTY = "abcdefghijklmnopqrst"


def row(identity: str, text: str, label: str = "a") -> dict[str, str]:
    return {"id": identity, "text": text, "label": label}


SMALL = {
    "train": [row("1", TWENTY), row("2", f"{TWENTY}!", "b"), row("3", "nothing like any other")],
    "validation": [row("4", "something else altogether")],
    "test": [
        row("5", f"{TWENTY}?", "b"),
        row("6", "quite unlike the first row", "b"),
        row("7", "Something else altogether."),
        row("8", "the fourth test row", "b"),
    ],
}


def test_pairs_within_and_across_splits():
    pairs = leakage.near_duplicates(SMALL, 0.8)
    found = {(p["id"], p["other_id"]): p["similarity"] for p in pairs.to_dict("records")}
    # Of 1, 2 and 5, each is nearest to one row of each of the others' splits.
    assert found == {
        ("1", "2"): pytest.approx(16 / 17, abs=1e-6),
        ("2", "1"): pytest.approx(16 / 17, abs=1e-6),
        ("1", "5"): pytest.approx(16 / 17, abs=1e-6),
        ("2", "5"): pytest.approx(16 / 18, abs=1e-6),
        ("5", "1"): pytest.approx(16 / 17, abs=1e-6),
        ("4", "7"): pytest.approx(21 / 22, abs=1e-6),
        ("7", "4"): pytest.approx(21 / 22, abs=1e-6),
    }
    within = (pairs["split"] == pairs["other_split"]).tolist()
    assert within == sorted(within), "those across splits come first"
    assert audit.count_pairs(pairs) == {
        "train": {"train": 2, "validation": 0, "test": 2},
        "validation": {"train": 0, "validation": 0, "test": 1},
        "test": {"train": 1, "validation": 1, "test": 0},
    }
    assert set(leakage.near_duplicates(SMALL, 0.8, of=["test"])["id"]) == {"5", "7"}


def test_a_test_row_that_leaked_twice_counts_once():
    splits = SMALL | {"validation": [row("4", f"{TWENTY}.")]}
    pairs = leakage.near_duplicates(splits, 0.8)
    assert leakage.summarize_leakage(pairs, 4, LIMITS) == {"rows": 1, "test_rows": 4, "share": 0.25, **LIMITS}


@pytest.mark.parametrize(("limit", "stops"), [(0.5, False), (0.499, True), (0, True), (1, False)])
def test_only_a_share_above_the_limit_stops(limit, stops):
    pairs = leakage.near_duplicates(SMALL, 0.8)
    found = leakage.summarize_leakage(pairs, 4, LIMITS | {"max_leaked_test_fraction": limit})
    if not stops:
        leakage.check_leakage(pairs, found, "letters")
        return
    with pytest.raises(UserError) as error:
        leakage.check_leakage(pairs, found, "letters")
    message = str(error.value)
    assert message.startswith("experiment letters: 2 of 4 test rows (50 %) are nearly the same")
    assert "'7' ('Something else altogether.') and '4' in validation" in message
    assert "config/experiments/letters.yaml" in message and "audit.max_leaked_test_fraction" in message


def arguments(folder, splits, limits, outputs):
    command = ["script.py"]
    for split in SPLITS:
        write_jsonl(folder / f"{split}.jsonl", splits[split])
        command += [f"--{split}", str(folder / f"{split}.jsonl")]
    settings = {"experiment": "letters", "labels": ["a", "b"], "split_seed": 1, "audit": limits}
    command += ["--settings", json.dumps(settings)]
    for flag, name in outputs.items():
        command += [f"--{flag}", str(folder / name)]
    return command


AUDIT = {"audit": "audit.json", "near-duplicates": "near.csv", "label-suspects": "suspects.csv"}


@pytest.mark.parametrize(("module", "outputs"), [(check_leakage, {"output": "leakage.json"}), (audit_splits, AUDIT)])
def test_above_the_limit_a_script_says_so_in_one_line_and_writes_nothing(
    module, outputs, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", arguments(tmp_path, SMALL, LIMITS, outputs))
    with pytest.raises(SystemExit) as end:
        run_script(module.main)
    assert end.value.code == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "above the limit of 25 %" in said[0]
    assert not [name for name in outputs.values() if (tmp_path / name).exists()]


def test_the_audit_counts_classes_and_lengths(tmp_path, monkeypatch):
    limits = LIMITS | {"max_leaked_test_fraction": 0.5}
    monkeypatch.setattr(sys, "argv", arguments(tmp_path, SMALL, limits, AUDIT))
    audit_splits.main()
    content = read_json(tmp_path / "audit.json")
    assert {split: it["labels"] for split, it in content["splits"].items()} == {
        "train": {"a": 2, "b": 1},
        "validation": {"a": 1, "b": 0},
        "test": {"a": 1, "b": 3},
    }
    # 20, 21 and 22 letters.
    assert content["splits"]["train"]["characters"] | {"histogram": 0} == {
        "median": 21.0,
        "percentile_95": 21.9,
        "max": 22,
        "histogram": 0,
    }
    assert sum(content["splits"]["train"]["characters"]["histogram"]["counts"]) == 3
    # Two of the seven pairs have one label on both sides: (4, 7) and (7, 4). 1 and 2, 1 and 5 contradict each other
    # from both sides; 2 and 5, seen from 2, do not.
    assert content["contradicting"] == 4
    assert content["leakage"]["share"] == 0.5
    first = bytes((tmp_path / "audit.json").read_bytes()), (tmp_path / "suspects.csv").read_bytes()
    audit_splits.main()
    assert ((tmp_path / "audit.json").read_bytes(), (tmp_path / "suspects.csv").read_bytes()) == first


def test_a_wrong_label_is_the_first_suspect():
    texts = {"a": "apples are round and number {}", "b": "bananas have curves on day {}"}
    rows = [row(f"{label}{k}", text.format(k), label) for label, text in texts.items() for k in range(30)]
    wrong = row("wrong", "bananas have curves", "a")
    splits = {"train": [*rows[::2], wrong], "validation": rows[1::4], "test": rows[3::4]}
    counts, suspects = audit.label_suspects(splits, seed=1)
    assert counts == {
        "folds": 5,
        "accuracy": round(60 / 61, 6),
        "disagree": {"train": 1, "validation": 0, "test": 0},
    }
    assert len(suspects) == 1
    found = suspects.iloc[0]
    assert (found["id"], found["split"], found["label"], found["suggestion"]) == ("wrong", "train", "a", "b")
    assert found["label_probability"] == pytest.approx(1 - found["suggestion_probability"], abs=1e-5)
    assert found["label_probability"] < 0.5


def test_classes_too_small_to_cross_validate_have_no_suspects(tmp_path):
    splits = {"train": [row("1", "one"), row("2", "two", "b")], "validation": [], "test": [row("3", "three")]}
    counts, suspects = audit.label_suspects(splits, seed=1)
    assert counts is None and suspects.empty
    file = tmp_path / "suspects.csv"
    suspects.to_csv(file, index=False)
    with file.open() as stream:
        assert next(csv.reader(stream)) == audit.SUSPECT_COLUMNS
    assert pd.read_csv(file).empty
