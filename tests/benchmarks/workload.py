"""What all contenders work on: the rows, the model and the adapters of the `sentiment` experiment."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from reprolora import models
from reprolora.configuration import load_configuration
from reprolora.files import read_jsonl
from reprolora.plan import Arm, evaluate_adapter_settings, train_adapter_settings
from reprolora.precision import choose_precision
from reprolora.prompts import EncodedRow, PromptEncoder

ROOT = Path(__file__).parents[2]
EXPERIMENT, MODEL = "sentiment", "smollm2-135m"
FILES = (
    f"results/models/{MODEL}/manifest.json",
    *(f"results/{EXPERIMENT}/splits/seed1/{split}.jsonl" for split in ("train", "test")),
)


def set_up(threads: int) -> None:
    """Compute with this number of threads, and let only the benchmark speak."""
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    logging.captureWarnings(True)


@dataclass
class Workload:
    """A model's folder, rows {"id", "text", "label"}, and the settings of the arms.

    `settings` has what the workflow gives to train_adapter and evaluate_adapter: labels, prompt, training, evaluation;
    `methods` has peft and quantization of each method.
    """

    folder: Path
    train: list[dict[str, str]]
    test: list[dict[str, str]]
    settings: Mapping[str, Any]
    methods: Mapping[str, Mapping[str, Any]]
    precision: str
    device: torch.device

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return models.load_tokenizer(self.folder)

    @cached_property
    def encoder(self) -> PromptEncoder:
        return PromptEncoder(self.tokenizer, self.settings["prompt"])

    def encode(self, rows: Sequence[Mapping[str, str]]) -> list[EncodedRow]:
        return [self.encoder.encode(row["text"], row["label"]) for row in rows]

    def batches(self, count: int, number: int) -> list[dict[str, str]]:
        """The training rows of `count` optimizer steps; each `number` gives others, as long as there are any."""
        size = count * self.settings["training"]["batch_size"]
        start = number * size % max(1, len(self.train) - size + 1)
        return self.train[start : start + size]

    def base(self, method: str, precision: str | None = None) -> PreTrainedModel:
        quantization = self.methods[method]["quantization"]
        return models.load_base(self.folder, precision or self.precision, self.device, quantization)

    def adapted(self, method: str, precision: str | None = None) -> PeftModel:
        return models.add_adapter(self.base(method, precision), self.methods[method]["peft"], seed=1)


def sentiment(results: Path = Path()) -> Workload:
    """The workload that the workflow's files under `results` make."""
    manifest, train, test = (results / file for file in FILES)
    configuration, _ = load_configuration(ROOT)
    settings, methods = {}, {}
    for method in ("lora", "qlora"):
        arm = Arm(EXPERIMENT, MODEL, f"{method}-dropout", seed=1)  # the tutorials' adapters
        asked = train_adapter_settings(configuration, arm)
        methods[method] = asked.pop("method")
        settings = asked | evaluate_adapter_settings(configuration, arm)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Workload(
        models.model_folder(manifest),
        list(read_jsonl(train)),
        list(read_jsonl(test)),
        settings,
        methods,
        choose_precision("auto", device)["chosen"],
        device,
    )
