"""What is written down of prompts before anything is trained on them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from reprolora.engine.ragged import longest_common_prefix
from reprolora.prompts import EncodedRow, InstructionEncoder, PromptEncoder

HISTOGRAM_BINS = 30


def describe_prompts(
    encoder: PromptEncoder | InstructionEncoder, train: Sequence[EncodedRow], max_length: int
) -> dict[str, Any]:
    """The entries of prompts.json that both tasks have, but for the token counts of the splits."""
    tokenizer, first = encoder.tokenizer, train[0]
    return {
        "chat_template": encoder.chat_template,
        "system_in_user_turn": encoder.system_in_user,
        "terminator": tokenizer.convert_ids_to_tokens(encoder.terminator),
        "shared_prefix_tokens": longest_common_prefix([row.ids[: row.prompt_length] for row in train]),
        "max_length": max_length,
        "example": {
            "prompt": tokenizer.decode(first.ids[: first.prompt_length]),
            "completion": tokenizer.decode(first.ids[first.prompt_length :]),
        },
    }


def count_tokens(rows: Sequence[EncodedRow]) -> dict:
    """Token counts of encoded rows: mean, quantiles, histogram, and the share of tokens that are supervised."""
    lengths = np.array([len(row.ids) for row in rows])
    supervised = sum(len(row.ids) - row.prompt_length for row in rows)
    counts, edges = np.histogram(lengths, bins=min(HISTOGRAM_BINS, int(np.ptp(lengths)) + 1))
    return {
        "rows": len(rows),
        "tokens": int(lengths.sum()),
        "supervised_share": round(supervised / int(lengths.sum()), 6),
        "length": {
            "mean": round(float(lengths.mean()), 3),
            "median": float(np.median(lengths)),
            "percentile_95": float(np.percentile(lengths, 95)),
            "max": int(lengths.max()),
        },
        "histogram": {"counts": counts.tolist(), "edges": [round(edge, 3) for edge in edges.tolist()]},
    }
