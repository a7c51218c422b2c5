"""Look at the instructions before anything is trained on them: their tokens, what is cut, and what is likely wrong.

Reads the model's tokenizer and the rows of every split. Writes prompts.json: token counts per split, rows that
max_length cuts or leaves out, an example as the model sees it, and warnings. A split of which no token would be learned
stops the run here.
"""

import argparse
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reprolora import models
from reprolora.errors import run_script
from reprolora.files import read_jsonl, write_json
from reprolora.prompts import FittedRows, InstructionEncoder, fit_rows
from reprolora.token_counts import count_tokens, describe_prompts
from reprolora.writing import writing_system

# A larger share of rows whose question and answer are written in different systems is worth a warning.
MISMATCHED_SHARE = 0.05
SUPERVISED_SHARE = 0.5
NAMED = 5


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the base model's manifest.json")
    parser.add_argument("--train", required=True)
    parser.add_argument("--validation", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--settings", required=True, help="JSON: prompt, max_length, learning_rate, high_learning_rate")
    parser.add_argument("--output", required=True)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = json.loads(args.settings)
    models.quiet_libraries()
    tokenizer = models.load_tokenizer(Path(args.model).parent)
    encoder = InstructionEncoder(tokenizer, settings["prompt"])
    rows = {split: list(read_jsonl(getattr(args, split))) for split in ("train", "validation", "test")}
    fitted = {
        # Test rows are asked, not learned from, and their reference answers are read whole.
        split: FittedRows([encoder.encode(row) for row in rows[split]])
        if split == "test"
        else fit_rows(encoder, rows[split], settings["max_length"], getattr(args, split))
        for split in rows
    }
    warnings = list(find_warnings(rows["train"], fitted, settings))
    for warning in warnings:
        logging.warning(warning)
    write_json(
        args.output,
        describe_prompts(encoder, fitted["train"].encoded, settings["max_length"])
        | {
            "splits": {
                split: count_tokens(fitted[split].encoded)
                | {"truncated": len(fitted[split].truncated), "left_out": len(fitted[split].left_out)}
                for split in fitted
            },
            "warnings": warnings,
        },
    )


def find_warnings(
    rows: Sequence[Mapping[str, Any]], fitted: Mapping[str, FittedRows], settings: Mapping[str, Any]
) -> Iterator[str]:
    """What is likely wrong with the training rows and settings, a sentence each."""
    for split in ("train", "validation"):
        for what, names in (
            ("lose the end of their answer", fitted[split].truncated),
            ("are left out, since the prompt alone fills it", fitted[split].left_out),
        ):
            if names:
                yield (
                    f"{len(names)} {split} rows are longer than training.max_length {settings['max_length']} and "
                    f"{what}: {named(names)}"
                )
    share = count_tokens(fitted["train"].encoded)["supervised_share"]
    if share < SUPERVISED_SHARE:
        yield (
            f"only {share:.0%} of the training tokens are answers, which are all that is learned from; unless the "
            "instructions are long and the answers short, look at the example and at training.max_length"
        )
    if settings["learning_rate"] > settings["high_learning_rate"]:
        yield (
            f"the learning rate {settings['learning_rate']:g} is above {settings['high_learning_rate']:g}, the "
            "commonest reason for a loss that does not fall"
        )
    yield from mismatches(rows)


def mismatches(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Questions in one writing system with answers in another, each pair of systems that is common enough."""
    pairs = [(writing_system(row["instruction"]), writing_system(row["output"])) for row in rows]
    for (asked, answered), count in Counter(pairs).items():
        if asked and answered and asked != answered and count > MISMATCHED_SHARE * len(rows):
            names = [row["id"] for row, pair in zip(rows, pairs, strict=True) if pair == (asked, answered)]
            yield (
                f"{count} of {len(rows)} training rows are asked in {asked} and answered in {answered} letters, and "
                f"the model learns to answer so: {named(names)}"
            )


def named(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


if __name__ == "__main__":
    run_script(main)
