"""Answer the test rows without a language model: the commonest class, or TF-IDF with logistic regression.

Reads the training and test rows of a split; writes the prediction for each test row, the metrics, and what the work
took. The TF-IDF features are words and word pairs (also emoticons and runs of punctuation, which say much about a
tweet), with sublinear term frequency. The strength C of the logistic regression is the one with the best macro-F1 in
a cross-validation of the training rows; the test rows are seen once, at the end.
"""

import argparse
import json
import platform
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from reprolora import tfidf
from reprolora.errors import UserError, run_script
from reprolora.files import read_jsonl, sha256_of, write_json, write_jsonl
from reprolora.memory import peak_resident_bytes, reset_peak
from reprolora.metrics import classification_metrics
from reprolora.rounding import rounded

MODE = "classical"
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
# Where a class has too few rows to cross-validate: scikit-learn's own default.
DEFAULT_STRENGTH = 1.0
FOLDS = 5


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True, help="training rows (JSONL)")
    parser.add_argument("--test", type=Path, required=True, help="test rows (JSONL)")
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: arm, labels, baseline")
    parser.add_argument("--predictions", type=Path, required=True, help="output: one line per test row")
    parser.add_argument("--metrics", type=Path, required=True, help="output: the scores")
    parser.add_argument("--resources", type=Path, required=True, help="output: time and memory")
    return parser.parse_args()


class Majority:
    """Answers the commonest class of the training rows (the first in label order, when two are as common)."""

    def __init__(self, labels: Sequence[str]):
        self.labels = list(labels)

    def fit(self, texts: Sequence[str], answers: Sequence[str]) -> dict:
        counts = Counter(answers)
        self.shares = np.array([counts[label] / len(answers) for label in self.labels])
        return {"class": self.labels[int(self.shares.argmax())]}

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        return np.tile(self.shares, (len(texts), 1))


class TfidfLogisticRegression:
    """TF-IDF of words and word pairs, and a logistic regression whose strength is cross-validated."""

    def __init__(self, labels: Sequence[str], seed: int):
        self.labels = list(labels)
        self.seed = seed

    def fit(self, texts: Sequence[str], answers: Sequence[str]) -> dict:
        texts, answers = np.array(texts, dtype=object), np.array(answers)
        strength, score = self._choose_strength(texts, answers)
        self.vectorizer = tfidf.vectorizer(len(texts))
        features = self.vectorizer.fit_transform(texts)
        self.classifier = tfidf.fit(features, answers, strength)
        return {"C": strength, "cross_validated_macro_f1": score, "features": features.shape[1]}

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        found = self.classifier.predict_proba(self.vectorizer.transform(texts))
        # A label that no training row has gets the probability 0.
        result = np.zeros((len(texts), len(self.labels)))
        result[:, [self.labels.index(label) for label in self.classifier.classes_]] = found
        return result

    def _choose_strength(self, texts: np.ndarray, answers: np.ndarray) -> tuple[float, float | None]:
        """The strength with the best mean macro-F1 over the folds, the weakest of equals; and that macro-F1."""
        folds = min(FOLDS, min(Counter(answers.tolist()).values()))
        if folds < 2:
            return DEFAULT_STRENGTH, None
        scores = np.zeros(len(STRENGTHS))
        for fitted, held_out in StratifiedKFold(folds, shuffle=True, random_state=self.seed).split(texts, answers):
            vectorizer = tfidf.vectorizer(len(fitted))
            features = vectorizer.fit_transform(texts[fitted])
            others = vectorizer.transform(texts[held_out])
            for k, strength in enumerate(STRENGTHS):
                predicted = tfidf.fit(features, answers[fitted], strength).predict(others)
                scores[k] += f1_score(answers[held_out], predicted, average="macro", zero_division=0) / folds
        best = int(scores.round(6).argmax())
        return STRENGTHS[best], float(scores[best])


class Phases:
    """Time and peak memory of each phase of the work, apart."""

    def __init__(self):
        self.record: dict[str, Any] = {"started": datetime.now(UTC).isoformat(timespec="seconds")}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        reset_peak()
        start = time.perf_counter()
        yield
        self.record[f"{name}_seconds"] = time.perf_counter() - start
        self.record[f"{name}_peak_bytes"] = peak_resident_bytes()


def read_rows(file: Path, labels: Sequence[str]) -> list[dict]:
    rows = list(read_jsonl(file))
    if not rows:
        raise UserError(f"{file}: no rows; give this split a larger share or another dataset")
    for row in rows:
        if row["label"] not in labels:
            raise UserError(f"{file}: row {row['id']!r} has the label {row['label']!r}, not one of {', '.join(labels)}")
    return rows


def main() -> None:
    args = parse_args()
    arm, labels, baseline = (args.settings[key] for key in ("arm", "labels", "baseline"))
    model = {
        "majority": lambda: Majority(labels),
        "tfidf-logistic-regression": lambda: TfidfLogisticRegression(labels, arm["seed"]),
    }[baseline]()
    phases = Phases()
    # The rule asks for one thread; and with one, the sums have one order.
    with threadpool_limits(limits=1):
        with phases.phase("load"):
            train, test = read_rows(args.train, labels), read_rows(args.test, labels)
        texts, answers = [row["text"] for row in train], [row["label"] for row in train]
        if baseline != "majority" and len(set(answers)) < 2:
            raise UserError(f"{args.train}: all rows have the label {answers[0]!r}; a classifier needs at least two")
        with phases.phase("train"):
            fitted = model.fit(texts, answers)
        with phases.phase("evaluate"):
            probabilities = model.probabilities([row["text"] for row in test])
    # The label is chosen from the numbers that are written, so that anyone can choose it again from the file.
    probabilities = probabilities.round(6)
    rows = [
        {
            "id": row["id"],
            "mode": MODE,
            "text": row["text"],
            "label": row["label"],
            "prediction": labels[int(p.argmax())],
            "raw": None,
            "probabilities": dict(zip(labels, p.tolist(), strict=True)),
        }
        for row, p in zip(test, probabilities, strict=True)
    ]
    scores = classification_metrics(
        [row["label"] for row in rows],
        [row["prediction"] for row in rows],
        labels,
        [row["probabilities"] for row in rows],
    )
    write_jsonl(args.predictions, rows)
    write_json(
        args.metrics,
        {
            "arm": arm,
            "split": "test",
            "modes": {MODE: scores},
            "predictions_sha256": sha256_of(args.predictions),
            "baseline": rounded({"name": baseline, "train_rows": len(train), **fitted}),
        },
    )
    write_json(
        args.resources,
        {
            "device": "cpu",
            "threads": 1,
            "host": platform.node(),
            **phases.record,
            "examples": len(test),
            "examples_per_second": len(test) / max(phases.record["evaluate_seconds"], 1e-9),
        },
    )


if __name__ == "__main__":
    run_script(main)
