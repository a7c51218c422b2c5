"""Settings for all tests."""

import os

# Tiny models gain nothing from a second thread, and on a busy machine two threads wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
