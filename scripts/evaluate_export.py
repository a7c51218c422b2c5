"""Evaluate an exported model, loaded in this fresh process, as an arm of its own.

Reads the model (merged safetensors, or a GGUF file), the test rows, what the adapter's training recorded, and the
predictions of what was exported: the adapter's, or for a GGUF file the merged model's. With rows in the settings, only
so many test rows are asked. The tokenizer must cut texts as the base model's does. Writes every prediction, the figures
(metrics.json), what it took (resources_evaluate.json) and how many answers changed (changes.json).
"""

from reprolora.errors import run_script
from reprolora.evaluation import Asker, answer_test
from reprolora.exports import export_parser, load_export, write_changes
from reprolora.prompts import PromptEncoder


def main() -> None:
    args = export_parser(__doc__).parse_args()
    settings = args.settings
    model, tokenizer, meter, same_tokens = load_export(args)
    encoder = PromptEncoder(tokenizer, settings["prompt"])
    asker = Asker(model, encoder, settings["labels"], settings["evaluation"]["batch_tokens"])
    answer_test(asker, args.test, settings, meter, args, settings["export"]["rows"], export=settings["export"])
    write_changes(args, "prediction", same_tokens)


if __name__ == "__main__":
    run_script(main)
