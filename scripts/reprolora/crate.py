"""The RO-Crate of an experiment: what its results are, what made them, and from what, for machines to read.

In the terms of the Process Run Crate profile: the run is an action of Reprolora on the data and the base models,
and the files are its results. Nothing in it is of the moment of writing, so the same results give the same crate.
"""

import mimetypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocrate.model import ContextEntity
from rocrate.rocrate import ROCrate

from reprolora.files import read_json, sha256_of

SPECIFICATION = "1.3"
# What the files of a run are, by the end of their path.
DESCRIPTIONS = {
    "report.html": "The report: question, answer, results, figures, settings",
    "references.bib": "BibTeX entries of the data, models, methods and software that were used",
    "tables/metrics.csv": "Scores of every arm with 95 % intervals",
    "tables/answers.csv": "Every answer before fine-tuning and after, side by side, with its scores",
    "tables/comparison.csv": "Paired tests of every two arms",
    "tables/resources.csv": "Memory, time, energy and cost of every arm",
    "predictions.jsonl": "Every answer of the arm, with its raw text",
    "metrics.json": "Scores of the arm",
    "training.json": "What was asked for, and what was really trained",
    "training_log.jsonl": "Loss and learning rate of the steps",
    "resources_train.json": "Time, memory and energy of the training",
    "resources_evaluate.json": "Time, memory and energy of the evaluation",
    "failure.json": "Why the arm failed",
    "prompts.json": "What the model is asked, and how long the prompts are",
    "adapter/README.md": "The adapter's model card",
    "adapter/adapter_model.safetensors": "The adapter's weights",
    "adapter/adapter_config.json": "The adapter's configuration",
    "summary.json": "How many rows of each label are in each split",
}
# Types that the standard library does not know.
TYPES = {
    ".jsonl": "application/jsonl",
    ".safetensors": "application/octet-stream",
    ".bib": "application/x-bibtex",
    ".md": "text/markdown",
    ".jinja": "text/plain",
}


@dataclass(frozen=True)
class Sources:
    """The files that a crate is made of."""

    files: Sequence[Path]  # what is in the crate, in the folder of the crate or below
    resources: Sequence[Path]  # of those, the resources_*.json, which say when the work was done
    dataset: Path  # the dataset's manifest
    models: Sequence[Path]  # the manifest in each model's folder


def crate_metadata(settings: Mapping[str, Any], software: Mapping[str, Any], sources: Sources, folder: Path) -> dict:
    """The content of ro-crate-metadata.json.

    Args:
        settings: the entries `experiment`, `dataset` and `models` of the configuration.
        software: the content of CITATION.cff.
        sources: the files.
        folder: the crate's folder; paths in the crate start there.
    """
    crate = ROCrate(version=SPECIFICATION)
    experiment, dataset = settings["experiment"], settings["dataset"]
    started = sorted(filter(None, (read_json(file).get("started") for file in sources.resources)))

    def entity(of: str, kind: str, **properties: Any) -> ContextEntity:
        known = {key: value for key, value in properties.items() if value is not None}
        return crate.add(ContextEntity(crate, of, properties={"@type": kind} | known))

    authors = [
        entity(f"#author-{number}", "Organization", name=_author(author))
        for number, author in enumerate(software["authors"], start=1)
    ]
    licence = entity(
        "#licence",
        "CreativeWork",
        name=dataset["license"],
        description="The predictions quote the rows of the data, so the licence of the data holds for them. "
        + " ".join(f"Adapters are used with {name}: {model['license']}." for name, model in settings["models"].items()),
    )
    tool = entity(
        "#reprolora",
        "SoftwareSourceCode",
        name="Reprolora",
        description=software["title"],
        version=software["version"],
        license={"@id": f"https://spdx.org/licenses/{software['license']}"},
        url=software.get("repository-code"),
    )
    entity(f"https://spdx.org/licenses/{software['license']}", "CreativeWork", name=software["license"])
    tool["author"] = authors
    documents = dataset.get("documents")
    originals = [documents] if documents else read_json(sources.dataset)["files"].values()
    data = entity(
        "#dataset",
        "CreativeWork",
        name=experiment["dataset"],
        description=dataset["description"],
        license=dataset["license"],
        url=dataset["url"],
        identifier=[f"sha256:{file[key]}" for file in originals for key in ("sha256", "raw_sha256") if file.get(key)],
    )
    models = [
        entity(
            f"#model-{name}",
            "CreativeWork",
            name=name,
            description=f"{model['description']} ({model['source']})",
            license=model["license"],
            identifier=[
                f"sha256:{file['sha256']}"
                for manifest in sources.models
                if manifest.parent.name == name
                for file in read_json(manifest)["files"].values()
            ],
        )
        for name, model in settings["models"].items()
    ]
    files = [_add_file(crate, file, folder) for file in sorted(set(sources.files))]
    run = crate.add_action(
        tool,
        identifier="#run",
        object=[data, *models],
        result=files,
        properties={
            "name": f"Run of the experiment {experiment['name']}",
            "description": experiment["question"],
            "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
        },
    )
    run["agent"] = authors
    root = crate.root_dataset
    root["name"] = experiment["title"]
    root["description"] = f"{experiment['question']} Results of the experiment {experiment['name']} of Reprolora."
    root["license"] = licence
    root["author"] = authors
    root["publisher"] = authors
    root["mentions"] = run
    # A crate must have a date; where every arm failed, nothing was published on any.
    root["datePublished"] = "1970-01-01"
    if started:
        run["startTime"], run["endTime"] = started[0], started[-1]
        root["datePublished"] = started[-1][:10]
    metadata = crate.metadata.generate()
    for properties in metadata["@graph"]:
        for key, value in properties.items():
            if isinstance(value, list) and len(value) == 1:
                properties[key] = value[0]  # as compacted JSON-LD has it
    return metadata


def _add_file(crate: ROCrate, file: Path, folder: Path):
    path = Path(os.path.relpath(file, folder))
    what = next((text for end, text in DESCRIPTIONS.items() if path.as_posix().endswith(end)), None)
    kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    properties = {
        "name": path.as_posix(),
        "encodingFormat": kind,
        "contentSize": str(file.stat().st_size),
        "sha256": sha256_of(file),
    }
    return crate.add_file(dest_path=path, properties=properties | ({"description": what} if what else {}))


def _author(author: Mapping[str, str]) -> str:
    return author.get("name") or f"{author['given-names']} {author['family-names']}"
