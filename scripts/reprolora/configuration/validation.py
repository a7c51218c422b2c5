"""What pydantic finds wrong, in words that name the key to change."""

import re
from collections.abc import Iterator

from pydantic import BaseModel, ValidationError

from reprolora.configuration.declarations import declared_keys, section_at
from reprolora.configuration.faults import Fault, KeyPath, did_you_mean, dotted, kind_of, nearest
from reprolora.configuration.sections import SHA256_PATTERN
from reprolora.configuration.yaml_files import CATALOGUES, EXPERIMENT_FILE, MAIN_FILE


def validation_faults(error: ValidationError, root: type[BaseModel]) -> Iterator[Fault]:
    """The faults of what was to be a `root`, at their paths in it."""
    for detail in error.errors():
        path = tuple(key for key in detail["loc"] if key != "[key]")
        value = detail["input"]
        context = detail.get("ctx", {})
        match detail["type"]:
            case "extra_forbidden":
                message = _unknown_key(path, root)
            case "missing":
                message = "is missing"
            case "peft":
                path = (*path, *context["path"])
                message = context["message"]
            case "value_error":
                message = str(context["error"])
            case "literal_error":
                choices = re.findall(r"'([^']*)'", context["expected"]) or [context["expected"].lower()]
                message = f"{value!r} is not one of {', '.join(choices)}{did_you_mean(str(value), choices)}"
            case "string_pattern_mismatch" if context["pattern"] == SHA256_PATTERN:
                message = f"{value!r} is not a sha256 (64 lower-case hexadecimal digits)"
            case "string_pattern_mismatch":
                message = f"{value!r} is not a name: use letters, digits, dots, dashes and underscores"
            case "string_type" if isinstance(value, bool):
                message = f"YAML reads this as {str(value).lower()}; put it in quotes to keep it a word"
            case "model_type" | "dict_type" | "list_type":
                wanted = "a list" if detail["type"] == "list_type" else "`key: value` lines"
                message = f"should be {wanted}, but is {kind_of(value)}"
            case _:
                message = detail["msg"].removeprefix("Value error, ")
                message = message[0].lower() + message[1:]
                if not isinstance(value, dict | list):
                    message += f", but is {value!r}"
        yield Fault(path=path, message=message)


def _unknown_key(path: KeyPath, root: type[BaseModel]) -> str:
    """What to say of a key that is not declared: the section that it belongs to, or the nearest declared key."""
    key = str(path[-1])
    start = 2 if path[0] in ("experiment", *CATALOGUES) else 0
    file = list(declared_keys(path[:start], root))
    for found in file:
        if found[-1] == key:
            return f"unknown key here; did you mean {dotted(found[start:])!r}?"
    section = section_at(path[:-1], root)
    known = list(section.model_fields) if section else []
    if near := nearest(key, known):
        return f"unknown key; did you mean {near!r}?"
    for other, name in {("experiment", "NAME"): EXPERIMENT_FILE.format(name="NAME"), (): MAIN_FILE}.items():
        for found in declared_keys(other, root):
            if found[-1] == key:
                override = f" ({dotted(found)} in an override)" if other else ""
                return f"unknown key here; did you mean {dotted(found[len(other) :])!r} in {name}{override}?"
    if near := nearest(key, [str(found[-1]) for found in file]):
        return f"unknown key; did you mean {dotted(next(f for f in file if f[-1] == near)[start:])!r}?"
    return f"unknown key; known are {', '.join(known)}"
