"""Runs of Snakemake that start in a moment: one process imports it, and forks for each run.

Of the time of a dry run, Python's imports are three quarters; the tables of reruns need more than a hundred.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SERVER = """
import json, os, sys
import jsonschema, pandas, pydantic, yaml
import snakemake.cli, snakemake.dag, snakemake.workflow, snakemake.scheduling.job_scheduler

snakemake.cli.get_argument_parser()  # which loads the plugins

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if not child:
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(request["folder"])
        sys.argv = ["snakemake", *request["arguments"]]
        snakemake.cli.main(request["arguments"])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Snakemake:
    """Starts a run for each call, one after another."""

    def __enter__(self) -> "Snakemake":
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_) -> None:
        self._process.stdin.close()
        self._process.wait()

    def __call__(self, folder: Path, arguments: Sequence[str]) -> tuple[int, str]:
        """The exit status, and everything that was said."""
        handle, output = tempfile.mkstemp()
        os.close(handle)
        request = {"folder": str(folder), "arguments": list(map(str, arguments)), "output": output}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        text = Path(output).read_text()
        os.unlink(output)
        return status, text
