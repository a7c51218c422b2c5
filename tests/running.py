"""Running a script as a user does, and what its end must look like."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[1] / "scripts"


def run_script(name: str, *arguments: Any, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    """Run a script in a fresh Python; dictionaries among the arguments are passed as JSON."""
    return subprocess.run(
        _command(name, arguments), capture_output=True, text=True, env=_environment(environment), timeout=120
    )


def run_script_on_small_disk(
    name: str, *arguments: Any, disk: Path, kilobytes: int, environment: dict[str, str] | None = None
) -> tuple[subprocess.CompletedProcess, list[str]] | None:
    """Run a script while `disk` is a file system of its own of this size; also tells what lies on it afterwards.

    None where the machine does not let us mount one.
    """
    disk.mkdir()
    mount = f'mount -t tmpfs -o size={kilobytes}k tmpfs "$0" && "$@"'
    mount += '; status=$?; find "$0" -mindepth 1 -printf "%P\\n"; exit $status'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, disk, *_command(name, arguments)]
    if subprocess.run([*command[:4], "true"], capture_output=True).returncode:
        return None
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(environment), timeout=120)
    return done, done.stdout.split()


def user_error(done: subprocess.CompletedProcess) -> str:
    """The one line of a script that ended with a user's mistake; fails the test if it ended otherwise."""
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert [line.startswith("error: ") for line in lines].count(True) == 1 and lines[-1].startswith("error: "), (
        done.stderr
    )
    return lines[-1].removeprefix("error: ")


def contents(folder: Path) -> list[str]:
    """Everything below a folder, hidden or not."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def closed_port() -> int:
    """A port of the loopback at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _command(name: str, arguments: tuple) -> list[str]:
    texts = [json.dumps(argument) if isinstance(argument, dict) else str(argument) for argument in arguments]
    return [sys.executable, str(SCRIPTS / f"{name}.py"), *texts]


def _environment(extra: dict[str, str] | None) -> dict[str, str]:
    """This environment without what would send a client elsewhere than the test says."""
    sending = ("PIP_", "HF_", "HUGGING", "MODELSCOPE_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(sending)}
    return {**kept, "NO_PROXY": "127.0.0.1", **(extra or {})}
