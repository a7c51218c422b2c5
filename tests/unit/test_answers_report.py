"""The tables and the report of an instruction experiment: what they say, and that the page trusts no text."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from test_report import SVG, Page, run

import compare_answers
import list_answers
import summarize_answers
import summarize_resources
import write_answers_report
import write_main_table
from fake_results import INSTRUCTED, REVIEWED, FakeMethod, make_instruction_results
from reprolora.arms import read_table, read_texts
from reprolora.errors import UserError
from reprolora.files import read_json, read_jsonl, write_json, write_jsonl

FIGURES = ("answers", "changes", "training", "resources")


def write_tables(results, by_document=True):
    tables = results.folder / "tables"
    arms = ["--metrics", *results.metrics]
    settings = json.dumps({"by_document": by_document})
    pooled = tables / "metrics_pooled.csv"
    failures = ["--failures", *results.failures]
    outputs = ["--output", tables / "metrics.csv", "--pooled", pooled]
    run(summarize_answers, "--settings", settings, *arms, *failures, *outputs)
    run(write_main_table, "--metrics", pooled, "--tex", tables / "main.tex", "--md", tables / "main.md")
    margin = results.settings["experiment"]["comparison"]["margin"]
    settings = json.dumps({"by_document": by_document, "margin": margin})
    run(compare_answers, "--settings", settings, *arms, "--output", tables / "comparison.csv")
    run(list_answers, "--settings", '{"before": ["zero-shot"]}', *arms, "--output", tables / "answers.csv")
    resources = ["--evaluate", *results.evaluations, "--train", *results.resources, "--price-per-hour", 0.1]
    run(summarize_resources, *resources, "--output", tables / "resources.csv")
    return tables


def write_page(results, extra=(), by_document=True, **settings):
    """Make the tables and stand-ins for the figures, and write the report; gives its text."""
    tables = write_tables(results, by_document)
    figures = [results.folder / "figures" / f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg", "csv")]
    for figure in figures:
        figure.parent.mkdir(exist_ok=True)
        figure.write_text(SVG.format(width=497) if figure.suffix == ".svg" else f"{figure.stem}\n")
    output = results.folder / "report.html"
    run(
        write_answers_report,
        *("--settings", json.dumps(results.settings | {"by_document": by_document} | settings)),
        *("--metrics-table", tables / "metrics.csv", "--pooled-table", tables / "metrics_pooled.csv"),
        *("--main-table", tables / "main.tex", tables / "main.md", "--comparison-table", tables / "comparison.csv"),
        *("--resources-table", tables / "resources.csv", "--answers-table", tables / "answers.csv"),
        *("--figures", *figures, "--metrics", *results.metrics, "--training", *results.trainings),
        *("--failures", *results.failures, "--prompts", *results.prompts, "--models", *results.models),
        *("--dataset", results.dataset, "--split", results.split, "--split-rows", *results.split_rows),
        *("--bibliography", results.folder / "references.bib", "--output", output),
        *extra,
    )
    return output.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return make_instruction_results(tmp_path_factory.mktemp("instructions"))


@pytest.fixture(scope="module")
def page(results):
    return write_page(results)


def test_tables_have_the_scores_of_the_arms_with_intervals(results, page):
    table = read_table(results.folder / "tables" / "metrics.csv")
    for row, file in zip(table.to_dict("records"), results.metrics, strict=True):
        metrics = read_json(file)
        assert row["n"] == metrics["n"] == 120 and row["n_choices"] == metrics["n_choices"] == 119
        assert row["documents"] == 15 and row["status"] == "ok"
        for name, value in metrics["metrics"].items():
            assert row[name] == pytest.approx(value, abs=2e-6)
            assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]
    pooled = read_table(results.folder / "tables" / "metrics_pooled.csv")
    columns = [column for column in pooled if column in table]
    pd.testing.assert_frame_equal(pooled[columns], table[columns])
    main = (results.folder / "tables" / "main.md").read_text()
    first = table.iloc[0]
    low, high = first["domain_accuracy_low"] * 100, first["domain_accuracy_high"] * 100
    assert f"| zero-shot | {first['domain_accuracy'] * 100:.1f} [{low:.1f}, {high:.1f}] |" in main
    assert "Domain accuracy is of 119 of them" in main


def test_several_seeds_are_pooled(tmp_path):
    results = make_instruction_results(tmp_path, seeds=(1, 2, 3))
    text = Page(write_page(results)).text
    arms = read_table(tmp_path / "tables" / "metrics.csv").query("method == 'lora'")
    pooled = read_table(tmp_path / "tables" / "metrics_pooled.csv").set_index("method").loc["lora"]
    assert pooled["seeds"] == 3 and pooled["loss"] == pytest.approx(arms["loss"].mean(), abs=1e-6)
    assert pooled["loss_sd"] == pytest.approx(arms["loss"].std(), abs=1e-6)
    assert pooled["perplexity"] == pytest.approx(np.exp(pooled["loss"]), abs=1e-5)
    assert pooled["loss_low"] < arms["loss"].min() and pooled["loss_high"] > arms["loss"].max()
    assert "on average over 3 seeds" in text and "LoRA (seed 2)" in text
    comparison = read_table(tmp_path / "tables" / "comparison.csv")
    methods, seeds = (comparison[comparison["level"] == level] for level in ("method", "seed"))
    assert set(methods["test"]) == {"t, hierarchical bootstrap"}
    assert len(methods) == 3 and len(seeds) == 9 and set(seeds["test"]) == {"exact, documents exchanged"}


def test_losses_of_two_models_are_not_compared(tmp_path):
    results = make_instruction_results(tmp_path, models=("smollm2-135m", "qwen2.5-0.5b"))
    text = Page(write_page(results)).text
    table = read_table(tmp_path / "tables" / "comparison.csv")
    same = table["model_a"] == table["model_b"]
    assert same.sum() == 6 and len(table) == 15
    for column in ("loss_difference", "loss_difference_low", "loss_difference_high"):
        assert table[column].notna().tolist() == same.tolist()
    assert table["rouge_l_difference"].notna().all()
    assert "another's tokens are others" in text and "nan" not in text


def test_the_answers_stand_side_by_side_with_those_before_fine_tuning_first(results, page):
    table = read_texts(results.folder / "tables" / "answers.csv")
    answers = [column for column in table if column.startswith("answer of ")]
    assert answers == ["answer of zero-shot", "answer of LoRA", "answer of QLoRA"] and len(table) == 120
    row, said = table.iloc[5], list(read_jsonl(results.predictions[1]))[5]
    assert (row["id"], row["document"], row["reference"]) == (said["id"], said["document"], said["reference"])
    assert row["answer of LoRA"] == said["answer"] and row["correct of LoRA"] == str(said["correct"])
    assert float(row["loss of LoRA"]) == pytest.approx(said["reference_loss"] / said["reference_tokens"], abs=1e-6)


def test_it_opens_with_three_sentences_made_from_the_tables(results, page):
    text = Page(page).text
    table = read_table(results.folder / "tables" / "metrics.csv").set_index("method")
    lora, before = table.loc["lora"], table.loc["zero-shot"]
    low, high = lora["domain_accuracy_low"] * 100, lora["domain_accuracy_high"] * 100
    assert (
        f"LoRA has the highest domain accuracy: {lora['domain_accuracy'] * 100:.1f} % (95 % interval {low:.1f} % to "
        f"{high:.1f} %) on 119 test questions from 15 documents"
    ) in text
    points = (lora["domain_accuracy"] - before["domain_accuracy"]) * 100
    assert f"That is {points:.1f} points above the model before fine-tuning (95 % interval" in text
    assert f"falls from {before['loss']:.2f} to {lora['loss']:.2f} nats per token" in text
    assert re.search(r"QLoRA is \d\.\d points? below LoRA \(95 % interval .*: no difference is shown \(p = ", text)


def test_the_tutorials_claim_stands_beside_what_was_measured(results, page):
    text = Page(page).text
    assert (
        "A public tutorial on this kind of fine-tuning claims that domain accuracy rises from 72.3 % to 91.2 %" in text
    )
    assert "A public tutorial's claim 72.3 % no interval given 91.2 % no interval given +18.9 no interval given" in text
    comparison = read_table(results.folder / "tables" / "comparison.csv")
    row = comparison.query("method_a == 'zero-shot' and method_b == 'lora'").iloc[0]
    low, high = -row["domain_accuracy_difference_high"] * 100, -row["domain_accuracy_difference_low"] * 100
    assert f"{-row['domain_accuracy_difference'] * 100:+.1f} {low:+.1f} to {high:+.1f}" in text
    assert "Measured here: QLoRA" in text


def test_a_skipped_review_is_a_notice_and_one_that_was_made_has_its_pass_rate(results, page, tmp_path):
    assert "The review was skipped: no person looked at any of the 663 questions and answers" in Page(page).text
    reviewed = Page(write_page(make_instruction_results(tmp_path, review=REVIEWED))).text
    assert "skipped" not in reviewed
    assert "Pass rate 94.0 % (Wilson's 95 % interval 83.8 % to 97.9 %)" in reviewed
    assert "A person reviewed 50 of them, of which 47 passed as they were" in reviewed, "in the method section"


def test_every_section_says_what_it_should(results, page):
    text = Page(page).text
    for said in (
        "Only 120 test rows",
        "Of these other answers, 357 are to test rows, 0 are to train rows, 0 are to validation rows.",
        "Questions about one document are not independent, so documents are drawn and not rows",
        "2 html, 74 rst; 1 refused; 12 files of other types passed over",
        "1 duplicate documents, 7 duplicate chunks",
        "docs/scan.pdf holds no text",
        "30 chunks without any, and so nothing of a <silent>.pdf;",
        "5 answers that their chunk does not support, of which 5 were left out",
        "train 480 479",
        "What is a view? test What is, then, a view?",
        "2 of train (for test), 1 of train (for validation)",
        "Template: the model's own chat template",
        "Only 41% of the training tokens are answers",
        "train 480 99 300 2,100 2,048 2 0 41.0 %",
        "nf4, double quantization on, blocks of 64",
        "training.max_length 2048",
        "answers.distractors 3",
        "pypi:flask==3.1.3",
        "e" * 64,  # of the documents
        "The base model's weights take 120 MB with QLoRA and 269 MB with LoRA: 55 % less.",
        "No person reviewed them.",
        "the reference answer stands against 3 answers to other questions about the same document",
        "Rows longer than 2048 tokens lose the end of their answer",
        "an exact test that exchanges two arms' answers to whole documents",
    ):
        assert said in text, said
    bibliography = (results.folder / "references.bib").read_text()
    for key in ("flask2026", "lin2004rouge", "popovic2015chrf", "rajpurkar2016squad", "hu2022lora"):
        assert f"{{{key}," in bibliography and f"@{key}" in text


def test_a_training_that_learned_too_little_is_said_to_with_the_likely_causes(tmp_path):
    results = make_instruction_results(tmp_path)
    training = read_json(results.trainings[1])
    finding = {"step": 200, "problem": "the loss is still 2.31, above 2"}
    causes = ["the learning rate 1e-05 is too low: try 5e-05", "too few steps"]
    write_json(results.trainings[1], training | {"diagnosis": {"findings": [finding], "causes": causes}})
    text = Page(write_page(results)).text
    assert (
        "QLoRA: after 200 steps the loss is still 2.31, above 2. Likely causes, the likeliest first: (1) the learning "
        "rate 1e-05 is too low: try 5e-05; (2) too few steps."
    ) in text
    assert " LoRA: after 200 steps" not in text


def test_examples_are_drawn_by_the_seed_of_the_split(results, page):
    shown = re.findall(r"docs/part\d+\.rst, row (\w+)", Page(page).text)
    drawn = np.random.default_rng(1).permutation(120)[:8]
    assert shown == [f"{k:04x}" for k in sorted(drawn)]
    assert page.count("before fine-tuning</dt>") == 8


def test_it_needs_no_other_file_and_no_network_and_its_links_lead_somewhere(results, page):
    links = [a["href"] for tag, a in Page(page).elements if tag == "a" and not a["href"].startswith(("data:", "#"))]
    assert {"tables/answers.csv", "smollm2-135m/lora/seed1/predictions.jsonl", "figures/changes.png"} <= set(links)
    assert all((results.folder / link).is_file() for link in links if link != "ro-crate-metadata.json")
    assert not re.search(r"@import|url\(", page) and str(results.folder) not in page
    anchors = {a["href"][1:] for tag, a in Page(page).elements if tag == "a" and a["href"].startswith("#")}
    assert anchors <= {a.get("id") for _, a in Page(page).elements}
    assert write_page(results) == page


def test_texts_are_escaped_wherever_they_come_from(tmp_path):
    evil = '"><img src=x onerror=alert(1)><script>alert(2)</script> {{ settings }}'
    results = make_instruction_results(tmp_path, text=evil, failed=("qlora",))
    results.settings["experiment"]["prompt"]["system"] = evil
    results.settings["dataset"] |= {"description": evil, "citation": evil}
    page = write_page(results)
    assert page.count("<script>") == 1 and "<img src=x" not in page
    assert "{{ settings }}" in Page(page).text


def test_failed_arms_are_named_and_an_experiment_whose_every_arm_failed_has_a_report(tmp_path):
    text = Page(write_page(make_instruction_results(tmp_path / "one", failed=("qlora",)))).text
    assert "Left out because they failed: smollm2-135m/qlora/seed1." in text
    assert "the loss is still 3.1 after 200 steps" in text
    text = Page(write_page(make_instruction_results(tmp_path / "all", failed=tuple(INSTRUCTED)))).text
    assert "Every arm failed, so there is no answer yet" in text and "No arm was evaluated." in text
    assert "claim" not in text


def test_what_cannot_be_had_is_said(tmp_path):
    text = Page(write_page(make_instruction_results(tmp_path / "one", documents=[30]))).text
    assert "All test rows are from one document, so there are no intervals." in text and "nan" not in text
    text = Page(write_page(make_instruction_results(tmp_path / "none", choices=False))).text
    assert "no domain accuracy" in text and "has the highest exact match:" in text
    assert "A public tutorial" not in text and "nan" not in text
    text = Page(write_page(make_instruction_results(tmp_path / "rows"), by_document=False)).text
    assert "each counts as independent" in text and "McNemar's exact test" in text and "exchanges" not in text
    methods = {"lora": FakeMethod(0.7)}
    text = Page(write_page(make_instruction_results(tmp_path / "alone", methods=methods))).text
    assert "The model was not evaluated before fine-tuning" in text and "A public tutorial" not in text


def test_a_judges_verdicts_are_shown_with_how_far_a_person_agrees(results, tmp_path):
    judge = tmp_path / "judge.csv"
    columns = "model,method,seed,judge,n,wins,ties,losses,unjudged,inconsistent,win_rate,win_rate_low,win_rate_high"
    row = "smollm2-135m,{},1,a-judge,100,61,20,19,0,0.12,0.61,0.512,0.7,{}"
    rows = [row.format("lora", "50,0.8,0.65"), row.format("qlora", "0,,")]
    judge.write_text("\n".join([f"{columns},labelled,agreement,kappa", *rows]) + "\n")
    text = Page(write_page(results, extra=("--judge-table", judge))).text
    assert "a-judge compared the answers of each arm with those before fine-tuning" in text
    assert "LoRA 100 61 20 19 61.0 % 51.2 % to 70.0 % 12.0 % 0 80.0 % of 50, Cohen's kappa 0.65" in text
    assert "QLoRA 100 61 20 19 61.0 % 51.2 % to 70.0 % 12.0 % 0 \u2013" in text


def test_answers_of_other_rows_or_of_another_run_are_refused(tmp_path):
    results = make_instruction_results(tmp_path)
    rows = list(read_jsonl(results.predictions[1]))
    write_jsonl(results.predictions[1], rows[1:])
    with pytest.raises(UserError, match="not the answers that"):
        write_tables(results)
    other = make_instruction_results(tmp_path / "other", documents=[5, 5])
    with pytest.raises(UserError, match="arms are compared on the same rows"):
        run(compare_answers, "--settings", '{"by_document": true, "margin": null}', "--metrics", results.metrics[0],
            other.metrics[0], "--output", tmp_path / "x.csv")  # fmt: skip
