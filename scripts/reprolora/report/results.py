"""The content of a report's sources: arms and contenders, by rank, kind and comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd

from reprolora.arms import ALL_SEEDS, CLASSICAL, arm_names, read_arms, read_table
from reprolora.files import read_json, sha256_of
from reprolora.report.sources import Sources
from reprolora.report.wording import full_name
from reprolora.statistics import other_side


@dataclass(frozen=True)
class Results:
    """The content of the sources."""

    settings: Mapping[str, Any]
    measures: tuple[str, ...]  # by which contenders are ranked; the first is what was tested
    table: pd.DataFrame  # tables/metrics.csv with `name`, arms that have scores
    pooled: pd.DataFrame  # tables/metrics_pooled.csv
    comparison: pd.DataFrame  # tables/comparison.csv, level `method`
    resources: pd.DataFrame  # tables/resources.csv with `name`
    metrics: list[dict]
    metrics_files: Sequence[Path]
    trainings: list[dict]
    failures: list[dict]
    prompts: list[dict]
    models: dict[str, dict]
    dataset: dict
    split: dict
    split_digests: dict[str, str]  # sha256 of the file of each split's rows

    @classmethod
    def read(cls, settings: Mapping[str, Any], sources: Sources, measures: tuple[str, ...]) -> Self:
        table = read_table(sources.metrics_table)
        table = table[table["status"] == "ok"].reset_index(drop=True).astype({"n": int})
        comparison = read_table(sources.comparison_table)
        resources = read_table(sources.resources_table)
        failures = read_arms(sources.failures)
        return cls(
            settings=settings,
            measures=measures,
            table=table.assign(name=arm_names(table)),
            pooled=read_table(sources.pooled_table),
            comparison=comparison[comparison["level"] == "method"].reset_index(drop=True),
            resources=resources.assign(name=arm_names(resources)),
            metrics=read_arms(sources.metrics),
            metrics_files=sources.metrics,
            trainings=read_arms(sources.training),
            failures=[failure | {"name": full_name(failure["arm"])} for failure in failures],
            # These do not say their model; the folder that they lie in does.
            prompts=[read_json(file) | {"model": file.parent.name} for file in sources.prompts],
            models={file.parent.name: read_json(file) for file in sources.models},
            dataset=read_json(sources.dataset),
            split=read_json(sources.split),
            split_digests={file.stem: sha256_of(file) for file in sources.split_rows},
        )

    def contenders(self) -> pd.DataFrame:
        """One row for each model, method and mode, with its seeds pooled."""
        name = arm_names(self.pooled.assign(seed=ALL_SEEDS))
        return self.pooled.assign(name=name, kind=[self.kind(method) for method in self.pooled["method"]])

    def ranked(self, contenders: pd.DataFrame) -> pd.DataFrame:
        """The best first."""
        return contenders.sort_values(list(self.measures), ascending=False, kind="stable")

    def kind(self, method: str) -> str:
        """`adapter`, or the kind of baseline."""
        return self.settings["methods"][method]["baseline"] or "adapter"

    def quantized(self, method: str) -> bool:
        return bool(self.settings["methods"][method]["quantization"])

    def compare(self, a: Mapping, b: Mapping) -> dict | None:
        """The comparison of two contenders from the side of a, or None when the table has it not."""
        modes = {arm["mode"] for arm in (a, b)} - {CLASSICAL} or {CLASSICAL}
        for first, second, turn in ((a, b, lambda row: row), (b, a, other_side)):
            found = self.comparison[self.comparison["mode"].isin(modes)]
            for side, arm in (("a", first), ("b", second)):
                for key in ("model", "method"):
                    found = found[found[f"{key}_{side}"] == arm[key]]
            if len(found) and len(modes) == 1:
                return turn(found.iloc[0].to_dict())
        return None
