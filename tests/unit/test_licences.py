"""What counts as a licence, and how a card says it."""

import pytest

from reprolora.licences import card_licence, is_licence


@pytest.mark.parametrize(
    "text",
    ["MIT", "apache-2.0", "CC-BY-4.0", "Apache-2.0 OR MIT", "LicenseRef-Ours", "gemma", "Llama3.1", "BSD-3-Clause"],
)
def test_a_licence(text):
    assert is_licence(text)


@pytest.mark.parametrize(
    "text",
    ["not for publication", "unknown", "other (educational and research purposes)", "none", "proprietary", "", "MIT!"],
)
def test_no_licence(text):
    assert not is_licence(text)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("Apache-2.0", {"license": "apache-2.0", "license_name": None}),
        ("gemma", {"license": "gemma", "license_name": None}),
        ("BSD-3-Clause", {"license": "other", "license_name": "BSD-3-Clause"}),
    ],
)
def test_a_card(text, entries):
    assert card_licence(text) == entries
