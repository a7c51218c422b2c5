"""Files and overrides laid over each other, remembering which of them gives each value."""

from collections.abc import Mapping
from typing import Any

from reprolora.configuration.faults import Fault, KeyPath, dotted


class Layers:
    """The files and overrides, merged, with the place that each value came from."""

    def __init__(self) -> None:
        self.merged: dict[str, Any] = {}
        self._layers: list[tuple[str, KeyPath, Any]] = []

    def add(self, place: str, prefix: KeyPath, content: Mapping[str, Any]) -> None:
        self._layers.append((place, prefix, content))
        for key in reversed(prefix):
            content = {key: content}
        merge(self.merged, content)

    def line(self, fault: Fault) -> str:
        """The one line for a fault: its place, the path of the key in that place, the message.

        The place is the last one that gives the key; for a key that is missing, the first that gives its section.
        """
        depths = [_depth(content, prefix, fault.path) for _, prefix, content in self._layers]
        deepest = max(depths)
        number = depths.index(deepest)
        if deepest == len(fault.path):
            number = len(depths) - 1 - depths[::-1].index(deepest)
        place, prefix, _ = self._layers[number]
        path = dotted(fault.path[len(prefix) :])
        return f"{place}: {path}: {fault.message}" if path else f"{place}: {fault.message}"


def _depth(content: Any, prefix: KeyPath, path: KeyPath) -> int:
    """How many keys of `path` the content has, counting the prefix that it stands under; -1 when it is elsewhere."""
    if path[: len(prefix)] != prefix:
        return -1
    depth = len(prefix)
    for key in path[len(prefix) :]:
        try:
            content = content[key]
        except (KeyError, IndexError, TypeError):
            break
        depth += 1
    return depth


def merge(base: dict, over: Mapping) -> None:
    """Lay `over` over `base`, in place; mappings key by key, all else as a whole."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            merge(base[key], value)
        elif isinstance(value, Mapping):
            base[key] = {}
            merge(base[key], value)
        else:
            base[key] = value
