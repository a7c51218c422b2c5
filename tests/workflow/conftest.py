"""A finished run of the whole workflow on a tiny model, made once, for the tests of this folder to look at."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

from forking import Snakemake
from projects import Project, copy_project


@pytest.fixture(scope="session")
def snakemake():
    with Snakemake() as server:
        yield server


@pytest.fixture
def fresh(tmp_path, snakemake) -> Project:
    """A project in which nothing was run."""
    folder = tmp_path / "a new project"
    copy_project(folder)
    return Project(folder, snakemake)


@pytest.fixture(scope="session")
def finished(tmp_path_factory, snakemake) -> Project:
    """A project after a whole run, which is made once for all workers; tests leave it as they found it."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "a run for all"
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            run_all(tmp_path_factory.mktemp("workflow") / "a run", snakemake).rename(shared)
    folder = tmp_path_factory.mktemp("workflow") / "a finished run"
    shutil.copytree(shared, folder, symlinks=True)
    return Project(folder, snakemake)


def run_all(folder: Path, snakemake: Snakemake) -> Path:
    """Run everything in a new project, which git knows."""
    copy_project(folder)
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "All"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *command], cwd=folder, check=True)
    done = Project(folder, snakemake).snakemake()
    assert done.returncode == 0, done.stderr[-10000:]
    return folder


@pytest.fixture
def another(finished, tmp_path, snakemake) -> Project:
    """A copy of the finished run, to do with as one likes."""
    folder = tmp_path / "another run"
    shutil.copytree(finished.folder, folder, symlinks=True)
    return Project(folder, snakemake)
