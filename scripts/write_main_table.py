"""Write the main table of an experiment for a paper: LaTeX (booktabs) and Markdown.

Reads tables/metrics_pooled.csv. No value is bold: which differences are shown, tables/comparison.csv says, and the
largest number of a column need not be one of them.
"""

import argparse
from pathlib import Path

import pandas as pd

from reprolora.arms import ALL_SEEDS, arm_names, read_table
from reprolora.errors import run_script
from reprolora.files import write_text

# The scores that a table of either task may have: heading, factor and digits.
MEASURES = {
    "accuracy": ("Accuracy (%)", 100, 1),
    "macro_f1": ("Macro-F1 (%)", 100, 1),
    "domain_accuracy": ("Domain accuracy (%)", 100, 1),
    "token_f1": ("Token F1 (%)", 100, 1),
    "rouge_l": ("ROUGE-L (%)", 100, 1),
    "chrf": ("chrF (%)", 100, 1),
    "loss": ("Loss", 1, 3),
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=Path, required=True, help="the table of metrics with pooled seeds (CSV)")
    parser.add_argument("--tex", type=Path, required=True, help="the LaTeX table to write")
    parser.add_argument("--md", type=Path, required=True, help="the Markdown table to write")
    return parser.parse_args()


def main_table(pooled: pd.DataFrame) -> pd.DataFrame:
    """The table as text: each mean with its interval, and the standard deviation where there are several seeds."""
    several = pooled["seeds"].gt(1)
    table = pd.DataFrame({"Method": arm_names(pooled.assign(seed=ALL_SEEDS))})
    if several.any():
        table["Seeds"] = pooled["seeds"].astype(str)
    for measure, (name, factor, digits) in MEASURES.items():
        if measure in pooled:
            parts = [pooled[f"{measure}{part}"] * factor for part in ("", "_sd", "_low", "_high")]
            table[name] = [
                _cell(mean, sd if has_sd else None, low, high, digits)
                for has_sd, mean, sd, low, high in zip(several, *parts, strict=True)
            ]
    if "invalid_rate" in pooled:
        table["INVALID (%)"] = [f"{rate * 100:.1f}" for rate in pooled["invalid_rate"]]
    return table


def _cell(mean: float, sd: float | None, low: float, high: float, digits: int) -> str:
    """A mean with its interval; a score or an interval that could not be had is a dash."""
    if pd.isna(mean):
        return "-"
    spread = "" if sd is None else f" ± {sd:.{digits}f}"
    return f"{mean:.{digits}f}{spread} " + ("[-]" if pd.isna(low) else f"[{low:.{digits}f}, {high:.{digits}f}]")


def note(pooled: pd.DataFrame) -> str:
    """What the table's caption has to say."""
    if pooled.empty:
        return "Every arm failed."
    first = pooled.iloc[0]
    mean = "mean ± standard deviation over training seeds " if pooled["seeds"].gt(1).any() else ""
    text = (
        f"Scores on {first['n']:,} {first['split']} rows: {mean}[95 % interval]. Seed of the split: "
        f"{first['split_seed']}."
    )
    if "invalid_rate" in pooled:
        return f"{text} An answer that is no label is INVALID and counts as wrong."
    return (
        f"{text} Domain accuracy is of {first['n_choices']:,} of them; the loss is in nats per token of the references."
    )


def latex(table: pd.DataFrame, caption: str) -> str:
    """The table as a booktabs tabular; whatever LaTeX would take for a command is escaped."""
    styler = table.style.hide(axis="index").format(escape="latex").format_index(escape="latex", axis="columns")
    body = styler.to_latex(hrules=True, column_format="l" + "r" * (table.shape[1] - 1))
    return f"% Needs \\usepackage{{booktabs}}. {caption}\n{body}".replace("±", r"$\pm$")


def markdown(table: pd.DataFrame, caption: str) -> str:
    """The table in Markdown, numbers to the right."""
    cells = [[str(cell).replace("|", r"\|") for cell in row] for row in [table.columns, *table.to_numpy()]]
    cells.insert(1, ["---", *["---:"] * (table.shape[1] - 1)])
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + f"\n\n{caption}\n"


def main() -> None:
    args = parse_args()
    pooled = read_table(args.metrics)
    table, caption = main_table(pooled), note(pooled)
    write_text(args.tex, latex(table, caption))
    write_text(args.md, markdown(table, caption))


if __name__ == "__main__":
    run_script(main)
