"""Read files of instructions (Alpaca, ShareGPT or `messages`) and bring them to one form.

Writes the rows in file order and a manifest with counts, sources and checksums. Malformed rows end it in one line that
names the first of them, and nothing is written.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reprolora.errors import run_script
from reprolora.files import write_json, write_jsonl
from reprolora.instructions import read_instructions
from reprolora.raw_files import describe_raw, open_raw, parts_of


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--raw", nargs="+", metavar="PART=FILE", required=True, help="the raw file of each part")
    parser.add_argument("--settings", type=json.loads, required=True, help='JSON: {"files"} of the catalogue')
    parser.add_argument("--rows", type=Path, required=True, help="the rows to write")
    parser.add_argument("--manifest", type=Path, required=True, help="the manifest to write")
    return parser.parse_args()


def rows(files: dict[str, Path], settings: dict[str, Any], counts: Counter) -> Iterator[dict[str, Any]]:
    """The rows of all parts, counted as they go by."""
    for part, path in files.items():
        with open_raw(path, settings["files"][part]) as file:
            for row in read_instructions(file, part):
                counts[part] += 1
                yield row


def main() -> None:
    args = parse_args()
    files, counts = parts_of(args.raw), Counter()
    write_jsonl(args.rows, rows(files, args.settings, counts))
    write_json(args.manifest, {"rows": counts, "files": describe_raw(files, args.settings["files"])})


if __name__ == "__main__":
    run_script(main)
