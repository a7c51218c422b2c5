"""split_dataset: what a split holds, and what it must not depend on."""

import json
import random
from collections import Counter

import pytest

import draw_rows as draw_rows_script
import split_dataset
from reprolora.errors import UserError, run_script
from reprolora.splits import SPLITS, draw_rows, normalised, split_rows, summarize

LABELS = ["anger", "joy", "love"]
SETTINGS = {
    "seed": 1,
    "train": 0.6,
    "validation": 0.2,
    "test": 0.2,
    "limits": {"train": None, "validation": None, "test": None},
}


def rows(**counts: int) -> list[dict[str, str]]:
    return [
        {"id": f"{label}{number}", "text": f"{label} tweet {number}", "label": label}
        for label, count in counts.items()
        for number in range(count)
    ]


ALL = rows(anger=100, joy=330, love=70)


def settings(limits: dict | None = None, **changed) -> dict:
    return {**SETTINGS, **changed, "limits": {**SETTINGS["limits"], **(limits or {})}}


def counts(splits) -> dict[str, dict[str, int]]:
    return {split: dict(Counter(row["label"] for row in splits.rows[split])) for split in SPLITS}


def ids(splits, split: str) -> list[str]:
    return [row["id"] for row in splits.rows[split]]


def test_fractions_hold_for_every_label():
    splits = split_rows({"all": ALL}, LABELS, SETTINGS)
    assert counts(splits) == {
        "train": {"anger": 60, "joy": 198, "love": 42},
        "validation": {"anger": 20, "joy": 66, "love": 14},
        "test": {"anger": 20, "joy": 66, "love": 14},
    }
    assert sorted(identity for split in SPLITS for identity in ids(splits, split)) == sorted(row["id"] for row in ALL)


def test_sizes_are_rounded_as_a_whole():
    """A tenth of 14 rows is 1.4; rounding that for each label would make a test split of 3, not 4 of 42."""
    splits = split_rows({"all": rows(anger=14, joy=14, love=14)}, LABELS, settings(train=0.8, validation=0.1, test=0.1))
    assert {split: len(splits.rows[split]) for split in SPLITS} == {"train": 34, "validation": 4, "test": 4}


def test_row_order_does_not_matter():
    shuffled = random.Random(0).sample(ALL, len(ALL))
    assert split_rows({"all": shuffled}, LABELS, SETTINGS).rows == split_rows({"all": ALL}, LABELS, SETTINGS).rows


def test_seed_matters():
    first, second = (split_rows({"all": ALL}, LABELS, settings(seed=seed)) for seed in (1, 2))
    assert set(ids(first, "test")) != set(ids(second, "test"))
    overlap = len(set(ids(first, "test")) & set(ids(second, "test")))
    assert 5 < overlap < 40  # 20 of 100 expected of independent draws


def test_test_split_depends_on_nothing_that_is_asked_of_train():
    test = split_rows({"all": ALL}, LABELS, SETTINGS).rows["test"]
    for other in (
        settings({"train": 10}),
        settings({"train": 100, "validation": 9}),
        settings(train=0.7, validation=0.1),
    ):
        assert split_rows({"all": ALL}, LABELS, other).rows["test"] == test


def test_limits_keep_the_proportions_and_nest():
    small, large = (split_rows({"all": ALL}, LABELS, settings({"train": n})) for n in (50, 100))
    assert counts(small)["train"] == {"anger": 10, "joy": 33, "love": 7}
    assert counts(large)["train"] == {"anger": 20, "joy": 66, "love": 14}
    assert set(ids(small, "train")) < set(ids(large, "train"))
    assert small.before_limits["train"] == {"anger": 60, "joy": 198, "love": 42}


def test_limit_above_what_there_is():
    assert len(split_rows({"all": ALL}, LABELS, settings({"train": 9999})).rows["train"]) == 300


def duplicated(base: list[dict[str, str]], times: int) -> list[dict[str, str]]:
    """Each row once more in other case and white space, some with another label."""
    copies = []
    for number, row in enumerate(base):
        for copy in range(times):
            label = "joy" if number % 10 == 0 else row["label"]
            text = ["{}", " {}\t", "{}\n\n"][copy % 3].format(row["text"].upper().replace(" ", "  "))
            copies.append({"id": f"{row['id']}-{copy}", "text": text, "label": label})
    return copies


@pytest.mark.parametrize("seed", range(5))
def test_duplicates_never_straddle_splits(seed):
    everything = ALL + duplicated(ALL[::3], 1) + duplicated(ALL[:40:5], 4)
    everything = list({row["id"]: row for row in everything}.values())
    splits = split_rows({"all": everything}, LABELS, settings(seed=seed))
    texts = {split: {normalised(row["text"]) for row in splits.rows[split]} for split in SPLITS}
    assert not texts["train"] & texts["validation"] and not texts["train"] & texts["test"]
    assert not texts["validation"] & texts["test"]
    assert sum(len(splits.rows[split]) for split in SPLITS) == len(everything)
    assert len(splits.rows["test"]) == pytest.approx(0.2 * len(everything), abs=5)


def test_summary_counts_duplicates_and_conflicts():
    everything = [
        *ALL,
        {"id": "a", "text": "ANGER  tweet 0", "label": "joy"},
        {"id": "b", "text": "joy tweet 1 ", "label": "joy"},
    ]
    splits = split_rows({"all": everything}, LABELS, SETTINGS)
    summary = summarize(splits, {"all": everything}, LABELS, 1)
    assert summary["duplicates"] == {"groups": 2, "rows": 4, "groups_with_conflicting_labels": 1, "removed": {}}
    assert summary["counts"] == counts(splits) and summary["fixed"] == []


@pytest.mark.parametrize("count", [0, 1, 2])
def test_class_with_too_few_rows_is_named(count):
    with pytest.raises(UserError, match="class 'love' has too few rows"):
        split_rows({"all": rows(anger=100, joy=100, love=count)}, LABELS, SETTINGS)


def test_three_rows_are_just_enough():
    splits = split_rows({"all": rows(anger=100, joy=100, love=3)}, LABELS, SETTINGS)
    assert all(counts(splits)[split]["love"] == 1 for split in SPLITS)


def test_every_class_is_in_every_split_of_a_small_dataset():
    splits = split_rows({"all": rows(anger=3, joy=3, love=4)}, LABELS, SETTINGS)
    assert all(len(of_split) == 3 for of_split in counts(splits).values())


def test_three_copies_of_one_row_are_too_few():
    love = [{"id": f"love{n}", "text": "love", "label": "love"} for n in range(3)]
    with pytest.raises(UserError, match="class 'love' has too few rows"):
        split_rows({"all": rows(anger=100, joy=100) + love}, LABELS, SETTINGS)


def test_rare_class_survives_a_limit_and_an_impossible_limit_is_told():
    splits = split_rows({"all": rows(anger=500, joy=500, love=5)}, LABELS, settings({"train": 20}))
    assert counts(splits)["train"]["love"] == 1 and len(splits.rows["train"]) == 20
    with pytest.raises(UserError, match="gets none within its limit"):
        split_rows({"all": ALL}, LABELS, settings({"train": 2}))


def test_fractions_that_are_wrong():
    with pytest.raises(UserError, match=r"add up to 0\.9"):
        split_rows({"all": ALL}, LABELS, settings(train=0.5))
    with pytest.raises(UserError, match="comes without splits"):
        split_rows({"all": ALL}, LABELS, settings(train=None))


# Splits that the dataset comes with


def fixed() -> dict[str, list[dict[str, str]]]:
    parts = {"train": ALL[::2], "validation": ALL[1::4], "test": ALL[3::4]}
    return {part: [{**row} for row in rows] for part, rows in parts.items()}


def test_fixed_splits_are_kept():
    splits = split_rows(fixed(), LABELS, settings(train=None, validation=None, test=None))
    for split, given in fixed().items():
        assert sorted(ids(splits, split)) == sorted(row["id"] for row in given)


def test_leaking_rows_leave_train_and_validation_but_never_test():
    parts = fixed()
    parts["train"] += [
        {**parts["test"][0], "id": "l1"},
        {**parts["validation"][0], "id": "l2", "text": parts["validation"][0]["text"].upper()},
    ]
    parts["validation"] += [{**parts["test"][1], "id": "l3"}]
    parts["test"] += [{**parts["test"][2], "id": "twice"}]
    splits = split_rows(parts, LABELS, SETTINGS)
    assert splits.removed == {"validation_in_test": 1, "train_in_test": 1, "train_in_validation": 1}
    assert sorted(ids(splits, "test")) == sorted(row["id"] for row in parts["test"])
    left = set(ids(splits, "train")) | set(ids(splits, "validation"))
    assert not left & {"l1", "l2", "l3"}


def test_missing_validation_is_cut_from_train():
    parts = {"train": ALL[::2], "test": ALL[1::2]}
    splits = split_rows(parts, LABELS, settings(train=None, test=None))
    assert counts(splits)["validation"] == {"anger": 10, "joy": 33, "love": 7}
    assert len(splits.rows["train"]) == 200 and len(splits.rows["test"]) == 250
    with pytest.raises(UserError, match="comes without a validation split"):
        split_rows(parts, LABELS, settings(validation=None))


def test_class_that_a_given_test_split_lacks_is_reported_and_in_train_refused():
    parts = {"train": rows(anger=50, joy=50, love=50), "test": rows(anger=9, joy=9)}
    parts["test"] = [{**row, "text": row["text"] + "!"} for row in parts["test"]]
    splits = split_rows(parts, LABELS, SETTINGS)
    assert summarize(splits, parts, LABELS, 1)["absent_classes"] == {"train": [], "validation": [], "test": ["love"]}
    with pytest.raises(UserError, match="class 'love' has too few rows: validation gets none"):
        split_rows({"train": rows(anger=50, joy=50, love=0), "test": rows(love=3)}, LABELS, SETTINGS)


# The script


def test_script_writes_splits_and_tells_what_it_removed(tmp_path, monkeypatch, caplog):
    given = fixed()
    given["train"].append({**given["test"][0], "id": "leak"})
    lines = [json.dumps({**row, "part": part}) for part, rows in given.items() for row in rows]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    inputs = [f"--rows={tmp_path / 'rows.jsonl'}"]
    outputs = [f"--{split}={tmp_path / split}" for split in (*SPLITS, "summary")]
    monkeypatch.setattr(
        "sys.argv",
        ["split_dataset", *inputs, *outputs, "--settings", json.dumps({"split": SETTINGS, "labels": LABELS})],
    )
    with caplog.at_level("WARNING"):
        run_script(split_dataset.main)
    assert "removed 1 rows from train because test has the same text" in caplog.text
    summary = json.loads((tmp_path / "summary").read_text())
    for split in SPLITS:
        written = [json.loads(line) for line in (tmp_path / split).read_text().splitlines()]
        assert set(written[0]) == {"id", "text", "label"}
        assert len(written) == summary["rows"][split]
    assert summary["duplicates"]["removed"]["train_in_test"] == 1


# Drawing training rows


def test_drawn_rows_have_the_labels_in_proportion_and_each_at_least_once():
    some = rows(anger=2, joy=6, love=1)
    found = {size: Counter(row["label"] for row in draw_rows(some, size, 1)) for size in (3, 4, 5, 9)}
    # Joy's rows stand at 0, 1/6, 2/6, ... of the order, anger's at 0 and 1/2, love's at 0.
    assert found[3] == {"anger": 1, "joy": 1, "love": 1}
    assert found[4] == {"anger": 1, "joy": 2, "love": 1}
    assert found[5] == {"anger": 1, "joy": 3, "love": 1}
    assert found[9] == {"anger": 2, "joy": 6, "love": 1}
    many = Counter(row["label"] for row in draw_rows(ALL, 50, 1))
    assert all(abs(many[label] - expected) <= 1 for label, expected in {"anger": 10, "joy": 33, "love": 7}.items())


def test_fewer_drawn_rows_are_among_more_whatever_the_order_and_other_seeds_draw_others():
    drawn = {size: [row["id"] for row in draw_rows(ALL, size, 1)] for size in range(3, len(ALL) + 1)}
    for size in range(4, len(ALL) + 1):
        assert drawn[size][:-1] == drawn[size - 1]
    shuffled = random.Random(0).sample(ALL, len(ALL))
    assert [row["id"] for row in draw_rows(shuffled, 50, 1)] == drawn[50]
    assert [row["id"] for row in draw_rows(ALL, 50, 2)] != drawn[50]


@pytest.mark.parametrize("size", [2, 501])
def test_too_few_and_too_many_drawn_rows_are_refused(tmp_path, monkeypatch, capsys, size):
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ALL))
    arguments = ["--train", file, "--rows", size, "--seed", 1, "--output", tmp_path / "drawn.jsonl"]
    monkeypatch.setattr("sys.argv", ["draw_rows.py", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        run_script(draw_rows_script.main)
    assert caught.value.code == 2
    said = f"error: {file}: {size} training rows are asked for, but it takes 3 to 500; change `rows`\n"
    assert capsys.readouterr().err.endswith(said)
    assert not (tmp_path / "drawn.jsonl").exists()
