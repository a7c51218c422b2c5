"""Labels are read out of answers by whole words, and what names none or two is INVALID."""

import pytest

from reprolora.labels import extract_label

EMOTIONS = ["sadness", "joy", "love", "anger", "fear", "surprise"]


@pytest.mark.parametrize(
    "answer, label",
    [
        ("joy", "joy"),
        ("JOY.", "joy"),
        (" anger\nUser: joy", "anger"),
        ("\n\n joy", "joy"),
        ('"Fear"', "fear"),
        ("Emotion: love!", "love"),
        ("joy, joy", "joy"),
        ("**sadness**", "sadness"),
        ("not joy, sadness", "INVALID"),
        ("not joy", "INVALID"),
        ("This isn't anger", "INVALID"),
        ("This isn\u2019t anger", "INVALID"),
        ("joyful", "INVALID"),
        ("enjoy", "INVALID"),
        ("fear-mongering", "INVALID"),
        ("non-joy", "INVALID"),
        ("joy or anger", "INVALID"),
        ("", "INVALID"),
        ("\n", "INVALID"),
        ("happy", "INVALID"),
        ("\nUser: tell me\njoy", "INVALID"),
    ],
)
def test_emotions(answer, label):
    assert extract_label(answer, EMOTIONS) == label


@pytest.mark.parametrize(
    "answer, label",
    [
        ("very positive", "very positive"),
        ("Positive", "positive"),
        ("positive, very positive", "INVALID"),
        ("C++", "C++"),
        ("C", "C"),
        ("ärger", "Ärger"),
        ("verärgert", "INVALID"),
    ],
)
def test_labels_that_contain_others_or_signs(answer, label):
    assert extract_label(answer, ["positive", "very positive", "C", "C++", "Ärger"]) == label
