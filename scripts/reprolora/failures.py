"""Recording an arm that failed, so that the other arms go on and the report can say why this one is missing."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from reprolora.errors import ArmFailed
from reprolora.files import write_json


@contextmanager
def recorded_failure(folder: str | Path, arm: Mapping[str, Any], stage: str, settings: str) -> Iterator[None]:
    """Write `folder`/failure.json when the block ends with ArmFailed, and remove an older one before it starts.

    Running out of the device's memory is such a failure too. An interruption is not: it says nothing about the arm.
    """
    file = Path(folder) / "failure.json"
    file.unlink(missing_ok=True)
    try:
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise ArmFailed(
                "out of device memory; lower training.micro_batch_size, turn on training.gradient_checkpointing, or "
                "use a quantized method"
            ) from error
    except ArmFailed as error:
        reason = " ".join(str(error).split())
        digest = hashlib.sha256(settings.encode()).hexdigest()
        write_json(file, {"arm": dict(arm), "stage": stage, "reason": reason, "settings_sha256": digest})
        raise
