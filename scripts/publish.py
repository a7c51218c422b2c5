"""Publish what the configuration names, on a model hub: data, an adapter, or a model made of one.

For each publication in the settings, lays out the repository's files in a folder (card, licences and checksums are
made) and lists them with size and sha256. Only where the settings say `upload` are they uploaded, and compared with
what the hub then has; everywhere else no request is sent.
"""

import argparse
import json
from pathlib import Path

from reprolora.errors import UserError, run_script
from reprolora.publications import listing, stage
from reprolora.uploading import upload


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: a list of publications")
    parser.add_argument("--folder", type=Path, required=True, help="where the repositories are laid out")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if not args.settings:
        raise UserError(
            "nothing to publish: name repositories under `publish` in the experiment's file (docs/publishing.md)"
        )
    staged = []
    for publication in args.settings:
        folder = args.folder / publication["repository"].replace(":", "/")
        stage(publication, folder)
        files = sorted(folder.iterdir())
        staged.append((publication, files))
        print(listing(publication, files))
        print(f"  laid out in {folder}, for you to look at", flush=True)
    for publication, files in staged:
        where = publication["repository"]
        if not publication["upload"]:
            print(f"{where}: nothing was uploaded; to upload it, add --config 'upload=[{where}]'")
            continue
        kind = "dataset" if publication["what"] == "dataset" else "model"
        licence = publication["dataset" if kind == "dataset" else "model"]["license"]
        count, source = upload(where, kind, files, publication["private"], licence)
        said = f"uploaded {count} of {len(files)} files" if count else "everything was there already"
        print(f"{where}: {said}, the checksums agree; it is now {source}", flush=True)


if __name__ == "__main__":
    run_script(main)
