"""The tables: metrics.csv, resources.csv and comparison.csv, made by their scripts from the files of the arms."""

import sys

import pandas as pd
import pytest

import compare_methods
import summarize_metrics
import summarize_resources
import write_main_table
from fake_results import METHODS, make_results
from reprolora.arms import read_table
from reprolora.files import read_json, write_json


def run(monkeypatch, module, **flags):
    arguments = [f"{module.__name__}.py"]
    for flag, value in flags.items():
        arguments += [f"--{flag.replace('_', '-')}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    monkeypatch.setattr(sys, "argv", arguments)
    module.main()
    return read_table(flags["output"])


def test_metrics_has_a_row_for_each_arm_and_mode_and_failed_arms_last(tmp_path, monkeypatch):
    results = make_results(tmp_path, rows=60, modes=("generate", "likelihood"), failed=("qlora",))
    table = run(
        monkeypatch,
        summarize_metrics,
        metrics=results.metrics,
        failures=results.failures,
        output=tmp_path / "t" / "metrics.csv",
        pooled=tmp_path / "t" / "pooled.csv",
    )
    assert list(table.columns) == [
        "model",
        "method",
        "seed",
        "mode",
        "split",
        "split_seed",
        "n",
        "accuracy",
        "accuracy_low",
        "accuracy_high",
        "macro_f1",
        "macro_f1_low",
        "macro_f1_high",
        "weighted_f1",
        "invalid_rate",
        "status",
    ]
    assert list(zip(table["method"], table["mode"].fillna("-"), strict=True)) == [
        ("majority", "classical"),
        ("tfidf", "classical"),
        ("zero-shot", "generate"),
        ("zero-shot", "likelihood"),
        ("lora", "generate"),
        ("lora", "likelihood"),
        ("qlora", "-"),
    ]
    scores = read_json(results.metrics[3])["modes"]["generate"]
    for column in ("n", "accuracy", "accuracy_low", "macro_f1", "macro_f1_high", "weighted_f1", "invalid_rate"):
        assert table[column].iloc[4] == scores[column]
    assert table["status"].tolist() == ["ok"] * 6 + ["failed in train_adapter"]
    assert table.loc[6, "accuracy":"invalid_rate"].isna().all()


def summaries(monkeypatch, results):
    """Both tables of metrics."""
    files = {"metrics": results.metrics, "failures": results.failures}
    pooled = results.folder / "metrics_pooled.csv"
    table = run(monkeypatch, summarize_metrics, **files, output=results.folder / "metrics.csv", pooled=pooled)
    return table, read_table(pooled)


def test_seeds_are_pooled_in_a_table_of_their_own(tmp_path, monkeypatch):
    methods = {"tfidf": METHODS["tfidf"], "lora": METHODS["lora"]}
    results = make_results(tmp_path, rows=80, methods=methods, seeds=(1, 2, 3), modes=("generate", "likelihood"))
    table, pooled = summaries(monkeypatch, results)
    assert list(zip(pooled["method"], pooled["mode"], pooled["seeds"], strict=True)) == [
        ("tfidf", "classical", 1),
        ("lora", "generate", 3),
        ("lora", "likelihood", 3),
    ]
    assert set(table["split_seed"]) == set(pooled["split_seed"]) == {1}
    # A single arm keeps its own intervals and has no standard deviation.
    for column in ("accuracy", "accuracy_low", "accuracy_high", "macro_f1", "macro_f1_low", "macro_f1_high"):
        assert pooled.loc[0, column] == table.loc[0, column]
    assert pd.isna(pooled.loc[0, "accuracy_sd"]) and pd.isna(pooled.loc[0, "macro_f1_sd"])
    seeds = table[(table["method"] == "lora") & (table["mode"] == "likelihood")]
    row = pooled.loc[2]
    for measure in ("accuracy", "macro_f1"):
        assert row[measure] == pytest.approx(seeds[measure].mean(), abs=1e-6)
        assert row[f"{measure}_sd"] == pytest.approx(seeds[measure].std(), abs=1e-6)
        assert 0 <= row[f"{measure}_low"] < row[measure] < row[f"{measure}_high"] <= 1
    # Each row is answered thrice, so the interval is narrower than that of one seed, but not by as much as that.
    single = (seeds["accuracy_high"] - seeds["accuracy_low"]).mean()
    assert single / 3**0.5 < row["accuracy_high"] - row["accuracy_low"] < single


def test_a_seed_that_failed_is_not_pooled(tmp_path, monkeypatch):
    results = make_results(tmp_path, rows=40, methods={"lora": METHODS["lora"]}, seeds=(1, 2))
    failure = {"arm": read_json(results.metrics.pop())["arm"], "stage": "train_adapter", "reason": "nan"}
    write_json(tmp_path / "failure.json", failure)
    results.failures.append(tmp_path / "failure.json")
    table, pooled = summaries(monkeypatch, results)
    assert table["status"].tolist() == ["ok", "failed in train_adapter"]
    assert pooled["seeds"].tolist() == [1] and pooled.loc[0, "accuracy_low"] == table.loc[0, "accuracy_low"]


def test_the_main_table_is_there_in_latex_and_markdown(tmp_path, monkeypatch):
    columns = [*("model", "method", "mode", "seeds", "split", "split_seed", "n"), *("accuracy", "macro_f1"), "sd"]
    rows = [("classical", "majority", "classical", 1, "test", 7, 840, 0.5583, 0.2388, None),
            ("a_b", "lora", "generate", 3, "test", 7, 840, 0.8381, 0.7932, 0.0123),
            ("c&d|e", "lora", "generate", 3, "test", 7, 840, 0.8, 0.7, 0.02)]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    for measure in ("accuracy", "macro_f1"):
        table[f"{measure}_low"], table[f"{measure}_high"] = table[measure] - 0.03, table[measure] + 0.02
        table[f"{measure}_sd"] = table["sd"]
    table.assign(invalid_rate=[0, 0.0042, 0]).to_csv(tmp_path / "pooled.csv", index=False)
    tex, md = tmp_path / "main.tex", tmp_path / "main.md"
    files = ["--metrics", tmp_path / "pooled.csv", "--tex", tex, "--md", md]
    monkeypatch.setattr(sys, "argv", ["write_main_table.py", *map(str, files)])
    write_main_table.main()
    caption = (
        "Scores on 840 test rows: mean ± standard deviation over training seeds [95 % interval]. Seed of the split: 7. "
        "An answer that is no label is INVALID and counts as wrong."
    )
    assert md.read_text().splitlines() == [
        "| Method | Seeds | Accuracy (%) | Macro-F1 (%) | INVALID (%) |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| majority class | 1 | 55.8 [52.8, 57.8] | 23.9 [20.9, 25.9] | 0.0 |",
        "| LoRA (a_b) | 3 | 83.8 ± 1.2 [80.8, 85.8] | 79.3 ± 1.2 [76.3, 81.3] | 0.4 |",
        r"| LoRA (c&d\|e) | 3 | 80.0 ± 2.0 [77.0, 82.0] | 70.0 ± 2.0 [67.0, 72.0] | 0.0 |",
        "",
        caption,
    ]
    assert tex.read_text().splitlines() == [
        r"% Needs \usepackage{booktabs}. " + caption.replace("±", r"$\pm$"),
        r"\begin{tabular}{lrrrr}",
        r"\toprule",
        r"Method & Seeds & Accuracy (\%) & Macro-F1 (\%) & INVALID (\%) \\",
        r"\midrule",
        r"majority class & 1 & 55.8 [52.8, 57.8] & 23.9 [20.9, 25.9] & 0.0 \\",
        r"LoRA (a\_b) & 3 & 83.8 $\pm$ 1.2 [80.8, 85.8] & 79.3 $\pm$ 1.2 [76.3, 81.3] & 0.4 \\",
        r"LoRA (c\&d|e) & 3 & 80.0 $\pm$ 2.0 [77.0, 82.0] & 70.0 $\pm$ 2.0 [67.0, 72.0] & 0.0 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_resources_keeps_the_phases_apart_and_adds_up_the_cost(tmp_path, monkeypatch):
    results = make_results(tmp_path, rows=60)
    table = run(
        monkeypatch,
        summarize_resources,
        evaluate=results.evaluations,
        train=results.resources,
        price_per_hour=3.6,
        output=tmp_path / "resources.csv",
    ).set_index("method")
    train, evaluate = read_json(results.resources[1]), read_json(results.evaluations[4])
    qlora = table.loc["qlora"]
    assert qlora["train_load_peak_bytes"] == train["load_peak_bytes"]
    assert qlora["train_peak_bytes"] == train["train_peak_bytes"]
    assert qlora["evaluate_load_peak_bytes"] == evaluate["load_peak_bytes"]
    assert qlora["evaluate_peak_bytes"] == evaluate["evaluate_peak_bytes"]
    assert qlora["model_bytes"] == 120_000_000 and qlora["adapter_bytes"] == 19_570_000
    assert qlora["trainable_parameters"] == 4_884_480 and qlora["base_parameters"] == 134_515_008
    seconds = sum(r[f"{p}_seconds"] for r, p in ((train, "load"), (train, "train"), (evaluate, "load")))
    seconds += evaluate["evaluate_seconds"]
    assert qlora["total_seconds"] == pytest.approx(seconds, abs=1e-4)
    # 3.60 an hour is a tenth of a cent a second.
    assert qlora["cost_usd"] == pytest.approx(seconds / 1000, abs=1e-5)
    # Loading twice, training, evaluating; and an arm of which a phase has no energy has no total.
    assert qlora["energy_kwh"] == pytest.approx(0.00001 + 0.0012 + 0.00001 + 0.0002)
    assert qlora["energy_basis"] == "CPU, memory estimated"
    assert table.loc["zero-shot", "energy_kwh"] == pytest.approx(0.00021)
    assert pd.isna(table.loc["tfidf", "energy_kwh"]) and pd.isna(table.loc["tfidf", "energy_basis"])
    # A baseline has no adapter; a classical one is fitted where it is evaluated.
    assert table.loc["tfidf", "train_seconds"] == 8.5 and pd.isna(table.loc["tfidf", "adapter_bytes"])
    assert pd.isna(table.loc["zero-shot", "train_seconds"])
    assert table.loc["zero-shot", "total_seconds"] > 30


def test_a_comparison_of_arms_comes_from_their_files(tmp_path, monkeypatch):
    results = make_results(tmp_path, rows=60)
    files = {"metrics": results.metrics, "output": tmp_path / "c.csv"}
    files["settings"] = '{"margin": null}'
    table = run(monkeypatch, compare_methods, **files)
    assert len(table) == 10 and set(table["level"]) == {"method"}
    first = files["output"].read_bytes()
    run(monkeypatch, compare_methods, **files)
    assert files["output"].read_bytes() == first
    files |= {"metrics": results.metrics[:1]}
    assert run(monkeypatch, compare_methods, **files).empty


def test_an_experiment_whose_every_arm_failed_still_has_its_tables(tmp_path, monkeypatch):
    results = make_results(tmp_path, rows=30, failed=("majority", "tfidf", "zero-shot", "lora", "qlora"))
    pooled, none = tmp_path / "p.csv", {"metrics": []}
    files = none | {"failures": results.failures, "output": tmp_path / "m.csv", "pooled": pooled}
    table = run(monkeypatch, summarize_metrics, **files)
    assert len(table) == 5 and table["accuracy"].isna().all()
    assert read_table(pooled).empty
    files = none | {"settings": '{"margin": 0.01}', "output": tmp_path / "c.csv"}
    assert run(monkeypatch, compare_methods, **files).empty
    empty = run(monkeypatch, summarize_resources, price_per_hour=1, output=tmp_path / "r.csv")
    assert empty.empty and "cost_usd" in empty
