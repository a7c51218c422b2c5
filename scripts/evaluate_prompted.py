"""Evaluate the base model as it is, before any fine-tuning, on the test rows.

Reads the base model and the test rows, and for a few-shot prompt the training rows, of which the arm's seed draws some
to show. Asks with the prompt that training and evaluate_adapter use. Writes every prediction, the figures and the shown
rows (metrics.json) and what it took (resources_evaluate.json).
"""

import argparse
import json
from pathlib import Path

from reprolora.errors import run_script
from reprolora.evaluation import Asker, answer_test
from reprolora.examples import draw_examples
from reprolora.failures import recorded_failure
from reprolora.files import read_jsonl
from reprolora.loading import check_context, evaluation_parser, load_untrained
from reprolora.prompts import PromptEncoder


def parse_args() -> argparse.Namespace:
    parser = evaluation_parser(__doc__)
    parser.add_argument("--train", nargs="?", help="the training rows, when settings say shots")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = json.loads(args.settings)
    folder, inputs = Path(args.metrics).parent, [args.model, args.test, *filter(None, [args.train])]
    with recorded_failure(folder, settings["arm"], "evaluate_prompted", args.settings, inputs):
        evaluate_prompted(args, settings)


def evaluate_prompted(args: argparse.Namespace, settings: dict) -> None:
    model, tokenizer, meter = load_untrained(args, settings["accelerator"], settings["precision"])
    shots, examples, facts = settings["shots"], [], {}
    if shots:
        examples = draw_examples(list(read_jsonl(args.train)), settings["labels"], shots, settings["arm"]["seed"])
        facts = {"baseline": {"name": "few-shot", "examples": [row["id"] for row in examples]}}
    encoder = PromptEncoder(tokenizer, settings["prompt"], examples)
    longest = max(len(encoder.encode_prompt(row["text"])) for row in read_jsonl(args.test))
    needed = longest + settings["evaluation"]["max_new_tokens"]
    check_context(model, needed, "lower the method's shots or shorten the texts")
    asker = Asker(model, encoder, settings["labels"], settings["evaluation"]["batch_tokens"])
    answer_test(asker, args.test, settings, meter, args, **facts)


if __name__ == "__main__":
    run_script(main)
