"""Memory that was freed is there for the next tensor."""

import platform
import subprocess
import sys

import pytest

PAGES = """
import resource
import numpy as np
from reprolora.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        [np.full(3_000_000, 1.0) for _ in range(3)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
keep_freed_memory()
faults()
print(first, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are those of the GNU C library")
def test_freed_memory_is_kept_for_the_next_tensor():
    """Ten times three arrays of 24 MB, as in a layer: each is cleared by the system, page by page, or none."""
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", PAGES], env=environment, capture_output=True, text=True, check=True)
    given_back, kept = map(int, done.stdout.split())
    assert given_back >= 10 * 72_000_000 / 2**21 and kept < given_back / 10
