"""The report: what it says, that it needs no other file and no network, and that it trusts no text."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

import analyze_errors
import compare_methods
import summarize_metrics
import summarize_resources
import write_main_table
import write_report
from fake_results import METHODS, FakeMethod, make_results
from reprolora.arms import read_arms, read_table
from reprolora.errors import UserError
from reprolora.files import read_json, write_json
from reprolora.report import evidence, tables
from reprolora.report.answer import answer
from reprolora.report.examples import examples
from reprolora.report.results import Results
from reprolora.report.shared import CAPTIONS
from reprolora.report.sources import TEMPLATES, LabelSources
from reprolora.report.wording import duration, size, unbroken

SCRIPTS = TEMPLATES.parents[1]
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="10pt"></svg>'


def run(module, *arguments):
    """Run a script's main in this process."""
    before, sys.argv = sys.argv, [f"{module.__name__}.py", *map(str, arguments)]
    try:
        module.main()
    finally:
        sys.argv = before


def write_tables(results):
    tables = results.folder / "tables"
    arms = ["--metrics", *results.metrics]
    pooled = tables / "metrics_pooled.csv"
    failures = ["--failures", *results.failures]
    run(summarize_metrics, *arms, *failures, "--output", tables / "metrics.csv", "--pooled", pooled)
    run(write_main_table, "--metrics", pooled, "--tex", tables / "main.tex", "--md", tables / "main.md")
    settings = json.dumps(results.settings["experiment"]["comparison"])
    run(compare_methods, "--settings", settings, *arms, "--output", tables / "comparison.csv")
    run(
        summarize_resources,
        *("--evaluate", *results.evaluations, "--train", *results.resources),
        *("--price-per-hour", 0.1, "--output", tables / "resources.csv"),
    )
    names = ("mistakes", "disagreements", "breakdown", "calibration")
    files = [value for name in names for value in (f"--{name}", tables / f"{name}.csv")]
    run(analyze_errors, *arms, *files)
    return tables


def error_tables(tables):
    return [tables / f"{name}.csv" for name in ("mistakes", "disagreements", "breakdown", "calibration")]


def write_page(results, extra=(), **settings):
    """Make the tables and stand-ins for the figures, and write the report; gives its text."""
    tables = write_tables(results)
    figures = []
    for name, width in (("accuracy", 241), ("confusion", 497), ("training", 241), ("resources", 241), ("audit", 241)):
        for kind in ("png", "svg", "csv"):
            figures.append(results.folder / "figures" / f"{name}.{kind}")
            figures[-1].parent.mkdir(exist_ok=True)
            figures[-1].write_text(SVG.format(width=width) if kind == "svg" else f"{name}\n")
    output = results.folder / "report.html"
    run(
        write_report,
        *("--settings", json.dumps(results.settings | settings)),
        *("--metrics-table", tables / "metrics.csv", "--pooled-table", tables / "metrics_pooled.csv"),
        *("--main-table", tables / "main.tex", tables / "main.md", "--comparison-table", tables / "comparison.csv"),
        *("--resources-table", tables / "resources.csv", "--figures", *figures),
        *("--error-tables", *error_tables(tables), "--audit", results.audit, "--audit-tables", *results.audit_tables),
        *("--metrics", *results.metrics),
        *("--training", *results.trainings, "--failures", *results.failures, "--prompts", *results.prompts),
        *("--models", *results.models, "--dataset", results.dataset, "--split", results.split),
        *("--split-rows", *results.split_rows, "--bibliography", results.folder / "references.bib"),
        *("--output", output),
        *extra,
    )
    return output.read_text(encoding="utf-8")


class Page(HTMLParser):
    """The elements of a page, its visible text, and the text of the elements that are asked for by id or class."""

    VOID = frozenset(("meta", "link", "img", "br"))

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.said = [], [], []
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}> at {self.getpos()}"
        self.open.pop()

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.said.append(data.replace("\u00a0", " "))

    @property
    def text(self):
        return " ".join(" ".join(self.said).split())


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    texts = [f'row {k} <script>alert({k})</script> & "quoted" {{{{ settings }}}}' for k in range(300)]
    return make_results(tmp_path_factory.mktemp("results"), rows=300, texts=texts)


@pytest.fixture(scope="module")
def page(results):
    return write_page(results)


def answer_of(results):
    tables = write_tables(results)
    sources = LabelSources(
        metrics_table=tables / "metrics.csv",
        pooled_table=tables / "metrics_pooled.csv",
        main_table=[],
        comparison_table=tables / "comparison.csv",
        resources_table=tables / "resources.csv",
        error_tables=error_tables(tables),
        audit=results.audit,
        audit_tables=results.audit_tables,
        figures=[],
        metrics=results.metrics,
        training=results.trainings,
        failures=results.failures,
        prompts=results.prompts,
        models=results.models,
        dataset=results.dataset,
        split=results.split,
    )
    read = Results.read(results.settings, sources, ("accuracy", "macro_f1"))
    return answer(read), read


def test_it_opens_with_the_question_and_three_sentences_made_from_the_tables(results, page):
    text = Page(page).text
    assert results.settings["experiment"]["question"] in text
    comparison = read_table(results.folder / "tables" / "comparison.csv")
    table = read_table(results.folder / "tables" / "metrics.csv").set_index("method")
    best = table["accuracy"].idxmax()
    other = {"lora": "QLoRA", "qlora": "LoRA"}[best]
    name = {"lora": "LoRA", "qlora": "QLoRA"}[best]
    answer, _ = answer_of(results)
    assert len(answer) == 3 and all(sentence in text for sentence in answer)
    assert answer[0].startswith(
        f"{name} has the highest accuracy: {table.loc[best, 'accuracy'] * 100:.1f} % (95 % inte"
    )
    tfidf = comparison[(comparison["method_a"] == "tfidf") & (comparison["method_b"] == best)].iloc[0]
    points, low, high = (-tfidf[f"accuracy_difference{end}"] * 100 for end in ("", "_high", "_low"))
    assert f"That is {points:.1f} points above TF-IDF with logistic regression" in answer[1]
    assert f"(95 % interval {low:.1f} to {high:.1f}; difference shown, p < 0.001)" in answer[1]
    assert "above the model before fine-tuning" in answer[1]
    assert re.match(
        r"QLoRA (is \d+\.\d points? (above|below) LoRA|has the accuracy of LoRA) \(95 % interval", answer[2]
    )
    assert "no difference is shown (p = " in answer[2] and other in answer[2]


def test_the_answer_says_when_the_baseline_wins_and_when_there_is_none(tmp_path):
    methods = {"tfidf": METHODS["tfidf"], "lora": FakeMethod(0.5)}
    answer, _ = answer_of(make_results(tmp_path / "a", rows=300, methods=methods))
    assert answer[0].startswith("TF-IDF has the highest accuracy: 71.0 %")
    assert answer[1].startswith("The best adapter, LoRA, is 21.0 points below TF-IDF with logistic regression (")
    assert len(answer) == 2
    answer, _ = answer_of(make_results(tmp_path / "b", rows=300, methods={"lora": FakeMethod(0.5)}))
    assert answer == [answer[0], "There is no TF-IDF and no zero-shot baseline to compare it with."]
    answer, _ = answer_of(make_results(tmp_path / "c", rows=300, methods={"tfidf": METHODS["tfidf"]}))
    assert answer[1] == "No adapter was evaluated, so what fine-tuning buys cannot be said."


def test_quantization_that_costs_accuracy_is_called_a_difference(tmp_path):
    methods = {"lora": FakeMethod(0.9), "qlora": FakeMethod(0.7, quantized=True)}
    answer, _ = answer_of(make_results(tmp_path, rows=400, methods=methods))
    assert re.match(
        r"QLoRA is 20\.0 points below LoRA \(95 % interval -\S+ to -\S+\): the difference is shown", answer[2]
    )


def test_only_adapters_that_are_the_same_otherwise_tell_what_quantization_costs(tmp_path):
    methods = {"lora": FakeMethod(0.9), "qlora-other": FakeMethod(0.8, quantized=True)}
    results = make_results(tmp_path, rows=100, methods=methods)
    entry = results.settings["methods"]["qlora-other"]
    results.settings["methods"]["qlora-other"] = entry | {"peft": entry["peft"] | {"r": 8}}
    answer, read = answer_of(results)
    assert len(answer) == 2 and tables.resource_sentences(read) == []


def test_several_seeds_are_pooled_and_shown_one_by_one_below(tmp_path):
    results = make_results(tmp_path, rows=200, seeds=(1, 2, 3))
    text = Page(write_page(results)).text
    pooled = read_table(tmp_path / "tables" / "metrics_pooled.csv").set_index("method").loc["lora"]
    low, high = f"{pooled['accuracy_low'] * 100:.1f} %", f"{pooled['accuracy_high'] * 100:.1f} %"
    assert f"LoRA has the highest accuracy: 86.0 % on average over 3 seeds (95 % interval {low} to {high})" in text
    assert f"LoRA 3 86.0 % ± 0.0 {low} to {high} {pooled['macro_f1']:.3f} ± {pooled['macro_f1_sd']:.3f}" in text
    for row in read_table(tmp_path / "tables" / "metrics.csv").query("method == 'lora'").to_dict("records"):
        interval = f"{row['accuracy_low'] * 100:.1f} % to {row['accuracy_high'] * 100:.1f} %"
        assert f"LoRA (seed {row['seed']}) 86.0 % {interval} {row['macro_f1']:.3f}" in text


def test_equivalence_is_said_where_the_experiment_names_a_margin(tmp_path):
    results = make_results(tmp_path, rows=60)
    assert "quivalent" not in write_page(results)
    results.settings["experiment"]["comparison"]["margin"] = 0.005
    text = Page(write_page(results)).text
    assert "likely have gone unseen. Equivalent within 0.5 points: undecided with these rows." in text
    assert "equivalent within 0.5 points: refuted." in text
    assert "Equivalent means that the accuracies differ by less than 0.5 points" in text


def test_it_needs_no_other_file_and_no_network(page):
    elements = Page(page).elements
    for tag, attributes in elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            target = attributes.get(name)
            if target is None or target.startswith(("data:", "#")):
                continue
            # Links to the files beside the page, which nothing loads by itself.
            assert tag == "a" and not re.match(r"[a-z]+:|//|/", target), (tag, target)
    assert {tag for tag, _ in elements} & {"iframe", "object", "embed", "base", "form"} == set()
    assert not re.search(r"@import|url\(", page)
    assert page.count("data:image/svg+xml;base64,") == 5
    policy = next(a["content"] for tag, a in elements if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'")


def test_links_are_relative_to_the_page(results, page):
    links = [a["href"] for tag, a in Page(page).elements if tag == "a" and not a["href"].startswith(("data:", "#"))]
    assert "smollm2-135m/lora/seed1/predictions.jsonl" in links and "figures/accuracy.png" in links
    assert all((results.folder / link).is_file() for link in links if link != "ro-crate-metadata.json")
    assert str(results.folder) not in page


def test_texts_are_escaped_wherever_they_come_from(results, page, tmp_path):
    assert page.count("<script>") == 1, "the page's own"
    assert "&lt;script&gt;alert(" in page and "{{ settings }}" in page.replace("&#34;", '"')
    evil = '"><img src=x onerror=alert(1)>'
    methods = {"lora": METHODS["lora"], "qlora": METHODS["qlora"], "dora": FakeMethod(0.8)}
    nasty = make_results(tmp_path, rows=60, methods=methods, labels=(evil, "b", "c"), failed=("dora",))
    settings = json.loads(json.dumps(nasty.settings).replace("The method lora", json.dumps(evil)[1:-1]))
    settings["experiment"] |= {"title": evil, "question": evil}
    settings["experiment"]["prompt"]["system"] = evil
    settings["dataset"]["description"] = settings["dataset"]["citation"] = evil
    text = write_page(nasty, **settings)
    assert not [a for tag, a in Page(text).elements if tag == "img" and "onerror" in a]
    assert "<img src=x" not in text
    assert "&lt;dora&gt;" in text, "the reason of the failed arm"


def test_failed_arms_are_named_with_their_reason(tmp_path):
    text = Page(write_page(make_results(tmp_path, rows=60, failed=("qlora",)))).text
    assert "Left out because they failed: smollm2-135m/qlora/seed1." in text
    assert "loss is nan at step 3 of 158; lower training.learning_rate" in text
    assert "LoRA has the highest accuracy" in text


def test_an_experiment_whose_every_arm_failed_has_a_report(tmp_path):
    text = Page(write_page(make_results(tmp_path, rows=60, failed=tuple(METHODS)))).text
    assert "Every arm failed, so there is no answer yet" in text and "No arm was evaluated." in text


def test_every_section_says_what_it_should(results, page):
    text = Page(page).text
    table = read_table(results.folder / "tables" / "metrics.csv")
    for row in table.to_dict("records"):
        assert (
            f"{row['accuracy'] * 100:.1f} % {row['accuracy_low'] * 100:.1f} % to {row['accuracy_high'] * 100:.1f} %"
            in text
        )
        assert f"{row['macro_f1']:.3f} {row['macro_f1_low']:.3f} to {row['macro_f1_high']:.3f}" in text
    counts = read_json(results.split)["counts"]
    for label in ("negative", "neutral", "positive"):
        assert f"{label} {counts['train'][label]} {counts['validation'][label]} {counts['test'][label]}" in text
    for said in (
        "Licence: MIT.",
        "pypi:vaderSentiment==3.3.2",
        "5" * 64,  # of the data
        "c" * 64,  # of the model
        read_json(results.trainings[0])["adapter_sha256"],
        "nf4, double quantization on, blocks of 64, bitsandbytes 0.50.2 on cpu",
        "bf16 (the CPU computes in bf16 (amx_bf16))",
        "training.learning_rate 0.0005",
        "torch 2.13.0+cpu",
        "120 rows have the same text as another row",
        "Seed of the split: 1. Seeds of the trainings: 1.",
        "snakemake --cores all --resources gpu=1 --config 'experiments=[sentiment]'",
        "The base model's weights take 120 MB with QLoRA and 269 MB with LoRA: 55 % less.",
        "@inproceedings{hutto2014vader",
    ):
        assert said in text, said


def test_a_quantized_adapter_that_takes_more_is_said_to(results):
    _, read = answer_of(results)
    sentences = tables.resource_sentences(read)
    assert any(re.fullmatch(r"Training takes .* with QLoRA and .* with LoRA: \d+ % more\.", text) for text in sentences)


def test_the_examples_are_the_same_rows_before_and_after_with_wrong_ones_among_them(results):
    _, read = answer_of(results)
    shown = examples(read)
    assert shown["names"][0] == "before fine-tuning" and set(shown["names"][1:]) == {"LoRA", "QLoRA"}
    groups = {group["title"]: group["rows"] for group in shown["groups"]}
    for row in groups["Wrong before, right after"]:
        assert [answer["right"] for answer in row["answers"][:2]] == [False, True]
    # The first ones have different labels.
    assert len({row["label"] for row in groups["Wrong before, right after"]}) == 3
    for row in groups["Wrong before and after"]:
        assert not any(answer["right"] for answer in row["answers"][:2])
    ids = [row["id"] for rows in groups.values() for row in rows]
    assert len(ids) == len(set(ids)) and all(len(rows) <= 3 for rows in groups.values())
    first = groups["Wrong before, right after"][0]
    assert f"row {int(first['id']) - 1} <script>" in first["text"]


def test_without_a_zero_shot_arm_there_are_no_examples(tmp_path):
    results = make_results(tmp_path, rows=60, methods={"lora": METHODS["lora"]})
    _, read = answer_of(results)
    assert examples(read) is None
    assert "Answers before and after" not in write_page(results)


def test_more_comparisons_than_one_reads_are_left_to_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MOST_COMPARISONS", 4)
    text = Page(write_page(make_results(tmp_path, rows=60))).text
    assert "6 more comparisons are in the file." in text
    monkeypatch.setattr(evidence, "LARGEST_DOWNLOAD", 10)
    page = write_page(make_results(tmp_path, rows=60))
    assert 'download="comparison.csv" href="tables/comparison.csv"' in page


def test_the_audit_and_the_mistakes_are_shown(results, page):
    text = Page(page).text
    assert "1 of 300 test rows (0.3 %) are nearly the same as a training or validation row; above 5.0 %" in text
    assert "agrees with 71.0 % of the labels" in text
    pair = text[text.index("Test rows and the rows that are learned from") :]
    assert pair.index("row 0 <script>") < pair.index("test 1:") < pair.index("row 1 <script>") < pair.index("train t1:")
    assert "Near duplicates with labels that contradict each other" in text
    assert "Lengths in tokens smollm2-135m" not in text and "3.0 %" in text
    # The breakdown has every arm and class, and the worst mistakes are those of the three best arms.
    section = text[text.index("Accuracy by class and by length") : text.index("Calibration")]
    for name in ("LoRA", "QLoRA", "TF-IDF", "zero-shot", "majority class", "negative", "characters"):
        assert name in section
    assert section.count("Arms that are wrong") == 3 and "Of at most eight arms" in section


def test_missing_parts_are_named(results, tmp_path):
    with pytest.raises(UserError, match="accuracy is no figure that the report knows, or one of its three files"):
        evidence.figure_blocks([tmp_path / "accuracy.svg"], CAPTIONS, str)
    broken = read_json(results.metrics[0])
    file = tmp_path / "metrics.json"
    write_json(file, {key: value for key, value in broken.items() if key != "arm"})
    with pytest.raises(UserError, match="does not say which arm"):
        read_arms([file])


@pytest.mark.parametrize(
    ("value", "text"), [(999, "0.999 kB"), (120e6, "120 MB"), (1.834e9, "1.83 GB"), (19_570_000, "19.6 MB")]
)
def test_sizes(value, text):
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.00016, "0.16 ms"), (0.0305, "0.03 s"), (47.4, "47 s"), (264, "4.4 min"), (9000, "2.5 h")]
)
def test_durations(value, text):
    assert duration(value) == text


def test_numbers_stay_with_their_units():
    text = unbroken("LoRA is 1.0 point above, 95 % interval 2 to 3 points (p < 0.001, p = 0.5), 3 words")
    for whole in ("1.0\u00a0point", "95\u00a0%", "3\u00a0points", "p\u00a0<\u00a00.001", "p\u00a0=\u00a00.5"):
        assert whole in text
    assert "3 words" in text


def test_the_same_files_give_the_same_page(results, page):
    assert write_page(results) == page


def test_jobs_that_only_draw_or_count_load_neither_torch_nor_transformers():
    names = ["evaluate_classical", "summarize_metrics", "summarize_resources", "compare_methods", "plot_accuracy"]
    names += ["audit_splits", "check_leakage", "analyze_errors", "plot_audit", "plot_calibration"]
    names += ["plot_confusion", "plot_training", "plot_resources", "write_report"]
    assert all((SCRIPTS / f"{name}.py").is_file() for name in names)
    code = f"import sys, {', '.join(names)}; print(*sorted({{'torch', 'transformers'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=SCRIPTS, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
