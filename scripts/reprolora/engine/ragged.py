"""Ragged batches: rows of different lengths laid end to end, with their longest common prefix computed once.

The prompts of a classification task share their system turn and template, and a padded batch pays for all of it in
every row. Here a batch is one sequence of `prefix + rest of row 1 + rest of row 2 + ...` tokens, so every linear layer
sees one dense matrix with no padding and no repeated prefix. Only attention needs to know the rows: a plan gives each
row the prefix's keys and values (gradients flow through them) and its own. The result is the one that the padded batch
gives, up to the rounding of another order of summation.

A plan reaches the attention layers as a keyword argument of the model's `forward`, through the attention interface of
Transformers, so the model's own code runs unchanged, gradient checkpointing included.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.nn.functional import dropout as apply_dropout
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

ATTENTION = "reprolora_ragged"
# With fewer queries a row than this, plain matrix products beat the CPU's flash kernel, whose blocks are larger.
SHORT_ROW = 128
# The families whose gradients and answers the tests compare with the ordinary path. Others take that path.
FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"})
# The adapters for which they do, each of which treats every token by itself.
ADAPTERS = frozenset({"LORA", "IA3"})


def why_not(model: nn.Module) -> str | None:
    """The reason why `model`, with or without an adapter, cannot run ragged batches exactly, or None when it can."""
    adapter = getattr(model, "active_peft_config", None)
    if adapter is not None and adapter.is_prompt_learning:
        return f"{adapter.peft_type.value} puts tokens of its own before each row"
    if adapter is not None and adapter.peft_type.value not in ADAPTERS:
        return f"adapter type {adapter.peft_type.value} is not among those tested: {', '.join(sorted(ADAPTERS))}"
    if getattr(adapter, "alora_invocation_tokens", None) or getattr(adapter, "arrow_config", None):
        return "the adapter acts on some tokens of a row and not on others"
    if any(type(module).__name__ == "Linear8bitLt" for module in model.modules()):
        return "8-bit layers choose their outlier features by all tokens of a batch"
    config = model.config.get_text_config()
    if config.model_type not in FAMILIES:
        return f"model type '{config.model_type}' is not among those tested: {', '.join(sorted(FAMILIES))}"
    if getattr(config, "attention_dropout", 0.0):
        return "the model has dropout inside attention"
    return None


def longest_common_prefix(rows: Sequence[Sequence[int]]) -> int:
    """Number of leading tokens that all `rows` share."""
    first, last = min(rows), max(rows)  # the lexicographic extremes differ first where any two rows do
    length = 0
    for a, b in zip(first, last, strict=False):
        if a != b:
            break
        length += 1
    return length


class Rows:
    """Where rows of different lengths lie, end to end (flat) and padded to the longest.

    Args:
        lengths: number of tokens of each row.
        offset: flat position of the first row's first token.
        device: where the model's tensors are.
    """

    def __init__(self, lengths: Sequence[int], offset: int, device: torch.device | str):
        self.count, self.longest, self.offset = len(lengths), max(lengths), offset
        self.lengths = torch.tensor(lengths, device=device)
        column = torch.arange(self.longest, device=device)
        self.present = column < self.lengths[:, None]  # [rows, longest]
        start = offset + self.lengths.cumsum(0) - self.lengths
        # A padded place takes its row's first token: any finite value serves, since no real query looks at it.
        self.flat_of_padded = torch.where(self.present, start[:, None] + column, start[:, None]).flatten()
        self.padded_of_flat = self.present.flatten().nonzero().squeeze(1)
        self.column_of_flat = self.padded_of_flat % self.longest
        self.last = start + self.lengths - 1  # flat position of each row's last token

    def pad(self, states: torch.Tensor) -> torch.Tensor:
        """[1, heads, tokens, d] -> [rows, heads, longest, d]; what stands before `offset` is left out."""
        padded = _Pad.apply(states[0], self)
        return padded.unflatten(1, (self.count, self.longest)).transpose(0, 1)

    def unpad(self, states: torch.Tensor) -> torch.Tensor:
        """[rows, heads, longest, d] -> [tokens after `offset`, heads, d]."""
        return _Unpad.apply(states.transpose(1, 2).flatten(0, 1), self)


class _Pad(torch.autograd.Function):
    """Gather [heads, tokens, d] -> [heads, rows * longest, d]; backward gathers too, where autograd would scatter."""

    @staticmethod
    def forward(ctx, states, rows):
        ctx.rows = rows
        return states.index_select(1, rows.flat_of_padded)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.index_select(1, ctx.rows.padded_of_flat)
        if ctx.rows.offset:
            gradient = torch.nn.functional.pad(gradient, (0, 0, ctx.rows.offset, 0))
        return gradient, None


class _Unpad(torch.autograd.Function):
    """Gather [rows * longest, heads, d] -> [tokens, heads, d]; padded places get no gradient."""

    @staticmethod
    def forward(ctx, states, rows):
        ctx.rows = rows
        return states.index_select(0, rows.padded_of_flat)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.index_select(0, ctx.rows.flat_of_padded - ctx.rows.offset)
        return gradient.mul_(ctx.rows.present.flatten()[:, None, None]), None


class RaggedPlan:
    """A batch for training: `prefix` shared tokens, then the rest of every row, in one sequence.

    Args:
        prefix: number of shared tokens; 0 for none (rows packed without padding).
        lengths: number of tokens of each row after the prefix; all positive.
        device: where the model's tensors are.
    """

    def __init__(self, prefix: int, lengths: Sequence[int], device: torch.device | str = "cpu"):
        self.prefix = prefix
        self.rows = Rows(lengths, prefix, device)
        self.position_ids = torch.cat([torch.arange(prefix, device=device), prefix + self.rows.column_of_flat])[None]
        self._masks: dict[tuple, torch.Tensor] = {}

    def attend(self, layer, query, key, value, **settings):
        """Attention of one layer: [1, heads, tokens, d] each (keys and values: [1, kv_heads, tokens, d]) to
        [1, tokens, heads, d]."""
        prefix, window = self.prefix, settings.pop("sliding_window")
        row_query, row_key, row_value = (self.rows.pad(states) for states in (query, key, value))
        if prefix:
            key, value = key[:, :, :prefix], value[:, :, :prefix]
            row_key = torch.cat([key.expand(self.rows.count, -1, -1, -1), row_key], 2)
            row_value = torch.cat([value.expand(self.rows.count, -1, -1, -1), row_value], 2)
        mask = self._mask(prefix, prefix + self.rows.longest, window, query)
        output = self.rows.unpad(_attend(row_query, row_key, row_value, mask, **settings))
        if prefix:
            first = _attend(query[:, :, :prefix], key, value, self._mask(0, prefix, window, query), **settings)
            output = torch.cat([first[0].transpose(0, 1), output])
        return output[None]

    def _mask(self, start: int, end: int, window: int | None, like: torch.Tensor) -> torch.Tensor:
        """Causal mask of the queries at positions start..end on the keys at 0..end, the same for all rows: a padded
        place comes after its row's real tokens, so none of them sees it."""
        name = (start, window)
        if name not in self._masks:
            position = torch.arange(end, device=like.device)
            self._masks[name] = _additive(_visible(position[start:], position, window), like)
        return self._masks[name]


class PrefixPlan:
    """One sequence whose keys and values are kept, layer by layer, for the rows that continue it."""

    def __init__(self):
        self.states: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def attend(self, layer, query, key, value, **settings):
        self.states[layer] = key, value
        position = torch.arange(query.shape[2], device=query.device)
        mask = _additive(_visible(position, position, settings.pop("sliding_window")), query)
        return _attend(query, key, value, mask, **settings).transpose(1, 2)


class ContinuationPlan:
    """Rows that continue a prefix whose states are known, then grow by further tokens: for evaluation, no gradients.

    The first pass takes the rows' own tokens end to end. Each later pass takes the same number of new tokens for every
    row, after `extend` said which of the new tokens each may look at (so that they can be the nodes of a tree).
    """

    def __init__(self, prefix: PrefixPlan | None, lengths: Sequence[int], device: torch.device | str = "cpu"):
        self.prefix = prefix.states if prefix else None
        self.prefix_length = next(iter(prefix.states.values()))[0].shape[2] if prefix else 0
        self.rows = Rows(lengths, 0, device)
        self.position_ids = (self.prefix_length + self.rows.column_of_flat)[None]
        self._states: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        columns = torch.arange(self.prefix_length + self.rows.longest, device=device)
        self._key_positions = columns.expand(self.rows.count, -1)
        in_prefix = torch.ones(self.rows.count, self.prefix_length, dtype=torch.bool, device=device)
        self._key_present = torch.cat([in_prefix, self.rows.present], 1)
        self._extension: tuple[torch.Tensor, torch.Tensor] | None = None

    def extend(self, depth: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Prepare a pass over new tokens and return their position ids [1, rows * new].

        Args:
            depth: [new] how many places after its row's last token each stands, from 0.
            visible: [new, extended so far + new] whether each may look at each of the new tokens of this and of the
                earlier extensions.
        """
        count = self.rows.count
        positions = self.prefix_length + self.rows.lengths[:, None] + depth  # [rows, new]
        seen = torch.cat([self._key_present[:, None].expand(-1, len(depth), -1), visible.expand(count, -1, -1)], 2)
        self._key_positions = torch.cat([self._key_positions, positions], 1)
        self._extension = positions, seen
        return positions.reshape(1, -1)

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with these of the rows only, in this order."""
        index = torch.tensor(kept, device=self._key_present.device)
        self.rows = Rows(self.rows.lengths[index].tolist(), 0, index.device)
        self._key_positions, self._key_present = self._key_positions[index], self._key_present[index]
        for layer, (key, value) in self._states.items():
            self._states[layer] = key[index], value[index]

    def branch(self, owners: Sequence[int], lengths: Sequence[int]) -> "BranchPlan":
        """A plan for tokens that continue the rows `owners`, where a row may go on in several ways."""
        index = torch.tensor(owners, device=self._key_present.device)
        return BranchPlan(
            self._states,
            index,
            self._key_positions[index],
            self._key_present[index],
            self.prefix_length + self.rows.lengths[index],
            lengths,
        )

    def attend(self, layer, query, key, value, **settings):
        window = settings.pop("sliding_window")
        if self._extension is None:
            return self._first_pass(layer, query, key, value, window, **settings)
        positions, seen = self._extension
        query, key, value = (
            states[0].unflatten(1, (self.rows.count, -1)).transpose(0, 1) for states in (query, key, value)
        )
        key, value = (torch.cat([old, new], 2) for old, new in zip(self._states[layer], (key, value), strict=True))
        self._states[layer] = key, value
        if window is not None:
            seen = seen & (positions[:, :, None] - self._key_positions[:, None] < window)
        output = _attend(query, key, value, _additive(seen[:, None], query), **settings)
        return output.transpose(1, 2).flatten(0, 1)[None]

    def _first_pass(self, layer, query, key, value, window, **settings):
        query, key, value = (self.rows.pad(states) for states in (query, key, value))
        if self.prefix:
            prefix_key, prefix_value = (states.expand(self.rows.count, -1, -1, -1) for states in self.prefix[layer])
            key, value = torch.cat([prefix_key, key], 2), torch.cat([prefix_value, value], 2)
        self._states[layer] = key, value
        position = torch.arange(key.shape[2], device=key.device)
        mask = _additive(_visible(position[self.prefix_length :], position, window), query)
        return self.rows.unpad(_attend(query, key, value, mask, **settings))[None]


class BranchPlan:
    """Continuations of different lengths, laid end to end, each of which sees the row it belongs to and itself.

    Args:
        states: keys and values of the rows, layer by layer, [rows, kv_heads, keys, d] each.
        owners: [branches] the row that each branch continues.
        key_positions, key_present: [branches, keys] position of each of that row's keys, and whether it is no padding.
        start: [branches] position of each branch's first token.
        lengths: number of tokens of each branch; all positive.
    """

    def __init__(
        self,
        states: Mapping[int, tuple[torch.Tensor, torch.Tensor]],
        owners: torch.Tensor,
        key_positions: torch.Tensor,
        key_present: torch.Tensor,
        start: torch.Tensor,
        lengths: Sequence[int],
    ):
        self._states, self._owners = states, owners
        self.rows = Rows(lengths, 0, owners.device)
        positions = start[:, None] + torch.arange(self.rows.longest, device=owners.device)  # [branches, longest]
        self.position_ids = positions.flatten()[self.rows.padded_of_flat][None]
        present = torch.cat([key_present, self.rows.present], 1)
        self._distance = positions[:, :, None] - torch.cat([key_positions, positions], 1)[:, None]
        self._seen = present[:, None] & (self._distance >= 0)  # [branches, longest, keys + longest]
        self._masks: dict[int | None, torch.Tensor] = {}

    def attend(self, layer, query, key, value, **settings):
        window = settings.pop("sliding_window")
        query, key, value = (self.rows.pad(states) for states in (query, key, value))
        key, value = (
            torch.cat([old[self._owners], new], 2) for old, new in zip(self._states[layer], (key, value), strict=True)
        )
        if window not in self._masks:
            seen = self._seen if window is None else self._seen & (self._distance < window)
            self._masks[window] = _additive(seen[:, None], query)
        return self.rows.unpad(_attend(query, key, value, self._masks[window], **settings))[None]


def _visible(queries: torch.Tensor, keys: torch.Tensor, window: int | None) -> torch.Tensor:
    distance = queries[:, None] - keys[None, :]
    return distance >= 0 if window is None else (distance >= 0) & (distance < window)


def _additive(visible: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(visible.shape, dtype=like.dtype, device=like.device)
    return mask.masked_fill_(~visible, torch.finfo(like.dtype).min)


def _attend(query, key, value, mask, *, scaling, softcap, dropout):
    """Attention of [rows, heads, queries, d] on [rows, kv_heads, keys, d]; `mask` is additive, [..., queries, keys]."""
    group, queries = query.shape[1] // key.shape[1], query.shape[2]
    if softcap is None and (query.device.type != "cpu" or queries > SHORT_ROW):
        if group > 1:
            key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling)
    # The query heads that share a key head are stacked along the queries, so that keys are never repeated.
    stacked = query.reshape(query.shape[0], -1, group * queries, query.shape[3])
    scores = (stacked * scaling) @ key.transpose(2, 3)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores + mask.repeat(*[1] * (mask.dim() - 2), group, 1)
    weights = apply_dropout(scores.softmax(-1, dtype=torch.float32), dropout).to(value.dtype)
    return (weights @ value).reshape(query.shape)


def _ragged_attention(module, query, key, value, attention_mask, *, ragged_plan, scaling, dropout=0.0, **settings):
    output = ragged_plan.attend(
        module.layer_idx,
        query,
        key,
        value,
        scaling=scaling,
        dropout=dropout,
        sliding_window=settings.get("sliding_window"),
        softcap=settings.get("softcap"),
    )
    return output, None


AttentionInterface.register(ATTENTION, _ragged_attention)
