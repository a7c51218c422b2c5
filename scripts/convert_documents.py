"""Convert a folder of documents, or one in an archive, to Markdown.

Writes one JSON row for each document (its path, format, encoding, the sha256 of the file, its text) and a summary: how
many there are of each format, and every file that was refused, with the reason, or passed over. A document that cannot
be used does not stop the others.
"""

import argparse
import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from tqdm import tqdm

from reprolora.corpus import Document
from reprolora.documents import FORMATS, Refused, list_files, read_document
from reprolora.errors import UserError, run_script
from reprolora.files import write_json, write_jsonl
from reprolora.sources import check_sha256, parse_source


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--place", type=Path, required=True, help="the folder, or an archive that holds it")
    parser.add_argument(
        "--settings",
        type=json.loads,
        required=True,
        help='JSON: {"source", "folder", "exclude", "largest_mb", "sha256"}',
    )
    parser.add_argument("--documents", type=Path, required=True, help="the documents to write")
    parser.add_argument("--summary", type=Path, required=True, help="the counts to write")
    return parser.parse_args()


def convert(place: Path, settings: dict[str, Any], summary: dict[str, Any]) -> Iterator[Document]:
    """The documents in order of their paths; what else there is goes into `summary`."""
    largest = int(settings["largest_mb"] * 1_000_000)
    seen: set[str] = set()
    for name, size, opener in tqdm(list_files(place, settings["folder"]), unit=" files", disable=None):
        shown = name.encode("utf-8", "backslashreplace").decode()
        suffix = PurePosixPath(name).suffix.lower()
        if any(fnmatchcase(name, pattern) for pattern in settings["exclude"]):
            summary["excluded"].append(shown)
        elif suffix not in FORMATS:
            summary["other_files"][suffix or "without suffix"] += 1
        else:
            try:
                if name in seen:
                    raise Refused("is in the archive twice; repack it")
                with opener() as stream:
                    document = read_document(name, size, stream, largest)
            except Refused as refusal:
                logging.warning("%s: refused: %s", shown, refusal)
                summary["refused"][shown] = str(refusal)
                continue
            seen.add(name)
            summary["formats"][document.format] += 1
            if document.encoding not in ("utf-8", None):
                summary["encodings"][shown] = document.encoding
            yield document


def main() -> None:
    args = parse_args()
    settings = args.settings
    if not args.place.exists():
        raise UserError(f"{args.place}: no such file or folder; check the source of the documents")
    if args.place.is_file() and parse_source(settings["source"]).kind == "file":
        check_sha256(args.place, settings["sha256"], str(args.place))
    if args.place.is_dir() and not (args.place / settings["folder"]).is_dir():
        raise UserError(f"{args.place / settings['folder']}: no such folder; correct documents.member")
    summary: dict[str, Any] = {
        "source": settings["source"],
        "folder": settings["folder"],
        "formats": Counter(),
        "refused": {},
        "excluded": [],
        "other_files": Counter(),
        "encodings": {},
    }
    write_jsonl(args.documents, (asdict(document) for document in convert(args.place, settings, summary)))
    summary["documents"] = summary["formats"].total()
    if not summary["documents"]:
        args.documents.unlink()
        raise UserError(
            f"{args.place}: no document could be used ({len(summary['refused'])} refused, "
            f"{summary['other_files'].total()} of other types); known are {', '.join(FORMATS)}"
        )
    logging.info(
        "%d documents, %d refused, %d excluded, %d files of other types",
        summary["documents"],
        len(summary["refused"]),
        len(summary["excluded"]),
        summary["other_files"].total(),
    )
    write_json(args.summary, summary)


if __name__ == "__main__":
    run_script(main)
