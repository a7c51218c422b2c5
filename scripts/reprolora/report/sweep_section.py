"""The report's section about sweeps: what was tried, how it did on the validation rows, and what was selected."""

from pathlib import Path
from typing import Any

import pandas as pd

from reprolora.arms import ALL_SEEDS, arm_names, read_table


def sweep_section(table_file: Path | None) -> dict[str, Any] | None:
    """What the template shows of tables/sweep.csv; None where nothing was swept."""
    if table_file is None:
        return None
    table = read_table(table_file)
    sweeps = table[["model", "method"]].drop_duplicates()
    names = arm_names(sweeps.assign(seed=ALL_SEEDS))
    groups = [
        _group(name, table[(table["model"] == model) & (table["method"] == method)])
        for name, model, method in zip(names, sweeps["model"], sweeps["method"], strict=True)
    ]
    return {"groups": groups, "seeds": sorted(table["seed"].unique().tolist()), "trainings": len(table)}


def _group(name: str, table: pd.DataFrame) -> dict[str, Any]:
    candidates = []
    for candidate, rows in table.groupby("candidate", sort=False):
        mean = rows["mean_validation_loss"].iloc[0]
        losses = rows.set_index("seed")["validation_loss"].dropna().to_dict()
        trained = rows["trainable_parameters"].dropna()
        candidates.append(
            {
                "name": candidate,
                "losses": losses,
                "mean": None if pd.isna(mean) else float(mean),
                "selected": bool(rows["selected"].iloc[0]),
                "trainable": int(trained.iloc[0]) if len(trained) else None,
                "failed": sorted(set(rows.loc[rows["status"] != "ok", "status"])),
            }
        )
    selected = [entry["name"] for entry in candidates if entry["selected"]]
    return {
        "name": name,
        "candidates": candidates,
        "selected": selected[0] if selected else None,
        "failed": sum(bool(entry["failed"]) for entry in candidates),
    }
