"""Peak memory of training, each side in a process of its own.

    python -m benchmarks.memory --results . --side ours|plain --method lora|qlora [--model FOLDER]

prints what that process took, as JSON. The large model is a Llama of 1.2 billion random parameters with a small
vocabulary, so that the base dominates.
"""

import argparse
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers

from benchmarks import training
from benchmarks.report import Report
from benchmarks.workload import Workload, sentiment, set_up
from reprolora.measure import Meter
from reprolora.prompts import EncodedRow

STEPS = 2
VOCABULARY = 1024
LARGE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 20,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}
LARGE_BATCH, LARGE_ROW = 4, 40


def measure(workload: Workload, report: Report, results: Path, scratch: Path) -> None:
    def peaks(side: str, method: str, *options: str) -> dict[str, int]:
        command = [
            sys.executable,
            "-m",
            "benchmarks.memory",
            "--results",
            results,
            "--threads",
            torch.get_num_threads(),
        ]
        command += ["--side", side, "--method", method, *options]
        done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout.splitlines()[-1])

    def compare(size: str, lora: dict, qlora: dict) -> None:
        for method, record in (("lora", lora), ("qlora", qlora)):
            for phase in ("load", "train"):
                report.note(f"{method}_{phase}_peak_bytes_{size}", record[f"{phase}_peak_bytes"])
        report.add(f"qlora_memory_saving_{size}", [1 - qlora["train_peak_bytes"] / lora["train_peak_bytes"]])
        report.add(f"qlora_load_memory_saving_{size}", [1 - qlora["load_peak_bytes"] / lora["load_peak_bytes"]])

    mine, plain = peaks("ours", "lora"), peaks("plain", "lora")
    report.add("peak_memory_vs_plain", [mine["train_peak_bytes"] / plain["train_peak_bytes"]])
    report.note("plain_train_peak_bytes_small", plain["train_peak_bytes"])
    compare("small", mine, peaks("ours", "qlora"))
    with TemporaryDirectory(dir=scratch) as folder:
        make_large(Path(folder))
        compare("large", *(peaks("ours", method, "--model", folder) for method in ("lora", "qlora")))


def make_large(folder: Path) -> None:
    """Save the large model, in bf16, which any precision is loaded from."""
    config = transformers.LlamaConfig(**LARGE)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


def random_rows(count: int, length: int, prefix: int, vocabulary: int, seed: int = 0) -> list[EncodedRow]:
    """Rows of `length` tokens whose first `prefix` are the same and whose last two are the completion."""
    draw = random.Random(seed)
    shared = [draw.randrange(3, vocabulary) for _ in range(prefix)]
    rows = []
    for row in range(count):
        own = [3 + row % (vocabulary - 3), *(draw.randrange(3, vocabulary) for _ in range(length - prefix - 1))]
        rows.append(EncodedRow(shared + own, length - 2))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, required=True, help="the folder that holds results/")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--side", choices=("ours", "plain"), required=True)
    parser.add_argument("--method", choices=("lora", "qlora"), required=True)
    parser.add_argument("--model", type=Path, help="a large model; its rows are random")
    args = parser.parse_args()
    set_up(args.threads)
    workload = sentiment(args.results)
    rows: list[Any] = workload.batches(STEPS, 0)
    if args.model:
        rows = random_rows(STEPS * LARGE_BATCH, LARGE_ROW, LARGE_ROW // 2, VOCABULARY)
        small_batches = workload.settings["training"] | {"batch_size": LARGE_BATCH}
        workload = replace(workload, folder=args.model, settings={**workload.settings, "training": small_batches})
        workload.tokenizer = sentiment(args.results).tokenizer
    meter = Meter(workload.device, args.threads)
    with meter.phase("load"):
        model = workload.adapted(args.method)
    with meter.phase("train"):
        training.ours(workload, args.method, rows, ragged=args.side == "ours", model=model)
    print(json.dumps(meter.record))


if __name__ == "__main__":
    main()
