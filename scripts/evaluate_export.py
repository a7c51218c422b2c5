"""Evaluate an exported model, loaded in this fresh process, as an arm of its own.

Reads the model (merged safetensors, or a GGUF file), the test rows, what the adapter's training recorded, and the
predictions of what was exported: the adapter's, or for a GGUF file the merged model's. With rows in the settings, only
so many test rows are asked. The tokenizer must cut texts as the original one does. Writes every prediction, the
figures (metrics.json), what it took (resources_evaluate.json) and how many answers changed (changes.json).
"""

import argparse
import json
import logging
from pathlib import Path

import torch

from reprolora import models
from reprolora.changes import count_changes
from reprolora.devices import claim_device
from reprolora.errors import run_script
from reprolora.evaluation import Asker, answer_test
from reprolora.exports import check_tokens, load_exported
from reprolora.files import read_json, read_jsonl, write_json
from reprolora.measure import Meter
from reprolora.prompts import PromptEncoder

log = logging.getLogger(__name__)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="the exported model's manifest.json")
    parser.add_argument("--base", type=Path, required=True, help="the base model's manifest.json, for its tokenizer")
    parser.add_argument("--training", type=Path, required=True, help="training.json")
    parser.add_argument("--before", type=Path, required=True, help="predictions.jsonl of what was exported")
    parser.add_argument("--test", required=True)
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: what the rule passes as settings")
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--resources", required=True)
    parser.add_argument("--changes", required=True)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = args.settings
    torch.set_num_threads(args.threads)
    models.quiet_libraries()
    device = claim_device(settings["accelerator"])
    meter = Meter(device, args.threads)
    with meter.phase("load"):
        model, tokenizer = load_exported(args.model, read_json(args.training)["precision"]["chosen"], device)
    texts = check_tokens(tokenizer, models.model_folder(args.base))
    encoder = PromptEncoder(tokenizer, settings["prompt"])
    asker = Asker(model.eval(), encoder, settings["labels"], settings["evaluation"]["batch_tokens"])
    answer_test(asker, args.test, settings, meter, args, settings["export"]["rows"], export=settings["export"])
    changes = count_changes(list(read_jsonl(args.before)), list(read_jsonl(args.predictions)), "prediction")
    write_json(args.changes, {"arm": settings["arm"], "export": settings["export"], "same_tokens": texts, **changes})
    log.info("%d of %d answers changed", changes["changed"], changes["n"])


if __name__ == "__main__":
    run_script(main)
