"""The configuration: what each key means, which values it takes, and how the files and overrides become one object.

- `datasets`, `instructions`, `models`, `methods`, `hardware`, `experiments`: the sections of each file of `config/`;
  `endpoints` has what two of them share. They are the only place where a key is declared: the JSON Schemas in
  `config/schemas/` and the tables of `docs/configuration.md` are generated from them
  (`scripts/document_configuration.py`). `sections` has what they are made of; `peft_keys` checks the keys of PEFT.
- `whole`: config.yaml's own keys, with everything else under them. `variants`: sweeps' candidates and curves' points.
- `loading`: the way from files to the object. It uses `yaml_files`, which reads one; `layers`, which lays one over
  another; and `declarations`, which looks up what is declared for a key.
- `validation`: what pydantic refuses, in our words. `checks`: what no section sees by itself. `faults`: what both say.
"""

from reprolora.configuration.datasets import Dataset
from reprolora.configuration.experiments import HIGH_LEARNING_RATE, Experiment, Export, Judge, Publication
from reprolora.configuration.faults import ConfigurationError
from reprolora.configuration.hardware import Hardware
from reprolora.configuration.instructions import Generator, InstructionDataset
from reprolora.configuration.loading import load_configuration
from reprolora.configuration.methods import Method
from reprolora.configuration.models import CLASSICAL, Model
from reprolora.configuration.peft_keys import PEFT_SCHEMA
from reprolora.configuration.sections import Name
from reprolora.configuration.variants import Variant
from reprolora.configuration.whole import Configuration
from reprolora.configuration.yaml_files import CATALOGUES, MAIN_FILE, read_yaml

__all__ = [
    "CATALOGUES",
    "CLASSICAL",
    "HIGH_LEARNING_RATE",
    "MAIN_FILE",
    "PEFT_SCHEMA",
    "Configuration",
    "ConfigurationError",
    "Dataset",
    "Experiment",
    "Export",
    "Generator",
    "Hardware",
    "InstructionDataset",
    "Judge",
    "Method",
    "Model",
    "Name",
    "Publication",
    "Variant",
    "load_configuration",
    "read_yaml",
]
