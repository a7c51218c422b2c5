"""Cut documents into chunks of at most so many tokens of a model's tokenizer.

Writes one JSON row for each chunk (id, document, headings, character range in the document's text, tokens, text), and a
summary with what was left out as a duplicate or as boilerplate, and the blocks that had to be cut.
"""

import argparse
import json
import logging
import os
from dataclasses import asdict
from pathlib import Path

from reprolora.chunks import chunk_documents, load_tokenizer
from reprolora.corpus import Document, as_row
from reprolora.errors import UserError, run_script
from reprolora.files import read_jsonl, write_json, write_jsonl


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=Path, required=True, help="the documents that convert_documents wrote")
    parser.add_argument("--model", type=Path, required=True, help="the model's manifest.json")
    parser.add_argument("--settings", type=json.loads, required=True, help='JSON: {"max_tokens"}')
    parser.add_argument("--chunks", type=Path, required=True, help="the chunks to write")
    parser.add_argument("--summary", type=Path, required=True, help="the counts to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one job, one thread
    documents = [Document(**row) for row in read_jsonl(args.documents)]
    tokenizer = load_tokenizer(str(args.model.parent / "tokenizer.json"))
    chunks, counts = chunk_documents(documents, tokenizer, args.settings["max_tokens"])
    if not chunks:
        raise UserError(f"{args.documents}: no text in {len(documents)} documents; check what they hold")
    logging.info(
        "%d chunks of %d documents; left out: %d duplicate documents, %d duplicate chunks, %d blocks of boilerplate",
        counts.chunks,
        len(documents),
        len(counts.duplicate_documents),
        counts.duplicate_chunks,
        counts.boilerplate_blocks,
    )
    write_jsonl(args.chunks, map(as_row, chunks))
    write_json(args.summary, asdict(counts) | {"max_tokens": args.settings["max_tokens"]})


if __name__ == "__main__":
    run_script(main)
