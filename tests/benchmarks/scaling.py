"""How cost grows: examples per second over prefix share, row length, batch size, rank and number of labels.

    python -m benchmarks.scaling

Trains and asks the `sentiment` experiment's model on random rows, ours and the plain path, a few steps at each point.
Writes scaling.csv and one figure for each quantity.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from peft import PeftModel
from torch.nn.functional import cross_entropy

from benchmarks.memory import random_rows
from benchmarks.workload import Workload, sentiment, set_up
from reprolora import models
from reprolora.engine import answers, last_layer, lora, plain
from reprolora.engine.batches import collate_padded, collate_ragged
from reprolora.engine.ragged import ATTENTION, RaggedPlan
from reprolora.errors import run_script
from reprolora.prompts import EncodedRow

OURS, PLAIN = "ours", "plain"
# The point that each sweep goes through; a sweep varies one of these.
COMMON = {"batch": 8, "length": 64, "prefix_share": 0.5, "rank": 16}
SWEEPS: dict[str, tuple[float, ...]] = {
    "prefix_share": (0.0, 0.25, 0.5, 0.75, 0.9),
    "length": (16, 32, 64, 128),
    "batch": (1, 2, 4, 8, 16),
    "rank": (4, 16, 64),
}
LABELS = (2, 4, 8, 16)
ASKED_ROWS = 8
TITLES = {
    "prefix_share": "Share of tokens that all rows begin with",
    "length": "Tokens of a row",
    "batch": "Rows of a batch",
    "rank": "Rank of the adapter",
    "labels": "Labels to choose from",
}


def training_steps(model: PeftModel, ragged: bool) -> Callable[[Sequence[EncodedRow]], None]:
    """A function that computes the gradient of a batch, ours or plainly."""
    base = model.get_base_model()
    lora.remove(model)
    last_layer.remove(model)
    base.set_attn_implementation(ATTENTION if ragged else "sdpa")
    if ragged:
        lora.install(model)
        read = last_layer.install(model)
    model.train()

    def step(rows: Sequence[EncodedRow]) -> None:
        if not ragged:
            batch = {name: tensor.to(model.device) for name, tensor in collate_padded(rows, pad_token_id=0).items()}
            model(**batch, use_cache=False).loss.backward()
            return
        batch = collate_ragged(rows)
        plan = RaggedPlan(batch["prefix"], batch["lengths"], batch["shared"], model.device)
        read.places = batch["logits_to_keep"].to(model.device)
        logits = model(
            input_ids=batch["input_ids"].to(model.device),
            position_ids=plan.position_ids,
            logits_to_keep=read.places,
            use_cache=False,
            ragged_plan=plan,
        ).logits[0]
        cross_entropy(logits.float(), batch["shift_labels"].to(model.device)).backward()

    return step


def sweep_training(workload: Workload, sweeps: dict[str, Sequence[float]], steps: int) -> Iterator[dict[str, Any]]:
    peft = workload.methods["lora"]["peft"]
    base = workload.base("lora")
    vocabulary = base.config.vocab_size
    for quantity, values in sweeps.items():
        for value in values:
            point = COMMON | {quantity: value}
            # The last token is only ever a target, and the completion has a token more that no row shares.
            prefix = min(round(point["prefix_share"] * point["length"]), point["length"] - 3)
            rows = random_rows(point["batch"], point["length"], prefix, vocabulary)
            model = models.add_adapter(base, {**peft, "r": point["rank"]}, seed=1)
            for side in (OURS, PLAIN):
                step = training_steps(model, ragged=side == OURS)
                speed = len(rows) / _seconds(lambda step=step, rows=rows: step(rows), steps, workload.device)
                yield {"quantity": quantity, "value": value, "side": side, "examples_per_second": speed}
            lora.remove(model)
            last_layer.remove(model)
            base = model.unload()


def sweep_labels(workload: Workload, counts: Sequence[int], repeats: int) -> Iterator[dict[str, Any]]:
    """Likelihood of two-token labels, half of which share their first token with another; ours and the loop's."""
    base = workload.base("lora")
    rows = random_rows(ASKED_ROWS, COMMON["length"], COMMON["length"] // 2, base.config.vocab_size)
    prompts = [row.ids[: row.prompt_length] for row in rows]
    for count in counts:
        labels = [[10 + label // 2, 20 + label] for label in range(count)]
        for side, engine in ((OURS, answers), (PLAIN, plain)):
            asked = prompts if side == OURS else prompts[:2]  # the loop's rows do not help each other
            seconds = _seconds(
                lambda engine=engine, labels=labels, asked=asked: engine.label_log_probabilities(base, asked, labels),
                repeats,
                workload.device,
            )
            yield {
                "quantity": "labels",
                "value": count,
                "side": side,
                "examples_per_second": len(asked) / seconds,
            }


def _seconds(action: Callable[[], Any], repeats: int, device: torch.device) -> float:
    """The shortest of `repeats` runs."""
    shortest = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def draw(figures: pd.DataFrame, folder: Path) -> None:
    """One figure for each quantity: what ours and the plain path do a second."""
    import matplotlib
    import seaborn

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    seaborn.set_theme(context="paper", style="whitegrid", palette="colorblind")
    for quantity, rows in figures.groupby("quantity", sort=False):
        figure, axes = plt.subplots(figsize=(3.4, 2.6), layout="constrained")
        seaborn.lineplot(
            rows, x="value", y="examples_per_second", hue="side", style="side", markers=True, dashes=False, ax=axes
        )
        axes.set(xlabel=TITLES[quantity], ylabel="Examples per second", ylim=(0, None))
        if quantity != "prefix_share":
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
            axes.set_xticks(sorted(rows["value"].unique()))
            axes.minorticks_off()
        axes.legend(title=None)
        for kind in ("png", "svg"):
            figure.savefig(folder / f"scaling_{quantity}.{kind}", dpi=300)
        plt.close(figure)


def measure(workload: Workload, folder: Path, steps: int, sweeps=SWEEPS, labels=LABELS) -> pd.DataFrame:
    folder.mkdir(parents=True, exist_ok=True)
    figures = pd.DataFrame([*sweep_training(workload, sweeps, steps), *sweep_labels(workload, labels, steps)])
    figures.to_csv(folder / "scaling.csv", index=False)
    draw(figures, folder)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(), help="the folder that holds results/")
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--steps", type=int, default=3, help="steps of each point; the fastest counts")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    set_up(args.threads)
    figures = measure(sentiment(args.results), args.output, args.steps)
    table = figures.pivot(index=["quantity", "value"], columns="side", values="examples_per_second")
    table["times"] = table[OURS] / table[PLAIN]
    print(table.reindex(list(TITLES), level="quantity").to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    run_script(main)
