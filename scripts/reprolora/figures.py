"""The figures: sized for a paper's column, readable by the colour-blind, and the same bytes from the same data.

Each `draw_*` takes a table and gives a figure; `save` writes it. Where there are more arms than a figure can show, the
best of them are drawn and the figure says so; the table beside the figure always has all.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from reprolora.arms import ALL_SEEDS
from reprolora.files import replacing, write_text
from reprolora.labels import INVALID

COLUMN, PAGE = 3.35, 6.9  # widths in inches
TALLEST = 9.0
DOTS_PER_INCH = 300
FONT = 7.5
SMALL = 6.5
TINY = 4.5
# From this many letters on, the names of the arms leave too little of a column for the data.
LONG_NAME = 20
MOST_ARMS = 8  # as many colours as can be told apart
MOST_MODELS = 3  # whose lengths are drawn
# From this many labels on, the cells of a confusion matrix are too small for two numbers, and for any.
MANY_LABELS, TOO_MANY_LABELS = 6, 12
LONGEST_LABEL = 18
LOG_SCALE_FROM = 8
# With more curves than these, the single losses behind the running means would be a haze.
FEW_RUNS = 3

STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same everywhere
    "font.size": FONT,
    "axes.labelsize": FONT,
    "axes.titlesize": FONT,
    "xtick.labelsize": FONT,
    "ytick.labelsize": FONT,
    "legend.fontsize": FONT,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "grid.linewidth": 0.4,
    "grid.color": "0.88",
    "lines.linewidth": 1.1,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "figure.constrained_layout.use": True,
    "savefig.dpi": DOTS_PER_INCH,
    "svg.fonttype": "path",
    # Fixed, since element names in the SVG are random otherwise.
    "svg.hashsalt": "reprolora",
}
PALETTE = "colorblind"
MARKERS = "oDs^vPX*"


def use_style() -> None:
    """Make the style the default of this process."""
    sns.set_theme(context="paper", style="ticks", palette=PALETTE, rc=STYLE)


def save(figure: Figure, png: str | Path, svg: str | Path) -> None:
    """Write both files, without dates and versions in them, and close the figure."""
    with replacing(png) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": None})
    with replacing(svg) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)


def save_table(table: pd.DataFrame, csv: str | Path) -> None:
    """Write the data behind a figure."""
    write_text(csv, table.to_csv(index=False, lineterminator="\n"))


def draw_accuracy(table: pd.DataFrame) -> Figure:
    """Accuracy and macro-F1 with their intervals, one line for each method, and dots for the seeds behind them.

    The columns are those of tables/metrics.csv, and `name`; the rows with the seed `all` are the methods.
    """
    use_style()
    line, rest = 0.34, 0.75
    methods = table[table["seed"] == ALL_SEEDS]
    shown = best(methods, "accuracy", int((TALLEST - rest) / line))
    line_of = {name: index for index, name in enumerate(shown["name"])}
    dots = table[(table["seed"] != ALL_SEEDS) & table["name"].isin(line_of)]
    lines_of_dots = np.array([line_of[name] for name in dots["name"]], dtype=float)
    figure, axes = plt.subplots(figsize=(_width(shown["name"]), rest + line * len(shown)))
    measures = {"accuracy": "Accuracy", "macro_f1": "Macro-F1"}
    colors = sns.color_palette(PALETTE, len(measures))
    for k, (measure, label) in enumerate(measures.items()):
        rows = np.arange(len(shown)) + (k - 0.5) * 0.36
        value = shown[measure].to_numpy(float)
        ends = shown[[f"{measure}_low", f"{measure}_high"]].to_numpy(float).T
        # Rounding may put an end a hair on the wrong side.
        error = np.maximum(0, np.stack([value - ends[0], ends[1] - value]))
        axes.errorbar(
            value, rows, xerr=error, fmt=MARKERS[k], markersize=3.4, capsize=1.8, elinewidth=1.0, capthick=1.0,
            color=colors[k], label=label,
        )  # fmt: skip
        axes.plot(
            dots[measure], lines_of_dots + (k - 0.5) * 0.36, linestyle="none", marker=".", markersize=2.6,
            markeredgewidth=0, color="0.1", zorder=3,
        )  # fmt: skip
        for row, number in zip(rows, value, strict=True):
            axes.text(
                1.02, row, f"{number:.3f}", transform=axes.get_yaxis_transform(), va="center", fontsize=SMALL,
                color="0.25",
            )  # fmt: skip
    axes.set_yticks(np.arange(len(shown)), shown["name"])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    split, n = shown["split"].iloc[0], int(shown["n"].iloc[0])
    axes.set_xlabel(f"Score on {n:,} {split} rows, 95 % interval" + left_out(shown, methods))
    sns.despine(ax=axes, left=True)
    handles = [
        Line2D([], [], color=colors[k], marker=MARKERS[k], markersize=3.4, linewidth=1, label=label)
        for k, label in enumerate(measures.values())
    ]
    if len(dots):
        handles.append(Line2D([], [], linestyle="none", marker=".", markersize=2.6, color="0.1", label="each seed"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), borderaxespad=0.2)
    return figure


def draw_confusion(table: pd.DataFrame) -> Figure:
    """A confusion matrix for each arm; colour is the share of the true class, numbers are shares and (rows).

    The columns are name (the arm without its seed), accuracy, label, predicted, count and share. The INVALID column is
    there when any arm has such an answer.
    """
    use_style()
    accuracy = table.groupby("name", sort=False)["accuracy"].first().reset_index()
    labels = list(dict.fromkeys(table["label"]))
    predicted = list(dict.fromkeys(table["predicted"]))
    if not table.loc[table["predicted"] == INVALID, "count"].any():
        predicted.remove(INVALID)
    across = min(len(accuracy), 4 if len(labels) == 2 else 3 if len(labels) <= 4 else 2)
    width = COLUMN if across == 1 else PAGE
    size = FONT if len(labels) <= TOO_MANY_LABELS else TINY
    # Cells are square; what is left of the width are the labels and the colour bar.
    longest = min(LONGEST_LABEL, max(map(len, predicted))) * size / 72 * 0.6
    cell = (width - 0.9 - longest - 0.15 * across) / across / len(predicted)
    title, rest = 0.36, 0.3 + longest
    panel = cell * len(labels) + title
    shown = best(accuracy, "accuracy", across * max(1, int((TALLEST - rest) / panel)))
    down = -(-len(shown) // across)
    figure, grid = plt.subplots(
        down, across, figsize=(width, rest + down * panel), sharex=True, sharey=True, squeeze=False, layout="compressed"
    )
    for index, axes in enumerate(grid.flat):
        if index >= len(shown):
            axes.axis("off")
            continue
        arm = table[table["name"] == shown["name"].iloc[index]]
        counts = arm.pivot(index="label", columns="predicted", values="count").loc[labels, predicted]
        shares = arm.pivot(index="label", columns="predicted", values="share").loc[labels, predicted]
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        _write_cells(axes, counts.to_numpy(), shares.to_numpy(), len(labels))
        # Above the first row, which is full; the last may not be.
        axes.xaxis.tick_top()
        names = [shorten(name, LONGEST_LABEL) for name in predicted]
        axes.set_xticks(
            range(len(predicted)), names, ha="left", va="baseline" if len(labels) <= TOO_MANY_LABELS else "center",
            rotation=45 if len(labels) <= TOO_MANY_LABELS else 90, rotation_mode="anchor", fontsize=size,
        )  # fmt: skip
        axes.set_yticks(range(len(labels)), names[: len(labels)], fontsize=size)
        axes.tick_params(length=0, labeltop=index < across, pad=2)
        letters = int(cell * len(predicted) * 72 / (FONT * 0.62))
        axes.set_title(
            "\n".join(textwrap.wrap(shown["name"].iloc[index], letters, max_lines=2, placeholder="…")), pad=3
        )
        if INVALID in predicted:
            axes.axvline(len(labels) - 0.5, color="0.35", linewidth=0.8)
        for spine in axes.spines.values():
            spine.set(color="0.7")
    figure.suptitle("Predicted label", fontsize=FONT)
    figure.supylabel("True label", fontsize=FONT)
    if note := left_out(shown, accuracy):
        figure.supxlabel(note.strip(), fontsize=FONT)
    bar = figure.colorbar(image, ax=grid, shrink=min(1, 1.5 / figure.get_figheight()), aspect=18, pad=0.01)
    bar.set_label("Share of the true class")
    bar.outline.set_visible(False)
    return figure


def _write_cells(axes: Axes, counts: np.ndarray, shares: np.ndarray, labels: int) -> None:
    if labels > TOO_MANY_LABELS:
        return
    for (row, column), count in np.ndenumerate(counts):
        share = shares[row, column]
        text = f"{count:,}" if labels > MANY_LABELS else f"{share:.2f}\n({count:,})"
        axes.text(
            column, row, text, ha="center", va="center", fontsize=SMALL if labels <= 4 else 5.5, linespacing=1.1,
            color="0.6" if not count else "white" if share > 0.55 else "0.15",
        )  # fmt: skip


def shorten(text: str, letters: int) -> str:
    """`text`, cut to so many letters with an ellipsis where it is longer."""
    return text if len(text) <= letters else text[: letters - 1] + "…"


def draw_training(table: pd.DataFrame) -> Figure:
    """Training and validation loss, and the learning rate, over the steps of each arm; the kept adapter is marked.

    The columns are name (the arm without its seed), seed, step, loss, validation_loss, learning_rate, best (whether
    the adapter of that step was kept).
    """
    use_style()
    validation = table.groupby("name", sort=False)["validation_loss"].min().reset_index()
    shown = best(validation, "validation_loss", MOST_ARMS, smallest=True)
    figure, (losses, rates) = plt.subplots(
        2, 1, figsize=(_width(shown["name"]), 3.3 + 0.13 * len(shown)), sharex=True, height_ratios=[2.2, 1]
    )
    colors = dict(zip(shown["name"], sns.color_palette(PALETTE, len(shown)), strict=True))
    runs = len(table.loc[table["name"].isin(colors), ["name", "seed"]].drop_duplicates())
    handles = []
    for k, name in enumerate(shown["name"]):
        color, marker = colors[name], MARKERS[k % len(MARKERS)]
        handles.append(Line2D([], [], color=color, marker=marker, markersize=3.4, linewidth=1.1, label=name))
        for _, run in table[table["name"] == name].groupby("seed", sort=False):
            steps = run.dropna(subset=["loss"])
            if runs <= FEW_RUNS:
                losses.plot(steps["step"], steps["loss"], color=color, alpha=0.25, linewidth=0.6)
            losses.plot(
                steps["step"], running_mean(steps["loss"].to_numpy()), color=color,
                linewidth=1.1 if runs <= FEW_RUNS else 0.7,
            )  # fmt: skip
            checks = run.dropna(subset=["validation_loss"])
            losses.plot(
                checks["step"], checks["validation_loss"], color=color, linestyle=(0, (3, 2)), marker=marker,
                markersize=3.4,
            )  # fmt: skip
            kept = checks[checks["best"].astype(bool)]
            losses.plot(
                kept["step"], kept["validation_loss"], linestyle="none", marker="o", markersize=8,
                markerfacecolor="none", markeredgecolor="0.2", markeredgewidth=0.8,
            )  # fmt: skip
            # Arms often have the same schedule: dashes let the line below show.
            rates.plot(
                steps["step"], steps["learning_rate"] * 1e4, color=color,
                linestyle="-" if k == 0 else (3 * k, (3, 3)), linewidth=1.4,
            )  # fmt: skip
    values = table[["loss", "validation_loss"]].to_numpy(float)
    values = values[np.isfinite(values) & (values > 0)]
    if len(values) and values.max() / values.min() > LOG_SCALE_FROM:
        losses.set_yscale("log")
        losses.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        losses.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        losses.yaxis.set_minor_locator(NullLocator())
    else:
        losses.set_ylim(bottom=0)
    losses.set_ylabel("Loss (nats per token)")
    rates.set_ylabel("Learning rate\n(10$^{-4}$)")
    rates.set_ylim(bottom=0)
    rates.set_xlabel("Optimizer step" + left_out(shown, validation))
    rates.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    for axes in (losses, rates):
        axes.grid(axis="y")
        sns.despine(ax=axes)
    figure.align_ylabels()
    # The arms in one column, what the lines mean in the other.
    handles += [Line2D([], [], linestyle="none", label=" ")] * (3 - len(handles))
    handles += [
        Line2D([], [], color="0.35", label="training (running mean)"),
        Line2D([], [], color="0.35", linestyle=(0, (3, 2)), label="validation"),
        Line2D([], [], linestyle="none", marker="o", markersize=7, markerfacecolor="none", markeredgecolor="0.2",
               label="adapter that is kept"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper center", ncols=2, borderaxespad=0.2, columnspacing=1.2)
    return figure


def running_mean(values: np.ndarray) -> np.ndarray:
    """The mean over a window of a twentieth of the values, centred; at the ends, of what is there."""
    half = len(values) // 40
    return pd.Series(values).rolling(2 * half + 1, center=True, min_periods=1).mean().to_numpy()


def draw_resources(table: pd.DataFrame) -> Figure:
    """Peak memory and time of each phase, arms side by side; with several seeds, bars are means and dots are seeds.

    The columns are name (the arm without its seed), seed, quantity (memory or time), phase, value (bytes or seconds).
    """
    use_style()
    names = list(dict.fromkeys(table["name"]))
    every = pd.DataFrame({"name": names})
    shown = every.head(MOST_ARMS)
    colors = dict(zip(shown["name"], sns.color_palette(PALETTE, len(shown)), strict=True))
    quantities = {"memory": ("Peak memory", _memory_unit), "time": ("Time", _time_unit)}
    phases = {key: list(dict.fromkeys(table.loc[table["quantity"] == key, "phase"])) for key in quantities}
    bar = 0.1
    figure, grid = plt.subplots(
        2,
        1,
        figsize=(_width(shown["name"]), 1.0 + sum(len(p) * (bar * len(shown) + 0.09) for p in phases.values())),
        height_ratios=[max(1, len(p)) for p in phases.values()],
    )
    for axes, (key, (label, unit_of)) in zip(grid, quantities.items(), strict=True):
        part = table[(table["quantity"] == key) & table["name"].isin(colors)]
        name, divisor = unit_of(part["value"].max())
        thickness = 0.8 / len(shown)
        largest = part["value"].max() / divisor
        digits = 2 if largest < 100 else 1 if largest < 1000 else 0
        for k, arm in enumerate(shown["name"]):
            for row, phase in enumerate(phases[key]):
                values = part.loc[(part["name"] == arm) & (part["phase"] == phase), "value"].dropna() / divisor
                if values.empty:
                    continue
                y = row - 0.4 + thickness * (k + 0.5)
                axes.barh(y, values.mean(), height=thickness * 0.92, color=colors[arm], linewidth=0)
                if len(values) > 1:
                    axes.plot(values, np.full(len(values), y), "k.", markersize=2)
                after = values.max() + (0.015 if len(values) == 1 else 0.03) * largest
                axes.text(after, y, f"{values.mean():.{digits}f}", va="center", fontsize=SMALL)
        axes.set_yticks(range(len(phases[key])), phases[key])
        axes.set_ylim(len(phases[key]) - 0.5, -0.5)
        axes.set_xlim(0, largest * 1.14 if largest else 1)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel(f"{label} ({name})")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        sns.despine(ax=axes, left=True)
    grid[1].set_xlabel(grid[1].get_xlabel() + left_out(shown, every, how="first"))
    figure.legend(
        handles=[plt.Rectangle((0, 0), 1, 1, color=color, label=name) for name, color in colors.items()],
        loc="outside upper center",
        ncols=3 if max(map(len, colors)) < 12 else 2,
        borderaxespad=0.2,
        handlelength=0.9,
        columnspacing=1.2,
    )
    return figure


def draw_audit(table: pd.DataFrame) -> Figure:
    """The share of each class in each split, and the lengths of the rows, in tokens of each model.

    The columns are quantity (class, tokens or characters), model, split, label (of a class), low and high (the ends of
    a bin of lengths), count and share (of the split's rows).
    """
    use_style()
    classes = table[table["quantity"] == "class"]
    lengths = table[table["quantity"] != "class"]
    splits = list(dict.fromkeys(table["split"]))
    colors = dict(zip(splits, sns.color_palette(PALETTE, len(splits)), strict=True))
    every = classes.groupby("label", sort=False)["count"].sum().reset_index()
    line, panel, rest = 0.36, 1.35, 0.75
    models = lengths.groupby(["quantity", "model"], sort=False, dropna=False).ngroups
    models_shown = min(models, MOST_MODELS)
    shown = best(every, "count", int((TALLEST - rest - panel * models_shown) / line))
    height = max(0.9, line * len(shown))
    figure, grid = plt.subplots(
        1 + models_shown,
        1,
        figsize=(COLUMN, rest + height + panel * models_shown),
        height_ratios=[height] + [panel - 0.3] * models_shown,
        squeeze=False,
    )
    axes = grid[0, 0]
    largest = classes["share"].max()
    for k, split in enumerate(splits):
        part = classes[classes["split"] == split].set_index("label").loc[shown["label"]]
        rows = np.arange(len(part)) + (k - (len(splits) - 1) / 2) * 0.26
        axes.barh(rows, part["share"], height=0.24, color=colors[split], linewidth=0)
        for row, share, count in zip(rows, part["share"], part["count"], strict=True):
            axes.text(share + 0.015 * largest, row, f"{count:,}", va="center", fontsize=5.5, color="0.25")
    axes.set_yticks(range(len(shown)), [shorten(label, LONGEST_LABEL) for label in shown["label"]])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim(0, largest * 1.17)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("Share of the split's rows, and their number" + left_out(shown, every, how="commonest"))
    groups = lengths.groupby(["quantity", "model"], sort=False, dropna=False)
    for axes, ((quantity, model), part) in zip(grid[1:, 0], groups, strict=False):
        for k, split in enumerate(splits):
            bins = part[part["split"] == split]
            edges = [*bins["low"], bins["high"].iloc[-1]]
            # Lengths are whole numbers, and a bin may have one more of them than the next.
            whole = np.diff([*np.ceil(edges[:-1]), np.floor(edges[-1]) + 1])
            density = bins["share"] / np.maximum(1, whole)
            axes.stairs(density, edges, color=colors[split], linewidth=1.0, linestyle="-" if k == 0 else (0, (3, k)))
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"Rows per {quantity.removesuffix('s')}")
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:g} %"))
        axes.set_xlabel(f"Length in {quantity}" + (f" of {shorten(model, 34)}" if isinstance(model, str) else ""))
        axes.xaxis.set_major_locator(MaxNLocator(5))
    if models > models_shown:
        axes.set_xlabel(axes.get_xlabel() + f"\n(the first {models_shown} of {models} models; the table has all)")
    for axes in grid[:, 0]:
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        sns.despine(ax=axes)
    figure.legend(
        handles=[plt.Rectangle((0, 0), 1, 1, color=color, label=split) for split, color in colors.items()],
        loc="outside upper center",
        ncols=len(splits),
        borderaxespad=0.2,
        handlelength=0.9,
        columnspacing=1.2,
    )
    return figure


def draw_calibration(table: pd.DataFrame) -> Figure:
    """Reliability diagrams: how often the answers of a confidence are right, and how many answers have it.

    The columns are name (the arm without its seed), ece, low and high (the ends of a bin of confidence), n, share (of
    the arm's rows), confidence and accuracy (means in the bin; missing where it is empty).
    """
    use_style()
    every = table.groupby("name", sort=False)["ece"].first().reset_index()
    shown = best(every, "ece", MOST_ARMS, smallest=True)
    figure, (reliability, shares) = plt.subplots(
        2, 1, figsize=(COLUMN, 4.0 + 0.13 * len(shown)), sharex=True, height_ratios=[3, 1]
    )
    reliability.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=(0, (3, 2)))
    colors = sns.color_palette(PALETTE, len(shown))
    handles = []
    for k, (name, ece) in enumerate(shown[["name", "ece"]].itertuples(index=False)):
        bins = table[table["name"] == name]
        filled = bins[bins["n"] > 0]
        style = {"color": colors[k], "marker": MARKERS[k], "markersize": 3.4, "linewidth": 1.1}
        reliability.plot(filled["confidence"], filled["accuracy"], **style)
        shares.stairs(bins["share"], [*bins["low"], bins["high"].iloc[-1]], color=colors[k], linewidth=1.1)
        handles.append(Line2D([], [], label=f"{name} (ECE {ece:.3f})", **style))
    reliability.set_xlim(0, 1)
    reliability.set_ylim(0, 1.03)
    reliability.set_ylabel("Share that is right")
    shares.set_ylabel("Share of\nthe answers")
    shares.set_ylim(bottom=0)
    shares.yaxis.set_major_locator(MaxNLocator(3))
    shares.set_xlabel("Confidence: probability of the answer" + left_out(shown, every))
    for axes in (reliability, shares):
        axes.grid(axis="both")
        axes.set_axisbelow(True)
        sns.despine(ax=axes)
    figure.align_ylabels()
    figure.legend(handles=handles, loc="outside upper center", ncols=1, borderaxespad=0.2)
    return figure


def best(table: pd.DataFrame, column: str, most: int, *, smallest: bool = False) -> pd.DataFrame:
    """The rows with the best values, in the table's order."""
    if len(table) <= most:
        return table.reset_index(drop=True)
    chosen = table[column].sort_values(ascending=smallest, kind="stable").index[:most]
    return table[table.index.isin(chosen)].reset_index(drop=True)


def left_out(shown: Sequence, everything: Sequence, how: str = "best") -> str:
    """What a figure says when it does not show everything."""
    if len(shown) == len(everything):
        return ""
    return f"\n(the {how} {len(shown)} of {len(everything)}; the table has all)"


def _width(names: pd.Series) -> float:
    return COLUMN if names.str.len().max() <= LONG_NAME else PAGE


def _memory_unit(largest: float) -> tuple[str, float]:
    return ("GB", 1e9) if largest >= 1e9 else ("MB", 1e6)


def _time_unit(largest: float) -> tuple[str, float]:
    if largest >= 3 * 3600:
        return "hours", 3600
    return ("minutes", 60) if largest >= 180 else ("seconds", 1)
