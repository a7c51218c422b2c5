"""Scores of answers: values from the literature, worked out by hand, and from the metrics' own implementations."""

import pytest

from reprolora.answer_scores import rouge_l, score_answer, squad_tokens


def test_normalisation_is_squads():
    assert squad_tokens("The  Eiffel-Tower, a\tlandmark (in an old city).") == [
        "eiffeltower",
        "landmark",
        "in",
        "old",
        "city",
    ]
    assert squad_tokens("a theory than another: $5 `x`") == ["theory", "than", "another", "5", "x"]


@pytest.mark.parametrize(
    ("answer", "reference", "exact", "f1"),
    [
        ("The Eiffel Tower!", "eiffel tower", 1, 1),
        ("Paris, France", "in Paris", 0, 2 * (1 / 2) * (1 / 2) / (1 / 2 + 1 / 2)),
        ("a cat sat on a mat", "The cat sat", 0, 2 * (2 / 4) * (2 / 2) / (2 / 4 + 2 / 2)),
        ("go go go", "go go", 0, 2 * (2 / 3) * 1 / (2 / 3 + 1)),  # a word counts as often as both have it
        ("", "x", 0, 0),
        ("the", "", 1, 1),  # nothing is left of either
        ("completely", "different", 0, 0),
        # Scripts without spaces: a character is a word. 4 of 4 and 4 of 5.
        ("北京大学。", "北京的大学", 0, 2 * 4 / 9),
        ("《三体》", "三体", 1, 1),
        ("\uff37\uff33\uff27\uff29 服务器", "WSGI服务器", 1, 1),  # full width
        ("สวัสดี", "สวัสดี!", 1, 1),
        ("Ecole\u0301", "ECOL\u00c9", 1, 1),  # é in two ways
    ],
)
def test_exact_match_and_token_f1(answer, reference, exact, f1):
    scores = score_answer(answer, reference)
    assert (scores["exact_match"], scores["token_f1"]) == (exact, pytest.approx(f1))


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        # Lin 2004, section 3.1: S2 and S3 have the same bigrams with S1, but the order of only one of them.
        ("police kill the gunman", "police killed the gunman", 3 / 4),
        ("the gunman kill police", "police killed the gunman", 2 / 4),
        # rouge-score 0.1.2, rougeL without stemming.
        ("The quick brown fox jumps over the lazy dog", "The quick brown dog jumps on the log.", 0.588235),
        ("flask_app.run(debug=True)", "app.run(debug=False)", 0.666667),
        ("don't", "do not", 0.0),
        ("我在北京大学读书", "我在大学读书", 2 * 6 / 14),
        ("", "a word", 0.0),
    ],
)
def test_rouge_l(answer, reference, expected):
    assert rouge_l(answer, reference) == pytest.approx(expected, abs=1e-6)


def test_chrf_is_the_mean_over_orders_of_the_f2_of_character_n_grams():
    # "abcd" in "abcde": all n-grams of the answer are in the reference; recall 4/5, 3/4, 2/3, 1/2; F2 = 5r / (4 + r)
    # of the mean recall, since the precisions are 1. Orders 5 and 6, which the answer lacks, do not count.
    recall = (4 / 5 + 3 / 4 + 2 / 3 + 1 / 2) / 4
    assert score_answer("abcd", "abcde")["chrf"] == pytest.approx(5 * recall / (4 + recall))
    assert score_answer("a b\ncd", "ab cd")["chrf"] == pytest.approx(1)  # white space does not count


@pytest.mark.parametrize("text", ["Use `app.run()`.", "使用应用工厂。", "é", "..."])
def test_an_answer_that_is_the_reference_has_one_everywhere(text):
    assert score_answer(text, text) == {"exact_match": 1, "token_f1": 1, "rouge_l": 1, "chrf": pytest.approx(1)}
