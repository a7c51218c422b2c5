"""The figures of instruction experiments; see `reprolora.figures`."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from reprolora.arms import ALL_SEEDS
from reprolora.figures import MARKERS, PAGE, PALETTE, SMALL, TALLEST, best, left_out, use_style

# The panels of the scores: heading, and the measures in it.
PANELS = {
    "Domain accuracy": {"domain_accuracy": "domain accuracy"},
    "Generated answers": {"exact_match": "exact match", "token_f1": "token F1", "rouge_l": "ROUGE-L", "chrf": "chrF"},
    "Reference answers": {"loss": "loss"},
}
LABELS = {measure: label for panel in PANELS.values() for measure, label in panel.items()}
MEASURES = tuple(LABELS)
MOST_CHANGES = 3  # methods whose changes are drawn


def draw_answers(table: pd.DataFrame) -> Figure:
    """Domain accuracy, text scores and loss with their intervals, one line for each method, and dots for the seeds.

    The columns are those of tables/metrics.csv, `name` and `chance` (the domain accuracy of guessing); the rows with
    the seed `all` are the methods.
    """
    use_style()
    line, rest = 0.5, 0.85
    methods = table[table["seed"] == ALL_SEEDS]
    shown = best(methods, "domain_accuracy", int((TALLEST - rest) / line))
    line_of = {name: index for index, name in enumerate(shown["name"])}
    dots = table[(table["seed"] != ALL_SEEDS) & table["name"].isin(line_of)]
    lines_of_dots = np.array([line_of[name] for name in dots["name"]], dtype=float)
    figure, grid = plt.subplots(
        1, 3, figsize=(PAGE, rest + line * len(shown)), sharey=True, width_ratios=[1, 1.25, 0.9]
    )
    colors = dict(zip(MEASURES, sns.color_palette(PALETTE, len(MEASURES)), strict=True))
    markers = dict(zip(MEASURES, MARKERS, strict=False))
    for axes, measures in zip(grid, PANELS.values(), strict=True):
        offsets = 0.19 * (np.arange(len(measures)) - (len(measures) - 1) / 2)
        for measure, offset in zip(measures, offsets, strict=True):
            value = shown[measure].to_numpy(float)
            ends = shown[[f"{measure}_low", f"{measure}_high"]].to_numpy(float).T
            # Rounding may put an end a hair on the wrong side; where there is no interval, the point stands alone.
            error = np.nan_to_num(np.maximum(0, np.stack([value - ends[0], ends[1] - value])))
            rows = np.arange(len(shown)) + offset
            axes.errorbar(
                value, rows, xerr=error, fmt=markers[measure], markersize=3.4, capsize=1.8, elinewidth=1.0,
                capthick=1.0, color=colors[measure],
            )  # fmt: skip
            axes.plot(
                dots[measure], lines_of_dots + offset, linestyle="none", marker=".", markersize=2.6,
                markeredgewidth=0, color="0.1", zorder=3,
            )  # fmt: skip
            if len(measures) == 1:
                digits = 2 if measure == "loss" else 3
                for row, number in zip(rows, value, strict=True):
                    axes.text(
                        1.0, row - 0.26, "" if np.isnan(number) else f"{number:.{digits}f}", va="center", ha="right",
                        transform=axes.get_yaxis_transform(), fontsize=SMALL, color="0.25",
                    )  # fmt: skip
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        sns.despine(ax=axes, left=True)
    accuracy, answers, loss = grid
    accuracy.axvline(shown["chance"].iloc[0], color="0.5", linewidth=0.8, linestyle=(0, (3, 2)))
    for axes, measures in zip(grid, PANELS.values(), strict=True):
        columns = [f"{measure}{end}" for measure in measures for end in ("", "_high")]
        drawn = [shown[columns], dots[list(measures)], shown[["chance"]] if axes is accuracy else []]
        largest = np.nanmax(np.concatenate([np.ravel(values) for values in drawn], dtype=float), initial=0)
        axes.set_xlim(0, 1.08 * largest if axes is loss else min(1, np.ceil(10.5 * largest) / 10) or 1)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter("{x:g}")
    accuracy.set_yticks(np.arange(len(shown)), shown["name"])
    accuracy.set_ylim(len(shown) - 0.5, -0.5)
    first = shown.iloc[0]
    accuracy.set_xlabel(f"Domain accuracy\n({int(first['n_choices']):,} rows; dashed: guessing)")
    answers.set_xlabel(f"Score of generated answers\n({int(first['n']):,} rows)" + left_out(shown, methods))
    loss.set_xlabel("Loss of the references\n(nats per token)")
    handles = [
        Line2D([], [], color=colors[m], marker=markers[m], markersize=3.4, linewidth=1, label=label)
        for m, label in LABELS.items()
    ]
    if len(dots):
        handles.append(Line2D([], [], linestyle="none", marker=".", markersize=2.6, color="0.1", label="each seed"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), borderaxespad=0.2, columnspacing=1.2)
    return figure


def draw_changes(table: pd.DataFrame, by_document: bool) -> Figure:
    """ROUGE-L and loss of each document (or row) before fine-tuning, and after; a dot's area is its number of rows.

    The columns are name, n, and rouge_l and loss with `_before` and `_after`.
    """
    use_style()
    means = table.groupby("name", sort=False)["loss_after"].mean().reset_index()
    shown = best(means, "loss_after", MOST_CHANGES, smallest=True)
    figure, grid = plt.subplots(1, 2, figsize=(PAGE, 3.3 + 0.13 * len(shown)))
    unit = "document" if by_document else "row"
    size = np.clip(60 * table["n"] / table["n"].max(), 8, None) if by_document else pd.Series(8.0, index=table.index)
    colors = sns.color_palette(PALETTE, len(shown))
    for axes, measure, label in zip(grid, ("rouge_l", "loss"), ("ROUGE-L", "Loss (nats per token)"), strict=True):
        values = table[[f"{measure}_before", f"{measure}_after"]].to_numpy(float)
        top = 1 if measure == "rouge_l" else values.max() * 1.05
        axes.axline((0, 0), (top, top), color="0.6", linewidth=0.8, linestyle=(0, (3, 2)), zorder=0)
        for k, name in enumerate(shown["name"]):
            part = table[table["name"] == name]
            axes.scatter(
                part[f"{measure}_before"], part[f"{measure}_after"], s=size[part.index], color=colors[k],
                marker=MARKERS[k], alpha=0.55, linewidths=0,
            )  # fmt: skip
        axes.set_xlim(0, top)
        axes.set_ylim(0, top)
        axes.set_aspect("equal")
        axes.set_xlabel(f"{label} before fine-tuning")
        axes.set_ylabel(f"{label} after")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5))
        axes.grid()
        axes.set_axisbelow(True)
        sns.despine(ax=axes)
    handles = []
    for k, name in enumerate(shown["name"]):
        part = table[table["name"] == name]
        better = int((part["loss_after"] < part["loss_before"]).sum())
        label = f"{name} (less loss on {better:,} of {len(part):,} {unit}s)"
        handles.append(Line2D([], [], linestyle="none", color=colors[k], marker=MARKERS[k], markersize=4, label=label))
    figure.legend(handles=handles, loc="outside upper center", borderaxespad=0.2)
    if note := left_out(shown, means):
        figure.supxlabel(note.strip(), fontsize=SMALL)
    return figure
