"""The files of a model: which a repository's model consists of, whether a folder is a whole model, its manifest."""

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from reprolora.errors import UserError
from reprolora.files import sha256_of, write_json

MANIFEST = "manifest.json"
WEIGHTS = "model.safetensors"
GGUF_FILE = "model.gguf"
WEIGHTS_INDEX = "model.safetensors.index.json"
# What Transformers reads beside the weights. No code (*.py), and no second copy of the weights (*.bin, *.gguf,
# consolidated.safetensors, subfolders).
CONFIGURATION = ("config.json", "generation_config.json")
VOCABULARIES = (
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "vocab.txt",
    "*.tiktoken",
)
TOKENIZER = (
    *VOCABULARIES,
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
SHARDS = "model-*.safetensors"


def is_model_file(name: str) -> bool:
    """Whether a file of this name, in a model's folder, is the model's: what an older model may have left behind."""
    return any(
        fnmatch(name, pattern) for pattern in (*CONFIGURATION, *TOKENIZER, WEIGHTS, WEIGHTS_INDEX, SHARDS, MANIFEST)
    )


def choose_files(names: Iterable[str], read_index: Callable[[str], bytes], where: str) -> list[str]:
    """The files of a repository or folder that make up its model; `read_index` gives the content of the shard index."""
    names = set(names)
    chosen = [name for name in sorted(names) if any(fnmatch(name, pattern) for pattern in (*CONFIGURATION, *TOKENIZER))]
    if WEIGHTS_INDEX in names:
        try:
            shards = sorted(set(json.loads(read_index(WEIGHTS_INDEX))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{where}: {WEIGHTS_INDEX} is not a shard index ({error!r}); fetch the model again"
            ) from error
        missing = [shard for shard in shards if shard not in names or "/" in shard]
        if missing:
            raise UserError(
                f"{where}: {WEIGHTS_INDEX} names {', '.join(missing)}, which are not beside it; get them too"
            )
        return [*chosen, WEIGHTS_INDEX, *shards]
    if WEIGHTS not in names:
        raise UserError(
            f"{where}: no {WEIGHTS} and no {WEIGHTS_INDEX}; use a model that has its weights as safetensors, "
            "or name a GGUF file with `gguf`"
        )
    return [*chosen, WEIGHTS]


def check_model(folder: Path, where: str, needs_chat_template: bool) -> None:
    """Raise UserError unless the folder holds a model with its tokenizer, and weights that are whole."""
    from safetensors import SafetensorError, safe_open

    check_small_files(folder, where, needs_chat_template)
    for weights in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(weights, "np"):  # reads the header and compares the file's size with it
                pass
        except SafetensorError as error:
            raise UserError(f"{where}: {weights.name} is damaged or cut short ({error}); get it again") from error


def check_small_files(folder: Path, where: str, needs_chat_template: bool) -> None:
    """Raise UserError unless Transformers can read the folder's configuration and tokenizer; the weights may lack."""
    from transformers import AutoConfig, AutoTokenizer

    if not (folder / "config.json").is_file():
        raise UserError(f"{where}: no config.json; a model folder holds config.json, weights and tokenizer files")
    try:
        AutoConfig.from_pretrained(folder, local_files_only=True)
    except (ValueError, KeyError, OSError) as error:
        raise UserError(f"{where}: Transformers cannot read config.json ({_first_line(error)}); check it") from error
    if not any(fnmatch(path.name, pattern) for path in folder.iterdir() for pattern in VOCABULARIES):
        raise UserError(
            f"{where}: no tokenizer (tokenizer.json or the like); put the tokenizer's files beside the weights"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare Exceptions
        raise UserError(f"{where}: Transformers cannot read the tokenizer ({_first_line(error)}); check it") from error
    if needs_chat_template and not tokenizer.chat_template:
        raise UserError(
            f"{where}: the tokenizer has no chat template; use an instruct model, or put a chat_template.jinja "
            "beside its files"
        )
    if tokenizer.eos_token_id is None:
        raise UserError(f"{where}: the tokenizer has no end-of-sequence token; name one in tokenizer_config.json")


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a Transformers model and its tokenizer to a folder."""
    with _full_disk_as_oserror():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):  # written as readable by the owner alone
        weights.chmod((folder / "config.json").stat().st_mode)


@contextmanager
def _full_disk_as_oserror() -> Iterator[None]:
    """The safetensors and tokenizers libraries tell of a full disk only in the text of exceptions of their own."""
    try:
        yield
    except Exception as error:
        if f"os error {errno.ENOSPC}" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise


def write_manifest(folder: Path, origin: dict[str, Any]) -> None:
    """Write the manifest that stands for the folder: `origin`, and each file's size and sha256."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != MANIFEST
    }
    write_json(folder / MANIFEST, {**origin, "files": files})


def publish(made: Path, folder: Path) -> None:
    """Move a finished model's files to `folder`, the manifest last, and take away what an older model left there."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir(), key=lambda path: path.name != MANIFEST):
        if is_model_file(path.name):
            path.unlink()
    for path in sorted(made.iterdir(), key=lambda path: path.name == MANIFEST):
        path.replace(folder / path.name)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
