"""How rows become batches: which rows go together, and how they are laid out."""

from collections.abc import Iterator, Sequence

import torch

from reprolora.engine.ragged import longest_common_prefix, shared_with_previous
from reprolora.prompts import EncodedRow

IGNORED = -100  # the label that a cross-entropy leaves out


class LengthGroupedBatches:
    """Batches of rows of similar length, in an order that the seed and the epoch alone decide.

    The rows are shuffled, cut into pools, sorted by length within a pool, cut into batches, and the batches shuffled:
    little padding, and still other batches in every epoch. A pool has at most `LARGEST_POOL` batches, and at most a
    quarter of all, since rows that are sorted as a whole always have the same neighbours.
    """

    LARGEST_POOL = 32

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int):
        self.lengths, self.batch_size, self.seed, self.epoch = lengths, batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        pool = self.batch_size * max(1, min(self.LARGEST_POOL, len(order) // (4 * self.batch_size)))
        batches = []
        for start in range(0, len(order), pool):
            rows = sorted(order[start : start + pool], key=lambda row: (self.lengths[row], row))
            batches += [rows[i : i + self.batch_size] for i in range(0, len(rows), self.batch_size)]
        # Only the last pool's longest rows can make a short batch; it stays last, where an epoch's remainder belongs.
        remainder = [batch for batch in batches if len(batch) < self.batch_size]
        batches = [batch for batch in batches if len(batch) == self.batch_size]
        for position in torch.randperm(len(batches), generator=generator).tolist():
            yield from batches[position]
        for batch in remainder:
            yield from batch


def collate_ragged(rows: Sequence[EncodedRow]) -> dict:
    """Lay rows end to end, sorted, behind their common prefix, each without what it shares with the row before.

    A row shares no position that predicts one of its completion tokens, so that every prediction of every row has a
    place of its own. The last token of a row is only ever a target and is not fed.

    Returns `input_ids` [1, tokens], `logits_to_keep` [targets] (the positions that predict), `shift_labels` [targets],
    `prefix`, `lengths` and `shared` (the arguments of `RaggedPlan`).
    """
    rows = sorted(rows, key=lambda row: row.ids)
    prefix = min(longest_common_prefix([row.ids for row in rows]), min(row.prompt_length for row in rows) - 1)
    fed = [row.ids[prefix:-1] for row in rows]
    shared = shared_with_previous(fed, [row.prompt_length - 1 - prefix for row in rows])
    tokens = list(rows[0].ids[:prefix])
    keep, targets = [], []
    for row, own, borrowed in zip(rows, fed, shared, strict=True):
        start = len(tokens) - prefix - borrowed  # where the row's first token would lie, if it were its own
        tokens += own[borrowed:]
        keep += range(start + row.prompt_length - 1, start + len(row.ids) - 1)
        targets += row.ids[row.prompt_length :]
    return {
        "input_ids": torch.tensor([tokens]),
        "logits_to_keep": torch.tensor(keep),
        # The Trainer counts the targets of an optimizer step in batches that have `labels`, by `shift_labels`.
        "labels": torch.tensor(targets),
        "shift_labels": torch.tensor(targets),
        "prefix": prefix,
        "lengths": [len(row) for row in fed],
        "shared": shared,
    }


def collate_padded(rows: Sequence[EncodedRow], pad_token_id: int) -> dict:
    """The ordinary batch, padded on the right: `input_ids`, `attention_mask` and `labels`, each [rows, longest]."""
    longest = max(len(row.ids) for row in rows)
    padding = [longest - len(row.ids) for row in rows]
    return {
        "input_ids": torch.tensor([row.ids + [pad_token_id] * n for row, n in zip(rows, padding, strict=True)]),
        "attention_mask": torch.tensor([[1] * len(row.ids) + [0] * n for row, n in zip(rows, padding, strict=True)]),
        "labels": torch.tensor([row.labels + [IGNORED] * n for row, n in zip(rows, padding, strict=True)]),
    }


def token_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Positions of rows, longest first, in batches whose rows times longest row stay within `batch_tokens`."""
    batches: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > batch_tokens:
            batches.append([])
        batches[-1].append(position)
    return batches
