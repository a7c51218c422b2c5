"""What goes into a repository on a hub: the files, a card, the licences, and a list of checksums, in a folder."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import DatasetCardData, ModelCardData

from reprolora.files import read_json, sha256_of, write_json, write_text
from reprolora.licences import card_licence
from reprolora.sources import parse_source
from reprolora.splits import SPLITS

CHECKSUMS = "checksums.sha256"
TEMPLATES = Path(__file__).parent / "templates"


def stage(publication: Mapping[str, Any], folder: Path) -> None:
    """Lay out a repository's files in `folder`, as they will be uploaded; large ones are links to where they lie.

    Args:
        publication: {"repository", "what", "experiment", "dataset", and for all but a dataset "model"}, and "files",
            the paths by what they are; `plan.publication_settings` has the rest.
        folder: made anew.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = publication["files"]
    if publication["what"] == "dataset":
        for split in SPLITS:
            _link(files[split], folder / f"{split}.jsonl")
        write_text(folder / "README.md", _dataset_card(publication))
    elif publication["what"] == "adapter":
        for file in files["adapter"]:
            _link(file, folder / Path(file).name)
        configuration = folder / "adapter_config.json"
        content = read_json(configuration)
        configuration.unlink()
        write_json(configuration, content | _base_on_hub(publication["model"]["source"]))
        _link(files["card"], folder / "README.md")
    else:
        for name in read_json(files["manifest"])["files"]:
            _link(Path(files["manifest"]).parent / name, folder / name)
        _link(files["card"], folder / "ADAPTER.md")
        write_text(folder / "README.md", _model_card(publication))
    write_text(folder / "LICENSE", _licences(publication))
    sums = [f"{sha256_of(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    write_text(folder / CHECKSUMS, "".join(sums))


def _link(file: str | Path, place: Path) -> None:
    place.symlink_to(os.path.relpath(file, place.parent))


def _base_on_hub(source: str) -> dict[str, str | None]:
    """Where PEFT finds the base model; nothing for one that came from a folder of the machine that trained."""
    parsed = parse_source(source)
    if parsed.kind == "hf":
        return {"base_model_name_or_path": parsed.name, "revision": parsed.version}
    return {"base_model_name_or_path": None if parsed.kind == "file" else source}


def _licences(publication: Mapping[str, Any]) -> str:
    lines = []
    for of in ("dataset", "model"):
        if entry := publication.get(of):
            lines.append(f"{of.capitalize()} {entry['name']} ({_one_line(entry['description'])}): {entry['license']}")
    source = {"dataset": "rows", "adapter": "adapter"}.get(publication["what"], "model")
    lines.append(f"\nThe {source} in this repository may be used as these licences say.")
    lines.append("Texts of licences with an SPDX identifier: https://spdx.org/licenses/")
    return "\n".join(lines) + "\n"


def _render(template: str, **values: Any) -> str:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=jinja2.FileSystemLoader(TEMPLATES),
    )
    return environment.get_template(template).render(values)


def _dataset_card(publication: Mapping[str, Any]) -> str:
    dataset, summary = publication["dataset"], read_json(publication["files"]["summary"])
    rows = sum(summary["rows"].values())
    data = DatasetCardData(
        **card_licence(dataset["license"]),
        pretty_name=dataset["name"],
        task_categories=["text-classification" if dataset.get("labels") else "text-generation"],
        size_categories=[_size_category(rows)],
        configs=[
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": f"{split}.jsonl"} for split in SPLITS],
            }
        ],
    )
    return _render(
        "published_dataset.md.jinja",
        card_data=data.to_yaml(),
        experiment=_told(publication["experiment"]),
        dataset=_told(dataset),
        labels=dataset.get("labels") or [],
        summary=summary,
        splits=SPLITS,
    )


def _size_category(rows: int) -> str:
    """The hub's word for how many rows a dataset has."""
    ends = [("1K", 1_000), ("10K", 10_000), ("100K", 100_000), ("1M", 1_000_000)]
    below = "n<1K"
    for (name, end), (following, _) in zip(ends, [*ends[1:], ("10M", 0)], strict=True):
        if rows >= end:
            below = f"{name}<n<{following}"
    return below


def _model_card(publication: Mapping[str, Any]) -> str:
    model, what, files = publication["model"], publication["what"], publication["files"]
    source = parse_source(model["source"])
    data = ModelCardData(
        **card_licence(model["license"]),
        base_model=source.name if source.kind == "hf" else None,
        library_name="gguf" if what == "gguf" else "transformers",
        pipeline_tag="text-generation",
        model_name=publication["repository"].partition("/")[2],
    )
    return _render(
        "published_model.md.jinja",
        card_data=data.to_yaml(),
        name=publication["repository"].partition(":")[2],
        library="transformers" if publication["repository"].startswith("hf:") else "modelscope",
        what=what,
        experiment=_told(publication["experiment"]),
        model=_told(model),
        dataset=_told(publication["dataset"]),
        manifest=read_json(files["manifest"]),
        changes=read_json(files["changes"]),
    )


def _told(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with its texts in one line each, but for a citation."""
    return {
        key: _one_line(value) if isinstance(value, str) and key != "citation" else value for key, value in entry.items()
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())


def listing(publication: Mapping[str, Any], files: Sequence[Path]) -> str:
    """What is in a staged folder, for a reader to check before it is uploaded."""
    licences = [publication[of]["license"] for of in ("dataset", "model") if publication.get(of)]
    lines = [
        f"{publication['repository']}: {publication['what']}, {'private' if publication['private'] else 'public'}, "
        f"licence {' and '.join(dict.fromkeys(licences))}"
    ]
    lines += [f"  {path.stat().st_size:>13,}  {sha256_of(path)}  {path.name}" for path in files]
    return "\n".join(lines)
