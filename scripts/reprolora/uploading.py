"""Uploading a folder to a repository on a model hub, so that it can be done twice and says what it did.

A repository gets all files of the folder and has no others: one with other content is refused, one that has some of
the files already (an upload that broke off) gets the rest. What the hub lists afterwards is compared with the files.
The clients find the user's token themselves, in the environment or where their login left it.
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from reprolora.errors import UserError
from reprolora.files import sha256_of
from reprolora.hubs import HubFile, ModelScope, RepositoryKind, files_told, innermost_reason

# What hubs put into a new repository by themselves; README.md is then replaced by ours.
OF_THE_HUB = (".gitattributes", ".gitignore", "README.md", "configuration.json", "dataset_infos.json")
MESSAGE = "Upload with Reprolora"


@dataclass(frozen=True)
class State:
    """What a repository is like: its files by path, whether it is private, its newest commit if the hub tells."""

    files: Mapping[str, HubFile]
    private: bool
    commit: str | None


class Repository(Protocol):
    """A repository on a hub, which need not exist yet."""

    def check_login(self) -> None:
        """Raise UserError unless the hub knows the user."""

    def state(self) -> State | None:
        """What is there now; None where there is no repository."""

    def create(self, private: bool, licence: str) -> None: ...

    def upload(self, files: Sequence[Path]) -> None:
        """Put the files into the repository, under their names."""


def upload(where: str, kind: RepositoryKind, files: Sequence[Path], private: bool, licence: str) -> tuple[int, str]:
    """Bring the repository `where` (`hf:OWNER/NAME` or `modelscope:OWNER/NAME`) to hold exactly `files`.

    Returns:
        How many files were uploaded, and the source that names what is there now, with its commit where known.

    Raises:
        UserError: no access, a network that fails, or a repository that has other content or another visibility.
    """
    hub, _, name = where.partition(":")
    repository: Repository = REPOSITORIES[hub](name, kind)
    repository.check_login()
    before = repository.state()
    if before is None:
        repository.create(private, licence)
        before = repository.state() or State({}, private, None)
    if before.private != private:
        words = {True: "private", False: "public"}
        raise UserError(
            f"{where}: is {words[before.private]} on the hub, but the configuration says {words[private]}; change one"
        )
    ours = {path.name: path for path in files}
    held = {name: file for name, file in before.files.items() if name not in OF_THE_HUB}
    other = [name for name, file in held.items() if name not in ours or not is_same(file, ours[name])]
    if other:
        raise UserError(
            f"{where}: has other content already ({', '.join(sorted(other)[:3])}{', ...' if len(other) > 3 else ''}); "
            "publish to another repository, or delete these files there"
        )
    missing = [path for name, path in ours.items() if name not in before.files or not is_same(before.files[name], path)]
    if missing:
        repository.upload(missing)
    after = repository.state()
    if after is None or after.private != private:
        raise UserError(f"{where}: is not {'private' if private else 'public'} after the upload; look at it on the hub")
    damaged = [name for name, path in ours.items() if name not in after.files or not is_same(after.files[name], path)]
    if damaged:
        raise UserError(f"{where}: {damaged[0]} is not on the hub as it is here (checksum mismatch); run again")
    return len(missing), f"{where}@{after.commit}" if after.commit else where


def is_same(listed: HubFile, path: Path) -> bool:
    """Whether a file on the hub has the content of ours, by the hash that the hub lists."""
    if listed.size != path.stat().st_size:
        return False
    if listed.sha256:
        return listed.sha256 == sha256_of(path)
    content = path.read_bytes()  # kept in git itself, so small
    return listed.git_sha1 == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class HuggingFaceRepository:
    """On the Hugging Face Hub, or on the server that HF_ENDPOINT names."""

    name: str
    kind: RepositoryKind

    def check_login(self) -> None:
        from huggingface_hub import HfApi

        with self._errors():
            HfApi().whoami()

    def state(self) -> State | None:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError

        with self._errors():
            try:
                told = HfApi().repo_info(self.name, repo_type=self.kind, files_metadata=True)
            except RepositoryNotFoundError:
                return None
        return State(files_told(told), bool(told.private), told.sha)

    def create(self, private: bool, licence: str) -> None:
        from huggingface_hub import HfApi

        with self._errors():
            HfApi().create_repo(self.name, repo_type=self.kind, private=private)

    def upload(self, files: Sequence[Path]) -> None:
        from huggingface_hub import CommitOperationAdd, HfApi
        from huggingface_hub.utils import disable_progress_bars

        if not sys.stderr.isatty():
            disable_progress_bars()
        with self._errors():
            operations = [CommitOperationAdd(path.name, path) for path in files]
            HfApi().create_commit(self.name, operations, commit_message=MESSAGE, repo_type=self.kind)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from huggingface_hub import constants, errors

        try:
            yield
        except errors.LocalTokenNotFoundError as error:
            raise UserError(f"hf:{self.name}: no token; run `hf auth login`, or set HF_TOKEN") from error
        except (errors.HTTPError, OSError, RuntimeError) as error:  # the last for a file that did not go through
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status in (401, 403):
                raise UserError(
                    f"hf:{self.name}: the hub refuses this token (status {status}); it must be valid and may write "
                    "there: run `hf auth login`, or set HF_TOKEN"
                ) from error
            raise UserError(
                f"hf:{self.name}: the upload to {constants.ENDPOINT} broke off ({innermost_reason(error)}); check the "
                "network and HF_ENDPOINT, then run again"
            ) from error


@dataclass(frozen=True)
class ModelScopeRepository:
    """On ModelScope, or on the server that MODELSCOPE_ENDPOINT names."""

    name: str
    kind: RepositoryKind

    def check_login(self) -> None:
        from modelscope_hub import HubApi

        with self._errors():
            HubApi().whoami()

    def state(self) -> State | None:
        from modelscope_hub import HubApi
        from modelscope_hub.constants import Visibility
        from modelscope_hub.errors import NotExistError

        api = HubApi()
        with self._errors():
            try:
                told = api.get_repo(self.name, self.kind)
            except NotExistError:
                return None
            listed = [entry for entry in api.list_repo_files(self.name, self.kind) if not entry.is_dir]
        files = {entry.path: HubFile(entry.path, entry.size, entry.sha256 or self._sha256(entry)) for entry in listed}
        return State(files, told.visibility != Visibility.PUBLIC, None)

    def _sha256(self, entry: Any) -> str:
        """The hash of a file that the hub lists without one, which is fetched for that."""
        with TemporaryDirectory() as folder:
            file = HubFile(entry.path, entry.size)
            return sha256_of(ModelScope(self.name, "master", self.kind).download(file, Path(folder)))

    def create(self, private: bool, licence: str) -> None:
        from modelscope_hub import HubApi

        with self._errors():
            visibility = "private" if private else "public"
            HubApi().create_repo(self.name, self.kind, visibility=visibility, license=licence)

    def upload(self, files: Sequence[Path]) -> None:
        from modelscope_hub import HubApi

        with self._errors():
            for path in files:
                HubApi().upload_file(self.name, self.kind, path, path.name, commit_message=MESSAGE, disable_tqdm=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from modelscope_hub import errors

        try:
            yield
        except (errors.AuthenticationError, errors.PermissionDeniedError) as error:
            raise UserError(
                f"modelscope:{self.name}: ModelScope refuses this token, or there is none; it must be valid and may "
                "write there: run `ms login`, or set MODELSCOPE_API_TOKEN"
            ) from error
        except (errors.HubError, OSError) as error:
            raise UserError(
                f"modelscope:{self.name}: the upload broke off ({innermost_reason(error)}); check the network and "
                "MODELSCOPE_ENDPOINT, then run again"
            ) from error


REPOSITORIES = {"hf": HuggingFaceRepository, "modelscope": ModelScopeRepository}
