"""Reading the JSON that a language model was asked for."""

import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError

Form = TypeVar("Form", bound=BaseModel)


class Malformed(Exception):
    """An answer that has not the form that was asked for; says why."""


def read_form(text: str | None, form: type[Form]) -> Form:
    """A model's answer in the form that was asked for; a code fence around the JSON does not matter.

    Raises:
        Malformed: the answer is not that JSON.
    """
    inner = re.sub(r"^\s*```(?:json)?\s*|\s*```\s*$", "", text or "")
    try:
        return form.model_validate_json(inner)
    except ValidationError as error:
        raise Malformed(error.errors(include_url=False, include_input=False)[0]["msg"]) from None
