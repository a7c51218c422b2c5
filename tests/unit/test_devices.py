"""Jobs that run at the same time hold different GPUs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from reprolora.devices import claim_device
from reprolora.errors import UserError

# A job on a machine with as many GPUs as it is told: it says which it holds, and holds it until its input ends.
JOB = """
import os, sys, torch
sys.path.insert(0, sys.argv[1])
from reprolora.devices import claim_device
from reprolora.errors import run_script
torch.cuda.device_count = lambda: int(sys.argv[2])
def main():
    print(claim_device("cuda"), os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    sys.stdin.read()
run_script(main)
"""
SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def start(tmp_path):
    jobs = []

    def start(gpus: int, visible: str | None = None) -> subprocess.Popen:
        environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        environment |= {"TMPDIR": str(tmp_path)} | ({"CUDA_VISIBLE_DEVICES": visible} if visible else {})
        command = [sys.executable, "-c", JOB, SCRIPTS, str(gpus)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        jobs.append(subprocess.Popen(command, env=environment, text=True, **pipes))
        return jobs[-1]

    yield start
    for job in jobs:
        job.communicate()


def test_jobs_hold_different_gpus_and_give_them_back(start):
    first, second = start(2), start(2)
    assert {first.stdout.readline(), second.stdout.readline()} == {"cuda:0 0\n", "cuda:0 1\n"}
    third = start(2)
    assert third.communicate()[1] == "error: other jobs hold all 2 GPUs; give Snakemake --resources gpu=2 at most\n"
    assert third.returncode == 2
    freed = first.communicate()
    assert freed[1] == "" and first.returncode == 0
    assert start(2).stdout.readline().startswith("cuda:0 ")


def test_only_the_visible_gpus_are_taken(start):
    assert start(2, visible="5,3").stdout.readline() == "cuda:0 5\n"
    assert start(2, visible="5,3").stdout.readline() == "cuda:0 3\n"


def test_cpu_is_the_cpu_even_where_there_is_a_gpu(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    caplog.set_level("INFO")
    assert claim_device("cpu") == torch.device("cpu") and "there is a GPU" in caplog.text


def test_gpu_that_is_not_there_is_a_mistake(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match="hardware is a rocm GPU, but PyTorch sees none"):
        claim_device("rocm")


def test_rank_of_a_distributed_launch_takes_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert claim_device("cuda") == torch.device("cuda", 2)
