"""The learning curve: scores on the test rows over the number of training rows."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from reprolora.arms import ALL_SEEDS, KEY, Run, arm_names
from reprolora.bootstrap import pooled_estimates
from reprolora.figures import COLUMN, MARKERS, PALETTE, use_style
from reprolora.rounding import DIGITS

MEASURES = {"accuracy": "Accuracy", "macro_f1": "Macro-F1"}
SCORES = [f"{measure}{end}" for measure in MEASURES for end in ("", "_low", "_high")]
COLUMNS = ["name", "model", "method", "mode", "seed", "rows", "n", *SCORES]
# Numbers of rows that are nearer than this factor have no room for two labels on the axis.
NEAR = 1.35


def learning_curve_table(metrics: Sequence[dict], runs: Sequence[Run], all_rows: int) -> pd.DataFrame:
    """A row for each arm and mode, curve by curve, from few training rows to many; then one with its seeds pooled.

    `metrics` are the contents of metrics.json, `runs` the answers of the same arms in the same order. The variant
    `rows=50` says that an arm was trained on 50 rows; an arm without a variant was trained on `all_rows`.
    """
    rows = [
        {
            **{key: content["arm"][key] for key in KEY},
            "mode": mode,
            "rows": int(content["arm"].get("variant", f"rows={all_rows}").removeprefix("rows=")),
            **{key: scores[key] for key in ("n", *SCORES)},
        }
        for content in metrics
        for mode, scores in content["modes"].items()
    ]
    table = pd.DataFrame(rows)
    table = table.assign(name=arm_names(table, drop=["seed"]))
    table = pd.concat([table, _pooled(table, runs)], ignore_index=True)
    order = {name: position for position, name in enumerate(dict.fromkeys(table["name"]))}
    table = table.assign(position=table["name"].map(order)).sort_values(["position", "rows"], kind="stable")
    return table[COLUMNS].reset_index(drop=True)


def _pooled(table: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
    """A row for each point of a curve that has several seeds; `runs` are the table's rows, in its order."""
    groups = [
        list(places) for places in table.groupby(["name", "rows"], sort=False).indices.values() if len(places) > 1
    ]
    if not groups:
        return table.iloc[:0]
    pooled = table.iloc[[places[0] for places in groups]].assign(seed=ALL_SEEDS).reset_index(drop=True)
    for measure, estimates in pooled_estimates(runs, groups).items():
        pooled[measure] = [table[measure].iloc[places].mean().round(DIGITS) for places in groups]
        for end in ("low", "high"):
            pooled[f"{measure}_{end}"] = getattr(estimates, end).clip(0, 1).round(DIGITS)
    return pooled


def draw_learning_curve(table: pd.DataFrame) -> Figure:
    """Accuracy and macro-F1 over training rows with 95 % intervals; of several seeds their mean, and each as a dot."""
    use_style()
    names = list(dict.fromkeys(table["name"]))
    figure, panels = plt.subplots(2, 1, figsize=(COLUMN, 4.0 + 0.13 * len(names)), sharex=True)
    colors = sns.color_palette(PALETTE, len(names))
    for k, name in enumerate(names):
        curve = table[table["name"] == name]
        # Of a point with several seeds, the last row has them pooled.
        means = curve.groupby("rows")[SCORES].last()
        single = curve[(curve["seed"] != ALL_SEEDS) & curve.duplicated("rows", keep=False)]
        for axes, measure in zip(panels, MEASURES, strict=True):
            axes.fill_between(
                means.index, means[f"{measure}_low"], means[f"{measure}_high"], color=colors[k], alpha=0.15, linewidth=0
            )
            axes.plot(
                means.index, means[measure], color=colors[k], marker=MARKERS[k % len(MARKERS)], markersize=3.4,
                clip_on=False, zorder=3,
            )  # fmt: skip
            if len(single):
                axes.plot(single["rows"], single[measure], ".", color=colors[k], markersize=2.5, alpha=0.6)
    for axes, label in zip(panels, MEASURES.values(), strict=True):
        axes.set_ylabel(label)
        axes.set_ylim(0, 1)
        axes.grid(axis="y")
        sns.despine(ax=axes)
    lower = panels[-1]
    lower.set_xscale("log")
    ticks = _ticks(table["rows"].unique())
    lower.set_xticks(ticks, [f"{rows:,}" for rows in ticks])
    lower.xaxis.set_minor_locator(NullLocator())
    lower.set_xlabel(f"Training rows; scores on {int(table['n'].iloc[0]):,} test rows")
    figure.align_ylabels()
    figure.legend(
        handles=[
            Line2D([], [], color=colors[k], marker=MARKERS[k % len(MARKERS)], markersize=3.4, label=name)
            for k, name in enumerate(names)
        ],
        loc="outside upper center",
        ncols=2 if max(map(len, names)) < 20 else 1,
        borderaxespad=0.2,
    )
    return figure


def _ticks(rows: np.ndarray) -> list[int]:
    """The numbers of rows that have a label: from the largest down, all that are not too near."""
    chosen: list[int] = []
    for number in sorted(map(int, rows), reverse=True):
        if not chosen or chosen[-1] / number >= NEAR:
            chosen.append(number)
    return chosen[::-1]
