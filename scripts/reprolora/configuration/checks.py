"""What no section sees by itself: names that point elsewhere, splits against datasets, files that are missing."""

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from reprolora.configuration.datasets import Dataset
from reprolora.configuration.experiments import HIGH_LEARNING_RATE, Experiment
from reprolora.configuration.faults import Fault, KeyPath, did_you_mean
from reprolora.configuration.instructions import InstructionDataset
from reprolora.configuration.models import CLASSICAL
from reprolora.configuration.sections import value_at
from reprolora.configuration.variants import SweepError
from reprolora.configuration.whole import Configuration
from reprolora.licences import is_licence
from reprolora.sources import parse_source

REPOSITORY = r"(hf|modelscope):[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*"
# The keys of an experiment that only one task reads; with the other, they have to be as they are by default.
KEYS_OF_TASK = {
    "classification": ("audit", "prompt.user", "evaluation", "sweep", "learning_curve"),
    "instruction": ("split.group", "prompt.template", "answers"),
}


def cross_faults(configuration: Configuration, root: Path) -> list[Fault]:
    """The faults of a configuration whose sections are right; those of variants when there are no others."""
    faults = list(_main_faults(configuration, root))
    for name in configuration.experiment:
        faults += _experiment_faults(configuration, name, root)
    return faults or _variant_faults(configuration)


def _unknown(path: KeyPath, name: str, known: Iterable[str], what: str) -> Iterator[Fault]:
    known = list(known)
    if name not in known:
        choices = did_you_mean(name, known) or (f"; known are {', '.join(known)}" if known else "")
        yield Fault(path=path, message=f"no {what} {name!r}{choices}")


def _missing(path: KeyPath, place: str, root: Path, what: str) -> Iterator[Fault]:
    exists = {"file": Path.is_file, "folder": Path.is_dir, "file or folder": Path.exists}[what]
    if not exists(root / place):
        yield Fault(path=path, message=f"no {what} {place!r} (paths start at the Snakefile's folder)")


def _missing_source(path: KeyPath, source: str, root: Path, what: str) -> Iterator[Fault]:
    parsed = parse_source(source)
    if parsed.kind == "file":
        yield from _missing(path, parsed.name, root, what)


def _catalogue(experiment: Experiment) -> str:
    """The key of the catalogue that has the experiment's dataset."""
    return "instructions" if experiment.task == "instruction" else "datasets"


def _main_faults(configuration: Configuration, root: Path) -> Iterator[Fault]:
    """What is wrong with the keys of config.yaml, and with the names of models."""
    files = {file.stem for file in (root / "config/experiments").glob("*.yaml")}
    for number, name in enumerate(configuration.experiments):
        yield from _unknown(("experiments", number), name, sorted(files | set(configuration.experiment)), "experiment")
    if len(set(configuration.experiments)) < len(configuration.experiments):
        yield Fault(path=("experiments",), message="an experiment stands twice")
    yield from _unknown(("hardware",), configuration.hardware, configuration.hardware_catalogue, "hardware")
    offered = [
        repository
        for name in configuration.experiments
        if name in configuration.experiment
        for repository in configuration.experiment[name].publish
    ]
    for number, repository in enumerate(configuration.upload):
        if repository not in offered:
            near = did_you_mean(repository, offered) or "; name it under `publish` in the experiment's file"
            yield Fault(path=("upload", number), message=f"no chosen experiment publishes {repository!r}{near}")
    # Hubs take names in capitals for the same.
    names = [repository.lower() for repository in offered]
    for twin in dict.fromkeys(name for number, name in enumerate(names) if name in names[:number]):
        message = f"several publications of the chosen experiments name {twin!r}; give each a repository of its own"
        yield Fault(path=("experiments",), message=message)
    if CLASSICAL in configuration.models:
        message = f"{CLASSICAL!r} is the folder of arms without a language model; rename this one"
        yield Fault(path=("models", CLASSICAL), message=message)


def _experiment_faults(configuration: Configuration, name: str, root: Path) -> Iterator[Fault]:
    experiment, at = configuration.experiment[name], ("experiment", name)
    catalogue = getattr(configuration, _catalogue(experiment))
    yield from _unknown((*at, "dataset"), experiment.dataset, catalogue, "dataset")
    for key in ("models", "methods"):
        for number, entry in enumerate(getattr(experiment, key)):
            yield from _unknown((*at, key, number), entry, getattr(configuration, key), key.removesuffix("s"))
    needing = [m for m in experiment.methods if m in configuration.methods and configuration.methods[m].needs_model]
    if needing and not experiment.models:
        yield Fault(path=(*at, "models"), message=f"names no model, but the method {needing[0]!r} needs one")
    yield from _task_faults(configuration, name)
    if dataset := configuration.instructions.get(experiment.dataset if experiment.task == "instruction" else ""):
        yield from _split_faults(at, experiment, dataset)
        yield from _instruction_faults(configuration, experiment, root)
        yield from _judge_faults(configuration, name, root)
    elif dataset := configuration.datasets.get(experiment.dataset):
        yield from _split_faults(at, experiment, dataset)
        for part, file in dataset.files.parts.items():
            place = ("datasets", experiment.dataset, "files", part, "source")
            yield from _missing_source(place, file.source, root, "file")
    yield from _publishing_faults(at, configuration, name)
    for model in experiment.models:
        if model in configuration.models:
            yield from _missing_source(("models", model, "source"), configuration.models[model].source, root, "folder")


def _task_faults(configuration: Configuration, name: str) -> Iterator[Fault]:
    """Keys and methods that are not for the experiment's task."""
    experiment = configuration.experiment[name]
    default = Experiment(title="x", question="x", dataset="x", methods=["x"])
    for task, keys in KEYS_OF_TASK.items():
        for key in keys if task != experiment.task else ():
            if value_at(experiment, key) != value_at(default, key):
                path = ("experiment", name, *key.split("."))
                yield Fault(path=path, message=f"is for the task {task}; remove this key")
    for number, method in enumerate(experiment.methods if experiment.task == "instruction" else ()):
        entry = configuration.methods.get(method)
        if entry and (entry.shots or not entry.needs_model):
            message = f"{method!r} needs labels, which instructions do not have; use zero-shot and methods that train"
            yield Fault(path=("experiment", name, "methods", number), message=message)


def _split_faults(at: KeyPath, experiment: Experiment, dataset: Dataset | InstructionDataset) -> Iterator[Fault]:
    split = experiment.split
    if dataset.fixed_splits:
        refused = ["train", "test"] + (["validation"] if dataset.files.validation else [])
        for key in refused:
            if getattr(split, key) is not None:
                message = f"the dataset {experiment.dataset!r} has its own {key} rows; remove this key"
                yield Fault(path=(*at, "split", key), message=message)
        if not dataset.files.validation and split.validation is None:
            message = f"is missing: the dataset {experiment.dataset!r} has no validation rows"
            message += ", so say which share of its training rows to take"
            yield Fault(path=(*at, "split", "validation"), message=message)
        return
    missing = [key for key in ("train", "validation", "test") if getattr(split, key) is None]
    for key in missing:
        message = f"is missing: the dataset {experiment.dataset!r} has no fixed splits"
        yield Fault(path=(*at, "split", key), message=message)
    if not missing and not math.isclose(total := split.train + split.validation + split.test, 1, abs_tol=1e-6):
        yield Fault(path=(*at, "split"), message=f"train, validation and test add up to {total:g}, not to 1")


def _instruction_faults(configuration: Configuration, experiment: Experiment, root: Path) -> Iterator[Fault]:
    at: KeyPath = ("instructions", experiment.dataset)
    dataset = configuration.instructions[experiment.dataset]
    if experiment.dataset in configuration.datasets:
        yield Fault(path=at, message="is the name of a dataset in config/datasets.yaml too; rename one")
    for part, file in dataset.sources.items():
        place = (*at, "documents", "source") if dataset.documents else (*at, "files", part, "source")
        yield from _missing_source(place, file.source, root, "file or folder")
    # The file of decisions is there only once somebody has decided.
    if dataset.review and dataset.review.decisions and (root / dataset.review.decisions).is_dir():
        message = f"{dataset.review.decisions!r} is a folder; name the file that the decisions will be in"
        yield Fault(path=(*at, "review", "decisions"), message=message)
    named = [((*at, "chunks", "model"), dataset.chunks.model)] if dataset.chunks else []
    if dataset.generator.kind == "local":
        named.append(((*at, "generator", "model"), dataset.generator.model))
    for place, model in named:
        if model not in configuration.models:
            near = did_you_mean(model, configuration.models)
            yield Fault(path=place, message=f"no model {model!r} in config/models.yaml{near}")
    if dataset.chunks and dataset.chunks.model in configuration.models.keys() - set(experiment.models):
        message = f"counts tokens as {dataset.chunks.model!r} does, which the experiment does not use; name one it uses"
        yield Fault(path=(*at, "chunks", "model"), message=message)


def _judge_faults(configuration: Configuration, name: str, root: Path) -> Iterator[Fault]:
    experiment, at = configuration.experiment[name], ("experiment", name, "answers", "judge")
    if (judge := experiment.answers.judge) is None:
        return
    if configuration.method_before(name) is None:
        message = "compares with the answers before fine-tuning: name a method with baseline zero-shot too, or set null"
        yield Fault(path=at, message=message)
    if judge.labels:
        yield from _missing((*at, "labels"), judge.labels, root, "file")


def _publishing_faults(at: KeyPath, configuration: Configuration, name: str) -> Iterator[Fault]:
    """Exports that cannot be made, and publications that are of nothing or that no licence allows."""
    experiment = configuration.experiment[name]
    trained = [m for m in experiment.methods if m in configuration.methods and configuration.methods[m].trains]
    for number, method in enumerate(experiment.export.methods):
        place = (*at, "export", "methods", number)
        if method not in trained:
            message = f"{method!r} is no method of this experiment that trains weights{did_you_mean(method, trained)}"
            yield Fault(path=place, message=message)
        elif not configuration.methods[method].merges:
            kind = configuration.methods[method].peft["peft_type"]
            message = f"an adapter of type {kind} cannot be merged, since it changes no weights; remove {method!r}"
            yield Fault(path=place, message=message)
    arms = [f"{m}/{method}/seed{seed}" for m in experiment.models for method in trained for seed in experiment.seeds]
    catalogue = _catalogue(experiment)
    for repository, publication in experiment.publish.items():
        place = (*at, "publish", repository)
        if not re.fullmatch(REPOSITORY, repository):
            yield Fault(path=place, message="is no repository; write hf:OWNER/NAME or modelscope:OWNER/NAME")
        if publication.arm and publication.arm not in arms:
            near = did_you_mean(publication.arm, arms) or f"; there are {', '.join(arms[:3]) or 'none'}"
            yield Fault(path=(*place, "arm"), message=f"the experiment has no trained arm {publication.arm!r}{near}")
        elif publication.what in ("merged", "gguf") and publication.arm:
            method = publication.arm.split("/")[1]
            if not configuration.methods[method].merges:
                message = (
                    f"the adapter of {method!r} cannot be merged, since it changes no weights; publish the adapter"
                )
                yield Fault(path=(*place, "what"), message=message)
        licensed = [(catalogue, experiment.dataset)]
        if publication.arm:
            licensed.append(("models", publication.arm.split("/")[0]))
        for section, entry in licensed:
            known = getattr(configuration, section)
            if entry in known and not is_licence(known[entry].license):
                message = (
                    f"{known[entry].license!r} is no licence that says what others may do, so {repository} cannot be "
                    "published; write an SPDX identifier (LicenseRef-NAME for terms of your own)"
                )
                yield Fault(path=(section, entry, "license"), message=message)


def _variant_faults(configuration: Configuration) -> list[Fault]:
    """What is wrong with sweeps and learning curves, in a configuration that is right otherwise."""
    if faults := list(_misused_methods(configuration)):
        return faults
    try:
        _ = configuration.variants
    except SweepError as error:
        return error.faults
    return []


def _misused_methods(configuration: Configuration) -> Iterator[Fault]:
    for name, experiment in configuration.experiment.items():
        at: KeyPath = ("experiment", name)
        for key, fits, unfit in (
            ("sweep", lambda method: method.trains, "trains nothing, so there is nothing to sweep"),
            ("learning_curve", lambda method: method.learns, "learns nothing from more rows"),
        ):
            if (section := getattr(experiment, key)) is None:
                continue
            for number, method in enumerate(section.methods):
                if method not in experiment.methods:
                    message = f"{method!r} is not among the experiment's methods"
                    message += did_you_mean(method, experiment.methods)
                    yield Fault(path=(*at, key, "methods", number), message=message)
                elif not fits(configuration.methods[method]):
                    yield Fault(path=(*at, key, "methods", number), message=f"{method!r} {unfit}")
            if not any(fits(configuration.methods[method]) for method in experiment.methods):
                yield Fault(path=(*at, key), message="none of the experiment's methods can be used here; remove this")
        for number, rows in enumerate(experiment.learning_curve.rows if experiment.learning_curve else ()):
            if rows < len(labels := configuration.datasets[experiment.dataset].labels):
                message = f"{rows} rows are too few for {len(labels)} labels"
                yield Fault(path=(*at, "learning_curve", "rows", number), message=message)
        if both := sorted(set(configuration.swept_methods(name)) & set(configuration.curve_methods(name))):
            message = f"{both[0]!r} is swept too; give each its own `methods`, or draw the curve in another experiment"
            message += ", with the settings that the sweep chose"
            yield Fault(path=(*at, "learning_curve"), message=message)


def warnings(configuration: Configuration) -> Iterator[Fault]:
    """What is allowed and is mostly a mistake."""
    for name, experiment in configuration.experiment.items():
        rate = experiment.training.learning_rate
        if rate > HIGH_LEARNING_RATE:
            message = f"{rate:g} is above {HIGH_LEARNING_RATE:g}, the commonest reason for a loss that does not fall"
            yield Fault(path=("experiment", name, "training", "learning_rate"), message=message)
