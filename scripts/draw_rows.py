"""Draw some training rows, labels in proportion, for an arm that is trained on so many.

Reads the training rows of a split; writes the drawn ones. With the same seed, fewer rows are part of more.
"""

import argparse
from pathlib import Path

from reprolora.errors import UserError, run_script
from reprolora.files import read_jsonl, write_jsonl
from reprolora.splits import draw_rows


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True, help="training rows (JSONL)")
    parser.add_argument("--rows", type=int, required=True, help="how many to draw")
    parser.add_argument("--seed", type=int, required=True, help="which of them")
    parser.add_argument("--output", type=Path, required=True, help="the drawn rows, to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    try:
        drawn = draw_rows(list(read_jsonl(args.train)), args.rows, args.seed)
    except UserError as error:
        raise UserError(f"{args.train}: {error}") from None
    write_jsonl(args.output, drawn)


if __name__ == "__main__":
    run_script(main)
