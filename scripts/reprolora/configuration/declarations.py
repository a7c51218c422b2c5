"""What the models declare: the types that a key takes, the section at a path, and values read as a key's type."""

import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from reprolora.configuration.faults import KeyPath


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The plain types that an annotation allows, without Annotated and Union around them."""
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(option for part in get_args(annotation) for option in alternatives(part))
    return (annotation,)


def is_section(option: Any) -> bool:
    return isinstance(option, type) and issubclass(option, BaseModel)


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section among the types that an annotation allows."""
    return next((option for option in alternatives(annotation) if is_section(option)), None)


def section_at(path: KeyPath, root: type[BaseModel]) -> type[BaseModel] | None:
    """The section that is declared at a path of `root`."""
    current: Any = root
    for key in path:
        if section := section_of(current):
            if key not in section.model_fields:
                return None
            current = section.model_fields[str(key)].annotation
        else:
            container = next((option for option in alternatives(current) if get_origin(option) in (dict, list)), None)
            if container is None:
                return None
            current = get_args(container)[-1]
    return section_of(current)


def declared_keys(path: KeyPath, root: type[BaseModel]) -> Iterator[KeyPath]:
    """The paths of all keys that are declared in the file that a path belongs to, not following catalogues."""
    section = section_at(path, root)
    for name in section.model_fields if section else ():
        yield (*path, name)
        if section is not root:
            yield from declared_keys((*path, name), root)


def as_declared(value: Any, annotation: Any) -> Any:
    """`value` with the strings that `--config` makes of everything turned into what is declared.

    `--config` reads nested values as strings only, so that `8` and `null` arrive as text. One value may stand for a
    list of it. Values that do not fit are left alone, for the validation to name them.
    """
    options = alternatives(annotation)
    if value == "null" and type(None) in options:
        return None
    for option in options:
        origin, arguments = get_origin(option), get_args(option)
        if is_section(option) and isinstance(value, Mapping):
            fields = option.model_fields
            return {key: as_declared(v, fields[key].annotation) if key in fields else v for key, v in value.items()}
        if origin is dict and isinstance(value, Mapping):
            return {key: as_declared(v, arguments[1]) for key, v in value.items()}
        if origin is list and isinstance(value, str | int | float) and not isinstance(value, bool):
            return [value]
        if origin is list and isinstance(value, list):
            return [as_declared(v, arguments[0]) for v in value]
    for kind in (int, float):
        if kind in options and isinstance(value, str) and str not in options:
            with suppress(ValueError):
                return kind(value)
    if int in options and isinstance(value, str) and value.isdecimal():
        return int(value)  # a column: a position, not a name
    return value
