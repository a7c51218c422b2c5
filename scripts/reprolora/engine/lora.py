"""LoRA layers with the arithmetic of PEFT's and a fraction of its passes over memory.

PEFT runs `base(x) + B(A(dropout(x))) * scaling` as separate operations: on a CPU the additions, casts and copies around
the matrix products cost a third of a step, and its 4-bit layer copies every result once more. Here the same expression
is one differentiable function that adds into the product in place and keeps only what the backward pass needs.

The PEFT modules stay as they are (names, parameters, saving, merging): only the `forward` of their instances is
replaced, and `remove` puts it back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import nn
from torch.nn.functional import linear

try:
    import bitsandbytes as bnb
    from peft.tuners.lora.bnb import Linear4bit as LoraLinear4bit
except ImportError:  # bitsandbytes is not installed: there are no 4-bit layers to speed up
    bnb = LoraLinear4bit = None


class _FrozenLinearWithLora(torch.autograd.Function):
    """`x W^T + bias + scaling * (x * kept) A^T B^T` with frozen W. `weight` gives W [out, in] when it is called."""

    @staticmethod
    def forward(ctx, x, lora_a, lora_b, weight, bias, scaling, kept):
        a, b = lora_a.to(x.dtype), lora_b.to(x.dtype)
        flat = x.reshape(-1, x.shape[-1])
        dropped = flat if kept is None else flat * kept
        low_rank = dropped @ a.T
        output = linear(flat, weight(x.dtype), bias)
        output.addmm_(low_rank, b.T, alpha=scaling)
        ctx.save_for_backward(flat, low_rank, lora_a, lora_b, kept)
        ctx.weight, ctx.scaling = weight, scaling
        return output.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx, gradient):
        flat, low_rank, lora_a, lora_b, kept = ctx.saved_tensors
        a, b = lora_a.to(flat.dtype), lora_b.to(flat.dtype)
        shape = (*gradient.shape[:-1], flat.shape[1])
        gradient = gradient.reshape(-1, gradient.shape[-1])
        gradient_low_rank = (gradient @ b).mul_(ctx.scaling)
        dropped = flat if kept is None else flat * kept
        gradient_a = (gradient_low_rank.T @ dropped).to(lora_a.dtype)
        gradient_b = (gradient.T @ low_rank).mul_(ctx.scaling).to(lora_b.dtype)
        gradient_x = None
        if ctx.needs_input_grad[0]:
            gradient_x = gradient @ ctx.weight(flat.dtype)
            if kept is None:
                gradient_x.addmm_(gradient_low_rank, a)
            else:
                gradient_x.addcmul_(gradient_low_rank @ a, kept)
            gradient_x = gradient_x.view(shape)
        return gradient_x, gradient_a, gradient_b, None, None, None, None


def _kept(x: torch.Tensor, probability: float) -> torch.Tensor:
    """Which elements dropout keeps: 1, or 0 with `probability`; [tokens, features], of the type of `x`.

    One 64-bit random number decides four elements (16 bits each, so the probability is met within 2^-17): drawing them,
    not multiplying, is what dropout costs on a CPU, where NumPy's SFC64 draws twice as fast as torch's generator. That
    generator seeds it, so a seed, or the state in a checkpoint, decides the elements.
    """
    size = x.numel()
    numbers = -(-size // 4)
    if x.device.type == "cpu":
        seed = torch.empty((), dtype=torch.int64).random_().item()
        bits = torch.from_numpy(np.random.SFC64(seed).random_raw(numbers).view(np.int16))
    else:
        bits = torch.empty(numbers, dtype=torch.int64, device=x.device).random_(-(2**63), None).view(torch.int16)
    kept = torch.empty(size, dtype=x.dtype, device=x.device)
    return torch.ge(bits[:size], round(probability * 2**16) - 2**15, out=kept).view(-1, x.shape[-1])


def _dense_weight(layer: nn.Linear, dtype: torch.dtype) -> torch.Tensor:
    return layer.weight.to(dtype)


def _quantized_weight(layer: nn.Module, dtype: torch.dtype) -> torch.Tensor:
    return bnb.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state).to(dtype)


def _merging_pays(module: nn.Module, x: torch.Tensor) -> bool:
    """Whether, where no gradient is wanted, `x (W + scaling * B A)^T` takes fewer operations than the products of each
    token with A and B. Only in fp32: a narrower type would round the adapter away beside the weight."""
    tokens = x.numel() // x.shape[-1]
    into, out = module.in_features, module.out_features
    return x.dtype == torch.float32 and tokens * (into + out) > into * out


def _forward(module: nn.Module, adapter: str, weight, x: torch.Tensor) -> torch.Tensor:
    if module.disable_adapters or module.merged:
        return type(module).forward(module, x)
    lora_a, lora_b = module.lora_A[adapter].weight, module.lora_B[adapter].weight
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    elif x.dtype != lora_a.dtype:  # PEFT then computes the adapter in its own, wider type
        return type(module).forward(module, x)
    dropout = module.lora_dropout[adapter]
    probability = dropout.p if isinstance(dropout, nn.Dropout) and module.training else 0.0
    kept = _kept(x, probability) if probability else None
    # What dropout keeps is larger by this, so that the mean stays; a factor of a few numbers, not of all of x.
    scaling = module.scaling[adapter] / (1 - probability)
    bias = module.base_layer.bias
    bias = bias if bias is None else bias.to(x.dtype)
    with torch.autocast(x.device.type, enabled=False):
        if not torch.is_grad_enabled() and kept is None and _merging_pays(module, x):
            return linear(x, torch.addmm(weight(x.dtype), lora_b, lora_a, alpha=scaling), bias)
        return _FrozenLinearWithLora.apply(x, lora_a, lora_b, weight, bias, scaling, kept)


def install(model: nn.Module) -> int:
    """Replace the `forward` of every plain LoRA layer of `model` on an ordinary or 4-bit linear layer.

    Layers of another kind (DoRA, 8-bit, convolutions, biases of their own, trainable bases) keep PEFT's. Returns the
    number of layers replaced.
    """
    replaced = 0
    for module in model.modules():
        if type(module) is LoraLinear and type(module.base_layer) is nn.Linear:
            weight = partial(_dense_weight, module.base_layer)
        elif LoraLinear4bit is not None and type(module) is LoraLinear4bit:
            weight = partial(_quantized_weight, module.base_layer)
        else:
            continue
        adapters = list(module.active_adapters)
        if len(adapters) != 1 or adapters[0] not in module.lora_A or module.lora_variant or module.fan_in_fan_out:
            continue
        if module.base_layer.weight.requires_grad or module.lora_B[adapters[0]].bias is not None:
            continue
        module.forward = partial(_forward, module, adapters[0], weight)
        replaced += 1
    return replaced


def remove(model: nn.Module) -> None:
    """Give every LoRA layer PEFT's `forward` back."""
    for module in filter(_is_replaced, model.modules()):
        del module.forward


@contextmanager
def installed(model: nn.Module) -> Iterator[None]:
    """With the layers of `model` replaced for a while, unless they were before."""
    if any(map(_is_replaced, model.modules())):
        yield
        return
    install(model)
    try:
        yield
    finally:
        remove(model)


def _is_replaced(module: nn.Module) -> bool:
    forward = module.__dict__.get("forward")
    return isinstance(forward, partial) and forward.func is _forward
