"""The feed-forward block of a model's last layer, computed only where its result is read.

Only the head reads the last layer, and of most tokens the head is not asked: of a training row it reads the few places
that predict the completion, of a prompt the last. What the block makes of the other tokens goes nowhere and has no
gradient. In a model of 30 layers it is a fortieth of a pass.

Attention comes before the block, so the keys and values of all tokens are there for what follows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn
from transformers import PreTrainedModel


class ReadPlaces:
    """The places whose result is read: `places` [n] within the sequence, none twice, or None for all."""

    places: torch.Tensor | None = None


def install(model: PreTrainedModel) -> ReadPlaces:
    """Let the last layer of `model`, with or without an adapter, look at the returned places before each pass.

    They must stay until the backward pass is over: gradient checkpointing computes the layer once more in it.
    """
    block, read = _block(model), ReadPlaces()
    block.forward = partial(_forward, block, read)
    return read


def remove(model: PreTrainedModel) -> None:
    """Let the last layer compute all places again."""
    _block(model).__dict__.pop("forward", None)


@contextmanager
def installed(model: PreTrainedModel) -> Iterator[ReadPlaces]:
    """With the places of a while, after which those of before count again."""
    block = _block(model)
    before = block.__dict__.get("forward")
    try:
        yield install(model)
    finally:
        remove(model)
        if before is not None:
            block.forward = before


def _block(model: PreTrainedModel) -> nn.Module:
    return model.get_decoder().layers[-1].mlp


def _forward(block: nn.Module, read: ReadPlaces, states: torch.Tensor) -> torch.Tensor:
    """[1, tokens, hidden] to the same, with zeros where nothing is read."""
    if read.places is None:
        return type(block).forward(block, states)
    result = type(block).forward(block, states.index_select(1, read.places))
    return result.new_zeros(states.shape).index_copy(1, read.places, result)
