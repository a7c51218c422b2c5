"""LoRA layers with the arithmetic of PEFT's and a fraction of its passes over memory.

PEFT runs `base(x) + B(A(dropout(x))) * scaling` as separate operations: on a CPU the additions, casts and copies around
the matrix products cost a third of a step, and its 4-bit layer copies every result once more. Here the same expression
is one differentiable function that adds into the product in place and keeps only what the backward pass needs.

The PEFT modules stay as they are (names, parameters, saving, merging): only the `forward` of their instances is
replaced, and `remove` puts it back.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

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
    """`x W^T + bias + scaling * dropout(x) A^T B^T` with frozen W, and without dropout's factor 1 / (1 - probability).

    `weight` gives W [out, in] when it is called; `bias` gets a gradient where it asks for one (PEFT's `bias: all` and
    `lora_only`); `dropped` says which elements of x dropout takes, or is None.
    """

    @staticmethod
    def forward(ctx, x, lora_a, lora_b, weight, bias, scaling, dropped):
        a, b = lora_a.to(x.dtype), lora_b.to(x.dtype)
        flat = x.reshape(-1, x.shape[-1])
        low_rank = _without(flat, dropped) @ a.T
        output = linear(flat, weight(x.dtype), bias)
        output.addmm_(low_rank, b.T, alpha=scaling)
        ctx.save_for_backward(flat, low_rank, lora_a, lora_b, dropped)
        ctx.weight, ctx.scaling = weight, scaling
        return output.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx, gradient):
        flat, low_rank, lora_a, lora_b, dropped = ctx.saved_tensors
        a, b = lora_a.to(flat.dtype), lora_b.to(flat.dtype)
        shape = (*gradient.shape[:-1], flat.shape[1])
        gradient = gradient.reshape(-1, gradient.shape[-1])
        gradient_low_rank = (gradient @ b).mul_(ctx.scaling)
        gradient_a = (gradient_low_rank.T @ _without(flat, dropped)).to(lora_a.dtype)
        gradient_b = (gradient.T @ low_rank).mul_(ctx.scaling).to(lora_b.dtype)
        gradient_x = None
        if ctx.needs_input_grad[0]:
            gradient_x = gradient @ ctx.weight(flat.dtype)
            if dropped is None:
                gradient_x.addmm_(gradient_low_rank, a)
            else:
                gradient_x.add_(_drop_(gradient_low_rank @ a, dropped))
            gradient_x = gradient_x.view(shape)
        gradient_bias = gradient.sum(0) if ctx.needs_input_grad[4] else None
        return gradient_x, gradient_a, gradient_b, None, gradient_bias, None, None


def _without(x: torch.Tensor, dropped: torch.Tensor | None) -> torch.Tensor:
    return x if dropped is None else _drop_(x.clone(memory_format=torch.contiguous_format), dropped)


def _drop_(x: torch.Tensor, dropped: torch.Tensor) -> torch.Tensor:
    x.view(-1)[dropped] = 0
    return x


def _dropped(size: int, probability: float, device: torch.device) -> torch.Tensor:
    """Which of `size` elements dropout takes, each with `probability`: on a CPU their places, ascending; elsewhere a
    mask, whose size does not hang on what was drawn.

    Between two dropped elements lies a geometrically distributed number of others. Drawing those numbers takes one
    random number for each dropped element instead of one for each of all, which would be a tenth of a training step.
    """
    if device.type != "cpu":
        return torch.rand(size, device=device) < probability
    drawn, places = 0, []
    while drawn < size:  # nearly always once
        expected = (size - drawn) * probability
        numbers = torch.rand(math.ceil(expected + 6 * math.sqrt(expected)) + 1)
        between = numbers.neg_().log1p_().div_(math.log1p(-probability)).long()
        places.append(drawn + between.add_(1).cumsum(0) - 1)
        drawn = int(places[-1][-1]) + 1
    return torch.cat(places)[: torch.searchsorted(torch.cat(places), size)]


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


def _in_adapter_type(module: nn.Module, adapter: str, weight, x: torch.Tensor) -> torch.Tensor:
    """The adapter computed in its own type, wider than that of `x`, as PEFT does: in evaluation with fewer passes over
    memory."""
    if torch.is_grad_enabled() or module.training:
        return type(module).forward(module, x)
    lora_a, lora_b = module.lora_A[adapter].weight, module.lora_B[adapter].weight
    flat = x.reshape(-1, x.shape[-1])
    output = linear(flat, weight(x.dtype), module.base_layer.bias).to(lora_a.dtype)
    output.addmm_(flat.to(lora_a.dtype) @ lora_a.T, lora_b.T, alpha=module.scaling[adapter])
    return output.to(x.dtype).view(*x.shape[:-1], -1)


def _forward(module: nn.Module, adapter: str, weight, x: torch.Tensor) -> torch.Tensor:
    if module.disable_adapters or module.merged:
        return type(module).forward(module, x)
    lora_a, lora_b = module.lora_A[adapter].weight, module.lora_B[adapter].weight
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    elif x.dtype != lora_a.dtype:
        return _in_adapter_type(module, adapter, weight, x)
    dropout = module.lora_dropout[adapter]
    probability = dropout.p if isinstance(dropout, nn.Dropout) and module.training else 0.0
    dropped = _dropped(x.numel(), probability, x.device) if probability else None
    # What dropout leaves is larger by this, so that the mean stays; a factor of a few numbers, not of all of x.
    scaling = module.scaling[adapter] / (1 - probability)
    bias = module.base_layer.bias
    bias = bias if bias is None else bias.to(x.dtype)
    with torch.autocast(x.device.type, enabled=False):
        if not torch.is_grad_enabled() and dropped is None and _merging_pays(module, x):
            return linear(x, torch.addmm(weight(x.dtype), lora_b, lora_a, alpha=scaling), bias)
        return _FrozenLinearWithLora.apply(x, lora_a, lora_b, weight, bias, scaling, dropped)


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
