"""Sending a training's curves also to a tracker: the Trainer's own integrations, told where to write."""

import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reprolora.errors import UserError

# What each tracker reads of where and under what name to write; what the user's environment says already is kept, so
# that MLFLOW_TRACKING_URI may name a server.
VARIABLES = {
    "none": {},
    "tensorboard": {"TENSORBOARD_LOGGING_DIR": "{folder}/{arm}"},
    "mlflow": {
        "MLFLOW_TRACKING_URI": "{folder}",
        "MLFLOW_EXPERIMENT_NAME": "{experiment}",
        "MLFLOW_ALLOW_FILE_STORE": "true",  # a folder of files, which MLflow has only where it is asked for
    },
    "trackio": {"TRACKIO_DIR": "{folder}"},
    "wandb": {"WANDB_DIR": "{folder}", "WANDB_PROJECT": "{experiment}"},
    "swanlab": {"SWANLAB_LOG_DIR": "{folder}", "SWANLAB_PROJECT": "{experiment}"},
}


def check_tracker(tracker: str) -> None:
    """Raise UserError when the package of `tracker` is not installed here."""
    if tracker != "none" and find_spec(tracker) is None:
        raise UserError(
            f"tracking: {tracker}: the package {tracker} is not installed; pip install {tracker}, or set tracking: none"
        )


def prepare_tracker(tracker: str, folder: str | Path, arm: Mapping[str, Any], resumes: bool) -> dict[str, str]:
    """Make the Trainer write the curves of `arm` below `folder`/`tracker`; returns the Trainer's arguments for it.

    What a training that is started anew has left in a folder of its own (TensorBoard's) is removed, so that no curve
    shows two trainings.
    """
    name = "{experiment}/{model}/{method}/seed{seed}".format(**arm)
    if tracker != "none":
        home = Path(folder).absolute() / tracker
        home.mkdir(parents=True, exist_ok=True)
        if not resumes:
            shutil.rmtree(home / name, ignore_errors=True)
        for variable, value in VARIABLES[tracker].items():
            os.environ.setdefault(variable, value.format(folder=home, arm=name, experiment=arm["experiment"]))
    return {"report_to": tracker, "run_name": name, "project": arm["experiment"]}
