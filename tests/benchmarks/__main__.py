"""Measure the engine against what a user would otherwise run: `make bench`.

Reads the model and the rows of the `sentiment` experiment (made by the workflow). Writes engine.json, flat, and prints
it as a table. Figures are ratios of paired repeats: each side trains on, or answers, the same rows in turn. Ends with
an error when the sides do not compute the same; a figure that misses its mark is only said.
"""

import argparse
import os
from pathlib import Path

from benchmarks import answering, frameworks, memory, training
from benchmarks.report import Report
from benchmarks.workload import sentiment, set_up
from reprolora.errors import run_script

PARTS = ("training", "answering", "memory", "frameworks")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(), help="the folder that holds results/")
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--steps", type=int, default=2, help="timed optimizer steps of one repeat")
    parser.add_argument("--curve-steps", type=int, default=training.CURVE_STEPS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=128, help="test rows of one repeat")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    set_up(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    workload = sentiment(args.results)
    report = Report(workload.device)
    output = args.output / "engine.json"
    if {"training", "answering"} & set(args.parts):
        model = training.compare_curves(workload, report, args.curve_steps)
    # After each part, so that one which is interrupted costs no other's figures.
    if "training" in args.parts:
        training.measure(workload, report, args.steps, args.repeats)
        report.write(output)
    if "answering" in args.parts:
        answering.measure(workload, report, model, args.rows, args.repeats)
        report.write(output)
    if "memory" in args.parts:
        memory.measure(workload, report, args.results, args.output)
        report.write(output)
    if "frameworks" in args.parts:
        frameworks.measure(workload, report, args.output / "venvs", args.output, args.steps, args.repeats)
        report.write(output)
    print(f"\n{report.table()}\n\n{output}")


if __name__ == "__main__":
    run_script(main)
