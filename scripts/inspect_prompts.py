"""Look at the prompts before anything is trained on them: their tokens, what they share, and what would be cut.

Reads the model's tokenizer and the rows of every split. Writes prompts.json: token counts per split, the tokens that
all prompts begin with, the share of tokens that are supervised, and an example as the model sees it. Training rows that
max_length would cut stop the run here.
"""

import argparse
import json
from pathlib import Path

from reprolora import models
from reprolora.errors import run_script
from reprolora.files import read_jsonl, write_json
from reprolora.prompts import PromptEncoder, encode_rows
from reprolora.token_counts import count_tokens, describe_prompts


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the base model's manifest.json")
    parser.add_argument("--train", required=True)
    parser.add_argument("--validation", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--settings", required=True, help="JSON: prompt, labels, max_length")
    parser.add_argument("--output", required=True)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = json.loads(args.settings)
    models.quiet_libraries()
    tokenizer = models.load_tokenizer(Path(args.model).parent)
    encoder = PromptEncoder(tokenizer, settings["prompt"])
    rows = {split: list(read_jsonl(getattr(args, split))) for split in ("train", "validation", "test")}
    encoded = {
        # Test rows are asked, not learned from: none of them can lose its label.
        split: [encoder.encode(row["text"], row["label"]) for row in rows[split]]
        if split == "test"
        else encode_rows(encoder, rows[split], settings["max_length"], getattr(args, split))
        for split in rows
    }
    write_json(
        args.output,
        describe_prompts(encoder, encoded["train"], settings["max_length"])
        | {
            "label_tokens": {
                label: tokenizer.convert_ids_to_tokens(encoder.answer_ids(label)) for label in settings["labels"]
            },
            "splits": {split: count_tokens(encoded[split]) for split in encoded},
        },
    )


if __name__ == "__main__":
    run_script(main)
