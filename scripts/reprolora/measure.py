"""Time, memory and energy of one phase of the work, apart from the phases before and after it."""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import torch

from reprolora.energy import EnergyMeter
from reprolora.memory import peak_resident_bytes, reset_peak


class Meter:
    """Measures phases: `with meter.phase("load"): ...`, then `meter.record` holds what they took, where, with how many
    threads.

    On a GPU the peak is what PyTorch allocated and reserved there; elsewhere it is the process's peak resident set,
    reset at each phase's start where the kernel allows it (Linux); where it does not, the peak since the start.
    """

    def __init__(self, device: torch.device, threads: int):
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"
        self.device = device
        self.energy = EnergyMeter(os.environ.get("CUDA_VISIBLE_DEVICES", "0") if device.type == "cuda" else None)
        self.record: dict[str, Any] = {"device": name, "threads": threads, "host": platform.node()}
        self.record["started"] = datetime.now(UTC).isoformat(timespec="seconds")
        self.record["energy_basis"] = self.energy.basis

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record `<name>_seconds`, `<name>_peak_bytes`, `<name>_energy_kwh` (None where it is not known) of the block,
        and on a GPU `<name>_reserved_bytes`.
        """
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            reset_peak()
        self.energy.start()
        start = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            self.record[f"{name}_reserved_bytes"] = torch.cuda.max_memory_reserved(self.device)
        self.record[f"{name}_seconds"] = time.perf_counter() - start
        self.record[f"{name}_energy_kwh"] = self.energy.stop()
        self.record[f"{name}_peak_bytes"] = peak_bytes(self.device)


def peak_bytes(device: torch.device) -> int:
    """The peak so far of the phase: allocated on a GPU, resident otherwise."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_resident_bytes()
