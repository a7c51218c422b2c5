"""The energy of a phase: offline, silent, honest about what is an estimate, and never a reason to fail."""

import math
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from reprolora import energy
from reprolora.energy import EnergyMeter
from running import SCRIPTS

# Any attempt to reach a machine is counted, even if CodeCarbon would swallow the refusal.
MEASURE = """
import socket, threading, time
tried = []
def refuse(*arguments, **options):
    tried.append(arguments)
    raise OSError("no network")
socket.socket.connect = socket.getaddrinfo = refuse
from reprolora.energy import EnergyMeter
meter = EnergyMeter(None)
meter.start()
time.sleep(0.2)
kwh = meter.stop()
print(len(tried), meter.basis, kwh > 0, sep="|")
"""


def test_it_asks_no_network_and_says_nothing_of_its_own():
    done = subprocess.run([sys.executable, "-c", MEASURE], cwd=SCRIPTS, capture_output=True, text=True, check=True)
    tried, basis, positive = done.stdout.strip().split("|")
    assert (tried, positive, done.stderr) == ("0", "True", "")
    assert basis.endswith("estimated"), "memory is never measured"


class FakeTracker:
    """Counts 1 kWh of processor, 2 of memory and 4 of GPU for each task."""

    fails_at = ""

    def __init__(self, **options):
        self.options = options
        self._hardware = [SimpleNamespace()]
        self._do("init")

    def _do(self, what):
        if what == self.fails_at:
            raise RuntimeError("no such counter")

    def start_task(self):
        self._do("start_task")

    def stop_task(self):
        self._do("stop_task")
        return SimpleNamespace(cpu_energy=1.0, ram_energy=2.0, gpu_energy=4.0)


@pytest.fixture
def fake(monkeypatch):
    import codecarbon

    monkeypatch.setattr(codecarbon, "OfflineEmissionsTracker", FakeTracker)
    return FakeTracker


def test_a_job_on_the_cpu_is_not_charged_for_the_machines_gpus(fake):
    for gpu, expected in ((None, 3.0), ("0", 7.0)):
        meter = EnergyMeter(gpu)
        meter.start()
        assert meter.stop() == expected


@pytest.mark.parametrize("step", ["init", "start_task", "stop_task"])
def test_a_failure_costs_the_record_only(fake, monkeypatch, caplog, step):
    monkeypatch.setattr(FakeTracker, "fails_at", step)
    meter = EnergyMeter(None)
    meter.start()
    assert meter.stop() is None and meter.basis is None
    assert [record.getMessage() for record in caplog.records] == [
        "energy is not recorded: RuntimeError: no such counter"
    ]


def hardware(**parts):
    return [type(name, (), {"_mode": mode})() for name, mode in parts.items()]


@pytest.mark.parametrize(
    ("parts", "gpu", "expected"),
    [
        ({"CPU": "cpu_load", "RAM": None}, False, "CPU, memory estimated"),
        ({"CPU": "constant", "GPU": None}, False, "CPU, memory estimated"),
        ({"CPU": "constant", "GPU": None}, True, "GPU measured; CPU, memory estimated"),
        ({"CPU": "intel_rapl", "GPU": None}, True, "CPU (whole machine), GPU measured; memory estimated"),
        ({}, True, "CPU, memory estimated"),
    ],
)
def test_an_estimate_is_never_called_a_measurement(parts, gpu, expected):
    assert energy._basis(hardware(**parts), gpu) == expected


def test_longer_work_takes_more():
    meter = EnergyMeter(None)
    taken = []
    for seconds in (0.2, 1.0):
        meter.start()
        time.sleep(seconds)
        taken.append(meter.stop())
    assert 0 < taken[0] < taken[1] and math.isfinite(taken[1])
