"""Write the model card of an adapter, README.md beside it.

Reads what was trained (training.json) and how it was scored (metrics.json). The card's metadata are those that the
Hugging Face Hub reads, with every score and its interval.
"""

import argparse
import json
from pathlib import Path

from reprolora import model_card
from reprolora.errors import run_script
from reprolora.files import read_json, write_text


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: experiment, dataset, model")
    parser.add_argument("--training", type=Path, required=True, help="training.json")
    parser.add_argument("--metrics", type=Path, required=True, help="metrics.json")
    parser.add_argument("--template", type=Path, default=model_card.TEMPLATE, help="the card to fill (Jinja2)")
    parser.add_argument("--output", type=Path, required=True, help="the card to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    template = args.template.read_text(encoding="utf-8")
    card = model_card.model_card(args.settings, read_json(args.training), read_json(args.metrics), template)
    write_text(args.output, card)


if __name__ == "__main__":
    run_script(main)
