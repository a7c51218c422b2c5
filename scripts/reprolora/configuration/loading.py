"""Loading: the files and the overrides become one checked object."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reprolora.configuration.checks import cross_faults, warnings
from reprolora.configuration.declarations import as_declared
from reprolora.configuration.faults import ConfigurationError
from reprolora.configuration.layers import Layers
from reprolora.configuration.validation import validation_faults
from reprolora.configuration.whole import Configuration
from reprolora.configuration.yaml_files import CATALOGUES, EXPERIMENT_FILE, MAIN_FILE, read_yaml


def load_configuration(
    root: Path, overrides: Sequence[tuple[str, Mapping[str, Any]]] = ()
) -> tuple[Configuration, list[str]]:
    """Read the files under `root`, lay the overrides over them, and check everything.

    `overrides` are pairs of the place to name in messages (a file, `--config`) and the content, later ones winning.
    Returns the configuration and warnings; a fault raises ConfigurationError.
    """
    layers = Layers()
    layers.add(MAIN_FILE, (), read_yaml(root / MAIN_FILE, MAIN_FILE))
    for key, file in CATALOGUES.items():
        layers.add(file, (key,), read_yaml(root / file, file))
    layers.merged["experiment"] = {}
    # Which experiment files to read is itself something that an override can say.
    chosen = [
        name
        for _, content in [(MAIN_FILE, layers.merged), *overrides]
        for key in ("experiments", "experiment")
        for name in _names(content.get(key))
    ]
    for name in dict.fromkeys(chosen):
        file = EXPERIMENT_FILE.format(name=name)
        if (root / file).is_file():
            layers.add(file, ("experiment", name), read_yaml(root / file, file))
    for place, content in overrides:
        layers.add(place, (), as_declared(content, Configuration))
    try:
        configuration = Configuration.model_validate(layers.merged)
    except ValidationError as error:
        lines = map(layers.line, validation_faults(error, Configuration))
        raise ConfigurationError(list(dict.fromkeys(lines))) from None
    if faults := cross_faults(configuration, root):
        raise ConfigurationError([layers.line(fault) for fault in faults])
    return configuration, [layers.line(fault) for fault in warnings(configuration)]


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [name for name in value if isinstance(name, str)] if isinstance(value, list | Mapping) else []
