"""Models that are asked at an endpoint: what generates instructions and what judges answers have this in common."""

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from reprolora.configuration.sections import Section


def _check_url(text: str) -> str:
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"{text!r} is no address of an endpoint; write one such as http://localhost:8000/v1")
    if url.username or url.password or url.query or url.fragment:
        raise ValueError("only scheme, host, port and path; a key belongs into the environment variable")
    return text


class Budget(Section):
    """Where a generator that costs money stops; what it asked in earlier runs counts too."""

    requests: int | None = Field(default=None, ge=1, description="At most so many requests that were answered.")
    dollars: float | None = Field(default=None, gt=0, description="At most so many US dollars, by the prices below.")


class Prices(Section):
    """US dollars for a million tokens."""

    input: float = Field(ge=0, description="Price of a million tokens of the request.")
    output: float = Field(ge=0, description="Price of a million tokens of the answer.")


class Endpoint(Section):
    """How a model at an endpoint with OpenAI's protocol (OpenAI, vLLM, llama.cpp) is asked."""

    base_url: Annotated[str, AfterValidator(_check_url)] = Field(
        default="https://api.openai.com/v1",
        description="The endpoint: http:// or https://, host and path. It is kept with each answer, so no key in it.",
    )
    key_variable: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        default="OPENAI_API_KEY",
        description="The environment variable that holds the key. The key itself is written nowhere.",
    )
    temperature: float | None = Field(
        default=0.0, ge=0, le=2, description="Sampling temperature; null leaves it to the endpoint."
    )
    max_tokens: int = Field(default=1024, ge=16, description="Longest answer in tokens.")
    timeout: float = Field(default=120, gt=0, description="Seconds until a request counts as failed.")
    tries: int = Field(
        default=5, ge=1, description="How often one request is sent before it is given up, with longer pauses."
    )
    parallel: int = Field(default=4, ge=1, le=64, description="Requests that are under way at once.")
    budget: Budget = Field(default=Budget(), description="Where to stop.")
    prices: Prices | None = Field(default=None, description="What tokens cost; needed for budget.dollars.")

    @model_validator(mode="after")
    def _countable(self) -> Self:
        if self.budget.dollars and not self.prices:
            raise ValueError("budget.dollars needs prices, or nobody could tell what was spent")
        return self
