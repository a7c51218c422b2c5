"""Near duplicates: the similarity is the one that is said, and every pair is found."""

import random

import numpy as np
import pytest

from reprolora import near_duplicates
from reprolora.near_duplicates import nearest, shingle_sets, shingles


def jaccard(one: str, other: str) -> float:
    """Worked out from the definition, text by text."""
    a, b = ({" ".join(t.lower().split())[k : k + 5] for k in range(len(t))} for t in (one, other))
    a, b = ({s for s in sets if len(s) == 5} for sets in (a, b))
    return len(a & b) / len(a | b)


def texts(count: int, seed: int) -> list[str]:
    """Sentences, a third of which are an earlier one with a few letters changed."""
    rng = random.Random(seed)
    words = ["what", "a", "lovely", "day", "for", "walking", "dogs", "and", "cats", "in", "parks", "never", "again"]
    made: list[str] = []
    while len(made) < count:
        text = (
            list(" ".join(rng.choices(words, k=rng.randint(4, 12))))
            if rng.random() < 0.67 or not made
            else list(rng.choice(made))
        )
        for _ in range(rng.randint(0, 3)):
            text[rng.randrange(len(text))] = rng.choice("xyz ")
        made.append("".join(text))
    return [text for text in made if len(" ".join(text.split())) > 5]


def test_shingles_ignore_case_and_white_space():
    assert shingles("Ab cdE") == {"ab cd", "b cde"}
    assert shingles(" AB \n  cde ") == {"ab cd", "b cde"}
    assert shingles("abcd") == {"abcd"}, "shorter than a shingle"
    assert shingles("a😀b😀c") == {"a😀b😀c"}, "a character is one, whatever its bytes"


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.8, 1.0])
@pytest.mark.parametrize("block", [3, 512])
def test_the_nearest_are_those_of_comparing_every_pair(similarity, block, monkeypatch):
    monkeypatch.setattr(near_duplicates, "BLOCK", block)
    monkeypatch.setattr(near_duplicates, "PAIRS", 2 * block)
    rows = texts(150, seed=3)
    groups = np.arange(len(rows)) % 3
    expected = np.zeros((len(rows), 3))
    for k, one in enumerate(rows):
        for m, other in enumerate(rows):
            value = jaccard(one, other)
            if k != m and value >= similarity:
                expected[k, groups[m]] = max(expected[k, groups[m]], value)
    assert (expected > 0).any(axis=1).mean() > 0.05, "there is something to find"
    found, partner = nearest(shingle_sets(rows), groups, similarity, np.arange(len(rows)))
    np.testing.assert_allclose(found, expected)
    assert ((partner >= 0) == (expected > 0)).all()
    for k, group in zip(*np.nonzero(expected), strict=True):
        other = partner[k, group]
        assert other != k and groups[other] == group
        assert jaccard(rows[k], rows[other]) == pytest.approx(expected[k, group])


def test_some_rows_only_and_the_first_of_equals():
    rows = ["the same text", "another thing", "The  same text", "the same text"]
    found, partner = nearest(shingle_sets(rows), np.zeros(4, int), 0.8, np.array([3, 1]))
    assert found.tolist() == [[1.0], [0.0]]
    assert partner.tolist() == [[0], [-1]]


def test_texts_shorter_than_a_shingle_are_alike_only_when_equal():
    found, _ = nearest(shingle_sets(["no", "No!", "NO", "yes"]), np.zeros(4, int), 0.5, np.arange(4))
    assert found[:, 0].tolist() == [1.0, 0.0, 1.0, 0.0]
