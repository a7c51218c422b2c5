"""Loading an exported model, merged safetensors or a GGUF file, to ask it what the adapter was asked."""

import argparse
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from reprolora import models
from reprolora.changes import count_changes
from reprolora.devices import claim_device
from reprolora.errors import ArmFailed
from reprolora.files import read_json, read_jsonl, write_json
from reprolora.gguf_models import read_gguf
from reprolora.measure import Meter
from reprolora.model_files import GGUF_FILE

log = logging.getLogger(__name__)

# What two tokenizers must cut alike: digits, signs, blanks, line ends, letters of several scripts, the special tokens.
TEXTS = (
    "Somehow I was blessed with some really amazing friends. #blessed",
    "In 2014 we'll pay 3.50  2 times &amp; more: x\u00b2 \u00bd \U0001f600\n\n7\t\ttabs\r\n   end ",
    "Was können Sie über Ångström sagen? 请用一句话回答。 Здравствуй",
)


def export_parser(description: str) -> argparse.ArgumentParser:
    """The arguments of the scripts that evaluate an exported model."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="the exported model's manifest.json")
    parser.add_argument("--base", type=Path, required=True, help="the base model's manifest.json, for its tokenizer")
    parser.add_argument("--training", type=Path, required=True, help="training.json")
    parser.add_argument("--before", type=Path, required=True, help="predictions.jsonl of what was exported")
    for split in ("train", "validation"):
        parser.add_argument(f"--{split}", nargs="?", help="its rows, for the wrong answers to choose among")
    parser.add_argument("--test", required=True)
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: what the rule passes as settings")
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--resources", required=True)
    parser.add_argument("--changes", required=True)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser


def load_export(args: argparse.Namespace) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Meter, int]:
    """The exported model, its tokenizer, the meter of loading, and how many texts were cut as the original does.

    Raises:
        ArmFailed: the tokenizer is not the base model's.
    """
    torch.set_num_threads(args.threads)
    models.quiet_libraries()
    device = claim_device(args.settings["accelerator"])
    meter = Meter(device, args.threads)
    with meter.phase("load"):
        model, tokenizer = load_exported(args.model, read_json(args.training)["precision"]["chosen"], device)
    return model.eval(), tokenizer, meter, check_tokens(tokenizer, models.model_folder(args.base))


def write_changes(args: argparse.Namespace, key: str, same_tokens: int) -> None:
    """Write changes.json: how many answers, which a prediction has at `key`, are not those from before the export."""
    changes = count_changes(list(read_jsonl(args.before)), list(read_jsonl(args.predictions)), key)
    known: Mapping[str, Any] = {name: args.settings[name] for name in ("arm", "export")}
    write_json(args.changes, {**known, "same_tokens": same_tokens, **changes})
    log.info("%d of %d answers changed", changes["changed"], changes["n"])


def load_exported(
    manifest: Path, precision: str, device: torch.device
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model that a manifest stands for: a folder of safetensors in `precision`, or a GGUF file in fp32."""
    folder = models.model_folder(manifest)
    if (folder / GGUF_FILE).is_file():
        model, tokenizer, _ = read_gguf(folder / GGUF_FILE, str(folder / GGUF_FILE))
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return model.to(device).requires_grad_(False), tokenizer
    return models.load_base(folder, precision, device), models.load_tokenizer(folder)


def check_tokens(tokenizer: PreTrainedTokenizerBase, original: Path) -> int:
    """Compare with the tokenizer in the folder `original`; returns how many texts were cut into the same tokens.

    Raises:
        ArmFailed: a text is cut otherwise, or the chat templates differ.
    """
    expected = AutoTokenizer.from_pretrained(original, local_files_only=True)
    if tokenizer.chat_template != expected.chat_template:
        raise ArmFailed(f"the chat template is not that of {original}")
    chat = [{"role": "user", "content": TEXTS[0]}]
    prompts = [expected.apply_chat_template(chat, tokenize=False)] if expected.chat_template else []
    texts = [*TEXTS, *prompts, *(token.content for token in expected.added_tokens_decoder.values())]
    for text in texts:
        ours, theirs = (t(text, add_special_tokens=False).input_ids for t in (tokenizer, expected))
        if ours != theirs:
            raise ArmFailed(f"the tokenizer cuts {text!r} into other tokens than {original}: {ours}, not {theirs}")
    return len(texts)
