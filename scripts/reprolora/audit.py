"""The audit of a split: class balance, lengths, near duplicates, and labels that may be wrong."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold

from reprolora import tfidf
from reprolora.splits import SPLITS, Row

HISTOGRAM_BINS = 30
FOLDS = 5
# What evaluate_classical's cross-validation chooses among; in the middle, and fitted no longer than the ranking needs.
STRENGTH, ITERATIONS = 3.0, 50
MOST_SUSPECTS = 100
SUSPECT_COLUMNS = ["split", "id", "label", "suggestion", "label_probability", "suggestion_probability", "text"]


def describe(rows: Sequence[Row], labels: Sequence[str]) -> dict[str, Any]:
    """The class balance and the lengths in characters of the rows of a split."""
    classes = Counter(row["label"] for row in rows)
    lengths = np.array([len(row["text"]) for row in rows])
    counts, edges = np.histogram(lengths, bins=min(HISTOGRAM_BINS, int(np.ptp(lengths)) + 1))
    return {
        "rows": len(rows),
        "labels": {label: classes[label] for label in labels},
        "characters": {
            "median": float(np.median(lengths)),
            "percentile_95": float(np.percentile(lengths, 95)),
            "max": int(lengths.max()),
            "histogram": {"counts": counts.tolist(), "edges": [round(edge, 3) for edge in edges.tolist()]},
        },
    }


def count_pairs(pairs: pd.DataFrame) -> dict[str, dict[str, int]]:
    """For each split, how many of its rows are nearly the same as a row of each split."""
    return {
        split: {other: int(((pairs["split"] == split) & (pairs["other_split"] == other)).sum()) for other in SPLITS}
        for split in SPLITS
    }


def label_suspects(splits: Mapping[str, Sequence[Row]], seed: int) -> tuple[dict[str, Any] | None, pd.DataFrame]:
    """The rows whose label a classifier finds least likely that did not see it, of those where it says another.

    TF-IDF with logistic regression is cross-validated over the rows of all splits together; a row's score is the
    probability of its given label (the self-confidence of Northcutt, Jiang & Chuang, 2021). Returns the counts, or None
    where a class has too few rows for two folds, and the most suspicious rows.
    """
    rows = [{"split": split, **row} for split in SPLITS for row in splits[split]]
    answers = np.array([row["label"] for row in rows])
    classes, given = np.unique(answers, return_inverse=True)
    folds = min(FOLDS, min(Counter(answers.tolist()).values()))
    if folds < 2 or len(classes) < 2:
        return None, pd.DataFrame(columns=SUSPECT_COLUMNS)
    # The features see no label, so all rows may shape them.
    features = tfidf.vectorizer(len(rows)).fit_transform([row["text"] for row in rows])
    probabilities = np.zeros((len(rows), len(classes)))
    for fitted, held_out in StratifiedKFold(folds, shuffle=True, random_state=seed).split(features, answers):
        classifier = tfidf.fit(features[fitted], answers[fitted], STRENGTH, ITERATIONS)
        probabilities[held_out] = classifier.predict_proba(features[held_out])
    probabilities = probabilities.round(6)
    said = probabilities.argmax(axis=1)
    own = probabilities[np.arange(len(rows)), given]
    doubtful = np.flatnonzero(said != given)
    table = pd.DataFrame(
        [
            {
                **{key: rows[k][key] for key in ("split", "id", "label", "text")},
                "suggestion": str(classes[said[k]]),
                "label_probability": own[k],
                "suggestion_probability": probabilities[k, said[k]],
            }
            for k in doubtful[np.argsort(own[doubtful], kind="stable")][:MOST_SUSPECTS]
        ],
        columns=SUSPECT_COLUMNS,
    )
    disagree = {
        split: int(((said != given) & np.array([row["split"] == split for row in rows])).sum()) for split in SPLITS
    }
    counts = {"folds": folds, "accuracy": round(float((said == given).mean()), 6), "disagree": disagree}
    return counts, table
