"""Variants of methods: the candidates of a sweep and the points of a learning curve."""

import re
from collections.abc import Iterable

from pydantic import ValidationError

from reprolora.configuration.declarations import as_declared
from reprolora.configuration.experiments import Experiment, Rows, Training
from reprolora.configuration.faults import Fault, KeyPath, did_you_mean, dotted
from reprolora.configuration.layers import merge
from reprolora.configuration.methods import Method, Quantization
from reprolora.configuration.peft_keys import peft_schema
from reprolora.configuration.sections import Section, value_at
from reprolora.configuration.validation import validation_faults
from reprolora.sweeps import candidate_name, combinations


class Variant(Section):
    """A method as an experiment trains it, with some settings changed. A swept key is a path in here."""

    training: Training
    method: Method
    rows: Rows | None = None  # None for all training rows


class SweepError(Exception):
    """A sweep that has a fault."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        super().__init__()
        self.faults = list(faults)


def candidates(name: str, experiment: Experiment, method: Method) -> dict[str, Variant]:
    """The candidates of an experiment's sweep over one method, by name.

    Raises:
        SweepError: a key that cannot be swept, a value that a key cannot have, or the same candidate twice.
    """
    sweep, found = experiment.sweep, {}
    at: KeyPath = ("experiment", name, "sweep")
    keys: list[KeyPath] = [("grid", key) for key in sweep.grid]
    keys += [("candidates", number, key) for number, candidate in enumerate(sweep.candidates) for key in candidate]
    if unknown := [Fault(path=(*at, *key), message=fault) for key in keys if (fault := _not_to_sweep(key[-1]))]:
        raise SweepError(unknown)
    for number, settings in enumerate(sweep.candidates or combinations(sweep.grid)):

        def fault(path: KeyPath, message: str, number=number, settings=settings) -> Fault:
            key = dotted(path)
            place: KeyPath = ("candidates", number) if sweep.candidates else ("grid",)
            if key in settings:
                place += (key,) if sweep.candidates else (key, sweep.grid[key].index(settings[key]))
            elif key:
                message = f"with {candidate_name(settings)}, {key}: {message}"
            return Fault(path=(*at, *place), message=message)

        content = {"training": experiment.training_of(method).model_dump(), "method": method.model_dump()}
        for key, value in settings.items():
            for section in reversed(key.split(".")):
                value = {section: value}
            merge(content, as_declared(value, Variant))
        try:
            variant = Variant.model_validate(content)
        except ValidationError as error:
            raise SweepError(fault(f.path, f.message) for f in validation_faults(error, Variant)) from None
        # Named by the values as they were understood, so that `1e-4` and `0.0001` have one name.
        candidate = candidate_name({key: value_at(variant, key) for key in settings})
        if candidate in found:
            raise SweepError([fault((), f"{candidate} stands twice")])
        found[candidate] = variant
    return found


def curve_points(experiment: Experiment, method: Method) -> dict[str, Variant]:
    """The points of an experiment's learning curve of one method, by name."""
    training = experiment.training_of(method)
    return {
        candidate_name({"rows": rows}): Variant(training=training, method=method, rows=rows)
        for rows in experiment.learning_curve.rows
    }


def _not_to_sweep(key: str) -> str | None:
    """What is wrong with a swept key, or None; which keys an adapter has, PEFT's own check says."""
    known = ["rows", *(f"training.{field}" for field in Training.model_fields)]
    known += [f"method.quantization.{field}" for field in Quantization.model_fields]
    if key in known or re.fullmatch(r"method\.peft\.\w+", key):
        return None
    known += sorted({f"method.peft.{name}" for kind in peft_schema()["types"].values() for name in kind["properties"]})
    without_section = [name for name in known if name.endswith(f".{key}")]
    hint = f"; did you mean {without_section[0]!r}?" if without_section else did_you_mean(key, known)
    return "cannot be swept" + (hint or "; training.KEY, method.peft.KEY, method.quantization.KEY and rows can")
