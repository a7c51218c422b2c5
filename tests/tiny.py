"""Tiny random models and a tokenizer for tests: made in a second, of every family that the engine supports."""

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZES = {
    "vocab_size": 384,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# A window shorter than the rows, so that a mask that forgets it shows.
WINDOW = {"sliding_window": 6}
FAMILIES = {
    "llama": {},
    "mistral": WINDOW,
    "qwen2": {"use_sliding_window": True, "max_window_layers": 1, **WINDOW},
    "qwen3": {},
    "gemma": {},
    "gemma2": WINDOW,
    "gemma3_text": {"layer_types": ["sliding_attention", "full_attention"], **WINDOW},
}


def model(family: str = "llama", seed: int = 0, **sizes) -> PreTrainedModel:
    """A random model of `family`, in evaluation mode; gemma2 needs eager attention for its soft caps."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **SIZES | FAMILIES[family] | sizes)
    attention = "eager" if family == "gemma2" else "sdpa"
    made = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    with torch.no_grad():  # initial weights are so small that every answer would be a tie
        for parameter in made.parameters():
            parameter.mul_(3 if parameter.dim() > 1 else 1)
    return made.eval()


def tokenizer(texts: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with a ChatML template, whose padding token is its terminator, as in SmolLM2.

    It merges the letters that often stand together in `texts`.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=384, special_tokens=special, initial_alphabet=alphabet)
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )
