"""A model small enough for tests, as the GGUF file that fetch_model converts."""

from pathlib import Path

import numpy
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("\u0120 \u0120", "\u010a \u010a", "\u0120 t", "h e", "\u0120t he", "\u0120 \u00c2", "\u00c2 \u00bd")
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
WIDTH, HIDDEN, HEADS, LAYERS = 32, 64, 2, 2


def write_gguf(path: Path, pre_tokenizer: str = "smollm", template: str | None = TEMPLATE) -> None:
    """A two-layer Llama with random weights, in part quantized, and a byte-level tokenizer of a few merges."""
    tokens = [*SPECIAL, *_byte_letters(), *(merge.replace(" ", "") for merge in MERGES)]
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    if template is not None:
        writer.add_chat_template(template)
    random = numpy.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        values = random.normal(scale=0.1, size=shape).astype(numpy.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values + 1)
        else:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", len(tokens), WIDTH)
    add("output_norm.weight", WIDTH)
    for layer in range(LAYERS):
        add(f"blk.{layer}.attn_norm.weight", WIDTH)
        add(f"blk.{layer}.ffn_norm.weight", WIDTH)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{name}.weight", WIDTH, WIDTH)
        add(f"blk.{layer}.ffn_gate.weight", HIDDEN, WIDTH)
        add(f"blk.{layer}.ffn_up.weight", HIDDEN, WIDTH)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _byte_letters() -> list[str]:
    """The letters that stand for the 256 bytes in a byte-level vocabulary."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}
    return [letters[byte] for byte in range(256)]
