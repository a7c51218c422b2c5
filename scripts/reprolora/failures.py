"""Recording an arm that failed, so that the other arms go on and the report can say why this one is missing."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from reprolora.errors import ArmFailed, Undertrained
from reprolora.files import sha256_of, write_json


@contextmanager
def recorded_failure(
    folder: str | Path, arm: Mapping[str, Any], stage: str, settings: str, inputs: Sequence[str | Path]
) -> Iterator[None]:
    """Write `folder`/failure.json when the block ends with ArmFailed, and remove an older one before it starts.

    The file has digests of the settings and the `inputs`, so that another one of them is a reason to try again. Running
    out of the device's memory is such a failure too. An interruption is not: it says nothing about the arm.
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
        write_json(
            file,
            {
                "arm": dict(arm),
                "stage": stage,
                "reason": reason,
                "settings_sha256": hashlib.sha256(settings.encode()).hexdigest(),
                "inputs_sha256": {str(path): sha256_of(Path(path)) for path in inputs if Path(path).is_file()},
                **({"diagnosed": True} if isinstance(error, Undertrained) else {}),
            },
        )
        raise
