"""`make` sets up .venv by itself: once, in any folder, and again only when the lock or the folder changes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A lock that asks for nothing, so that setting up needs no network; pip has a say only through its exit status.
EMPTY = "# nothing\n"


@pytest.fixture
def checkout(tmp_path):
    """A folder, with spaces in its name, that holds what setting up reads."""
    folder = tmp_path / "a folder with spaces"
    (folder / "envs").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(ROOT / "envs" / "install.sh", folder / "envs")
    (folder / "requirements.lock").write_text(EMPTY)
    return folder


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(
        command, cwd=folder, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def test_set_up_once_and_again_only_after_a_change(checkout):
    first = make(checkout, "environment")
    assert first.returncode == 0, first.stderr
    assert "making .venv" in first.stderr
    marker = checkout / ".venv" / "made-by-the-first-setup"
    marker.touch()

    for path in (checkout / "requirements.lock", checkout / "envs" / "install.sh"):
        path.touch()
    again = make(checkout, "environment")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

    (checkout / "requirements.lock").write_text("# another nothing\n")
    changed = make(checkout, "environment")
    assert changed.returncode == 0 and "installing" in changed.stderr
    assert marker.exists(), "a changed lock is installed into the environment that is there"

    moved = checkout.rename(checkout.with_name("another folder"))
    after = make(moved, "environment")
    assert after.returncode == 0 and "making .venv" in after.stderr
    assert not (moved / ".venv" / marker.name).exists()
    paths = subprocess.run([moved / ".venv" / "bin" / "pip", "--version"], capture_output=True, text=True, check=True)
    assert str(moved) in paths.stdout


def test_an_environment_that_a_person_made_is_kept(checkout):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    marker = checkout / ".venv" / "a-person-made-this"
    marker.touch()
    failed = make(checkout, "environment")  # there is no pip in it, so the installation fails; the folder stays
    assert "pip could not install" in failed.stderr and "making .venv" not in failed.stderr
    assert marker.exists()

    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    fake_python(python.parent, python.name, "3.13.1")
    failed = make(checkout, "environment")
    assert failed.returncode != 0 and "error: .venv has Python 3.13.1" in failed.stderr
    assert marker.exists()


def test_a_failed_installation_is_not_taken_for_done(checkout):
    (checkout / "requirements.lock").write_text("./there-is-no-such-package\n")
    for _ in range(2):
        failed = make(checkout, "environment")
        assert failed.returncode != 0
        assert "error: pip could not install requirements.lock" in failed.stderr
    (checkout / "requirements.lock").write_text(EMPTY)
    assert make(checkout, "environment").returncode == 0


def fake_python(folder: Path, name: str, version: str) -> None:
    """A program that says it is this Python and fails at everything else, as an old Python or a bare shim does."""
    path = folder / name
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo Python {version} && exit 0\nexit 1\n')
    path.chmod(0o755)


def test_an_unsuitable_python_is_one_clear_line(checkout, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("make", "sh", "cat", "cmp", "sort", "paste"):
        (programs / name).symlink_to(shutil.which(name))
    fake_python(programs, "python3", "3.13.1")
    failed = make(checkout, "environment", PATH=str(programs))
    message = [line for line in failed.stderr.splitlines() if line.startswith("error:")]
    assert failed.returncode != 0 and len(message) == 1
    assert "Python 3.11 or 3.12" in message[0] and "found: Python 3.13.1" in message[0]
    assert not (checkout / ".venv").exists()

    named = make(checkout, "PYTHON=/no such/python", "environment")
    assert named.returncode != 0 and "found: no Python" in named.stderr
