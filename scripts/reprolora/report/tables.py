"""The rows of the report's tables."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reprolora.arms import CLASSICAL, CONTENDER, KEY, arm_names, predictions_of
from reprolora.report.answer import quantization_pair
from reprolora.report.results import Results
from reprolora.report.wording import duration, size
from reprolora.splits import SPLITS
from reprolora.statistics import other_side, sentence

# More rows than these nobody reads in a page; the files have all.
MOST_COMPARISONS = 60


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


def settings_rows(settings: Mapping[str, Any], *evaluated_by: str) -> list[tuple[str, str]]:
    """The experiment's settings as rows; `evaluated_by` names the sections that say how arms are evaluated."""
    return flatten({key: settings["experiment"][key] for key in ("split", "prompt", "training", *evaluated_by)})
