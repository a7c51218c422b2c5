"""The memory of this process, without PyTorch."""

import resource
from contextlib import suppress
from pathlib import Path


def reset_peak() -> None:
    """Start a new peak; without effect where the kernel has no such thing (it is there on Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_resident_bytes() -> int:
    """The largest resident set since `reset_peak`, or since the process started."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
