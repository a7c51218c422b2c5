"""Write the report of an experiment: one HTML page that needs no other file and no network.

Reads the experiment's tables, figures and the files of its arms (metrics and predictions in the same order); writes
the page, and beside it the bibliography that it shows (references.bib). It opens with the question and its answer in
sentences made from the tables.
"""

import argparse
import json
from pathlib import Path

from reprolora import report
from reprolora.bibliography import bibliography
from reprolora.errors import run_script
from reprolora.files import write_text

TEMPLATE = Path(report.__file__).parent / "templates" / "report.html.jinja"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--settings", type=json.loads, required=True, help="JSON: experiment, dataset, models, methods, hardware"
    )
    parser.add_argument("--metrics-table", type=Path, required=True, help="tables/metrics.csv")
    parser.add_argument("--pooled-table", type=Path, required=True, help="tables/metrics_pooled.csv")
    parser.add_argument("--main-table", type=Path, nargs="*", default=[], help="tables/main.tex and main.md, to link")
    parser.add_argument("--comparison-table", type=Path, required=True, help="tables/comparison.csv")
    parser.add_argument("--resources-table", type=Path, required=True, help="tables/resources.csv")
    parser.add_argument("--error-tables", type=Path, nargs="+", required=True, help="the tables of analyze_errors")
    parser.add_argument("--audit", type=Path, required=True, help="the split's audit.json")
    parser.add_argument("--audit-tables", type=Path, nargs="+", required=True, help="the tables of audit_splits")
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
    parser.add_argument("--template", type=Path, default=TEMPLATE, help="the page to fill (Jinja2)")
    parser.add_argument("--output", type=Path, required=True, help="the page to write")
    parser.add_argument("--bibliography", type=Path, required=True, help="references.bib to write, beside the page")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    sources = report.LabelSources(
        metrics_table=args.metrics_table,
        pooled_table=args.pooled_table,
        main_table=args.main_table,
        comparison_table=args.comparison_table,
        resources_table=args.resources_table,
        error_tables=args.error_tables,
        audit=args.audit,
        audit_tables=args.audit_tables,
        figures=args.figures,
        metrics=args.metrics,
        training=args.training,
        failures=args.failures,
        prompts=args.prompts,
        models=args.models,
        dataset=args.dataset,
        split=args.split,
        split_rows=args.split_rows,
        sweep=args.sweep,
    )
    write_text(args.bibliography, bibliography(args.settings))
    write_text(args.output, report.build_report(args.settings, sources, args.template, args.output))


if __name__ == "__main__":
    run_script(main)
