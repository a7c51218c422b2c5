"""The figures of instruction experiments: their size, that no text lies over another, equal bytes, what they show."""

import json
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from test_answers_report import write_tables
from test_figures import faults, texts_of

import plot_answers
import plot_changes
from fake_results import INSTRUCTED, FakeMethod, make_instruction_results
from fake_runs import answers
from reprolora import figures
from reprolora.answer_figures import draw_answers, draw_changes
from reprolora.answer_runs import read_all_answers
from reprolora.arms import ALL_SEEDS, read_table
from reprolora.errors import UserError

MANY = {f"lora-rank-{rank}-modules-{m}": FakeMethod(0.6 + rank / 100) for rank in (2, 4, 8, 16) for m in ("all", "qv")}
CASES = {
    "default": {},
    "seeds and models": {"seeds": (1, 2, 3), "models": ("smollm2-135m", "qwen2.5-0.5b")},
    "many methods": {"methods": INSTRUCTED | MANY | {f"{name}-again": method for name, method in MANY.items()}},
    "one document": {"documents": [12]},
    "no distractors": {"choices": False},
}


def scores_of(results):
    tables = write_tables(results)
    return plot_answers.scores_table(read_table(tables / "metrics.csv"), read_table(tables / "metrics_pooled.csv"), 3)


def changes_of(results, by_document=True):
    return plot_changes.changes_table(read_all_answers(results.metrics), ["zero-shot"], by_document)


@pytest.mark.parametrize("case", CASES)
def test_no_text_lies_over_another_or_sticks_out(tmp_path, case):
    results = make_instruction_results(tmp_path, **CASES[case])
    for figure in (draw_answers(scores_of(results)), draw_changes(changes_of(results), by_document=True)):
        width, height = figure.get_size_inches()
        assert width == figures.PAGE and height <= 9.5
        assert not list(faults(figure))
        assert "nan" not in " ".join(text.get_text() for text, _ in texts_of(figure))
        plt.close(figure)


def test_scripts_write_three_files_with_equal_bytes_from_equal_data(tmp_path, monkeypatch):
    results = make_instruction_results(tmp_path)
    tables = write_tables(results)
    sources = {
        plot_answers: ({"distractors": 3}, tables / "metrics.csv", "--pooled", tables / "metrics_pooled.csv"),
        plot_changes: ({"before": ["zero-shot"], "by_document": True}, *results.metrics),
    }
    for module, (settings, *files) in sources.items():
        found = []
        for folder in (tmp_path / "a", tmp_path / "b"):
            outputs = [f"--{kind}={folder / module.__name__}.{kind}" for kind in ("png", "svg", "csv")]
            arguments = ["x", "--settings", json.dumps(settings), "--metrics", *files, *outputs]
            monkeypatch.setattr(sys, "argv", [str(argument) for argument in arguments])
            module.main()
            found.append([(folder / f"{module.__name__}.{kind}").read_bytes() for kind in ("png", "svg", "csv")])
        assert found[0] == found[1]


def test_methods_have_a_dot_for_each_of_several_seeds(tmp_path):
    table = scores_of(make_instruction_results(tmp_path, seeds=(1, 2)))
    assert table.loc[table["seed"] == ALL_SEEDS, "name"].tolist() == ["zero-shot", "LoRA", "QLoRA"]
    assert table.loc[table["seed"] != ALL_SEEDS, "name"].tolist() == ["LoRA", "LoRA", "QLoRA", "QLoRA"]
    assert set(table["chance"]) == {0.25}
    figure = draw_answers(table)
    assert "each seed" in {text.get_text() for text, _ in texts_of(figure)}
    [dots] = [line for line in figure.axes[0].lines if line.get_marker() == "." and len(line.get_xdata())]
    assert sorted(dots.get_xdata()) == sorted(table.loc[table["seed"] != ALL_SEEDS, "domain_accuracy"])
    plt.close(figure)


def test_changes_are_of_documents_with_seeds_averaged():
    before = answers("aab", [1] * 3, method="zero-shot", rouge_l=[0, 0.5, 1], loss=[4, 2, 3], tokens=[2, 2, 1])
    after = [
        answers("aab", [1] * 3, method="lora", seed=seed, rouge_l=[0.5, 0.5, value], loss=[1, 1, 2], tokens=[2, 2, 1])
        for seed, value in ((1, 0.2), (2, 0.4))
    ]
    table = plot_changes.changes_table([before, *after], ["zero-shot"], by_document=True)
    assert table[["name", "unit", "n"]].to_numpy().tolist() == [["LoRA", "a", 2], ["LoRA", "b", 1]]
    assert table["rouge_l_before"].tolist() == [0.25, 1] and table["rouge_l_after"].tolist() == [0.5, 0.3]
    assert table["loss_before"].tolist() == [1.5, 3] and table["loss_after"].tolist() == [0.5, 2]
    figure = draw_changes(table, by_document=True)
    assert "LoRA (less loss on 2 of 2 documents)" in {text.get_text() for text, _ in texts_of(figure)}
    plt.close(figure)
    rows = plot_changes.changes_table([before, *after], ["zero-shot"], by_document=False)
    assert rows["unit"].tolist() == ["0", "1", "2"] and np.all(rows["n"] == 1)


def test_without_a_model_before_fine_tuning_nothing_changed(tmp_path, monkeypatch):
    results = make_instruction_results(tmp_path, methods={"lora": FakeMethod(0.7)})
    settings = '{"before": ["zero-shot"], "by_document": true}'
    outputs = ["--png", tmp_path / "x.png", "--svg", tmp_path / "x.svg", "--csv", tmp_path / "x.csv"]
    monkeypatch.setattr(sys, "argv", ["x", "--settings", settings, "--metrics", *map(str, results.metrics + outputs)])
    with pytest.raises(UserError, match="no adapter with the same model before fine-tuning"):
        plot_changes.main()
