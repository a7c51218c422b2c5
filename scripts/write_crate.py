"""Write the RO-Crate of an experiment: a description of its results that other programs can read.

Reads the files of the experiment, which are listed with their sizes and digests, and CITATION.cff; writes
ro-crate-metadata.json, whose folder is the crate.
"""

import argparse
import json
from pathlib import Path

import yaml

from reprolora.crate import Sources, crate_metadata
from reprolora.errors import run_script
from reprolora.files import write_json


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: experiment, dataset, models")
    parser.add_argument("--citation", type=Path, required=True, help="CITATION.cff")
    parser.add_argument("--files", type=Path, nargs="+", required=True, help="what is in the crate")
    parser.add_argument(
        "--arms", type=Path, nargs="*", default=[], help="folders of the arms, all files of which are too"
    )
    parser.add_argument("--dataset", type=Path, required=True, help="the dataset's manifest.json")
    parser.add_argument("--models", type=Path, nargs="*", default=[], help="manifest.json in each model's folder")
    parser.add_argument("--output", type=Path, required=True, help="ro-crate-metadata.json")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    software = yaml.safe_load(args.citation.read_text(encoding="utf-8"))
    of_arms = [file for folder in args.arms for file in folder.rglob("*") if file.is_file()]
    resources = [file for file in of_arms if file.name.startswith("resources_")]
    sources = Sources([*args.files, *of_arms], resources, args.dataset, args.models)
    write_json(args.output, crate_metadata(args.settings, software, sources, args.output.parent))


if __name__ == "__main__":
    run_script(main)
