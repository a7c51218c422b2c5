"""Counting the tokens of encoded rows."""

from collections.abc import Sequence

import numpy as np

from reprolora.prompts import EncodedRow

HISTOGRAM_BINS = 30


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
