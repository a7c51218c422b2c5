"""Write the model card of an adapter that answers instructions, README.md beside it.

Reads what was trained (training.json) and how it was scored (metrics.json, and predictions.jsonl beside it for the
intervals). The card's metadata are those that the Hugging Face Hub reads, with every score and its interval.
"""

import argparse
import json
import math
from pathlib import Path

from reprolora import model_card
from reprolora.answer_runs import Answers, read_answers
from reprolora.answer_statistics import SCORES, intervals, score_answers
from reprolora.errors import run_script
from reprolora.files import read_json, write_text
from reprolora.model_card import Measured, Scores


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--settings", type=json.loads, required=True, help="JSON: experiment, dataset, model, by_document"
    )
    parser.add_argument("--training", type=Path, required=True, help="training.json")
    parser.add_argument("--metrics", type=Path, required=True, help="metrics.json")
    parser.add_argument("--template", type=Path, default=model_card.TEMPLATE, help="the card to fill (Jinja2)")
    parser.add_argument("--output", type=Path, required=True, help="the card to write")
    return parser.parse_args()


def measured(answers: Answers, by_document: bool) -> list[Measured]:
    """The scores of the arm that could be had, with the intervals that its row of tables/metrics.csv has."""
    columns = intervals(score_answers([answers], by_document=by_document), len(answers.ids))
    found, scores = {key: float(values[0]) for key, values in columns.items()}, []
    for key, name in SCORES.items():
        if key in found:
            ends = found[f"{key}_low"], found[f"{key}_high"]
            scores.append(Measured(key, name, found[key], None if math.isnan(ends[0]) else ends))
    return scores


def main() -> None:
    args = parse_args()
    template, answers = args.template.read_text(encoding="utf-8"), read_answers(args.metrics)
    scores = Scores(answers.mode, len(answers.ids), measured(answers, args.settings["by_document"]))
    split = read_json(args.metrics)["split"]
    card = model_card.render_card(
        args.settings, read_json(args.training), [scores], split, "question-answering", template
    )
    write_text(args.output, card)


if __name__ == "__main__":
    run_script(main)
