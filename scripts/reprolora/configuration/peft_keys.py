"""PEFT's own keys of an adapter, checked against what the installed PEFT declares."""

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic_core import PydanticCustomError

from reprolora.configuration.faults import KeyPath, did_you_mean

# Where PEFT's own keys are declared: generated from the installed PEFT, since importing it takes ten seconds.
PEFT_SCHEMA = "config/schemas/peft.json"
# Initialisations that PEFT accepts and that would not be what their name says here, with the reason.
REFUSED_INITIALIZATIONS = {
    "pissa_niter_[0-9]+": "its random decomposition is drawn anew when the adapter is loaded, so that the reloaded "
    "adapter would be another one; use pissa, whose decomposition is exact",
    "eva|corda|lora_ga": "it needs a pass over data before training, which the workflow does not make",
    "loftq": "it quantizes by itself, beside what `quantization` says",
}
# Types of adapter for which the same holds.
REFUSED_TYPES = {"ADALORA": "it moves ranks between layers at calls from the training loop, which nobody here makes"}


def check_peft(value: dict[str, Any]) -> dict[str, Any]:
    """Check an adapter's keys against the installed PEFT's configuration classes; texts become what PEFT declares."""
    types_ = peft_schema()["types"]
    kind = value.get("peft_type")
    if not isinstance(kind, str) or kind not in types_:
        what = "peft_type is missing" if kind is None else f"PEFT has no peft_type {kind!r}"
        raise peft_error(("peft_type",), what + (did_you_mean(str(kind).upper(), types_) or "; try LORA"))
    if kind in REFUSED_TYPES:
        raise peft_error(("peft_type",), f"{kind} is not offered: {REFUSED_TYPES[kind]}")
    properties = types_[kind]["properties"]
    checked: dict[str, Any] = {"peft_type": kind}
    for key, given in value.items():
        if key == "peft_type":
            continue
        if key not in properties:
            if key in peft_schema()["set_by_the_workflow"]:
                raise peft_error((key,), "is set by the workflow; remove this key")
            near = did_you_mean(key, properties) or f"; {PEFT_SCHEMA} lists its keys"
            raise peft_error((key,), f"PEFT's {kind} has no such key{near}")
        checked[key] = _peft_value(key, given, properties[key])
    for names, reason in REFUSED_INITIALIZATIONS.items():
        if re.fullmatch(names, str(checked.get("init_lora_weights"))):
            raise peft_error(("init_lora_weights",), f"{checked['init_lora_weights']} is not offered: {reason}")
    return checked


@cache
def peft_schema() -> dict[str, Any]:
    """The generated listing of PEFT's keys."""
    return json.loads((Path(__file__).resolve().parents[3] / PEFT_SCHEMA).read_text(encoding="utf-8"))


def _peft_value(key: str, given: Any, schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(schema)
    if validator.is_valid(given):
        return given
    candidates = []
    if isinstance(given, str):
        # YAML reads 1e-4 as text, and --config reads everything as text.
        candidates += [convert(given) for convert in (yaml.safe_load, _number) if convert(given) is not None]
        candidates += [None] if given == "null" else []
    for candidate in candidates:
        if validator.is_valid(candidate):
            return candidate
    raise peft_error((key,), f"should be {_wanted(schema)}, but is {given!r}")


def _wanted(schema: Mapping[str, Any]) -> str:
    """The values that a schema of PEFT's listing allows, in words."""
    if "anyOf" in schema:
        return " or ".join(_wanted(option) for option in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    if "pattern" in schema:
        return f"a text of the form {schema['pattern']}"
    words = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text"}
    words |= {"array": "a list", "object": "`key: value` lines", "null": "null"}
    signs = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    bounds = [f"{sign} {schema[word]:g}" for word, sign in signs.items() if word in schema]
    return " ".join([words[schema["type"]], *bounds])


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def peft_error(path: KeyPath, message: str) -> PydanticCustomError:
    """A fault at a path below the section that a validator checks."""
    return PydanticCustomError("peft", "{message}", {"path": path, "message": message})
