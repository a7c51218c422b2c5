"""Make questions and answers from chunks, by their headings or by asking an endpoint with OpenAI's protocol.

Writes one JSON row for each pair and a summary of what was made, spent and refused. Pairs that the reviewer's
decisions reject stay on record as rejected, and the generator is asked for others. Answers of an endpoint are kept in a
folder, by the content of the request: whatever happens, none is paid for twice. The key comes from the environment.
"""

import argparse
import json
from pathlib import Path

from tqdm import tqdm

from reprolora.answer_store import AnswerStore
from reprolora.chat_endpoint import ChatEndpoint, in_parallel
from reprolora.corpus import from_row
from reprolora.decisions import rejected_pairs
from reprolora.errors import run_script
from reprolora.files import read_jsonl
from reprolora.heading_questions import HeadingQuestions
from reprolora.openai_questions import OpenAIQuestions
from reprolora.pairs import make_pairs, write_pairs


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=Path, required=True, help="the chunks that chunk_documents wrote")
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: the generator's settings")
    parser.add_argument("--answers", type=Path, required=True, help="the folder of the endpoint's answers")
    parser.add_argument("--decisions", type=Path, help="the reviewer's decisions, if there are any yet")
    parser.add_argument("--pairs", type=Path, required=True, help="the pairs to write")
    parser.add_argument("--summary", type=Path, required=True, help="the counts to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = args.settings
    chunks = [from_row(row) for row in read_jsonl(args.chunks)]
    rejected = rejected_pairs(args.decisions)
    if settings["kind"] == "openai":
        endpoint = ChatEndpoint(settings, "generator", AnswerStore(args.answers))
        generator = OpenAIQuestions(endpoint)
        made = in_parallel(lambda chunk: make_pairs(chunk, generator, rejected), chunks, settings["parallel"])
        pairs = [pair for some in tqdm(made, total=len(chunks), unit=" chunks", disable=None) for pair in some]
        facts = {"failures": generator.failures, "spent": endpoint.spent()}
    else:
        generator = HeadingQuestions(chunks, settings["subject"])
        pairs = [pair for chunk in chunks for pair in make_pairs(chunk, generator, rejected)]
        facts = {}
    write_pairs(args.pairs, args.summary, chunks, pairs, {"generator": settings} | facts)


if __name__ == "__main__":
    run_script(main)
