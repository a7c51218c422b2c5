"""What stands behind a number: figures, downloads, links to files, versions and checksums."""

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from reprolora.arms import KEY
from reprolora.errors import UserError
from reprolora.report.results import Results
from reprolora.report.sources import Sources
from reprolora.report.wording import full_name

# A larger table is linked, not put into the page.
LARGEST_DOWNLOAD = 2_000_000
# Points; a figure of a paper's column is narrower.
WIDE = 300
PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "statsmodels", "matplotlib", "seaborn", "jinja2")


def figure_blocks(
    files: Iterable[Path], captions: Mapping[str, tuple[str, str]], link: Callable[[Path], str]
) -> dict[str, dict]:
    """Each figure by name: a data URI, its caption, and its other files."""
    by_name: dict[str, dict[str, Path]] = {}
    for file in files:
        by_name.setdefault(file.stem, {})[file.suffix.lstrip(".")] = file
    blocks = {}
    for name, formats in by_name.items():
        if name not in captions or formats.keys() != {"png", "svg", "csv"}:
            raise UserError(
                f"--figures: {name} is no figure that the report knows, or one of its three files is missing"
            )
        title, caption = captions[name]
        width = re.search(r'<svg[^>]* width="([\d.]+)pt"', formats["svg"].read_text(encoding="utf-8"))
        blocks[name] = {
            "name": name,
            "title": title,
            "caption": caption,
            "source": _data_uri(formats["svg"], "image/svg+xml"),
            "wide": bool(width) and float(width[1]) > WIDE,
            "csv": download(formats["csv"], link),
            "files": {kind: link(formats[kind]) for kind in ("png", "svg")},
        }
    return blocks


def download(file: Path, link: Callable[[Path], str]) -> dict:
    """A link that gives the file: from within the page, or where it lies when it is large."""
    small = file.stat().st_size <= LARGEST_DOWNLOAD
    return {"name": file.name, "href": _data_uri(file, "text/csv") if small else link(file), "path": link(file)}


def _data_uri(file: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode('ascii')}"


def linker(output: Path) -> Callable[[Path], str]:
    """What makes a file's path into a link from the page."""
    return lambda file: Path(os.path.relpath(file, output.parent)).as_posix()


def versions(results: Results) -> list[dict]:
    """The software of the trainings (each set of versions once, with the arms that had it) and of the analysis."""
    sets: dict[str, dict] = {}
    for training in results.trainings:
        key = json.dumps(training["versions"], sort_keys=True)
        sets.setdefault(key, {"what": [], "versions": training["versions"]})["what"].append(full_name(training["arm"]))
    rows = [
        {"what": "Training" + ("" if len(sets) == 1 else f" of {', '.join(entry['what'])}"), **entry["versions"]}
        for entry in sets.values()
    ]
    result = [{"what": row.pop("what"), "versions": row} for row in rows]
    return [*result, {"what": "Analysis", "versions": {name: metadata.version(name) for name in PACKAGES}}]


def checksums(results: Results) -> list[dict]:
    """The sha256 of the data, of the splits, of the base models and of the adapters."""
    rows = []
    for file in source_files(results):
        for key, what in (("sha256", "downloaded file"), ("raw_sha256", "data file")):
            if file.get(key):
                rows.append({"what": f"Data ({file['part']}), {what}", "sha256": file[key]})
    rows += [{"what": f"Rows of {name}", "sha256": digest} for name, digest in results.split_digests.items()]
    for model, manifest in results.models.items():
        for name, file in manifest["files"].items():
            rows.append({"what": f"{model}, {name}", "sha256": file["sha256"]})
    for training in results.trainings:
        rows.append({"what": f"Adapter of {full_name(training['arm'])}", "sha256": training["adapter_sha256"]})
    return rows


def links(results: Results, sources: Sources, link: Callable[[Path], str]) -> dict[str, Any]:
    """The file that each number is from; those of arms by model, method and seed."""

    def of_arms(contents: Iterable[Mapping], files: Iterable[Path]) -> dict[tuple, str]:
        return {
            tuple(content["arm"][key] for key in KEY): link(file) for content, file in zip(contents, files, strict=True)
        }

    return {
        "metrics": of_arms(results.metrics, sources.metrics),
        "training": of_arms(results.trainings, sources.training),
        "failures": of_arms(results.failures, sources.failures),
        "prompts": {file.parent.name: link(file) for file in sources.prompts},
        "models": {file.parent.name: link(file) for file in sources.models},
        "dataset": link(sources.dataset),
        "split": link(sources.split),
    }


def with_files(rows: Iterable[dict], files: Mapping[tuple, str]) -> list[dict]:
    """Rows of scores, each with the `file` that its numbers are from; None where several seeds are pooled."""
    linked = []
    for row in rows:
        found = [
            file
            for (model, method, seed), file in files.items()
            if (model, method) == (row["model"], row["method"]) and row.get("seed", seed) == seed
        ]
        linked.append(row | {"file": found[0] if len(found) == 1 else None})
    return linked


def source_files(results: Results) -> list[dict]:
    """Where the data come from: files, or the archive or folder that documents are in."""
    documents = results.settings["dataset"].get("documents")
    files = {"documents": documents} if documents else results.dataset["files"]
    return [{"part": part, **file} for part, file in files.items()]
