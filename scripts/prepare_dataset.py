"""Turn a dataset's raw files into rows of id, text and label, and count them.

Reads one raw file for each part (`all`, or `train`, `test` and perhaps `validation`); writes the rows in file order as
JSONL, and a manifest with the counts, sources and checksums. Anything wrong in the data ends in one line that
names the file, the line and the column, and nothing is written.
"""

import argparse
import json
import tempfile
from pathlib import Path

from reprolora.archives import extract_member
from reprolora.errors import UserError, run_script
from reprolora.files import sha256_of, write_json, write_jsonl
from reprolora.rows import check_classes, count_labels, read_rows
from reprolora.sources import check_sha256, member_path, parse_source
from reprolora.tables import DataFile

PART_SETS = (("all",), ("train", "test"), ("train", "validation", "test"))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--raw", nargs="+", metavar="PART=FILE", required=True, help="the raw file of each part")
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: the dataset's entry in the catalogue")
    parser.add_argument("--rows", type=Path, required=True, help="the rows to write")
    parser.add_argument("--manifest", type=Path, required=True, help="the manifest to write")
    return parser.parse_args()


def raw_files(arguments: list[str]) -> dict[str, Path]:
    """The file of each part, in the order in which the rows are written."""
    files = {part: Path(path) for part, _, path in (argument.partition("=") for argument in arguments)}
    for parts in PART_SETS:
        if set(files) == set(parts):
            break
    else:
        raise UserError(
            f"--raw has the parts {', '.join(files)}; a dataset has either `all`, or `train`, `test` and perhaps "
            "`validation`"
        )
    for part, path in files.items():
        if not path.is_file():
            raise UserError(f"{path}: no such file; check the source of `{part}` in the dataset catalogue")
    return {part: files[part] for part in parts}


def read_part(part: str, path: Path, settings: dict) -> list[dict[str, str]]:
    """Rows of one part. What was fetched is the data file itself; a user's own file may still be an archive."""
    file = settings["files"][part]
    member = []
    if parse_source(file["source"]).kind == "file":
        check_sha256(path, file.get("sha256"), str(path))
        member = member_path(file.get("member"))
    if not member:
        return read_rows(DataFile(path, str(path)), part, settings)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        extract_member(path, member, data)
        return read_rows(DataFile(data, f"{path}[{' > '.join(member)}]"), part, settings)


def main() -> None:
    args = parse_args()
    settings = args.settings
    files = raw_files(args.raw)
    parts = {part: read_part(part, path, settings) for part, path in files.items()}
    learned_from = "all" if "all" in parts else "train"
    check_classes(parts[learned_from], str(files[learned_from]))
    manifest = {
        "rows": {part: len(rows) for part, rows in parts.items()},
        "counts": {part: count_labels(rows, settings["labels"]) for part, rows in parts.items()},
        "files": {
            part: {
                "source": settings["files"][part]["source"],
                "member": settings["files"][part].get("member"),
                "sha256": settings["files"][part].get("sha256"),
                "raw_sha256": sha256_of(path),
            }
            for part, path in files.items()
        },
    }
    write_jsonl(args.rows, (row for rows in parts.values() for row in rows))
    write_json(args.manifest, manifest)


if __name__ == "__main__":
    run_script(main)
