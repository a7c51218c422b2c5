"""The memory of this process, without PyTorch."""

import ctypes
import resource
from contextlib import suppress
from pathlib import Path

# What `mallopt` of the GNU C library calls these settings.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# The largest block that it takes from its heap unless told otherwise. Larger ones (a dequantized weight of a large
# model) would leave holes there that what a training step keeps is laid into, and the next would not fit.
LARGEST_IN_HEAP = 2**25


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


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees from now on, for the tensors that come next.

    The GNU C library gives large blocks back to the system, which clears them, page by page, when the next layer asks
    for as much: up to a tenth of a pass over 4,096 tokens. Other C libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, LARGEST_IN_HEAP)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
