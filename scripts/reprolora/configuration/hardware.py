"""config/hardware.yaml: kinds of machines."""

from typing import Literal

from pydantic import Field

from reprolora.configuration.sections import Section, Text


class Hardware(Section):
    """A kind of machine to run on."""

    description: Text = Field(description="What the machine is; the report shows it.")
    accelerator: Literal["cpu", "cuda", "rocm"] = Field(
        description="Chooses the training environment (envs/train-*.yaml); cuda and rocm jobs each ask for one GPU."
    )
    price_per_hour: float = Field(ge=0, description="What an hour costs, in US dollars; gives the cost of each arm.")
