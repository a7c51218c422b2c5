"""The whole configuration: the keys of config/config.yaml, the catalogues, and the experiments."""

from functools import cached_property
from typing import Literal

from pydantic import Field

from reprolora.configuration.datasets import Dataset
from reprolora.configuration.experiments import Experiment
from reprolora.configuration.hardware import Hardware
from reprolora.configuration.instructions import InstructionDataset
from reprolora.configuration.methods import Method
from reprolora.configuration.models import Model
from reprolora.configuration.sections import Name, Section, Text
from reprolora.configuration.variants import Variant, candidates, curve_points


class Configuration(Section):
    """The whole configuration, as the workflow sees it. The first four keys are config.yaml's own."""

    experiments: list[Name] = Field(min_length=1, description="The experiments that a run makes (config/experiments/).")
    hardware: Name = Field(description="The entry of config/hardware.yaml to run on.")
    tracking: Literal["none", "tensorboard", "mlflow", "trackio", "wandb", "swanlab"] = Field(
        default="none",
        description="Where trainings also send their curves (docs/tracking.md); changing it trains nothing again.",
    )
    upload: list[Text] = Field(
        default=[],
        description="The repositories that `snakemake publish` uploads to; for all others it lists what it would "
        "upload. Meant for the command line.",
    )
    datasets: dict[Name, Dataset] = Field(description="The catalogue of datasets, config/datasets.yaml.")
    instructions: dict[Name, InstructionDataset] = Field(
        description="The catalogue of instruction data, config/instructions.yaml."
    )
    models: dict[Name, Model] = Field(description="The catalogue of models, config/models.yaml.")
    methods: dict[Name, Method] = Field(description="The catalogue of methods, config/methods.yaml.")
    hardware_catalogue: dict[Name, Hardware] = Field(description="The catalogue of machines, config/hardware.yaml.")
    experiment: dict[Name, Experiment] = Field(description="The experiments' own files, by name.")

    @property
    def machine(self) -> Hardware:
        return self.hardware_catalogue[self.hardware]

    def swept_methods(self, experiment: str) -> list[str]:
        """The methods of an experiment whose settings are chosen by its sweep."""
        chosen = self.experiment[experiment]
        if chosen.sweep is None:
            return []
        return chosen.sweep.methods or [name for name in chosen.methods if self.methods[name].trains]

    def curve_methods(self, experiment: str) -> list[str]:
        """The methods of an experiment that its learning curve shows."""
        chosen = self.experiment[experiment]
        if chosen.learning_curve is None:
            return []
        return chosen.learning_curve.methods or [name for name in chosen.methods if self.methods[name].learns]

    def exported_methods(self, experiment: str) -> list[str]:
        """The methods of an experiment whose trained weights `snakemake export` makes models of."""
        chosen = self.experiment[experiment]
        return chosen.export.methods or [name for name in chosen.methods if self.methods[name].merges]

    def method_before(self, experiment: str) -> str | None:
        """The method of an experiment that asks its models as they are."""
        methods = self.experiment[experiment].methods
        known = [name for name in methods if name in self.methods]
        return next((name for name in known if self.methods[name].baseline == "zero-shot"), None)

    @cached_property
    def variants(self) -> dict[str, dict[tuple[str, str], Variant]]:
        """For each experiment, by method and name: the candidates of its sweep and the points of its learning curve.

        Raises:
            SweepError: settings that cannot be swept.
        """
        found = {}
        for name, experiment in self.experiment.items():
            made = [(method, candidates(name, experiment, self.methods[method])) for method in self.swept_methods(name)]
            made += [(method, curve_points(experiment, self.methods[method])) for method in self.curve_methods(name)]
            found[name] = {(method, variant): settings for method, named in made for variant, settings in named.items()}
        return found
