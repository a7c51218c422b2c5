"""The energy of a phase of the work, by CodeCarbon: from the machine's counters, or estimated where it has none."""

import logging
from typing import Any

log = logging.getLogger(__name__)


class EnergyMeter:
    """Measures phases, one after the other: `start()`, then `stop()`, which gives kWh.

    Nothing is sent or looked up: CodeCarbon's offline tracker computes no emissions without a country. The energy is
    that of memory and processor (this process's share where it is estimated, the whole machine's where the processor
    counts it) and, with `gpu`, of the GPUs. `basis` says what was measured and what is only an estimate from the
    processor's design power and load, or the size of the memory. A failure is logged, and costs only the record of it.

    Args:
        gpu: the GPU that this process computes on, as CUDA_VISIBLE_DEVICES names it; None for the CPU.
    """

    def __init__(self, gpu: str | None):
        self.basis: str | None = None
        self._parts = ["cpu_energy", "ram_energy", *(["gpu_energy"] if gpu is not None else [])]
        self._tracker: Any = None
        try:
            from codecarbon import OfflineEmissionsTracker

            # It has a handler of its own, and speaks before `log_level` is read.
            logging.getLogger("codecarbon").setLevel(logging.CRITICAL)
            self._tracker = OfflineEmissionsTracker(
                tracking_mode="process",
                gpu_ids=gpu,
                output_methods=[],
                log_level="critical",
                allow_multiple_runs=True,
            )
            # Finding out about the machine takes a second, which would be the first phase's.
            self._tracker.start_task()
            self._tracker.stop_task()
            self.basis = _basis(self._tracker._hardware, gpu is not None)
        except Exception as error:
            self._give_up(error)

    def start(self) -> None:
        if self._tracker is not None:
            try:
                self._tracker.start_task()
            except Exception as error:
                self._give_up(error)

    def stop(self) -> float | None:
        """The kWh since `start`; None where they are not known."""
        if self._tracker is not None:
            try:
                data = self._tracker.stop_task()
                return sum(getattr(data, part) for part in self._parts)
            except Exception as error:
                self._give_up(error)
        return None

    def _give_up(self, error: Exception) -> None:
        log.warning("energy is not recorded: %s: %s", type(error).__name__, error)
        self._tracker = self.basis = None


def _basis(hardware: list, gpu: bool) -> str:
    """How each part of the energy is known, in words."""
    counted = {"intel_rapl", "intel_power_gadget", "windows_emi"}
    parts = {type(item).__name__: item for item in hardware}
    measured = ["GPU"] if gpu and "GPU" in parts else []
    estimated = ["memory"]
    if getattr(parts.get("CPU"), "_mode", None) in counted:
        measured.insert(0, "CPU (whole machine)")
    else:
        estimated.insert(0, "CPU")
    return "; ".join(
        f"{', '.join(names)} {how}" for names, how in ((measured, "measured"), (estimated, "estimated")) if names
    )
