"""Merge an arm's adapter into its base model: an ordinary model, for programs that know no adapters.

Reads the base model, the adapter and what its training recorded. Writes the merged model in the precision that the
adapter was trained in, with the tokenizer, and a manifest with the size and sha256 of each file. The base is the
model as it was fetched, also for an adapter that was trained on a quantized one, since that is what people serve;
evaluate_export counts what this changes.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch

from reprolora import models
from reprolora.errors import run_script
from reprolora.files import naming, read_json
from reprolora.merging import merge
from reprolora.model_files import publish, save_model, write_manifest


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="the base model's manifest.json")
    parser.add_argument(
        "--adapter-config", type=Path, required=True, help="adapter_config.json in the adapter's folder"
    )
    parser.add_argument("--training", type=Path, required=True, help="training.json")
    parser.add_argument("--settings", type=json.loads, required=True, help='JSON: {"arm"}')
    parser.add_argument("--manifest", type=Path, required=True, help="the manifest to write; its folder is the model's")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    models.quiet_libraries()
    trained = read_json(args.training)
    folder = models.model_folder(args.model)
    tokenizer = models.load_tokenizer(folder)
    base = models.load_base(folder, trained["precision"]["chosen"], torch.device("cpu"))
    merged = merge(models.reload_adapter(base, args.adapter_config.parent, tokenizer))
    made = args.manifest.parent.with_name(f".{args.manifest.parent.name}.part")
    shutil.rmtree(made, ignore_errors=True)  # of a try that was killed
    made.mkdir(parents=True)
    try:
        with naming(args.manifest.parent):
            save_model(merged, tokenizer, made)
            origin = {
                "arm": args.settings["arm"],
                "precision": trained["precision"]["chosen"],
                "adapter_sha256": trained["adapter_sha256"],
                "base": {name: facts["sha256"] for name, facts in read_json(args.model)["files"].items()},
                "trained": trained["settings"]["method"],
            }
            write_manifest(made, origin)
            publish(made, args.manifest.parent)
    finally:
        shutil.rmtree(made, ignore_errors=True)


if __name__ == "__main__":
    run_script(main)
