"""Write a merged model as a GGUF file, for llama.cpp and programs like it.

Reads the merged model. Writes model.gguf and a manifest with its size and sha256.
"""

import argparse
import json
from pathlib import Path

from reprolora.errors import run_script
from reprolora.files import read_json, sha256_of, write_json
from reprolora.gguf_export import write_gguf
from reprolora.model_files import GGUF_FILE
from reprolora.models import model_folder, quiet_libraries


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="the merged model's manifest.json")
    parser.add_argument("--settings", type=json.loads, required=True, help='JSON: {"name", "type"}')
    parser.add_argument("--manifest", type=Path, required=True, help="the manifest to write, beside model.gguf")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    quiet_libraries()
    merged = read_json(args.model)
    file = args.manifest.parent / GGUF_FILE
    write_gguf(model_folder(args.model), file, args.settings["type"], args.settings["name"])
    origin = {key: value for key, value in merged.items() if key != "files"}
    files = {GGUF_FILE: {"size": file.stat().st_size, "sha256": sha256_of(file)}}
    write_json(args.manifest, origin | {"type": args.settings["type"], "files": files})


if __name__ == "__main__":
    run_script(main)
