"""Draw the pairs that a person reviews, and write them as a page to open in a browser and as a spreadsheet.

Reads the pairs, their chunks, and what was decided already; writes the page, the CSV and the ids of the sample.
"""

import argparse
import json
import logging
from pathlib import Path

from reprolora.decisions import read_decisions
from reprolora.errors import run_script
from reprolora.files import read_jsonl, write_json, write_text
from reprolora.review import as_csv, as_page, draw_sample, review_rows


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", required=True, help="the dataset's name, which the page shows")
    parser.add_argument("--template", type=Path, required=True, help="the page's template")
    parser.add_argument("--chunks", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--settings", type=json.loads, required=True, help='JSON: {"seed", "share", "minimum_support"}')
    parser.add_argument("--decisions", type=Path, help="what was decided already, if anything")
    parser.add_argument("--page", type=Path, required=True, help="the page to write")
    parser.add_argument("--csv", type=Path, required=True, help="the spreadsheet to write")
    parser.add_argument("--sample", type=Path, required=True, help="the ids to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = args.settings
    pairs = list(read_jsonl(args.pairs))
    chunks = {chunk["id"]: chunk for chunk in read_jsonl(args.chunks)}
    sample = draw_sample(pairs, settings["share"], settings["seed"])
    rows = review_rows(sample, pairs, chunks, read_decisions(args.decisions))
    shown = {row["id"] for row in rows}
    flagged = [p["id"] for p in pairs if p["support"] < settings["minimum_support"] and p["id"] in shown]
    write_text(args.page, as_page(args.template.read_text(encoding="utf-8"), args.name, rows, flagged))
    write_text(args.csv, as_csv(rows))
    write_json(args.sample, sample)
    logging.info("%d of %d pairs to review: %s", len(rows), len(pairs), args.page)


if __name__ == "__main__":
    run_script(main)
