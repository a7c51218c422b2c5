"""Evaluate one adapter, reloaded from disk in this fresh process, on the test rows.

Reads the base model, the adapter, what its training recorded (training.json, reload_probe.jsonl), the validation and
the test rows. The reloaded model must answer the probe as the trained one did, or the arm fails and nothing is written.
Writes every prediction, the figures (metrics.json) and what it took (resources_evaluate.json).
"""

import argparse
import json
import logging
from pathlib import Path

from reprolora.asking import check_reloaded
from reprolora.errors import run_script
from reprolora.evaluation import Asker, answer_test
from reprolora.failures import recorded_failure
from reprolora.files import read_jsonl
from reprolora.loading import load_trained, reload_parser
from reprolora.prompts import PromptEncoder

log = logging.getLogger(__name__)


def main() -> None:
    args = reload_parser(__doc__).parse_args()
    settings = json.loads(args.settings)
    folder, inputs = Path(args.metrics).parent, [args.model, args.adapter_config, args.training, args.test]
    with recorded_failure(folder, settings["arm"], "evaluate_adapter", args.settings, inputs):
        evaluate_adapter(args, settings)


def evaluate_adapter(args: argparse.Namespace, settings: dict) -> None:
    model, tokenizer, precision, meter = load_trained(args, settings["accelerator"])
    encoder = PromptEncoder(tokenizer, settings["prompt"])
    asker = Asker(model, encoder, settings["labels"], settings["evaluation"]["batch_tokens"])
    difference = check_reloaded(
        list(read_jsonl(args.reload_probe)), asker.probe(list(read_jsonl(args.validation))), precision
    )
    log.info("reloaded as trained: same answers, log-probabilities within %.2g", difference)
    answer_test(asker, args.test, settings, meter, args)


if __name__ == "__main__":
    run_script(main)
