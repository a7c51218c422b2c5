"""Let a model with its adapter, reloaded from disk in this fresh process, follow the test rows' instructions.

Reads the base model, the adapter, what its training recorded (training.json, reload_probe.jsonl) and the rows of all
splits (those of the test rows' documents are wrong answers to choose among). The reloaded model must answer the probe
as the trained one did, or the arm fails and nothing is written. Writes every answer with its scores, the figures
(metrics.json) and what it took (resources_evaluate.json).
"""

import argparse
import json
import logging
from pathlib import Path

from reprolora.answer_probe import probe_answers
from reprolora.asking import check_reloaded
from reprolora.errors import run_script
from reprolora.failures import recorded_failure
from reprolora.files import read_jsonl
from reprolora.instruction_evaluation import InstructionAsker, answer_test
from reprolora.loading import load_trained, reload_parser
from reprolora.prompts import InstructionEncoder

log = logging.getLogger(__name__)


def parse_args() -> argparse.Namespace:
    parser = reload_parser(__doc__)
    parser.add_argument("--train", required=True)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = json.loads(args.settings)
    rows = [args.train, args.validation, args.test]
    folder, inputs = Path(args.metrics).parent, [args.model, args.adapter_config, args.training, *rows]
    with recorded_failure(folder, settings["arm"], "evaluate_adapter_answers", args.settings, inputs):
        evaluate_adapter_answers(args, settings)


def evaluate_adapter_answers(args: argparse.Namespace, settings: dict) -> None:
    model, tokenizer, precision, meter = load_trained(args, settings["accelerator"])
    encoder = InstructionEncoder(tokenizer, settings["prompt"])
    probe = probe_answers(model, encoder, list(read_jsonl(args.validation)))
    difference = check_reloaded(list(read_jsonl(args.reload_probe)), probe, precision)
    log.info("reloaded as trained: same answers, log-probabilities within %.2g", difference)
    answer_test(InstructionAsker(model, encoder, settings["answers"]["batch_tokens"]), settings, meter, args)


if __name__ == "__main__":
    run_script(main)
