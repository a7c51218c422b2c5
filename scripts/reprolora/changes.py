"""How many answers an exported model gives otherwise than the model that it was made from."""

from collections.abc import Mapping, Sequence
from typing import Any

from statsmodels.stats.proportion import proportion_confint

from reprolora.errors import ArmFailed
from reprolora.rounding import rounded

EXAMPLES = 5


def count_changes(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    """Compare two models' answers to the same questions.

    Args:
        before: the predictions of the model that was exported, which may be of more rows than `after`.
        after: the predictions of the exported model.
        key: where a prediction has its answer.

    Returns:
        {"n", "changed", "share", "share_low", "share_high" (Wilson's 95 % interval), "examples"}; the interval is None
        where there is no row.

    Raises:
        ArmFailed: a prediction of `after` has no counterpart.
    """
    known = {_name(row): row for row in before}
    if missing := [row["id"] for row in after if _name(row) not in known]:
        raise ArmFailed(f"row {missing[0]!r} was not answered before the export; evaluate the adapter again")
    changed = [(known[_name(row)], row) for row in after if known[_name(row)][key] != row[key]]
    n, count = len(after), len(changed)
    low, high = proportion_confint(count, n, alpha=0.05, method="wilson") if n else (None, None)
    return {
        "n": n,
        "changed": count,
        **rounded({"share": count / n if n else None, "share_low": low, "share_high": high}),
        "examples": [{"id": new["id"], "before": old[key], "after": new[key]} for old, new in changed[:EXAMPLES]],
    }


def _name(row: Mapping[str, Any]) -> tuple[str, str | None]:
    return row["id"], row.get("mode")
