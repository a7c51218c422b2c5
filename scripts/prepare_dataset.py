"""Turn a dataset's raw files into rows of id, text and label, and count them.

Reads one raw file for each part (`all`, or `train`, `test` and perhaps `validation`); writes the rows in file order as
JSONL, and a manifest with the counts, sources and checksums. Anything wrong in the data ends in one line that
names the file, the line and the column, and nothing is written.
"""

import argparse
import json
from pathlib import Path

from reprolora.errors import run_script
from reprolora.files import write_json, write_jsonl
from reprolora.raw_files import describe_raw, open_raw, parts_of
from reprolora.rows import check_classes, count_labels, read_rows


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--raw", nargs="+", metavar="PART=FILE", required=True, help="the raw file of each part")
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: the dataset's entry in the catalogue")
    parser.add_argument("--rows", type=Path, required=True, help="the rows to write")
    parser.add_argument("--manifest", type=Path, required=True, help="the manifest to write")
    return parser.parse_args()


def read_part(part: str, path: Path, settings: dict) -> list[dict[str, str]]:
    """Rows of one part."""
    with open_raw(path, settings["files"][part]) as file:
        return read_rows(file, part, settings)


def main() -> None:
    args = parse_args()
    settings = args.settings
    files = parts_of(args.raw)
    parts = {part: read_part(part, path, settings) for part, path in files.items()}
    learned_from = "all" if "all" in parts else "train"
    check_classes(parts[learned_from], str(files[learned_from]))
    manifest = {
        "rows": {part: len(rows) for part, rows in parts.items()},
        "counts": {part: count_labels(rows, settings["labels"]) for part, rows in parts.items()},
        "files": describe_raw(files, settings["files"]),
    }
    write_jsonl(args.rows, (row for rows in parts.values() for row in rows))
    write_json(args.manifest, manifest)


if __name__ == "__main__":
    run_script(main)
