"""Which device a job computes on: the kind that the configuration names, and a GPU that no other job holds."""

import fcntl
import logging
import os
import tempfile
from pathlib import Path

import torch

from reprolora.errors import UserError

log = logging.getLogger(__name__)


def claim_device(accelerator: str) -> torch.device:
    """The CPU, or a GPU for this process alone; call it before anything else touches a GPU.

    Snakemake's local scheduler counts GPUs but does not say which is whose, so jobs agree by a lock file for each GPU.
    A process of a distributed launch takes the GPU of its rank instead.

    Args:
        accelerator: `cpu`, `cuda` (NVIDIA) or `rocm` (AMD).

    Raises:
        UserError: there is no such GPU, or other jobs hold all of them.
    """
    count = torch.cuda.device_count()
    if accelerator == "cpu":
        if count:
            log.info("there is a GPU, but the configuration says hardware: cpu; set hardware: to use it")
        return torch.device("cpu")
    if not count:
        raise UserError(f"the configuration's hardware is a {accelerator} GPU, but PyTorch sees none; run make doctor")
    if "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    for name in visible.split(",") if visible else map(str, range(count)):
        path = Path(tempfile.gettempdir(), f"reprolora-gpu-{name}.lock")
        if not path.exists():
            path.touch()
        lock = os.open(path, os.O_RDONLY)  # it may be another user's, and reading is enough to lock
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until the process ends
        except BlockingIOError:
            os.close(lock)
            continue
        os.environ["CUDA_VISIBLE_DEVICES"] = name  # PyTorch reads it when it first uses a GPU
        return torch.device("cuda", 0)
    raise UserError(f"other jobs hold all {count} GPUs; give Snakemake --resources gpu={count} at most")
