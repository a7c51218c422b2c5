"""Rows that are nearly the same as another row, and whether too many test rows are nearly the same as a learned one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reprolora.errors import UserError
from reprolora.near_duplicates import nearest, shingle_sets
from reprolora.splits import SPLITS, Row

# The rows that an adapter is trained on and chosen by.
LEARNED = ("train", "validation")
# How many leaked rows the message of a failed check names.
NAMED = 3
SIDE = ["split", "id", "label", "text"]


def near_duplicates(splits: Mapping[str, Sequence[Row]], similarity: float, of: Sequence[str] = SPLITS) -> pd.DataFrame:
    """For each row of the splits in `of`, the most similar other row of each split, where it is similar enough.

    The columns are split, id, label and text of the row, the same of the other (`other_split`, ...) and `similarity`
    (see `reprolora.near_duplicates`); the pairs across two splits first, then the most similar first.
    """
    rows = [{"split": split, **row} for split in SPLITS for row in splits[split]]
    groups = np.array([SPLITS.index(row["split"]) for row in rows])
    asked = np.flatnonzero(np.isin(groups, [SPLITS.index(split) for split in of]))
    found, partner = nearest(shingle_sets([row["text"] for row in rows]), groups, similarity, asked)
    pairs = [
        {
            **{key: rows[asked[row]][key] for key in SIDE},
            **{f"other_{key}": rows[partner[row, group]][key] for key in SIDE},
            "similarity": round(float(found[row, group]), 6),
        }
        for row, group in zip(*np.nonzero(partner >= 0), strict=True)
    ]
    table = pd.DataFrame(pairs, columns=[*SIDE, *(f"other_{key}" for key in SIDE), "similarity"])
    within = table["split"] == table["other_split"]
    order = table.assign(within=within).sort_values(["within", "similarity"], ascending=[True, False], kind="stable")
    return table.loc[order.index].reset_index(drop=True)


def leaked(pairs: pd.DataFrame) -> pd.DataFrame:
    """Of each test row that is nearly the same as a learned one, the most similar pair, the most similar first."""
    across = pairs[(pairs["split"] == "test") & pairs["other_split"].isin(LEARNED)]
    return across.sort_values("similarity", ascending=False, kind="stable").drop_duplicates("id")


def summarize_leakage(pairs: pd.DataFrame, test_rows: int, limits: Mapping[str, float]) -> dict[str, Any]:
    """How many test rows leaked, and the limit: JSON."""
    count = len(leaked(pairs))
    return {"rows": count, "test_rows": test_rows, "share": round(count / test_rows, 6), **limits}


def check_leakage(pairs: pd.DataFrame, leakage: Mapping[str, Any], experiment: str) -> None:
    """Raise UserError, with examples, if a larger share of the test rows leaked than the experiment allows."""
    limit = leakage["max_leaked_test_fraction"]
    if leakage["share"] <= limit:
        return
    examples = "; ".join(
        f"{row['id']!r} ({_short(row['text'])}) and {row['other_id']!r} in {row['other_split']} "
        f"({_short(row['other_text'])})"
        for row in leaked(pairs).head(NAMED).to_dict("records")
    )
    raise UserError(
        f"experiment {experiment}: {leakage['rows']:,} of {leakage['test_rows']:,} test rows "
        f"({leakage['share'] * 100:.3g} %) are nearly the same as a row that is learned from, above the limit of "
        f"{limit * 100:.3g} %: {examples}; remove the variants from the data, or raise "
        f"audit.max_leaked_test_fraction in config/experiments/{experiment}.yaml"
    )


def _short(text: str, letters: int = 60) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= letters else text[: letters - 1] + "…")
