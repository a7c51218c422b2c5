"""Let the base model, before any fine-tuning, follow the test rows' instructions.

Reads the base model and the rows of all splits (those of the test rows' documents are wrong answers to choose among).
Asks with the prompt that training and evaluate_adapter_answers use. Writes every answer with its scores, the figures
(metrics.json) and what it took (resources_evaluate.json).
"""

import argparse
import json
from pathlib import Path

from reprolora.errors import run_script
from reprolora.failures import recorded_failure
from reprolora.instruction_evaluation import InstructionAsker, answer_test
from reprolora.loading import evaluation_parser, load_untrained
from reprolora.prompts import InstructionEncoder


def parse_args() -> argparse.Namespace:
    parser = evaluation_parser(__doc__)
    parser.add_argument("--train", required=True)
    parser.add_argument("--validation", required=True)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = json.loads(args.settings)
    folder, inputs = Path(args.metrics).parent, [args.model, args.train, args.validation, args.test]
    with recorded_failure(folder, settings["arm"], "evaluate_base_answers", args.settings, inputs):
        evaluate_base_answers(args, settings)


def evaluate_base_answers(args: argparse.Namespace, settings: dict) -> None:
    model, tokenizer, meter = load_untrained(args, settings["accelerator"], settings["precision"])
    encoder = InstructionEncoder(tokenizer, settings["prompt"])
    answer_test(InstructionAsker(model, encoder, settings["answers"]["batch_tokens"]), settings, meter, args)


if __name__ == "__main__":
    run_script(main)
