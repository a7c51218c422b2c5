"""The tables: metrics.csv, resources.csv and comparison.csv, made by their scripts from the files of the arms."""

import sys

import pandas as pd
import pytest

import compare_methods
import summarize_metrics
import summarize_resources
from fake_results import make_results
from reprolora.arms import read_table
from reprolora.errors import UserError
from reprolora.files import read_json


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
        predictions=results.predictions,
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


def test_resources_keeps_the_phases_apart_and_adds_up_the_cost(tmp_path, monkeypatch):
    results = make_results(tmp_path, rows=60)
    table = run(
        monkeypatch,
        summarize_resources,
        metrics=results.metrics,
        resources_evaluate=results.evaluations,
        training=results.trainings,
        resources_train=results.resources,
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
    # A baseline has no adapter; a classical one is fitted where it is evaluated.
    assert table.loc["tfidf", "train_seconds"] == 8.5 and pd.isna(table.loc["tfidf", "adapter_bytes"])
    assert pd.isna(table.loc["zero-shot", "train_seconds"])
    assert table.loc["zero-shot", "total_seconds"] > 30


def test_a_comparison_of_arms_comes_from_their_files(tmp_path, monkeypatch):
    results = make_results(tmp_path, rows=60)
    files = {"metrics": results.metrics, "predictions": results.predictions, "output": tmp_path / "c.csv"}
    files["settings"] = '{"margin": null}'
    table = run(monkeypatch, compare_methods, **files)
    assert len(table) == 10 and set(table["level"]) == {"method"}
    first = files["output"].read_bytes()
    run(monkeypatch, compare_methods, **files)
    assert files["output"].read_bytes() == first
    files |= {"metrics": results.metrics[:1], "predictions": results.predictions[:1]}
    assert run(monkeypatch, compare_methods, **files).empty


def test_files_that_do_not_pair_up_are_refused(tmp_path, monkeypatch):
    results = make_results(tmp_path, rows=30)
    with pytest.raises(UserError, match="--metrics has 5 files and --predictions 4"):
        run(
            monkeypatch,
            compare_methods,
            settings='{"margin": null}',
            metrics=results.metrics,
            predictions=results.predictions[1:],
            output=tmp_path / "c.csv",
        )
    with pytest.raises(UserError, match="--training has 2 files and --resources-train 1"):
        run(
            monkeypatch,
            summarize_resources,
            training=results.trainings,
            resources_train=results.resources[1:],
            price_per_hour=1,
            output=tmp_path / "r.csv",
        )
    assert not (tmp_path / "c.csv").exists() and not (tmp_path / "r.csv").exists()


def test_an_experiment_whose_every_arm_failed_still_has_its_tables(tmp_path, monkeypatch):
    results = make_results(tmp_path, rows=30, failed=("majority", "tfidf", "zero-shot", "lora", "qlora"))
    pooled, none = tmp_path / "p.csv", {"metrics": [], "predictions": []}
    files = none | {"failures": results.failures, "output": tmp_path / "m.csv", "pooled": pooled}
    table = run(monkeypatch, summarize_metrics, **files)
    assert len(table) == 5 and table["accuracy"].isna().all()
    assert read_table(pooled).empty
    files = none | {"settings": '{"margin": 0.01}', "output": tmp_path / "c.csv"}
    assert run(monkeypatch, compare_methods, **files).empty
    empty = run(monkeypatch, summarize_resources, price_per_hour=1, output=tmp_path / "r.csv")
    assert empty.empty and "cost_usd" in empty
