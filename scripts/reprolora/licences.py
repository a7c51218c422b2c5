"""Licences: whether a text names one, and how the hubs write it."""

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

# Licences of models that have no SPDX identifier.
OF_MODELS = ("gemma", "llama2", "llama3", "llama3.1", "llama3.2", "llama3.3", "llama4")
# Those that the Hugging Face Hub knows by name, of the ones that are met here; any other is `other` there.
KNOWN_TO_HUB = ("apache-2.0", "mit", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", *OF_MODELS)


def is_licence(text: str) -> bool:
    """Whether the text is an SPDX licence expression (`LicenseRef-NAME` included), or a model's known licence."""
    if text.lower() in OF_MODELS:
        return True
    try:
        canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return False
    return True


def card_licence(text: str) -> dict[str, str | None]:
    """The entries `license` and `license_name` of a card's metadata."""
    is_known = text.lower() in KNOWN_TO_HUB
    return {"license": text.lower() if is_known else "other", "license_name": None if is_known else text}
