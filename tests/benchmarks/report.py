"""What was measured: printed as a table, written as a flat JSON file."""

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

from reprolora.files import write_json

PACKAGES = ("torch", "transformers", "peft", "trl", "accelerate", "bitsandbytes")
# What each figure is to reach; `peak_memory_vs_plain` and the difference of losses are to stay below.
TARGETS = {
    "train_lora_vs_trl": 5,
    "train_lora_vs_trl_fp32": 8,
    "train_qlora_vs_trl": 5,
    "train_lora_vs_llamafactory": 4,
    "train_lora_vs_litgpt": 4,
    "evaluate_generate_vs_loop": 6,
    "evaluate_generate_vs_loop_fp32": 6,
    "evaluate_likelihood_vs_loop": 8,
    "evaluate_likelihood_vs_loop_fp32": 8,
    "gemm_share_fp32": 0.60,
    "gemm_share_bf16": 0.35,
    "qlora_memory_saving_large": 0.48,
}
LIMITS = {"peak_memory_vs_plain": 1, "loss_difference_to_plain": 1e-4}


class Report:
    """Figures under their names; a figure that was measured repeatedly has its spread beside it."""

    def __init__(self, device: torch.device):
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"
        self.facts: dict[str, Any] = {
            "date": datetime.now(UTC).date().isoformat(),
            "device": name,
            "threads": torch.get_num_threads(),
            "version_python": platform.python_version(),
            **{f"version_{package}": version(package) for package in PACKAGES},
        }
        self._measured: list[str] = []

    def add(self, name: str, values: Sequence[float]) -> None:
        """The median of paired repeats, and `<name>_min`, `<name>_max`, `<name>_repeats`."""
        self._measured.append(name)
        self.facts[name] = median(values)
        if len(values) > 1:
            self.facts |= {f"{name}_min": min(values), f"{name}_max": max(values), f"{name}_repeats": len(values)}
        print(self._line(name), flush=True)

    def skip(self, name: str, reason: str) -> None:
        self._measured.append(name)
        self.facts |= {name: None, f"{name}_reason": reason}
        print(self._line(name), flush=True)

    def note(self, name: str, value: Any) -> None:
        """A fact that is no figure of the table."""
        self.facts[name] = value

    def table(self) -> str:
        head = f"{'figure':<34} {'median':>9} {'min':>9} {'max':>9}   to reach"
        return "\n".join([head, "-" * len(head), *map(self._line, self._measured)])

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.facts)

    def _line(self, name: str) -> str:
        value = self.facts[name]
        if value is None:
            return f"{name:<34} {'-':>9}   {self.facts[f'{name}_reason']}"
        low, high = (self.facts.get(f"{name}_{end}", value) for end in ("min", "max"))
        line = f"{name:<34} {value:>9.3g} {low:>9.3g} {high:>9.3g}"
        if name in TARGETS:
            line += f"   >= {TARGETS[name]:<6g} {'reached' if value >= TARGETS[name] else 'MISSED'}"
        if name in LIMITS:
            line += f"   <= {LIMITS[name]:<6g} {'kept' if value <= LIMITS[name] else 'BROKEN'}"
        return line
