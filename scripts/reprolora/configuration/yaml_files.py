"""The files that hold the configuration, and how one is read."""

from pathlib import Path
from typing import Any

import yaml

from reprolora.configuration.faults import ConfigurationError, kind_of

MAIN_FILE = "config/config.yaml"
# The top-level keys that come from files of their own; the file's content stands under the key.
CATALOGUES = {
    "datasets": "config/datasets.yaml",
    "instructions": "config/instructions.yaml",
    "models": "config/models.yaml",
    "methods": "config/methods.yaml",
    "hardware_catalogue": "config/hardware.yaml",
}
EXPERIMENT_FILE = "config/experiments/{name}.yaml"


def read_yaml(path: Path, name: str) -> dict[str, Any]:
    """The mapping in a YAML file; a key that stands twice is refused, since YAML would silently keep the last."""
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        _refuse_twin_keys(node)
        content = loader.construct_document(node) if node else None
    except FileNotFoundError:
        raise ConfigurationError([f"{name}: no such file"]) from None
    except UnicodeDecodeError as error:
        raise ConfigurationError([f"{name}: not UTF-8 text (byte {error.start})"]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ConfigurationError([f"{where}: not YAML: {problem}"]) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError([f"{name}: should hold `key: value` lines, but holds {kind_of(content)}"])
    return content


def _refuse_twin_keys(node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} stands twice", problem_mark=key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
            _refuse_twin_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_twin_keys(item)
