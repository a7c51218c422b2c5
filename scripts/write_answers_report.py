"""Write the report of an instruction experiment: one HTML page that needs no other file and no network.

Reads the experiment's tables, figures and the files of its arms; writes the page, and beside it the bibliography that
it shows (references.bib). It opens with the question and its answer in sentences made from the tables.
"""

import argparse
from pathlib import Path

from reprolora.bibliography import bibliography
from reprolora.errors import run_script
from reprolora.files import write_text
from reprolora.report.answers_page import AnswerSources, build_answers_report
from reprolora.report.sources import report_parser


def parse_args() -> argparse.Namespace:
    parser = report_parser(__doc__, "answers_report.html.jinja")
    parser.add_argument("--answers-table", type=Path, required=True, help="tables/answers.csv")
    parser.add_argument(
        "--judge-table", type=Path, nargs="?", help="tables/judge.csv, where a model judged the answers"
    )
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    write_text(args.bibliography, bibliography(args.settings))
    sources = AnswerSources.of(args)
    write_text(args.output, build_answers_report(args.settings, sources, args.template, args.output))


if __name__ == "__main__":
    run_script(main)
