"""Make questions and answers from chunks by asking a model on this machine.

Writes what generate_pairs writes. The model's answers are kept in a folder, by the content of the request, so that a
run that was stopped goes on, and only what changed is asked again.
"""

import argparse
import json
from pathlib import Path

import torch

from reprolora.answer_store import AnswerStore
from reprolora.corpus import from_row
from reprolora.decisions import rejected_pairs
from reprolora.errors import run_script
from reprolora.files import read_jsonl
from reprolora.local_questions import LocalQuestions
from reprolora.pairs import make_pairs, write_pairs


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=Path, required=True, help="the chunks that chunk_documents wrote")
    parser.add_argument("--model", type=Path, required=True, help="the model's manifest.json")
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: the generator's settings")
    parser.add_argument("--answers", type=Path, required=True, help="the folder of the model's answers")
    parser.add_argument("--decisions", type=Path, help="the reviewer's decisions, if there are any yet")
    parser.add_argument("--pairs", type=Path, required=True, help="the pairs to write")
    parser.add_argument("--summary", type=Path, required=True, help="the counts to write")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    chunks = [from_row(row) for row in read_jsonl(args.chunks)]
    generator = LocalQuestions(args.model, args.settings, AnswerStore(args.answers))
    generator.answer(chunks)
    rejected = rejected_pairs(args.decisions)
    pairs = [pair for chunk in chunks for pair in make_pairs(chunk, generator, rejected)]
    write_pairs(args.pairs, args.summary, chunks, pairs, {"generator": args.settings, "failures": generator.failures})


if __name__ == "__main__":
    run_script(main)
