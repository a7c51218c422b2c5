"""The files that a report is made of, and the arguments that name them."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

TEMPLATES = Path(__file__).parents[1] / "templates"


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
