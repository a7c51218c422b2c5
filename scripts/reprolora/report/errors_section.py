"""The report's section on mistakes: what analyze_errors found, as rows for the page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reprolora.arms import method_name, read_texts
from reprolora.errors import UserError
from reprolora.mistakes import ANSWER_OF

TABLES = {"mistakes", "disagreements", "breakdown", "calibration"}
MOST_ARMS_WITH_MISTAKES = 3
MOST_MISTAKES = 5
MOST_DISAGREEMENTS = 8
MOST_ARMS = 40


def errors_section(tables: Sequence[Path]) -> dict[str, Any]:
    """What the page says of mistakes; the best arms first. Without any arm, `arms` is empty."""
    read = {file.stem: read_texts(file) for file in tables}
    if read.keys() != TABLES:
        raise UserError(f"--error-tables: {', '.join(read)}; give {', '.join(sorted(TABLES))}")
    breakdown = read["breakdown"].astype({"n": int, "accuracy": float, "accuracy_low": float, "accuracy_high": float})
    by_label = breakdown[breakdown["by"] == "label"]
    hits = (by_label["accuracy"] * by_label["n"]).groupby(by_label["arm"], sort=False).sum()
    best = list(hits.sort_values(ascending=False, kind="stable").index)
    mistakes = read["mistakes"]
    disagreements = read["disagreements"]
    answers = [column for column in disagreements if column.startswith(ANSWER_OF)]
    return {
        "arms": best[:MOST_ARMS],
        "arms_left_out": max(0, len(best) - MOST_ARMS),
        "groups": {by: list(dict.fromkeys(part["group"])) for by, part in breakdown.groupby("by")},
        "breakdown": {
            arm: {(row["by"], row["group"]): row for row in part.to_dict("records")}
            for arm, part in breakdown.groupby("arm", sort=False)
        },
        "mistakes": {
            arm: part.head(MOST_MISTAKES).to_dict("records")
            for arm in [arm for arm in best if arm in set(mistakes["arm"])][:MOST_ARMS_WITH_MISTAKES]
            for part in [mistakes[mistakes["arm"] == arm]]
        },
        "disagreements": [
            {"row": row, "answers": {column.removeprefix(ANSWER_OF): row[column] for column in answers}}
            for row in disagreements.head(MOST_DISAGREEMENTS).to_dict("records")
        ],
        "disagreements_count": len(disagreements),
        "calibration": [
            row | {"name": method_name(row["method"])} | {key: float(row[key]) for key in ("accuracy", "ece", "brier")}
            for row in read["calibration"].head(MOST_ARMS).to_dict("records")
        ],
    }
