"""The gate between generated pairs and a data set: take the reviewer's decisions, and stop if too few pairs passed.

Writes the data set's rows (id, instruction, input, output, source, and the document and chunk they are from), and a
manifest with the counts of every step before. Edited pairs are taken as edited, rejected ones left out, and pairs
whose answer their chunk does not support left out too, unless a reviewer accepted them or the settings keep them.
"""

import argparse
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reprolora.decisions import Decision, read_decisions
from reprolora.errors import UserError, run_script
from reprolora.files import read_json, read_jsonl, write_json, write_jsonl
from reprolora.review import judge


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--chunks", type=Path, required=True)
    parser.add_argument("--sample", type=Path, help="the ids of the sample; none when the review is skipped")
    parser.add_argument("--page", default="the review page", help="what to open to review, for messages")
    parser.add_argument("--decisions", type=Path, help="the file with the reviewer's decisions")
    parser.add_argument("--summaries", nargs="+", type=Path, required=True, help="the summaries of the steps before")
    parser.add_argument(
        "--settings", type=json.loads, required=True, help='JSON: {"review", "minimum_support", "unsupported"}'
    )
    parser.add_argument("--rows", type=Path, required=True, help="the rows to write")
    parser.add_argument("--manifest", type=Path, required=True, help="the manifest to write")
    return parser.parse_args()


def finished_rows(
    pairs: Sequence[Mapping[str, Any]], chunks: Mapping[str, Mapping[str, Any]], decisions: Mapping[str, Decision]
) -> Iterator[dict[str, str]]:
    """The rows of the pairs that are left, in order, with the reviewer's edits."""
    for pair in pairs:
        decision, chunk = decisions.get(pair["id"]), chunks[pair["chunk"]]
        edited = decision is not None and decision.verdict == "edit"
        yield {
            "id": pair["id"],
            "instruction": decision.instruction if edited else pair["instruction"],
            "input": "",
            "output": decision.output if edited else pair["output"],
            "source": f"{pair['document']}:{chunk['start']}-{chunk['end']}",
            "document": pair["document"],
            "chunk": pair["chunk"],
            "part": "all",
        }


def main() -> None:
    args = parse_args()
    settings, review = args.settings, args.settings["review"]
    pairs = list(read_jsonl(args.pairs))
    chunks = {chunk["id"]: chunk for chunk in read_jsonl(args.chunks)}
    decisions = read_decisions(args.decisions)
    if review["skip"]:
        outcome: dict[str, Any] = {"skipped": True}
        logging.warning("the review is skipped, as review.skip says: nobody looked at these %d pairs", len(pairs))
    else:
        outcome = judge(pairs, read_json(args.sample), decisions, review["pass_rate"], args.page)
    left = [pair for pair in pairs if not pair["rejected"]]
    flagged = [pair for pair in left if pair["support"] < settings["minimum_support"]]
    dropped = {pair["id"] for pair in flagged if pair["id"] not in decisions and settings["unsupported"] == "drop"}
    rows = list(finished_rows([pair for pair in left if pair["id"] not in dropped], chunks, decisions))
    if not rows:
        raise UserError(f"{args.pairs}: no pair is left: {len(dropped)} of {len(pairs)} are unsupported")
    if flagged:
        logging.warning("%d answers are not supported by their chunks; %d are left out", len(flagged), len(dropped))
    write_jsonl(args.rows, rows)
    write_json(
        args.manifest,
        {
            "rows": {"all": len(rows)},
            "review": outcome,
            "unsupported": {"flagged": len(flagged), "dropped": len(dropped)},
            **{path.stem: read_json(path) for path in args.summaries},
        },
    )


if __name__ == "__main__":
    run_script(main)
