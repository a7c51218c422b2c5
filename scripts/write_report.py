"""Write the report of an experiment: one HTML page that needs no other file and no network.

Reads the experiment's tables, figures and the files of its arms; writes the page, and beside it the bibliography that
it shows (references.bib). It opens with the question and its answer in sentences made from the tables.
"""

import argparse
from pathlib import Path

from reprolora.bibliography import bibliography
from reprolora.errors import run_script
from reprolora.files import write_text
from reprolora.report.page import build_report
from reprolora.report.sources import LabelSources, report_parser


def parse_args() -> argparse.Namespace:
    parser = report_parser(__doc__, "report.html.jinja")
    parser.add_argument("--error-tables", type=Path, nargs="+", required=True, help="the tables of analyze_errors")
    parser.add_argument("--audit", type=Path, required=True, help="the split's audit.json")
    parser.add_argument("--audit-tables", type=Path, nargs="+", required=True, help="the tables of audit_splits")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    write_text(args.bibliography, bibliography(args.settings))
    page = build_report(args.settings, LabelSources.of(args), args.template, args.output)
    write_text(args.output, page)


if __name__ == "__main__":
    run_script(main)
