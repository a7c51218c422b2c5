"""Evaluate the base model as it is, before any fine-tuning, on the test rows.

Reads the base model and the test rows, and for a few-shot prompt the training rows, of which the arm's seed draws some
to show. Asks with the prompt that training and evaluate_adapter use. Writes every prediction, the figures and the shown
rows (metrics.json) and what it took (resources_evaluate.json).
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch

from reprolora import models, readback
from reprolora.devices import claim_device
from reprolora.errors import ArmFailed, run_script
from reprolora.evaluation import Asker, answer_test
from reprolora.examples import draw_examples
from reprolora.failures import recorded_failure
from reprolora.files import read_jsonl
from reprolora.measure import Meter
from reprolora.precision import choose_precision
from reprolora.prompts import PromptEncoder


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the base model's manifest.json")
    parser.add_argument("--train", nargs="?", help="the training rows, when settings say shots")
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
    folder, inputs = Path(args.metrics).parent, [args.model, args.test, *filter(None, [args.train])]
    with recorded_failure(folder, settings["arm"], "evaluate_prompted", args.settings, inputs):
        evaluate_prompted(args, settings)


def evaluate_prompted(args: argparse.Namespace, settings: dict) -> None:
    torch.set_num_threads(args.threads)
    models.quiet_libraries()
    device = claim_device(settings["accelerator"])
    precision = choose_precision(settings["precision"], device)["chosen"]
    meter = Meter(device, args.threads)
    with meter.phase("load"):
        folder = models.model_folder(args.model)
        tokenizer = models.load_tokenizer(folder)
        model = models.load_base(folder, precision, device)
    readback.check_as_asked(readback.describe(model), precision, None)

    shots, examples, facts = settings["shots"], [], {}
    if shots:
        examples = draw_examples(list(read_jsonl(args.train)), settings["labels"], shots, settings["arm"]["seed"])
        facts = {"baseline": {"name": "few-shot", "examples": [row["id"] for row in examples]}}
    encoder = PromptEncoder(tokenizer, settings["prompt"], examples)
    check_context(model, encoder, [row["text"] for row in read_jsonl(args.test)], settings["evaluation"])
    asker = Asker(model.eval(), encoder, settings["labels"], settings["evaluation"]["batch_tokens"])
    answer_test(asker, args.test, settings, meter, args, **facts)


def check_context(model, encoder: PromptEncoder, texts: Sequence[str], evaluation: dict) -> None:
    """Raise ArmFailed when the longest prompt and its answer do not fit the positions that the model knows."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    needed = max(len(encoder.encode_prompt(text)) for text in texts) + evaluation["max_new_tokens"]
    if positions and needed > positions:
        raise ArmFailed(
            f"the longest prompt and its answer take {needed} tokens, but the model knows {positions} positions; lower "
            "the method's shots or shorten the texts"
        )


if __name__ == "__main__":
    run_script(main)
