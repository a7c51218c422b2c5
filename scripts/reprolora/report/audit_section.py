"""The report's section on the data: what audit_splits found, as rows for the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reprolora.arms import read_texts
from reprolora.errors import UserError
from reprolora.splits import SPLITS

MOST_PAIRS = 5  # of each kind
MOST_SUSPECTS = 10


def audit_section(audit: Mapping[str, Any], tables: Sequence[Path]) -> dict[str, Any]:
    """What the page says of the audit. `tables` are near_duplicates.csv and label_suspects.csv."""
    read = {file.stem: read_texts(file) for file in tables}
    if read.keys() != {"near_duplicates", "label_suspects"}:
        raise UserError(f"--audit-tables: {', '.join(read)}; give near_duplicates.csv and label_suspects.csv")
    pairs = read["near_duplicates"].astype({"similarity": float})
    suspects = read["label_suspects"].astype(dict.fromkeys(("label_probability", "suggestion_probability"), float))
    across = pairs[(pairs["split"] == "test") & (pairs["other_split"] != "test")]
    # A pair stands twice, once from the side of each of its rows.
    contradicting = pairs[(pairs["label"] != pairs["other_label"])]
    sides = contradicting[["split", "id", "other_split", "other_id"]]
    once = [frozenset([(a, b), (c, d)]) for a, b, c, d in sides.itertuples(index=False)]
    contradicting = contradicting[~pd.Series(once, index=contradicting.index, dtype=object).duplicated()]
    return {
        "leakage": audit["leakage"],
        "near": [{"split": split, "counts": [audit["near_duplicates"][split][o] for o in SPLITS]} for split in SPLITS],
        "pairs": {
            "Test rows and the rows that are learned from": across.head(MOST_PAIRS).to_dict("records"),
            "Near duplicates with labels that contradict each other": contradicting.head(MOST_PAIRS).to_dict("records"),
        },
        "labels": audit["label_suspects"],
        "rows": sum(audit["splits"][split]["rows"] for split in SPLITS),
        "suspects": suspects.head(MOST_SUSPECTS).to_dict("records"),
    }
