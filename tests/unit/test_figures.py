"""The figures: their size, that no text lies over another, that equal data give equal bytes, and what they show."""

import itertools
import struct
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.text import Text

import plot_accuracy
import plot_audit
import plot_calibration
import plot_confusion
import plot_resources
import plot_training
import summarize_metrics
import summarize_resources
from fake_results import METHODS, FakeMethod, FakeResults, make_results
from reprolora import figures
from reprolora.arms import read_all_runs, read_arms
from reprolora.errors import UserError
from reprolora.files import read_json, read_jsonl

EMOTIONS = ("sadness", "joy", "love", "anger", "fear", "surprise")
MANY = tuple(f"a feeling called {k}" for k in range(28))
SWEEP = {f"lora-rank-{rank}-modules-{m}": FakeMethod(0.8) for rank in (2, 4, 8, 16, 32) for m in ("all", "mlp", "qv")}

CASES = {
    "default": {},
    "emotion": {"labels": EMOTIONS, "shares": (3, 3, 1, 1, 1, 1), "rows": 300},
    "two labels": {
        "labels": ("no", "yes"),
        "shares": (1, 1),
        "rows": 60,
        "methods": {"lora": FakeMethod(0.8)},
        "modes": ("likelihood",),
    },
    "many labels": {"labels": MANY, "shares": [1] * 28, "rows": 600},
    "seeds": {"seeds": (1, 2, 3), "models": ("smollm2-135m", "qwen2.5-0.5b"), "rows": 100},
    "likelihood": {"modes": ("generate", "likelihood"), "seeds": (1, 2), "rows": 100},
    "sweep": {"methods": METHODS | SWEEP | {f"{name}-again": method for name, method in SWEEP.items()}, "rows": 100},
}


@pytest.fixture(scope="module")
def results_of(tmp_path_factory):
    made: dict[str, FakeResults] = {}

    def results(case):
        if case not in made:
            made[case] = make_results(tmp_path_factory.mktemp("results"), **CASES[case])
        return made[case]

    return results


def metrics_of(results):
    return summarize_metrics.metrics_table(read_arms(results.metrics), read_arms(results.failures))


def accuracy_of(results):
    metrics = metrics_of(results)
    pooled = summarize_metrics.pooled_table(metrics, read_all_runs(results.metrics))
    return plot_accuracy.accuracy_table(metrics, pooled)


def resources_of(results):
    rows = {}
    for arm, file in zip(read_arms(results.metrics), results.evaluations, strict=True):
        key = tuple(arm["arm"][k] for k in ("model", "method", "seed"))
        rows[key] = summarize_resources.evaluation_columns(read_json(file))
    for training, file in zip(read_arms(results.trainings), results.resources, strict=True):
        key = tuple(training["arm"][k] for k in ("model", "method", "seed"))
        rows[key] |= summarize_resources.training_columns(training, read_json(file))
    return summarize_resources.resources_table(rows, 0.1)


def tables_of(results):
    logs = [list(read_jsonl(file)) for file in results.logs]
    return {
        "accuracy": accuracy_of(results),
        "confusion": plot_confusion.confusion_table(read_arms(results.metrics)),
        "training": plot_training.training_table(read_arms(results.trainings), logs),
        "resources": plot_resources.phases_table(resources_of(results)),
        "audit": plot_audit.audit_table(
            read_json(results.audit), {file.parent.name: read_json(file) for file in results.prompts}
        ),
        "calibration": plot_calibration.calibration_table(read_arms(results.metrics)),
    }


def draw(name, table):
    return getattr(figures, f"draw_{name}")(table)


def texts_of(figure):
    """The visible texts and their boxes, with the figure drawn as it is saved."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    ticks = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks() + axis.get_minor_ticks()
        for label in (tick.label1, tick.label2)
    }
    shown = {
        label
        for axes in figure.axes
        if axes.axison
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis._update_ticks()
        for label in (tick.label1, tick.label2)
    }
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and (text not in ticks or text in shown):
            yield text, text.get_window_extent(renderer)


def faults(figure):
    """Texts that stick out of the figure or lie over another one."""
    texts = list(texts_of(figure))
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in texts:
        if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1:
            yield f"{text.get_text()!r} sticks out: {box}"
    for (one, a), (other, b) in itertools.combinations(texts, 2):
        if one.get_rotation() % 90 and other.get_rotation() % 90:
            # Their boxes overlap without the letters doing so: what counts is the distance across the writing.
            if abs(a.x0 - b.x0) * 0.707 < one.get_fontsize() * figure.dpi / 72 * 0.9 and abs(a.y0 - b.y0) < 3:
                yield f"{one.get_text()!r} is too near {other.get_text()!r}"
        elif min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1.5:
            # A slanted label's box is mostly empty: its lower left and upper right corners hold the letters.
            if one.get_rotation() % 90 or other.get_rotation() % 90:
                continue
            yield f"{one.get_text()!r} lies over {other.get_text()!r}"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["accuracy", "confusion", "training", "resources", "audit", "calibration"])
def test_no_text_lies_over_another_or_sticks_out(results_of, case, name):
    figure = draw(name, tables_of(results_of(case))[name])
    try:
        width, height = figure.get_size_inches()
        assert width in (figures.COLUMN, figures.PAGE), "a paper's column or page"
        assert height <= 9.5, "no higher than a page"
        assert not list(faults(figure))
    finally:
        plt.close(figure)


def test_the_check_above_sees_faults(results_of):
    figure = draw("accuracy", tables_of(results_of("default"))["accuracy"])
    figure.text(0.5, 0.5, "one text")
    figure.text(0.52, 0.5, "over another")
    figure.text(0.98, 0.3, "that sticks out")
    found = " ".join(faults(figure))
    plt.close(figure)
    assert "'one text' lies over 'over another'" in found and "'that sticks out' sticks out" in found


@pytest.mark.parametrize("name", ["accuracy", "confusion", "training", "resources"])
def test_equal_data_give_equal_bytes_in_the_right_size(results_of, name, tmp_path):
    table = tables_of(results_of("two labels"))[name]
    for run in ("a", "b"):
        figures.save(draw(name, table), tmp_path / f"{run}.png", tmp_path / f"{run}.svg")
    png, svg = (tmp_path / "a.png").read_bytes(), (tmp_path / "a.svg").read_bytes()
    assert png == (tmp_path / "b.png").read_bytes() and svg == (tmp_path / "b.svg").read_bytes()
    width, _ = struct.unpack(">II", png[16:24])
    assert width in (figures.COLUMN * 300, figures.PAGE * 300)
    assert b"<dc:date>" not in svg and b"Matplotlib" not in svg
    assert {file.name for file in tmp_path.iterdir()} == {"a.png", "a.svg", "b.png", "b.svg"}


def test_accuracy_draws_the_scores_and_leaves_failed_arms_out(tmp_path):
    results = make_results(tmp_path, rows=60, failed=("qlora",))
    table = accuracy_of(results)
    assert table["name"].tolist() == ["majority class", "TF-IDF", "zero-shot", "LoRA"]
    figure = figures.draw_accuracy(table)
    said = [text.get_text() for text, _ in texts_of(figure)]
    plt.close(figure)
    assert f"{table['accuracy'].iloc[3]:.3f}" in said and f"{table['macro_f1'].iloc[0]:.3f}" in said
    assert "Score on 60 test rows, 95 % interval" in said


def test_accuracy_draws_methods_with_a_dot_for_each_seed(results_of):
    table = accuracy_of(results_of("seeds"))
    methods, seeds = table[table["seed"] == "all"], table[table["seed"] != "all"]
    # Two classical baselines, and zero-shot, LoRA and QLoRA of two models; the adapters have three seeds each.
    assert len(methods) == 8 and len(seeds) == 12
    assert set(seeds["name"]) == {
        f"{method} ({m})" for method in ("LoRA", "QLoRA") for m in ("smollm2-135m", "qwen2.5-0.5b")
    }
    figure = figures.draw_accuracy(table)
    assert "each seed" in [text.get_text() for text, _ in texts_of(figure)]
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "."]
    assert sorted(dots[0].get_xdata()) == sorted(seeds["accuracy"])
    rows = dict(zip(methods["name"], range(8), strict=True))
    assert [round(y) for y in dots[0].get_ydata()] == [rows[name] for name in seeds["name"]]
    plt.close(figure)


def test_confusion_adds_up_the_seeds_and_shows_invalid_only_when_there_is_any(results_of, tmp_path):
    table = plot_confusion.confusion_table(read_arms(results_of("seeds").metrics))
    lora = table[table["name"] == "LoRA (smollm2-135m)"]
    assert lora["count"].sum() == 300 and set(lora["seeds"]) == {3}
    assert lora.groupby("label")["share"].sum().to_numpy() == pytest.approx(1, abs=1e-5)
    matrices = [
        read_json(file)["modes"]["generate"]["confusion"]["matrix"]
        for file in results_of("seeds").metrics
        if "smollm2-135m/lora/" in file.as_posix()
    ]
    cell = lora[(lora["label"] == "neutral") & (lora["predicted"] == "positive")]["count"].item()
    assert cell == sum(matrix[1][2] for matrix in matrices)

    figure = figures.draw_confusion(table)
    assert "INVALID" in [text.get_text() for text, _ in texts_of(figure)]
    plt.close(figure)
    valid = make_results(tmp_path, rows=60, methods={"lora": FakeMethod(0.9)})
    figure = figures.draw_confusion(plot_confusion.confusion_table(read_arms(valid.metrics)))
    assert "INVALID" not in [text.get_text() for text, _ in texts_of(figure)]
    plt.close(figure)


def test_training_marks_the_adapter_that_was_kept(results_of):
    results = results_of("default")
    table = tables_of(results)["training"]
    kept = table[table["best"]]
    assert kept["name"].tolist() == ["LoRA", "QLoRA"]
    assert kept["step"].tolist() == [read_json(file)["best_step"] for file in results.trainings]
    assert kept["validation_loss"].notna().all()


def test_a_running_mean_is_centred():
    values = pd.Series(range(100)).to_numpy(float)
    assert figures.running_mean(values)[50] == 50
    assert figures.running_mean(values)[0] == 1  # of 0, 1 and 2
    assert figures.running_mean(values[:10]).tolist() == values[:10].tolist()


def test_resources_shows_every_phase_of_the_arms_with_an_adapter(results_of):
    table = tables_of(results_of("default"))["resources"]
    assert set(table["name"]) == {"LoRA", "QLoRA"}
    memory = table[(table["quantity"] == "memory") & (table["name"] == "QLoRA")]
    assert memory.set_index("phase")["value"].to_dict() == {
        "base weights alone": 120_000_000,
        "load to train": 1_210_000_000,
        "train": 1_830_000_000,
        "load to evaluate": 1_210_000_000,
        "evaluate": 1_050_000_000,
    }


def test_audit_has_the_classes_in_their_order_and_a_histogram_for_each_model(results_of):
    results = results_of("emotion")
    content = read_json(results.audit)
    table = plot_audit.audit_table(content, {"one": read_json(results.prompts[0])})
    classes = table[table["quantity"] == "class"]
    assert list(dict.fromkeys(classes["label"])) == list(EMOTIONS)
    assert list(dict.fromkeys(table["split"])) == ["train", "validation", "test"]
    assert classes.groupby("split")["share"].sum().round(4).to_dict() == {"test": 1, "train": 1, "validation": 1}
    lengths = table[(table["quantity"] == "tokens") & (table["split"] == "test")]
    assert lengths[["low", "high", "count"]].values.tolist()[0] == [40, 55.5, 200] and len(lengths) == 4
    assert lengths["share"].tolist() == [0.238095, 0.47619, 0.238095, 0.047619]
    alone = plot_audit.audit_table(content, {})
    assert set(alone["quantity"]) == {"class", "characters"}


def test_calibration_puts_seeds_together(tmp_path):
    """Two seeds with 3 of 4 and 1 of 4 right in the bin of 0.8 to 0.9: half of eight are right."""
    files = []
    for seed, accuracy, n, ece in ((1, 0.75, 4, 0.1), (2, 0.25, 4, 0.6)):
        empty = {"n": 0, "confidence": None, "accuracy": None}
        bins = [{"low": 0.0, "high": 0.8, **empty}, {"low": 0.8, "high": 0.9, "n": n, "confidence": 0.85}]
        bins[1]["accuracy"] = accuracy
        arm = {"model": "m", "method": "lora", "seed": seed}
        scores = {"calibration": {"ece": ece, "brier": 0.5, "bins": bins}}
        files.append({"arm": arm, "modes": {"likelihood": scores, "generate": {}}})
    table = plot_calibration.calibration_table(files)
    assert table["n"].tolist() == [0, 8] and table["share"].tolist() == [0, 1]
    assert table["accuracy"].tolist()[1] == 0.5 and table["confidence"].tolist()[1] == pytest.approx(0.85)
    assert table["accuracy"].isna().tolist() == [True, False]
    assert set(table["ece"]) == {0.35} and set(table["seeds"]) == {2}


def test_arms_that_do_not_fit_are_counted(results_of):
    table = tables_of(results_of("sweep"))["accuracy"]
    figure = figures.draw_accuracy(table)
    said = " ".join(text.get_text() for text, _ in texts_of(figure))
    plt.close(figure)
    assert f"of {len(table)}; the table has all" in said
    best = table.loc[table["accuracy"].idxmax(), "name"]
    assert best in said


def arguments(tmp_path, **flags):
    command = ["plot.py"]
    for flag, value in flags.items():
        command += [f"--{flag.replace('_', '-')}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    for kind in ("png", "svg", "csv"):
        command += [f"--{kind}", str(tmp_path / "figures" / f"figure.{kind}")]
    return command


def test_scripts_write_three_files(results_of, tmp_path, monkeypatch):
    results = results_of("default")
    metrics, pooled, resources = (tmp_path / f"{name}.csv" for name in ("metrics", "pooled", "resources"))
    metrics_of(results).to_csv(metrics, index=False)
    summarize_metrics.pooled_table(metrics_of(results), []).to_csv(pooled, index=False)
    resources_of(results).to_csv(resources, index=False)
    for module, flags in (
        (plot_accuracy, {"metrics": metrics, "pooled": pooled}),
        (plot_confusion, {"metrics": results.metrics}),
        (plot_training, {"logs": results.logs}),
        (plot_resources, {"resources": resources}),
        (plot_audit, {"audit": results.audit, "prompts": results.prompts}),
        (plot_calibration, {"metrics": results.metrics}),
    ):
        monkeypatch.setattr(sys, "argv", arguments(tmp_path / module.__name__, **flags))
        module.main()
        written = {file.name for file in (tmp_path / module.__name__ / "figures").iterdir()}
        assert written == {"figure.png", "figure.svg", "figure.csv"}


def test_nothing_to_draw_is_said(tmp_path, monkeypatch):
    results = make_results(tmp_path, rows=30, methods={"lora": METHODS["lora"]}, failed=("lora",))
    table: Path = tmp_path / "metrics.csv"
    metrics_of(results).to_csv(table, index=False)
    pooled = tmp_path / "pooled.csv"
    summarize_metrics.pooled_table(metrics_of(results), []).to_csv(pooled, index=False)
    monkeypatch.setattr(sys, "argv", arguments(tmp_path, metrics=table, pooled=pooled))
    with pytest.raises(UserError, match=r"metrics.csv: every arm failed"):
        plot_accuracy.main()
    resources_of(results).to_csv(table, index=False)
    monkeypatch.setattr(sys, "argv", arguments(tmp_path, resources=table))
    with pytest.raises(UserError, match="no arm trained an adapter"):
        plot_resources.main()
    assert not (tmp_path / "figures").exists()
