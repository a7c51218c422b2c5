"""How many floating-point operations a training step needs, and how many a second this machine can do at best."""

import time
from collections.abc import Sequence

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer

# Rows, inner size and columns of the products that show what the machine can do: large ones, and some like a model's.
SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (512, 576, 1536), (512, 1536, 576), (1024, 2048, 2048))
SECONDS_PER_SHAPE = 0.25


def training_operations(
    model: PeftModel, prefix: int, lengths: Sequence[int], shared: Sequence[int], targets: int
) -> int:
    """Operations that one forward and backward pass over a batch needs, each counted once: multiplications and
    additions of the matrix products, for what rows share once and in no padding.

    A frozen layer takes one product forward and one for its input's gradient, its adapter two forward and four
    backward; attention two forward and four backward on the keys that each query may see (all before it: no sliding
    window); the head, which has no adapter, two at the `targets`, and so the last layer's feed-forward block. The first
    layer's query, key and value need no gradient of their input.

    Args:
        model: with LoRA on linear layers, on a base of the Llama family.
        prefix: tokens that all rows share.
        lengths: tokens of each row after the prefix.
        shared: how many of those are the first ones of the row before too.
        targets: places at which the model predicts.
    """
    config = model.config.get_text_config()
    tokens = prefix + sum(lengths) - sum(shared)
    total = 0
    for name, layer in model.named_modules():
        if isinstance(layer, LoraLayer):
            rank = layer.r[layer.active_adapters[0]]
            into, out = layer.in_features, layer.out_features
            computed = targets if f".layers.{config.num_hidden_layers - 1}.mlp." in name else tokens
            reads_embeddings = ".layers.0.self_attn." in name and not name.endswith("o_proj")
            products = 1 if reads_embeddings else 2
            total += 2 * computed * (products * into * out + (1 + products) * rank * into + 3 * rank * out)
    own = ((prefix + before, length - before) for length, before in zip(lengths, shared, strict=True))
    pairs = _visible(0, prefix) + sum(_visible(before, queries) for before, queries in own)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = 3 * 2 * 2 * config.num_attention_heads * head_dim * pairs * config.num_hidden_layers
    head = 2 * 2 * targets * config.hidden_size * config.vocab_size
    return total + attention + head


def _visible(before: int, queries: int) -> int:
    """Pairs of a query and a key that it sees, for queries in a row after `before` others."""
    return queries * before + queries * (queries + 1) // 2


def peak_operations_per_second(dtype: torch.dtype, device: torch.device, seconds: float = SECONDS_PER_SHAPE) -> float:
    """The best rate of torch.mm over `SHAPES`, with as many threads as torch has now."""
    best = 0.0
    for rows, inner, columns in SHAPES:
        a = torch.randn(rows, inner, device=device, dtype=dtype)
        b = torch.randn(columns, inner, device=device, dtype=dtype).T  # as a linear layer has its weight
        torch.mm(a, b)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            torch.mm(a, b)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            best = max(best, 2 * rows * inner * columns / (time.perf_counter() - start))
    return best
