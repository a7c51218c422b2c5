"""config/instructions.yaml: instructions with answers, made from documents or read from files."""

from typing import Literal, Self

from pydantic import Field, model_validator

from reprolora.configuration.datasets import DataFile, DatasetFiles, Member
from reprolora.configuration.endpoints import Endpoint
from reprolora.configuration.sections import Name, Precision, Section, Seed, Sha256, SourceText, Text, kind_of_pinned


class Documents(Section):
    """A folder of documents to make questions and answers from."""

    source: SourceText
    member: Member = Field(
        default=[],
        description="The folder, inside the archive or the folder that the source names; for an archive in a hub's "
        "repository, first the archive's path. Left out: all of it.",
    )
    sha256: Sha256 | None = Field(
        default=None, description="Checksum of the downloaded archive (required for `pypi:`)."
    )
    exclude: list[Text] = Field(
        default=[], description="Documents to leave out: paths below the folder, in which `*` stands for any text."
    )
    largest_mb: float = Field(default=50, gt=0, description="Larger files are refused by name.")

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        kind = kind_of_pinned(self.source, self.sha256)
        if kind in ("hf", "modelscope") and not self.member:
            raise ValueError(f"a {kind}: source needs member, the path of an archive in it")
        if len(self.member) > (2 if kind in ("hf", "modelscope") else 1):
            raise ValueError("member has too many paths: archives inside archives hold no documents here")
        return self


class Chunks(Section):
    """How documents are cut."""

    model: Name = Field(description="The model of config/models.yaml whose tokenizer counts.")
    max_tokens: int = Field(default=512, ge=16, description="Longest chunk in tokens.")


class Generator(Endpoint):
    """Who writes the questions and answers. The endpoint's keys are for the kind openai; local has max_tokens too."""

    kind: Literal["headings", "openai", "local"] = Field(
        default="headings",
        description="`headings` takes them out of the documents, without a model; `openai` asks an endpoint with "
        "OpenAI's protocol (OpenAI, vLLM, llama.cpp); `local` asks a model of config/models.yaml.",
    )
    subject: Text | None = Field(
        default=None, description="What the documents are about, such as a product's name; the questions name it."
    )
    model: Text | None = Field(
        default=None, description="openai: the model's name at the endpoint; local: a model of config/models.yaml."
    )
    instructions: Text = Field(
        default="You write training data for an assistant that answers questions about documents. From the text that "
        "you are given, write questions that a reader of the documents might ask, each understandable without "
        "the text, and answer each from the text alone, completely and without mentioning the text. "
        "Write in the language of the text.",
        description="openai and local: the system message.",
    )
    pairs_per_chunk: int = Field(default=3, ge=1, le=20, description="openai and local: how many pairs a chunk gives.")
    attempts: int = Field(
        default=3,
        ge=1,
        description="openai: how often a pair is asked for, the first time included, when reviewers reject it.",
    )
    precision: Precision = Field(default="auto", description="local: number format of the computation.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind != "headings" and not self.model:
            raise ValueError(f"a generator of the kind {self.kind} needs model")
        return self


class Review(Section):
    """The gate between generated pairs and the data set: a person looks at a sample."""

    skip: bool = Field(default=False, description="Use the pairs unseen. The report says so.")
    share: float = Field(default=0.2, gt=0, le=1, description="Share of the pairs that are reviewed.")
    seed: Seed = Field(default=1, description="Seed of the sample.")
    pass_rate: float = Field(
        default=0.95, ge=0, le=1, description="The least share of reviewed pairs that has to be accepted as it is."
    )
    decisions: Text | None = Field(
        default=None,
        description="Where you put the file that the review page exports (JSON or CSV), from the Snakefile's folder.",
    )

    @model_validator(mode="after")
    def _decided(self) -> Self:
        if self.skip == (self.decisions is not None):
            raise ValueError("give either decisions, the file of the reviewer's decisions, or skip: true")
        return self


class InstructionDataset(Section):
    """Instructions with answers: made from documents, or read from files."""

    description: Text = Field(description="What the rows are, in a sentence; the report shows it.")
    license: Text = Field(description="The licence of the data, as an SPDX identifier where there is one.")
    citation: Text | None = Field(default=None, description="A BibTeX entry.")
    url: Text | None = Field(default=None, description="Where to read about the data.")
    files: DatasetFiles | None = Field(
        default=None,
        description="Files of instructions: Alpaca, ShareGPT or `messages`, as JSON Lines or one JSON list; "
        "which of these is recognised.",
    )
    documents: Documents | None = Field(default=None, description="Documents to make the rows from.")
    chunks: Chunks | None = Field(default=None, description="How documents are cut; goes with documents.")
    generator: Generator = Field(default=Generator(), description="Who writes the pairs; goes with documents.")
    minimum_support: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="An answer is flagged as unsupported when less than this share of its words is in its chunk.",
    )
    unsupported: Literal["keep", "drop"] = Field(default="drop", description="What happens to flagged pairs.")
    review: Review | None = Field(default=None, description="A person's review; goes with documents.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.files is None) == (self.documents is None):
            raise ValueError("give either files or documents")
        for key in ("chunks", "review"):
            if (getattr(self, key) is None) != (self.documents is None):
                raise ValueError(f"{key} goes with documents: give both or neither")
        return self

    @property
    def sources(self) -> dict[str, DataFile | Documents]:
        """What is fetched, by the name of the file that it becomes."""
        return {"documents": self.documents} if self.documents else self.files.parts

    @property
    def fixed_splits(self) -> bool:
        return self.files is not None and self.files.all is None
