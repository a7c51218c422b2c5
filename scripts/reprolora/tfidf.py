"""TF-IDF of words and word pairs with logistic regression: the baseline, and what looks for doubtful labels."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

# A word, or a run of punctuation: scikit-learn's own pattern drops emoticons and single letters.
TOKEN = r"\w+|[^\w\s]+"
# A word that a single training row has teaches nothing about another row.
MINIMUM_ROWS_OF_A_WORD = 2


def vectorizer(rows: int) -> TfidfVectorizer:
    """The features of texts, for so many rows to learn from; with sublinear term frequency."""
    return TfidfVectorizer(
        token_pattern=TOKEN,
        ngram_range=(1, 2),
        sublinear_tf=True,
        # With a handful of rows, hardly a word would be left.
        min_df=MINIMUM_ROWS_OF_A_WORD if rows >= 100 else 1,
    )


def fit(features, answers: np.ndarray, strength: float, iterations: int = 1000) -> LogisticRegression:
    """The classifier; `strength` is scikit-learn's C, the inverse of the regularisation."""
    with warnings.catch_warnings():
        # A weakly regularised fit that stops early is good enough for what it is judged by here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=strength, max_iter=iterations).fit(features, answers)
