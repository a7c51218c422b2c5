"""Files of a repository on a model hub: what a pinned revision holds, and one of its files, checked.

Both hubs list each file's size and hash; a file is compared with the listing after it came, since the clients compare
little themselves. The clients are imported when needed: a user of one hub need not have the other's client.
"""

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from reprolora.errors import UserError
from reprolora.files import sha256_of

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo, ModelInfo

RepositoryKind = Literal["model", "dataset"]


@dataclass(frozen=True)
class HubFile:
    """A file as a hub lists it. Git keeps small files under a SHA-1 of their own kind; a large one has its sha256."""

    path: str
    size: int
    sha256: str | None = None
    git_sha1: str | None = None


class Hub(Protocol):
    """One repository at one revision."""

    def files(self) -> dict[str, HubFile]:
        """Every file of the repository, by its path in it."""

    def download(self, file: HubFile, folder: Path) -> Path:
        """Fetch one file into `folder` under its path; a file that an earlier try left there complete is kept."""


def open_hub(kind: str, repository: str, revision: str, repository_kind: RepositoryKind) -> Hub:
    """The repository of a source `hf:REPOSITORY@REVISION` or `modelscope:REPOSITORY@REVISION`."""
    return HUBS[kind](repository, revision, repository_kind)


@dataclass(frozen=True)
class HuggingFace:
    """A repository of the Hugging Face Hub, or of the server that HF_ENDPOINT names."""

    repository: str
    revision: str
    kind: RepositoryKind

    def files(self) -> dict[str, HubFile]:
        from huggingface_hub import HfApi

        with self._errors():
            information = HfApi().repo_info(
                self.repository, revision=self.revision, repo_type=self.kind, files_metadata=True
            )
        return files_told(information)

    def download(self, file: HubFile, folder: Path) -> Path:
        from huggingface_hub import hf_hub_download

        with self._errors():
            path = Path(
                hf_hub_download(
                    self.repository, file.path, revision=self.revision, repo_type=self.kind, local_dir=folder
                )
            )
        _check(self, file, path)
        return path

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from huggingface_hub import constants, errors

        try:
            yield
        except errors.GatedRepoError as error:
            raise UserError(
                f"{self}: this repository is gated; accept its terms on the Hub, then run `hf auth login`"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise UserError(
                f"{self}: no such {self.kind} on the Hub, or a private one; check its name, or run `hf auth login`"
            ) from error
        except errors.RevisionNotFoundError as error:
            raise UserError(
                f"{self}: the repository has no such revision; copy the full commit hash from its history"
            ) from error
        except (errors.HTTPError, OSError) as error:
            _pass_on_full_disk(error)
            raise UserError(
                f"{self}: the download from {constants.ENDPOINT} broke off ({innermost_reason(error)}); "
                "check the network and HF_ENDPOINT, then run again"
            ) from error

    def __str__(self) -> str:
        return f"hf:{self.repository}@{self.revision}"


def files_told(information: "ModelInfo | DatasetInfo") -> dict[str, HubFile]:
    """The files that the Hugging Face Hub's description of a repository lists."""
    return {
        entry.rfilename: HubFile(
            entry.rfilename,
            entry.size,
            entry.lfs.sha256 if entry.lfs else None,
            None if entry.lfs else entry.blob_id,
        )
        for entry in information.siblings
    }


@dataclass(frozen=True)
class ModelScope:
    """A repository of ModelScope, or of the server that MODELSCOPE_ENDPOINT names."""

    repository: str
    revision: str
    kind: RepositoryKind

    def files(self) -> dict[str, HubFile]:
        with self._errors():
            listed = self._api().list_repo_files(self.repository, self.kind, revision=self.revision)
        return {entry.path: HubFile(entry.path, entry.size, entry.sha256) for entry in listed if not entry.is_dir}

    def download(self, file: HubFile, folder: Path) -> Path:
        with self._errors():
            path = self._api().download_file(
                self.repository,
                self.kind,
                file.path,
                revision=self.revision,
                local_dir=folder,
                expected_sha256=file.sha256,
                file_size=file.size,
            )
        _check(self, file, path)
        return path

    def _api(self):
        from modelscope_hub import HubApi

        api = HubApi()
        # A repository can be on either of ModelScope's two sites; one that the user chose is taken as it is.
        return HubApi(endpoint=api.resolve_endpoint_for_read(self.repository, repo_type=self.kind))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from modelscope_hub import errors

        try:
            yield
        except errors.NotExistError as error:
            raise UserError(
                f"{self}: no such {self.kind} or revision on ModelScope, or a private one; "
                "check both, or run `ms login`"
            ) from error
        except (errors.AuthenticationError, errors.PermissionDeniedError) as error:
            raise UserError(
                f"{self}: ModelScope refuses access; accept its terms there, then run `ms login`"
            ) from error
        except errors.FileIntegrityError as error:
            raise UserError(
                f"{self}: a file came with another size or sha256 than ModelScope lists ({error}); run again"
            ) from error
        except (errors.HubError, OSError) as error:
            _pass_on_full_disk(error)
            raise UserError(
                f"{self}: the download broke off ({innermost_reason(error)}); check the network and "
                "MODELSCOPE_ENDPOINT, then run again"
            ) from error

    def __str__(self) -> str:
        return f"modelscope:{self.repository}@{self.revision}"


HUBS = {"hf": HuggingFace, "modelscope": ModelScope}


def _check(hub: Hub, file: HubFile, path: Path) -> None:
    """Compare a file with the hub's listing; one that differs is deleted, so that the next try fetches it anew."""
    if file.sha256:
        same = sha256_of(path) == file.sha256
    elif file.git_sha1:
        content = path.read_bytes()
        same = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == file.git_sha1
    else:
        same = path.stat().st_size == file.size
    if not same:
        path.unlink()
        raise UserError(f"{hub}: {file.path} differs from what the hub lists (checksum mismatch); run again")


def _pass_on_full_disk(error: BaseException) -> None:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise error


def innermost_reason(error: BaseException) -> str:
    """The innermost cause in a few words; the clients wrap it in advice of their own, some of it in Chinese."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
