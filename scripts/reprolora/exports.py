"""Models for serving: an adapter merged into its base model, and how an exported model is loaded again."""

import warnings
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from reprolora.errors import ArmFailed
from reprolora.gguf_models import read_gguf
from reprolora.models import load_base, load_tokenizer, model_folder

GGUF_FILE = "model.gguf"
# What two tokenizers must cut alike: digits, signs, blanks, line ends, letters of several scripts, the special tokens.
TEXTS = (
    "Somehow I was blessed with some really amazing friends. #blessed",
    "In 2014 we'll pay 3.50  2 times &amp; more: x\u00b2 \u00bd \U0001f600\n\n7\t\ttabs\r\n   end ",
    "Was können Sie über Ångström sagen? 请用一句话回答。 Здравствуй",
)


def merge(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The model with its adapter's weights added to its own, as an ordinary model; one without an adapter as it is.

    Raises:
        ArmFailed: this type of adapter is no change of weights (a learned prompt), PEFT cannot merge it, or the merged
            weights are not numbers.
    """
    if not isinstance(model, PeftModel):
        return model
    config = model.active_peft_config
    if config.is_prompt_learning or not hasattr(model.base_model, "merge_and_unload"):
        raise ArmFailed(
            f"an adapter of type {config.peft_type.value} cannot be merged: it does not change the model's weights; "
            "use the adapter with its base model"
        )
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            merged = model.merge_and_unload(safe_merge=True)
    except (ValueError, NotImplementedError, TypeError, AttributeError) as error:
        raise ArmFailed(f"PEFT cannot merge this adapter of type {config.peft_type.value}: {error}") from error
    if untied := [str(warning.message) for warning in said if "tied_target_modules" in str(warning.message)]:
        raise ArmFailed(f"the adapter changes weights that the model uses twice, so it cannot be merged: {untied[0]}")
    return merged.requires_grad_(False)


def load_exported(
    manifest: Path, precision: str, device: torch.device
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model that a manifest stands for: a folder of safetensors in `precision`, or a GGUF file in fp32."""
    folder = model_folder(manifest)
    if (folder / GGUF_FILE).is_file():
        model, tokenizer = read_gguf(folder / GGUF_FILE, str(folder / GGUF_FILE))
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return model.to(device).requires_grad_(False), tokenizer
    return load_base(folder, precision, device), load_tokenizer(folder)


def check_tokens(tokenizer: PreTrainedTokenizerBase, original: Path) -> int:
    """Compare with the tokenizer in the folder `original`; returns how many texts were cut into the same tokens.

    Raises:
        ArmFailed: a text is cut otherwise, or the chat templates differ.
    """
    expected = AutoTokenizer.from_pretrained(original, local_files_only=True)
    chat = [{"role": "user", "content": TEXTS[0]}]
    options = {"tokenize": False, "add_generation_prompt": True}
    prompt = expected.apply_chat_template(chat, **options)
    if tokenizer.apply_chat_template(chat, **options) != prompt:
        raise ArmFailed(f"the chat template is not that of {original}")
    texts = [*TEXTS, prompt, *(token.content for token in expected.added_tokens_decoder.values())]
    for text in texts:
        ours, theirs = (t(text, add_special_tokens=False).input_ids for t in (tokenizer, expected))
        if ours != theirs:
            raise ArmFailed(f"the tokenizer cuts {text!r} into other tokens than {original}: {ours}, not {theirs}")
    return len(texts)
