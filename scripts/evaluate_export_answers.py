"""Let an exported model, loaded in this fresh process, follow the test rows' instructions, as an arm of its own.

Reads the model (merged safetensors, or a GGUF file), the rows of all splits, what the adapter's training recorded, and
the predictions of what was exported: the adapter's, or for a GGUF file the merged model's. With rows in the settings,
only so many test rows are asked. The tokenizer must cut texts as the base model's does. Writes every answer with its
scores, the figures (metrics.json), what it took (resources_evaluate.json) and how many answers changed (changes.json).
"""

from reprolora.errors import run_script
from reprolora.exports import export_parser, load_export, write_changes
from reprolora.instruction_evaluation import InstructionAsker, answer_test
from reprolora.prompts import InstructionEncoder


def main() -> None:
    args = export_parser(__doc__).parse_args()
    model, tokenizer, meter, same_tokens = load_export(args)
    encoder = InstructionEncoder(tokenizer, args.settings["prompt"])
    asker = InstructionAsker(model, encoder, args.settings["answers"]["batch_tokens"])
    answer_test(asker, args.settings, meter, args, args.settings["export"]["rows"])
    write_changes(args, "answer", same_tokens)


if __name__ == "__main__":
    run_script(main)
