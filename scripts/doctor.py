"""Say what this machine and environment can do, and whether each chosen method can run here and why not.

Reads only its settings: {"accelerator": cpu|cuda|rocm, "methods": {name: the catalogue's entry}}. Prints a table and
writes the same as JSON. A method that cannot run is a line of the report, not an error.
"""

import argparse
import json

from reprolora.environment import describe, table
from reprolora.errors import run_script
from reprolora.files import write_json


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", required=True, help="JSON: accelerator and the chosen experiments' methods")
    parser.add_argument("--output", required=True, help="the report as JSON")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = json.loads(args.settings)
    report = describe(settings["methods"], settings["accelerator"])
    write_json(args.output, report)
    print(table(report))


if __name__ == "__main__":
    run_script(main)
