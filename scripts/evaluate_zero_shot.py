"""Evaluate the base model as it is, before any fine-tuning, on the test rows.

Reads the base model and the test rows; asks with the prompt that training and evaluate_adapter use. Writes every
prediction, the figures (metrics.json) and what it took (resources_evaluate.json).
"""

import argparse
import json
from pathlib import Path

import torch

from reprolora import models
from reprolora.devices import claim_device
from reprolora.errors import run_script
from reprolora.evaluation import Asker, evaluate
from reprolora.failures import recorded_failure
from reprolora.files import read_jsonl, write_json, write_jsonl
from reprolora.measure import Meter
from reprolora.precision import choose_precision
from reprolora.prompts import PromptEncoder


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the base model's manifest.json")
    parser.add_argument("--test", required=True)
    parser.add_argument("--settings", required=True, help="JSON: what the rule passes as settings")
    parser.add_argument("--predictions", required=True)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--resources", required=True)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = json.loads(args.settings)
    with recorded_failure(Path(args.metrics).parent, settings["arm"], "evaluate_zero_shot", args.settings):
        evaluate_zero_shot(args, settings)


def evaluate_zero_shot(args: argparse.Namespace, settings: dict) -> None:
    torch.set_num_threads(args.threads)
    models.quiet_libraries()
    device = claim_device(settings["accelerator"])
    precision = choose_precision(settings["precision"], device)["chosen"]
    meter = Meter(device, args.threads)
    with meter.phase("load"):
        folder = models.model_folder(args.model)
        tokenizer = models.load_tokenizer(folder)
        model = models.load_base(folder, precision, device)
    models.check_as_asked(models.describe(model), precision, None)

    encoder = PromptEncoder(tokenizer, settings["prompt"])
    asker = Asker(model.eval(), encoder, settings["labels"], settings["evaluation"]["batch_tokens"])
    rows = list(read_jsonl(args.test))
    with meter.phase("evaluate"):
        predictions, metrics = evaluate(asker, rows, settings["evaluation"], settings["arm"])
    write_jsonl(args.predictions, predictions)
    write_json(args.metrics, metrics)
    write_json(
        args.resources,
        {
            **meter.record,
            "examples": len(predictions),
            "examples_per_second": len(predictions) / meter.record["evaluate_seconds"],
            "engine": "plain" if asker.fallback else "shared-prefix",
        },
    )


if __name__ == "__main__":
    run_script(main)
