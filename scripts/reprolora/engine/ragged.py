"""Ragged batches: rows of different lengths laid end to end, in which what rows begin with alike is computed once.

The prompts of a classification task share their system turn and template, and a padded batch pays for all of it in
every row. Here a batch is one sequence of `prefix + rest of row 1 + rest of row 2 + ...` tokens, so every linear layer
sees one dense matrix with no padding and no repeated prefix. Where the rest of a row begins like that of the row
before, those tokens are not laid out again: sorted rows form a prefix tree. Only attention needs to know the rows: a
plan gives each row the keys and values of all its tokens, and gradients flow through them to wherever they lie. The
result is the one that the padded batch gives, up to the rounding of another order of summation.

A plan reaches the attention layers as a keyword argument of the model's `forward`, through the attention interface of
Transformers, so the model's own code runs unchanged, gradient checkpointing included.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

ATTENTION = "reprolora_ragged"
# With fewer queries a row than this, plain matrix products beat the CPU's flash kernel, whose blocks are larger.
SHORT_ROW = 128
# The families whose gradients and answers the tests compare with the ordinary path. Others take that path.
FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"})
# The adapters for which they do, each of which treats every token by itself.
ADAPTERS = frozenset({"LORA", "IA3"})
# Types of rotary position embeddings whose frequencies follow the length of what a pass computes.
ROTATED_BY_LENGTH = frozenset({"dynamic", "longrope"})


def why_not(model: nn.Module) -> str | None:
    """The reason why `model`, with or without an adapter, cannot run ragged batches exactly, or None when it can."""
    adapter = getattr(model, "active_peft_config", None)
    if adapter is not None and adapter.is_prompt_learning:
        return f"{adapter.peft_type.value} puts tokens of its own before each row"
    if adapter is not None and adapter.peft_type.value not in ADAPTERS:
        return f"adapter type {adapter.peft_type.value} is not among those tested: {', '.join(sorted(ADAPTERS))}"
    if getattr(adapter, "alora_invocation_tokens", None) or getattr(adapter, "arrow_config", None):
        return "the adapter acts on some tokens of a row and not on others"
    if getattr(adapter, "layer_replication", None):
        return "layers that the adapter repeats keep an attention of their own"
    if any(type(module).__name__ == "Linear8bitLt" for module in model.modules()):
        return "8-bit layers choose their outlier features by all tokens of a batch"
    config = model.config.get_text_config()
    if config.model_type not in FAMILIES:
        return f"model type '{config.model_type}' is not among those tested: {', '.join(sorted(FAMILIES))}"
    if getattr(config, "attention_dropout", 0.0):
        return "the model has dropout inside attention"
    for rope in (config.rope_parameters, *config.rope_parameters.values()):  # of the model, or of each kind of layer
        if isinstance(rope, Mapping) and rope.get("rope_type") in ROTATED_BY_LENGTH:
            return f"position embeddings of type {rope['rope_type']} depend on the longest row of a batch"
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


def shared_with_previous(rows: Sequence[Sequence[int]], limits: Sequence[int]) -> list[int]:
    """For each row the number of leading tokens that the row before it has too, at most the row's limit; 0 for the
    first."""
    pairs = zip(pairwise(rows), limits[1:], strict=True)
    return [0, *(min(longest_common_prefix(pair), limit) for pair, limit in pairs)]


class Rows:
    """Where the tokens of rows lie: flat, end to end and each once, and spread, row by row, padded to the longest.

    Args:
        lengths: number of tokens of each row.
        shared: how many of a row's first tokens are those of the row before it, less than all of them. The others are
            the row's own: these lie flat.
        prefix: number of tokens before all rows, which every row's keys begin with.
        device: where the model's tensors are.
    """

    def __init__(self, lengths: Sequence[int], shared: Sequence[int], prefix: int, device: torch.device | str):
        self.count, self.longest, self.prefix = len(lengths), max(lengths), prefix
        length, column = torch.tensor(lengths), torch.arange(self.longest)
        present = column < length[:, None]  # [rows, longest]
        own = present & (column >= torch.tensor(shared)[:, None])
        # A padded place takes the first token: any finite value serves, since no real query looks at it.
        flat_of_spread = torch.where(own, own.flatten().cumsum(0).view(own.shape) - 1, 0)
        for row, count in enumerate(shared):
            if count:
                flat_of_spread[row, :count] = flat_of_spread[row - 1, :count]
        self.lengths, self.present, self._own = length.to(device), present.to(device), own.to(device)
        self.row_of_flat, self.column_of_flat = own.nonzero().to(device).unbind(1)
        self.last = flat_of_spread.gather(1, length[:, None] - 1).squeeze(1).to(device)  # flat place of each last token
        self._flat_of_spread = flat_of_spread.to(device)
        self._borrowed = (present & ~own).nonzero().to(device).unbind(1) if any(shared) else None
        self._places: dict[tuple, torch.Tensor] = {}

    def queries(self, states: torch.Tensor) -> torch.Tensor:
        """[1, heads, tokens, d] of the flat tokens -> [rows, heads, longest, d]."""
        return _Spread.apply(states, self, 0)

    def keys(self, states: torch.Tensor) -> torch.Tensor:
        """[1, heads, prefix + tokens, d] -> [rows, heads, prefix + longest, d]."""
        return _Spread.apply(states, self, self.prefix)

    def flat(self, states: torch.Tensor) -> torch.Tensor:
        """[rows, heads, longest, d] -> [tokens, heads, d]."""
        return _Collect.apply(states, self)

    # States are moved head by head, from [tokens * heads, d] to [rows * heads * columns, d] or back, in one go.

    def spread_places(self, heads: int, prefix: int) -> torch.Tensor:
        """Where each place of [rows, heads, prefix + longest] comes from in [prefix + tokens, heads]."""

        def make():
            tokens = prefix + self._flat_of_spread
            if prefix:
                tokens = torch.cat([torch.arange(prefix, device=tokens.device).expand(self.count, -1), tokens], 1)
            return (tokens[:, None] * heads + torch.arange(heads, device=tokens.device)[:, None]).flatten()

        return self._once(("spread", heads, prefix), make)

    def own_places(self, heads: int, prefix: int) -> torch.Tensor:
        """Where each of [tokens, heads] is its row's own in [rows, heads, prefix + longest]."""
        return self._once(
            ("own", heads, prefix), lambda: self._in_spread(self.row_of_flat, self.column_of_flat, heads, prefix)
        )

    def borrowed_places(self, heads: int, prefix: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Places of [rows, heads, prefix + longest] whose token is another row's own, and that token's in
        [tokens, heads]; None where there are none."""
        if self._borrowed is None:
            return None
        row, column = self._borrowed
        head = torch.arange(heads, device=row.device)
        return self._once(
            ("borrowed", heads, prefix),
            lambda: (
                self._in_spread(row, column, heads, prefix),
                (self._flat_of_spread[row, column, None] * heads + head).flatten(),
            ),
        )

    def owned(self, heads: int) -> torch.Tensor | None:
        """Whether each place of [rows, heads, longest] is a row's own, as a number; None where all are."""
        return self._once(
            ("owned", heads),
            lambda: None if self._own.all() else self._own[:, None].expand(-1, heads, -1).reshape(-1, 1).float(),
        )

    def _in_spread(self, row, column, heads: int, prefix: int) -> torch.Tensor:
        head = torch.arange(heads, device=row.device)
        return ((row[:, None] * heads + head) * (prefix + self.longest) + prefix + column[:, None]).flatten()

    def _once(self, name: tuple, make):
        if name not in self._places:
            self._places[name] = make()
        return self._places[name]


class _Spread(torch.autograd.Function):
    """[1, heads, prefix + tokens, d] to [rows, heads, prefix + longest, d]."""

    @staticmethod
    def forward(ctx, states, rows, prefix):
        ctx.rows, ctx.prefix = rows, prefix
        heads, d = states.shape[1], states.shape[3]
        # As a linear layer makes them, tokens lie before heads.
        flat = states[0].transpose(0, 1).reshape(-1, d).index_select(0, rows.spread_places(heads, prefix))
        return flat.view(rows.count, heads, prefix + rows.longest, d)

    @staticmethod
    def backward(ctx, gradient):
        rows, prefix = ctx.rows, ctx.prefix
        heads, d = gradient.shape[1], gradient.shape[3]
        flat = gradient.reshape(-1, d)
        result = flat.index_select(0, rows.own_places(heads, prefix))
        borrowed = rows.borrowed_places(heads, prefix)
        if borrowed is not None:
            result.index_add_(0, borrowed[1], flat.index_select(0, borrowed[0]))
        if prefix:
            result = torch.cat([gradient[:, :, :prefix].sum(0).transpose(0, 1).reshape(-1, d), result])
        return result.view(-1, heads, d).transpose(0, 1)[None], None, None


class _Collect(torch.autograd.Function):
    """[rows, heads, longest, d] to [tokens, heads, d]; what is not a row's own gets no gradient."""

    @staticmethod
    def forward(ctx, states, rows):
        ctx.rows = rows
        heads, d = states.shape[1], states.shape[3]
        return states.reshape(-1, d).index_select(0, rows.own_places(heads, 0)).view(-1, heads, d)

    @staticmethod
    def backward(ctx, gradient):
        rows = ctx.rows
        heads, d = gradient.shape[1:]
        result = gradient.reshape(-1, d).index_select(0, rows.spread_places(heads, 0))
        owned = rows.owned(heads)
        if owned is not None:
            result.mul_(owned)
        return result.view(rows.count, heads, rows.longest, d), None


class RaggedPlan:
    """A batch for training: `prefix` shared tokens, then the rest of every row, in one sequence.

    Args:
        prefix: number of shared tokens; 0 for none (rows packed without padding).
        lengths: number of tokens of each row after the prefix; all positive.
        shared: how many of those are, from the first on, the tokens of the row before, and not laid out again.
        device: where the model's tensors are.
    """

    def __init__(self, prefix: int, lengths: Sequence[int], shared: Sequence[int], device: torch.device | str = "cpu"):
        self.prefix = prefix
        self.rows = Rows(lengths, shared, prefix, device)
        self.position_ids = torch.cat([torch.arange(prefix, device=device), prefix + self.rows.column_of_flat])[None]
        self._masks: dict[tuple, torch.Tensor] = {}

    def attend(self, layer, query, key, value, **settings):
        """Attention of one layer: [1, heads, tokens, d] each (keys and values: [1, kv_heads, tokens, d]) to
        [1, tokens, heads, d]."""
        prefix, window = self.prefix, settings.pop("sliding_window")
        mask = self._mask(prefix, prefix + self.rows.longest, window, query)
        of_rows = self.rows.queries(query[:, :, prefix:]), self.rows.keys(key), self.rows.keys(value)
        output = self.rows.flat(_attend(*of_rows, mask, **settings))
        if prefix:
            query, key, value = (states[:, :, :prefix] for states in (query, key, value))
            first = _attend(query, key, value, self._mask(0, prefix, window, query), **settings)
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

    The first pass takes the rows' own tokens end to end (`lengths` and `shared` as in `Rows`). Each later pass takes
    the same number of new tokens for every row, after `extend` said which of the new tokens each may look at (so that
    they can be the nodes of a tree).
    """

    def __init__(
        self,
        prefix: PrefixPlan | None,
        lengths: Sequence[int],
        shared: Sequence[int],
        device: torch.device | str = "cpu",
    ):
        self.prefix = prefix.states if prefix else None
        self.prefix_length = next(iter(prefix.states.values()))[0].shape[2] if prefix else 0
        self.rows = Rows(lengths, shared, self.prefix_length, device)
        self._lengths = self.rows.lengths
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
        positions = self.prefix_length + self._lengths[:, None] + depth  # [rows, new]
        seen = torch.cat(
            [self._key_present[:, None].expand(-1, len(depth), -1), visible.expand(len(positions), -1, -1)], 2
        )
        self._key_positions = torch.cat([self._key_positions, positions], 1)
        self._extension = positions, seen
        return positions.reshape(1, -1)

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with these of the rows only, in this order."""
        index = torch.tensor(kept, device=self._key_present.device)
        self._lengths = self._lengths[index]
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
            self.prefix_length + self._lengths[index],
            lengths,
        )

    def attend(self, layer, query, key, value, **settings):
        window = settings.pop("sliding_window")
        if self._extension is None:
            return self._first_pass(layer, query, key, value, window, **settings)
        positions, seen = self._extension
        query, key, value = (
            states[0].unflatten(1, (len(positions), -1)).transpose(0, 1) for states in (query, key, value)
        )
        key, value = (torch.cat([old, new], 2) for old, new in zip(self._states[layer], (key, value), strict=True))
        self._states[layer] = key, value
        if window is not None:
            seen = seen & (positions[:, :, None] - self._key_positions[:, None] < window)
        output = _attend(query, key, value, _additive(seen[:, None], query), **settings)
        return output.transpose(1, 2).flatten(0, 1)[None]

    def _first_pass(self, layer, query, key, value, window, **settings):
        if self.prefix:
            key, value = (
                torch.cat([states.transpose(1, 2) for states in pair], 1).transpose(1, 2)
                for pair in zip(self.prefix[layer], (key, value), strict=True)
            )
        query, key, value = self.rows.queries(query), self.rows.keys(key), self.rows.keys(value)
        self._states[layer] = key, value
        position = torch.arange(key.shape[2], device=key.device)
        mask = _additive(_visible(position[self.prefix_length :], position, window), query)
        return self.rows.flat(_attend(query, key, value, mask, **settings))[None]


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
        self.rows = Rows(lengths, [0] * len(lengths), 0, owners.device)
        positions = start[:, None] + torch.arange(self.rows.longest, device=owners.device)  # [branches, longest]
        self.position_ids = positions[self.rows.row_of_flat, self.rows.column_of_flat][None]
        present = torch.cat([key_present, self.rows.present], 1)
        self._distance = positions[:, :, None] - torch.cat([key_positions, positions], 1)[:, None]
        self._seen = present[:, None] & (self._distance >= 0)  # [branches, longest, keys + longest]
        self._masks: dict[int | None, torch.Tensor] = {}

    def attend(self, layer, query, key, value, **settings):
        window = settings.pop("sliding_window")
        query, key, value = self.rows.queries(query), self.rows.keys(key), self.rows.keys(value)
        key, value = (
            torch.cat([old[self._owners], new], 2) for old, new in zip(self._states[layer], (key, value), strict=True)
        )
        if window not in self._masks:
            seen = self._seen if window is None else self._seen & (self._distance < window)
            self._masks[window] = _additive(seen[:, None], query)
        return self.rows.flat(_attend(query, key, value, self._masks[window], **settings))[None]


def _visible(queries: torch.Tensor, keys: torch.Tensor, window: int | None) -> torch.Tensor:
    distance = queries[:, None] - keys[None, :]
    return distance >= 0 if window is None else (distance >= 0) & (distance < window)


def _additive(visible: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(visible.shape, dtype=like.dtype, device=like.device)
    return mask.masked_fill_(~visible, torch.finfo(like.dtype).min)


def _attend(query, key, value, mask, *, scaling, softcap):
    """Attention of [rows, heads, queries, d] on [rows, kv_heads, keys, d]; `mask` is additive, [..., queries, keys]."""
    group, queries = query.shape[1] // key.shape[1], query.shape[2]
    if softcap is None and (query.device.type != "cpu" or queries > SHORT_ROW):
        if group > 1:
            key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    # The query heads that share a key head are stacked along the queries, so that keys are never repeated.
    stacked = query.reshape(query.shape[0], -1, group * queries, query.shape[3])
    scores = (stacked * scaling) @ key.transpose(2, 3)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores += mask.repeat(*[1] * (mask.dim() - 2), group, 1)
    weights = scores.softmax(-1, dtype=torch.float32).to(value.dtype)
    return (weights @ value).reshape(query.shape)


def _ragged_attention(module, query, key, value, attention_mask, *, ragged_plan, scaling, **settings):
    output = ragged_plan.attend(
        module.layer_idx,
        query,
        key,
        value,
        scaling=scaling,
        sliding_window=settings.get("sliding_window"),
        softcap=settings.get("softcap"),
    )
    return output, None


AttentionInterface.register(ATTENTION, _ragged_attention)
