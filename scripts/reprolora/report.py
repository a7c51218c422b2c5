"""What the report says: the answer in sentences, the tables, the examples, and how to get the same again.

`build_report` gathers it from the files of an experiment and fills the template. Nothing is computed here that the
tables do not have; the sentences are made from them. What the reports of both tasks say is in `shared_sections`; that
of instruction experiments is in `reprolora.answers_report`.
"""

import argparse
import base64
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import jinja2
import pandas as pd

from reprolora.arms import (
    ALL_SEEDS,
    CLASSICAL,
    CONTENDER,
    KEY,
    arm_names,
    method_name,
    predictions_of,
    read_arms,
    read_table,
)
from reprolora.bibliography import bibliography
from reprolora.errors import UserError
from reprolora.files import read_json, read_jsonl, sha256_of
from reprolora.labels import INVALID
from reprolora.method_section import method_section
from reprolora.report_audit import audit_section
from reprolora.report_errors import errors_section
from reprolora.statistics import equivalence_clause, interval_of_difference, other_side, p_text, sentence
from reprolora.sweep_section import sweep_section

# More rows than these nobody reads in a page; the files have all.
MOST_COMPARISONS = 60
MOST_EXAMPLES_OF_A_KIND = 3
MOST_ADAPTERS_IN_EXAMPLES = 3
# A larger table is linked, not put into the page.
LARGEST_DOWNLOAD = 2_000_000
# Points; a figure of a paper's column is narrower.
WIDE = 300
FEW_ROWS = 200
SPLITS = ("train", "validation", "test")
TEMPLATES = Path(__file__).parent / "templates"
PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "statsmodels", "matplotlib", "seaborn", "jinja2")

CAPTIONS = {
    "accuracy": (
        "Accuracy and macro-F1",
        "Accuracy and macro-F1 of each method on the test rows, with 95 % intervals (Wilson's for the accuracy of one "
        "arm, otherwise a bootstrap over rows, and over seeds where there are several). An answer that is none of the "
        "labels (INVALID) counts as wrong.",
    ),
    "confusion": (
        "Confusion matrices",
        "How each arm labels the test rows of each class: share of the class, and number of rows in parentheses. "
        "INVALID stands for answers that are none of the labels; several seeds are added up.",
    ),
    "training": (
        "Loss and learning rate",
        "Training loss (running mean; where there are few curves, the single values behind it), validation loss, and "
        "learning rate over the optimizer's steps. The adapter with the least validation loss is the one that is kept.",
    ),
    "audit": (
        "Classes and lengths",
        "Above, the share of each class in each split. Below, how long the rows are that a model gets, prompt and "
        "answer (without a model, the texts in characters): share of the rows for each length.",
    ),
    "calibration": (
        "Calibration",
        "Above, how often the answers are right that an arm gives with a certain confidence; on the dashed line, "
        "confidence is what it says. Below, the share of the answers in each tenth. ECE is the expected calibration "
        "error: the mean distance from the line, weighted by answers. Several seeds are put together.",
    ),
    "learning_curve": (
        "Learning curve",
        "Accuracy and macro-F1 on the test rows over the number of training rows (drawn with labels in proportion, the "
        "fewer among the more); lines are means over seeds, bands their 95 % intervals, dots single seeds. "
        "Every point is shown, and nothing was selected by it.",
    ),
    "resources": (
        "Memory and time",
        "Memory of the base model's weights, and peak memory and time of each phase, measured apart. On a CPU the "
        "peak is the process's resident set, on a GPU what PyTorch allocated there.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The files that every report is made of; the answers of an arm lie beside its metrics."""

    metrics_table: Path
    pooled_table: Path
    main_table: Sequence[Path]
    comparison_table: Path
    resources_table: Path
    figures: Sequence[Path]
    metrics: Sequence[Path]
    training: Sequence[Path]
    failures: Sequence[Path]
    prompts: Sequence[Path]
    models: Sequence[Path]
    dataset: Path
    split: Path
    split_rows: Sequence[Path] = ()  # train.jsonl, validation.jsonl, test.jsonl
    sweep: Path | None = None  # where something was swept

    @classmethod
    def of(cls, args: argparse.Namespace) -> Self:
        """Those that the arguments of a script name."""
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class LabelSources(Sources):
    """With those of experiments with labels."""

    error_tables: Sequence[Path]
    audit: Path
    audit_tables: Sequence[Path]


def report_parser(description: str, template: str) -> argparse.ArgumentParser:
    """The arguments of every script that writes a report: the files of `Sources`, the template, and what to write."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: what the rule passes as settings")
    parser.add_argument("--metrics-table", type=Path, required=True, help="tables/metrics.csv")
    parser.add_argument("--pooled-table", type=Path, required=True, help="tables/metrics_pooled.csv")
    parser.add_argument("--main-table", type=Path, nargs="*", default=[], help="tables/main.tex and main.md, to link")
    parser.add_argument("--comparison-table", type=Path, required=True, help="tables/comparison.csv")
    parser.add_argument("--resources-table", type=Path, required=True, help="tables/resources.csv")
    parser.add_argument("--figures", type=Path, nargs="*", default=[], help="PNG, SVG and CSV of each figure")
    parser.add_argument("--metrics", type=Path, nargs="*", default=[], help="metrics.json of each evaluated arm")
    parser.add_argument("--training", type=Path, nargs="*", default=[], help="training.json of each trained arm")
    parser.add_argument("--failures", type=Path, nargs="*", default=[], help="failure.json of each failed arm")
    parser.add_argument("--prompts", type=Path, nargs="*", default=[], help="prompts.json in each model's folder")
    parser.add_argument("--models", type=Path, nargs="*", default=[], help="manifest.json in each model's folder")
    parser.add_argument("--dataset", type=Path, required=True, help="the dataset's manifest.json")
    parser.add_argument("--split", type=Path, required=True, help="the split's summary.json")
    parser.add_argument("--split-rows", type=Path, nargs="*", default=[], help="the splits' train.jsonl and so on")
    parser.add_argument("--sweep", type=Path, nargs="?", help="tables/sweep.csv, where something was swept")
    parser.add_argument("--template", type=Path, default=TEMPLATES / template, help="the page to fill (Jinja2)")
    parser.add_argument("--output", type=Path, required=True, help="the page to write")
    parser.add_argument("--bibliography", type=Path, required=True, help="references.bib to write, beside the page")
    return parser


def build_report(settings: Mapping[str, Any], sources: LabelSources, template: Path, output: Path) -> str:
    """The page. Links to files are relative to the folder of `output`."""
    results = Results.read(settings, sources, ("accuracy", "macro_f1"))
    link = linker(output)
    sections = {
        "answer": answer(results),
        "notices": notices(results),
        "labels": settings["dataset"]["labels"],
        "per_class": per_class_rows(results),
        "examples": examples(results),
        "data": data_section(settings, results),
        "settings_rows": settings_rows(settings, "evaluation"),
        "method_section": method_section(settings, results.split, results.trainings),
        "audit": audit_section(read_json(sources.audit), sources.audit_tables)
        | {"downloads": {file.stem: download(file, link) for file in sources.audit_tables}},
        "errors": errors_section(sources.error_tables)
        | {"downloads": {file.stem: download(file, link) for file in sources.error_tables}},
    }
    return render(template, shared_sections(results, sources, CAPTIONS, link) | sections)


def shared_sections(
    results: "Results", sources: Sources, captions: Mapping[str, tuple[str, str]], link: Callable[[Path], str]
) -> dict[str, Any]:
    """What every report says; `captions` has the title and the caption of each figure."""
    settings, files = results.settings, links(results, sources, link)
    return {
        "settings": settings,
        "results": with_files(results.contenders().to_dict("records"), files["metrics"]),
        "seeds_of_results": with_files(seed_rows(results), files["metrics"]),
        "failures": results.failures,
        "comparisons": comparison_rows(results),
        "comparisons_left_out": max(0, len(results.comparison) - MOST_COMPARISONS),
        "figures": figure_blocks(sources.figures, captions, link),
        "resources": resource_rows(results),
        "resource_sentences": resource_sentences(results),
        "arms": arm_rows(results, link),
        "trainings": training_rows(results),
        "methods": [
            {"name": method_name(name), "key": name, **entry, "rows": flatten(entry["peft"] or {})}
            for name, entry in settings["methods"].items()
        ],
        "versions": versions(results),
        "checksums": checksums(results),
        "links": files,
        "source_files": source_files(results),
        "bibliography": bibliography(settings),
        "runs": run_rows(results),
        "prompts": results.prompts,
        "sweep": sweep_section(sources.sweep),
        "downloads": {
            name: download(file, link)
            for name, file in {
                "metrics": sources.metrics_table,
                "pooled": sources.pooled_table,
                "comparison": sources.comparison_table,
                "resources": sources.resources_table,
                "sweep": sources.sweep,
            }.items()
            if file
        },
        "main_table": {file.suffix.lstrip("."): link(file) for file in sources.main_table},
        "several_seeds": len(settings["experiment"]["seeds"]) > 1,
    }


def settings_rows(settings: Mapping[str, Any], *evaluated_by: str) -> list[tuple[str, str]]:
    """The experiment's settings as rows; `evaluated_by` names the sections that say how arms are evaluated."""
    return flatten({key: settings["experiment"][key] for key in ("split", "prompt", "training", *evaluated_by)})


def render(template: Path, context: Mapping[str, Any]) -> str:
    """The page of a template that lies among the templates."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "score": score,
        "size": size,
        "duration": duration,
        "energy": energy,
        "number": number,
        "text": unbroken,
        "capital": capital,
        "p": lambda value: p_text(value).removeprefix("= "),
    }
    return environment.get_template(template.name).render(context)


@dataclass(frozen=True)
class Results:
    """The content of the sources."""

    settings: Mapping[str, Any]
    measures: tuple[str, ...]  # by which contenders are ranked; the first is what was tested
    table: pd.DataFrame  # tables/metrics.csv with `name`, arms that have scores
    pooled: pd.DataFrame  # tables/metrics_pooled.csv
    comparison: pd.DataFrame  # tables/comparison.csv, level `method`
    resources: pd.DataFrame  # tables/resources.csv with `name`
    metrics: list[dict]
    metrics_files: Sequence[Path]
    trainings: list[dict]
    failures: list[dict]
    prompts: list[dict]
    models: dict[str, dict]
    dataset: dict
    split: dict
    split_digests: dict[str, str]  # sha256 of the file of each split's rows

    @classmethod
    def read(cls, settings: Mapping[str, Any], sources: Sources, measures: tuple[str, ...]) -> "Results":
        table = read_table(sources.metrics_table)
        table = table[table["status"] == "ok"].reset_index(drop=True).astype({"n": int})
        comparison = read_table(sources.comparison_table)
        resources = read_table(sources.resources_table)
        failures = read_arms(sources.failures)
        return cls(
            settings=settings,
            measures=measures,
            table=table.assign(name=arm_names(table)),
            pooled=read_table(sources.pooled_table),
            comparison=comparison[comparison["level"] == "method"].reset_index(drop=True),
            resources=resources.assign(name=arm_names(resources)),
            metrics=read_arms(sources.metrics),
            metrics_files=sources.metrics,
            trainings=read_arms(sources.training),
            failures=[failure | {"name": full_name(failure["arm"])} for failure in failures],
            # These do not say their model; the folder that they lie in does.
            prompts=[read_json(file) | {"model": file.parent.name} for file in sources.prompts],
            models={file.parent.name: read_json(file) for file in sources.models},
            dataset=read_json(sources.dataset),
            split=read_json(sources.split),
            split_digests={file.stem: sha256_of(file) for file in sources.split_rows},
        )

    def contenders(self) -> pd.DataFrame:
        """One row for each model, method and mode, with its seeds pooled."""
        name = arm_names(self.pooled.assign(seed=ALL_SEEDS))
        return self.pooled.assign(name=name, kind=[self.kind(method) for method in self.pooled["method"]])

    def ranked(self, contenders: pd.DataFrame) -> pd.DataFrame:
        """The best first."""
        return contenders.sort_values(list(self.measures), ascending=False, kind="stable")

    def kind(self, method: str) -> str:
        """`adapter`, or the kind of baseline."""
        return self.settings["methods"][method]["baseline"] or "adapter"

    def quantized(self, method: str) -> bool:
        return bool(self.settings["methods"][method]["quantization"])

    def compare(self, a: Mapping, b: Mapping) -> dict | None:
        """The comparison of two contenders from the side of a, or None when the table has it not."""
        modes = {arm["mode"] for arm in (a, b)} - {CLASSICAL} or {CLASSICAL}
        for first, second, turn in ((a, b, lambda row: row), (b, a, other_side)):
            found = self.comparison[self.comparison["mode"].isin(modes)]
            for side, arm in (("a", first), ("b", second)):
                for key in ("model", "method"):
                    found = found[found[f"{key}_{side}"] == arm[key]]
            if len(found) and len(modes) == 1:
                return turn(found.iloc[0].to_dict())
        return None


# The answer


def answer(results: Results) -> list[str]:
    """The answer to the experiment's question: which arm is best, what fine-tuning buys, whether quantization costs."""
    contenders = results.contenders()
    if contenders.empty:
        return ["Every arm failed, so there is no answer yet; the reasons are below."]
    best = results.ranked(contenders).iloc[0].to_dict()
    sentences = [_best_sentence(best, len(contenders)), _gain_sentence(results, contenders, best)]
    return [text for text in [*sentences, quantization_sentence(results, contenders, best)] if text]


def _best_sentence(best: Mapping, count: int) -> str:
    which = "has the highest accuracy" if count > 1 else "has an accuracy"
    average = f" on average over {best['seeds']} seeds" if best["seeds"] > 1 else ""
    scores = (
        f"{percent(best['accuracy'])}{average} (95 % interval {percent(best['accuracy_low'])} to "
        f"{percent(best['accuracy_high'])}), with a macro-F1 of {score(best['macro_f1'])} "
        f"({score(best['macro_f1_low'])} to {score(best['macro_f1_high'])})"
    )
    return f"{capital(best['name'])} {which}{':' if count > 1 else ' of'} {scores}, on {best['n']:,} test rows."


def _gain_sentence(results: Results, contenders: pd.DataFrame, best: Mapping) -> str:
    """The best adapter against TF-IDF and against the same model before fine-tuning."""
    adapters = contenders[contenders["kind"] == "adapter"]
    if adapters.empty:
        return "No adapter was evaluated, so what fine-tuning buys cannot be said."
    tuned = results.ranked(adapters).iloc[0].to_dict()
    wanted = {
        "tfidf-logistic-regression": "TF-IDF with logistic regression",
        "zero-shot": "the model before fine-tuning",
    }
    parts = []
    for kind, name in wanted.items():
        for other in contenders[contenders["kind"] == kind].to_dict("records"):
            row = results.compare(tuned, other) if other["model"] in (CLASSICAL, tuned["model"]) else None
            if row:
                parts.append(difference_words(row, name, results.measures[0]))
                break
    if not parts:
        return "There is no TF-IDF and no zero-shot baseline to compare it with."
    subject = "That is" if tuned["name"] == best["name"] else f"The best adapter, {tuned['name']}, is"
    return f"{subject} {' and '.join(parts)}."


def difference_words(row: Mapping, other: str, measure: str) -> str:
    """A comparison from the side of its first, in words that follow "is"."""
    points, side = _points(row[f"{measure}_difference"])
    shown = "difference shown" if row["difference_shown"] else "no difference shown"
    where = f"{points} {side}" if side else "the same as"
    return f"{where} {other} ({interval_of_difference(row, measure)}; {shown}, p {p_text(row['p_value_holm'])})"


def quantization_sentence(results: Results, contenders: pd.DataFrame, best: Mapping) -> str:
    """Whether an adapter over quantized weights matches the same adapter over plain ones."""
    pair = quantization_pair(results, contenders, best)
    if pair is None:
        return ""
    plain, quantized = pair
    row = results.compare(quantized, plain)
    if row is None:
        return ""
    measure = results.measures[0]
    points, side = _points(row[f"{measure}_difference"])
    same = f"has the {measure.replace('_', ' ')} of {plain['name']}"
    where = f"is {points} {side} {plain['name']}" if side else same
    text = f"{capital(quantized['name'])} {where} ({interval_of_difference(row, measure)}): "
    p = f"p {p_text(row['p_value_holm'])}"
    if row["difference_shown"]:
        text += f"the difference is shown ({p})."
    else:
        could = row["smallest_detectable_difference"] * 100
        unseen = "" if math.isnan(could) else f", though one below {could:.1f} points would likely have gone unseen"
        text += f"no difference is shown ({p}){unseen}."
    clause = equivalence_clause(row)
    return f"{text} {capital(clause)}." if clause else text


def quantization_pair(results: Results, contenders: pd.DataFrame, best: Mapping) -> tuple[dict, dict] | None:
    """A plain and a quantized adapter that are the same otherwise; the best arm's model, mode and method first."""

    def rank(arm: dict) -> tuple:
        return tuple(arm[key] != best[key] for key in ("model", "mode", "method"))

    adapters = sorted(contenders[contenders["kind"] == "adapter"].to_dict("records"), key=rank)
    methods = results.settings["methods"]
    for first in adapters:
        for second in adapters:
            plain, quantized = (second, first) if results.quantized(first["method"]) else (first, second)
            same = all(plain[key] == quantized[key] for key in ("model", "mode"))
            trained = [
                [methods[arm["method"]].get(key) for key in ("peft", "learning_rate", "loraplus_lr_ratio")]
                for arm in (plain, quantized)
            ]
            kinds = results.quantized(quantized["method"]) and not results.quantized(plain["method"])
            if same and trained[0] == trained[1] and kinds:
                return plain, quantized
    return None


def _points(difference: float) -> tuple[str, str]:
    points = f"{abs(difference) * 100:.1f}"
    if float(points) == 0:
        return points, ""
    return f"{points} {'point' if points == '1.0' else 'points'}", "above" if difference > 0 else "below"


def notices(results: Results) -> list[str]:
    """What a reader must know before trusting the numbers."""
    found = notices_of_arms(results)
    if absent := results.split["absent_classes"]["test"]:
        found.append(f"The test rows have no row of: {', '.join(absent)}. Macro-F1 counts such a class as 0.")
    return found


def notices_of_arms(results: Results) -> list[str]:
    """Those about the arms and the number of test rows, which are the same for both tasks."""
    found = []
    if results.failures:
        names = ", ".join(failure["name"] for failure in results.failures)
        found.append(f"Left out because they failed: {names}. The reasons are below.")
    if (n := int(results.table["n"].iloc[0]) if len(results.table) else 0) and n < FEW_ROWS:
        found.append(f"Only {n} test rows: intervals are wide, and small differences cannot be shown.")
    return found


# Tables


def seed_rows(results: Results) -> list[dict]:
    """The single arms of the methods that have several seeds."""
    several = results.table.duplicated(CONTENDER, keep=False)
    return results.table[several].to_dict("records")


def comparison_rows(results: Results) -> list[dict]:
    """The comparisons of methods, each from the side of the better; those of the best arm first."""
    table = results.comparison
    if table.empty:
        return []
    best, measure = results.ranked(results.contenders()).iloc[0], results.measures[0]
    with_best = pd.Series(False, index=table.index)
    for side in "ab":
        with_best |= (table[f"model_{side}"] == best["model"]) & (table[f"method_{side}"] == best["method"])
    chosen = pd.concat([table[with_best], table[~with_best]]).head(MOST_COMPARISONS).to_dict("records")
    names = _contender_names(results)
    result = []
    for row in chosen:
        row = other_side(row) if row[f"{measure}_difference"] < 0 else row
        a, b = (names[row[f"model_{side}"], row[f"method_{side}"], row["mode"]] for side in "ab")
        result.append(row | {"sentence": sentence(row, a, b, measure)})
    return result


def _contender_names(results: Results) -> dict[tuple[str, str, str], str]:
    """Names by model, method and the mode of a comparison, which a classical baseline takes from its partner."""
    contenders = results.contenders()
    names = {}
    for arm in contenders.to_dict("records"):
        for mode in contenders["mode"].unique() if arm["model"] == CLASSICAL else [arm["mode"]]:
            names[arm["model"], arm["method"], mode] = arm["name"]
    return names


def per_class_rows(results: Results) -> list[dict]:
    """Precision, recall and F1 of each label, with seeds averaged: a row for each arm, in the table's order."""
    groups: dict[tuple, list[dict]] = {}
    for content in results.metrics:
        for mode, scores in content["modes"].items():
            key = (content["arm"]["model"], content["arm"]["method"], mode)
            groups.setdefault(key, []).append(scores["per_class"])
    names = {(a["model"], a["method"], a["mode"]): a["name"] for a in results.contenders().to_dict("records")}
    return [
        {
            "name": names[key],
            "labels": {
                label: {
                    measure: sum(scores[label][measure] for scores in seeds) / len(seeds)
                    for measure in ("precision", "recall", "f1")
                }
                for label in seeds[0]
            },
        }
        for key, seeds in groups.items()
    ]


def resource_rows(results: Results) -> list[dict]:
    """tables/resources.csv with missing values as None."""
    table = results.resources.astype(object)
    return table.where(table.notna(), None).to_dict("records")


def resource_sentences(results: Results) -> list[str]:
    """What the quantized adapter saves, and what it costs, against the plain one; as the numbers have it."""
    contenders = results.contenders()
    if contenders.empty:
        return []
    best = results.ranked(contenders).iloc[0]
    pair = quantization_pair(results, contenders, best)
    if pair is None:
        return []
    plain, quantized = (
        results.resources[
            (results.resources["model"] == arm["model"]) & (results.resources["method"] == arm["method"])
        ].mean(numeric_only=True)
        for arm in pair
    )
    names = pair[0]["name"], pair[1]["name"]
    parts = {
        "model_bytes": ("The base model's weights take", size),
        "train_peak_bytes": ("The peak memory while training is", size),
        "evaluate_peak_bytes": ("The peak memory while evaluating is", size),
        "train_seconds": ("Training takes", duration),
        "evaluate_seconds": ("Evaluating takes", duration),
    }
    sentences = []
    for column, (start, show) in parts.items():
        a, b = float(plain[column]), float(quantized[column])
        change = f"{abs(b / a - 1):.0%}".replace("%", " %")
        how = "the same to a percent" if change == "0 %" else f"{change} {'more' if b > a else 'less'}"
        sentences.append(f"{start} {show(b)} with {names[1]} and {show(a)} with {names[0]}: {how}.")
    return sentences


def arm_rows(results: Results, link: Callable[[Path], str]) -> list[dict]:
    """What each arm is, with links to its files."""
    rows = []
    names = {tuple(arm[key] for key in KEY): arm["name"] for arm in results.table.to_dict("records")}
    variants = {tuple(t["arm"][key] for key in KEY): t["arm"].get("variant") for t in results.trainings}
    for content, metrics in zip(results.metrics, results.metrics_files, strict=True):
        arm = content["arm"]
        entry = results.settings["methods"][arm["method"]]
        baseline = content.get("baseline", {})
        fitted = [f"C = {baseline['C']:g}, chosen by cross-validation of the training rows"] if "C" in baseline else []
        if variant := variants.get(tuple(arm[key] for key in KEY)):
            fitted.append(f"{variant}, selected by the sweep")
        rows.append(
            {
                "name": names[tuple(arm[key] for key in KEY)],
                "model": "none" if arm["model"] == CLASSICAL else arm["model"],
                "seed": arm["seed"] if results.kind(arm["method"]) in ("adapter", "few-shot") else "none",
                "what": ". ".join([entry["description"].rstrip("."), *fitted]),
                "metrics": link(metrics),
                "predictions": link(predictions_of(metrics)),
            }
        )
    return rows


def training_rows(results: Results) -> list[dict]:
    """What was really loaded and trained in each arm, as read back from the model."""
    if not results.trainings:
        return []
    arms = pd.DataFrame([{key: training["arm"][key] for key in KEY} for training in results.trainings])
    rows = []
    for name, training in zip(arm_names(arms), results.trainings, strict=True):
        actual, engine = training["actual"], training["engine"]
        rows.append(
            {
                "name": name,
                "key": tuple(training["arm"][key] for key in KEY),
                "base": actual["base_dtype"],
                "quantization": _quantization_words(actual["quantization"]),
                "adapter": actual["adapter_dtype"] or "none",
                "precision": f"{training['precision']['chosen']} ({training['precision']['reason']})",
                "attention": actual["attention"],
                "trainable": actual["trainable_parameters"],
                "share": actual["trainable_parameters"] / (actual["trainable_parameters"] + actual["base_parameters"]),
                "engine": engine["used"] + (f" ({engine['reason']})" if engine.get("reason") else ""),
                "steps": training["steps"],
                "best_step": training["best_step"],
                "best_validation_loss": training["best_validation_loss"],
                "rows": training["train_rows"],
                "diagnosis": _diagnosis_words(training.get("diagnosis", {})),
            }
        )
    return rows


def _diagnosis_words(diagnosis: Mapping) -> str:
    """What was wrong with the losses of a training, and what that is likely due to; nothing where nothing was."""
    if not diagnosis.get("findings"):
        return ""
    problems = "; ".join(f"after {finding['step']} steps {finding['problem']}" for finding in diagnosis["findings"])
    causes = "; ".join(f"({number}) {cause}" for number, cause in enumerate(diagnosis["causes"], 1))
    return f"{problems}. Likely causes, the likeliest first: {causes}."


def _quantization_words(quantization: Mapping | None) -> str:
    if not quantization:
        return "none"
    if quantization["type"] == "int8":
        how = f"outlier features from {quantization['outlier_threshold']:g} in 16 bits"
    else:
        how = f"double quantization {'on' if quantization['double_quantization'] else 'off'}"
        how += f", blocks of {quantization['block_size']}"
    return f"{quantization['type']}, {how}, {quantization['backend']}"


def source_files(results: Results) -> list[dict]:
    """Where the data come from: files, or the archive or folder that documents are in."""
    documents = results.settings["dataset"].get("documents")
    files = {"documents": documents} if documents else results.dataset["files"]
    return [{"part": part, **file} for part, file in files.items()]


def data_section(settings: Mapping, results: Results) -> dict:
    """Where the rows come from, and how many of each label are in each split."""
    counts = {split: results.split["counts"][split] for split in SPLITS}
    return {
        "splits": list(counts),
        "labels": [
            {"label": label, "counts": [counts[split].get(label, 0) for split in counts]}
            for label in settings["dataset"]["labels"]
        ],
        "totals": [sum(counts[split].values()) for split in counts],
        "duplicates": results.split["duplicates"],
        "limited": results.split["before_limits"] != counts,
        "before": [sum(results.split["before_limits"][split].values()) for split in counts],
    }


# Examples


def examples(results: Results) -> dict | None:
    """The same rows before and after fine-tuning, wrong ones among them; None when one of the two is missing.

    The rows are the first of each kind in the order of the split, so nobody picked them.
    """
    contenders = results.contenders()
    adapters = contenders[contenders["kind"] == "adapter"]
    zero_shots = contenders[contenders["kind"] == "zero-shot"]
    if adapters.empty or zero_shots.empty:
        return None
    best = results.ranked(adapters).iloc[0]
    chosen = adapters[(adapters["model"] == best["model"]) & (adapters["mode"] == best["mode"])]
    before = zero_shots[(zero_shots["model"] == best["model"]) & (zero_shots["mode"] == best["mode"])]
    if before.empty:
        return None
    # The best first, then the others in the table's order.
    order = [best["method"], *(m for m in chosen["method"] if m != best["method"])][:MOST_ADAPTERS_IN_EXAMPLES]
    answers = [_answers(results, best["model"], method, best["mode"]) for method in [before.iloc[0]["method"], *order]]
    first, after, *others = answers
    kinds: dict[str, Callable[[str], bool]] = {
        "Wrong before, right after": lambda key: not _right(first[key]) and _right(after[key]),
        "Wrong before and after": lambda key: not _right(first[key]) and not _right(after[key]),
        "Right before, wrong after": lambda key: _right(first[key]) and not _right(after[key]),
        "The adapters disagree": lambda key: any(o[key]["prediction"] != after[key]["prediction"] for o in others),
    }
    used: set[str] = set()
    groups = []
    for title, fits in kinds.items():
        ids = _spread([key for key in first if key not in used and fits(key)], first)[:MOST_EXAMPLES_OF_A_KIND]
        used.update(ids)
        if ids:
            groups.append({"title": title, "rows": [_example(key, answers) for key in ids]})
    names = ["before fine-tuning", *(method_name(method) for method in order)]
    return {"names": names, "groups": groups, "model": best["model"]}


def _answers(results: Results, model: str, method: str, mode: str) -> dict[str, dict]:
    """The answers of an arm's first seed, by row."""
    for content, file in zip(results.metrics, results.metrics_files, strict=True):
        if content["arm"]["model"] == model and content["arm"]["method"] == method:
            return {row["id"]: row for row in read_jsonl(predictions_of(file)) if row["mode"] == mode}
    raise KeyError(method)


def _right(row: Mapping) -> bool:
    return row["prediction"] == row["label"]


def _spread(ids: Sequence[str], rows: Mapping[str, Mapping]) -> list[str]:
    """The ids in such an order that the first ones have different labels."""
    seen: dict[str, int] = {}
    rank = {}
    for key in ids:
        label = rows[key]["label"]
        rank[key] = seen[label] = seen.get(label, 0) + 1
    return sorted(ids, key=lambda key: rank[key])


def _example(key: str, answers: Sequence[Mapping[str, Mapping]]) -> dict:
    row = answers[0][key]
    return {
        "id": key,
        "text": row["text"],
        "label": row["label"],
        "answers": [
            {
                "raw": None if arm[key]["raw"] is None else arm[key]["raw"].replace("\n", "⏎"),
                "prediction": arm[key]["prediction"],
                "right": _right(arm[key]),
                "invalid": arm[key]["prediction"] == INVALID,
            }
            for arm in answers
        ],
    }


# Figures, downloads, versions, checksums


def figure_blocks(
    files: Iterable[Path], captions: Mapping[str, tuple[str, str]], link: Callable[[Path], str]
) -> dict[str, dict]:
    """Each figure by name: a data URI, its caption, and its other files."""
    by_name: dict[str, dict[str, Path]] = {}
    for file in files:
        by_name.setdefault(file.stem, {})[file.suffix.lstrip(".")] = file
    blocks = {}
    for name, formats in by_name.items():
        if name not in captions or formats.keys() != {"png", "svg", "csv"}:
            raise UserError(
                f"--figures: {name} is no figure that the report knows, or one of its three files is missing"
            )
        title, caption = captions[name]
        width = re.search(r'<svg[^>]* width="([\d.]+)pt"', formats["svg"].read_text(encoding="utf-8"))
        blocks[name] = {
            "name": name,
            "title": title,
            "caption": caption,
            "source": _data_uri(formats["svg"], "image/svg+xml"),
            "wide": bool(width) and float(width[1]) > WIDE,
            "csv": download(formats["csv"], link),
            "files": {kind: link(formats[kind]) for kind in ("png", "svg")},
        }
    return blocks


def download(file: Path, link: Callable[[Path], str]) -> dict:
    """A link that gives the file: from within the page, or where it lies when it is large."""
    small = file.stat().st_size <= LARGEST_DOWNLOAD
    return {"name": file.name, "href": _data_uri(file, "text/csv") if small else link(file), "path": link(file)}


def _data_uri(file: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode('ascii')}"


def linker(output: Path) -> Callable[[Path], str]:
    """What makes a file's path into a link from the page."""
    return lambda file: Path(os.path.relpath(file, output.parent)).as_posix()


def versions(results: Results) -> list[dict]:
    """The software of the trainings (each set of versions once, with the arms that had it) and of the analysis."""
    sets: dict[str, dict] = {}
    for training in results.trainings:
        key = json.dumps(training["versions"], sort_keys=True)
        sets.setdefault(key, {"what": [], "versions": training["versions"]})["what"].append(full_name(training["arm"]))
    rows = [
        {"what": "Training" + ("" if len(sets) == 1 else f" of {', '.join(entry['what'])}"), **entry["versions"]}
        for entry in sets.values()
    ]
    result = [{"what": row.pop("what"), "versions": row} for row in rows]
    return [*result, {"what": "Analysis", "versions": {name: metadata.version(name) for name in PACKAGES}}]


def checksums(results: Results) -> list[dict]:
    """The sha256 of the data, of the splits, of the base models and of the adapters."""
    rows = []
    for file in source_files(results):
        for key, what in (("sha256", "downloaded file"), ("raw_sha256", "data file")):
            if file.get(key):
                rows.append({"what": f"Data ({file['part']}), {what}", "sha256": file[key]})
    rows += [{"what": f"Rows of {name}", "sha256": digest} for name, digest in results.split_digests.items()]
    for model, manifest in results.models.items():
        for name, file in manifest["files"].items():
            rows.append({"what": f"{model}, {name}", "sha256": file["sha256"]})
    for training in results.trainings:
        rows.append({"what": f"Adapter of {full_name(training['arm'])}", "sha256": training["adapter_sha256"]})
    return rows


def links(results: Results, sources: Sources, link: Callable[[Path], str]) -> dict[str, Any]:
    """The file that each number is from; those of arms by model, method and seed."""

    def of_arms(contents: Iterable[Mapping], files: Iterable[Path]) -> dict[tuple, str]:
        return {
            tuple(content["arm"][key] for key in KEY): link(file) for content, file in zip(contents, files, strict=True)
        }

    return {
        "metrics": of_arms(results.metrics, sources.metrics),
        "training": of_arms(results.trainings, sources.training),
        "failures": of_arms(results.failures, sources.failures),
        "prompts": {file.parent.name: link(file) for file in sources.prompts},
        "models": {file.parent.name: link(file) for file in sources.models},
        "dataset": link(sources.dataset),
        "split": link(sources.split),
    }


def with_files(rows: Iterable[dict], files: Mapping[tuple, str]) -> list[dict]:
    """Rows of scores, each with the `file` that its numbers are from; None where several seeds are pooled."""
    linked = []
    for row in rows:
        found = [
            file
            for (model, method, seed), file in files.items()
            if (model, method) == (row["model"], row["method"]) and row.get("seed", seed) == seed
        ]
        linked.append(row | {"file": found[0] if len(found) == 1 else None})
    return linked


def run_rows(results: Results) -> list[dict]:
    """Where each arm ran, how long all its phases took, and the energy of it where that is known."""
    table = results.resources.astype(object)
    table = table.where(table.notna(), None)
    return table[["name", "device", "threads", "total_seconds", "energy_kwh", "energy_basis"]].to_dict("records")


def flatten(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as rows of a dotted key and a value."""
    rows = []
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) and item:
            rows += flatten(item, f"{name}.")
        else:
            rows.append((name, item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)))
    return rows


# Words and numbers


def full_name(arm: Mapping) -> str:
    """An arm named in full: its folder."""
    return "/".join([arm["model"], arm["method"], *filter(None, [arm.get("variant")]), f"seed{arm['seed']}"])


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def unbroken(text: str) -> str:
    """`text` with no line break between a number and its sign or unit."""
    return re.sub(r"(?<=\d) (?=%|points?\b)|(?<=\bp) (?=[<=])|(?<=[<=]) (?=\d)", "\u00a0", text)


def percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def energy(kwh: float) -> str:
    """Energy for people."""
    return f"{kwh:.3g} kWh" if kwh >= 1 else f"{kwh * 1000:.3g} Wh"


def score(value: float) -> str:
    return f"{value:.3f}"


def number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes for people."""
    unit, divisor = ("GB", 1e9) if value >= 1e9 else ("MB", 1e6) if value >= 1e6 else ("kB", 1e3)
    return f"{value / divisor:.3g} {unit}"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds:.2g} s" if seconds >= 0.01 else f"{seconds * 1000:.2g} ms"
