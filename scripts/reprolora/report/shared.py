"""What the reports of both tasks say, and how a page is made of it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2

from reprolora.arms import method_name
from reprolora.bibliography import bibliography
from reprolora.report.evidence import checksums, download, figure_blocks, links, source_files, versions, with_files
from reprolora.report.results import Results
from reprolora.report.sources import Sources
from reprolora.report.sweep_section import sweep_section
from reprolora.report.tables import (
    arm_rows,
    comparison_rows,
    flatten,
    resource_rows,
    resource_sentences,
    run_rows,
    seed_rows,
    training_rows,
)
from reprolora.report.wording import capital, duration, energy, number, percent, score, size, unbroken
from reprolora.statistics import p_text

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


def shared_sections(
    results: Results, sources: Sources, captions: Mapping[str, tuple[str, str]], link: Callable[[Path], str]
) -> dict[str, Any]:
    """What every report says; `captions` has the title and the caption of each figure."""
    settings, files = results.settings, links(results, sources, link)
    comparisons = comparison_rows(results)
    return {
        "settings": settings,
        "results": with_files(results.contenders().to_dict("records"), files["metrics"]),
        "seeds_of_results": with_files(seed_rows(results), files["metrics"]),
        "failures": results.failures,
        "comparisons": comparisons,
        "comparisons_left_out": len(results.comparison) - len(comparisons),
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
