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
    # Where it is made it stays: the links to the model's files are absolute.
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "a run for all"
    whole = Path(f"{shared} is whole")
    with FileLock(f"{shared}.lock"):
        if not whole.exists():
            shutil.rmtree(shared, ignore_errors=True)
            run_all(Project(shared, snakemake))
            whole.touch()
    folder = tmp_path_factory.mktemp("workflow") / "a finished run"
    shutil.copytree(shared, folder, symlinks=True)
    return Project(folder, snakemake)


def run_all(project: Project) -> None:
    """Run everything in a new project, which git knows."""
    copy_project(project.folder)
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "All"]):
        name = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *name, *command], cwd=project.folder, check=True)
    done = project.snakemake()
    assert done.returncode == 0, done.stderr[-10000:]


@pytest.fixture
def another(finished, tmp_path, snakemake) -> Project:
    """A copy of the finished run, to do with as one likes."""
    folder = tmp_path / "another run"
    shutil.copytree(finished.folder, folder, symlinks=True)
    return Project(folder, snakemake)
