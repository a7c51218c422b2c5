"""Answers of arms drawn at random, without files: for tests of what is counted in them."""

import numpy as np

from reprolora.answer_runs import TEXT_SCORES, Answers
from reprolora.arms import Run

NAMES = ("a", "b", "c")


def run(labels, predictions, method="x", seed=1, model="m", mode="generate"):
    ids = tuple(str(k) for k in range(len(labels)))
    return Run(model, method, seed, mode, NAMES, ids, np.asarray(labels), np.asarray(predictions))


def random_runs(rng, n=300, methods=("x", "y"), seeds=(1,), accuracy=0.8, seed_spread=0.0):
    """Answers with rows that are hard for everyone, rows that are hard for a method, and seeds that are worse."""
    labels = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    hard = rng.normal(np.log(accuracy / (1 - accuracy)) * 1.3, 1.5, n)
    runs = []
    for method in methods:
        own = rng.normal(0, 0.7, n)
        for seed in seeds:
            right = rng.random(n) < 1 / (1 + np.exp(-(hard + own + rng.normal(0, seed_spread))))
            runs.append(run(labels, np.where(right, labels, (labels + rng.integers(1, 4, n)) % 4), method, seed))
    return runs


def answers(documents, correct, method="x", seed=1, tokens=None, loss=None, **scores):
    """One arm's answers in an instruction experiment; `correct` is None where a row has no distractors."""
    rows = len(documents)
    given = {name: np.array([float(value) for value in values]) for name, values in scores.items()}
    return Answers(
        "m",
        method,
        seed,
        "answer",
        ids=tuple(map(str, range(rows))),
        documents=tuple(documents),
        correct=np.array([np.nan if value is None else float(value) for value in correct]),
        scores={name: given.get(name, np.zeros(rows)) for name in TEXT_SCORES},
        loss=np.ones(rows) if loss is None else np.array(loss, dtype=float),
        tokens=np.ones(rows) if tokens is None else np.array(tokens, dtype=float),
        finished=np.ones(rows, dtype=bool),
    )


def random_answers(rng, sizes, methods=("x", "y"), seeds=(1,), seed_spread=0.0):
    """Answers to rows of documents that are hard for everyone, or for a method; and seeds that are worse."""
    of_row = np.repeat(np.arange(len(sizes)), sizes)
    common = 0.8 + rng.normal(0, 1, len(sizes))[of_row] + rng.normal(0, 0.7, len(of_row))
    tokens = rng.integers(5, 150, len(of_row))
    runs = []
    for method in methods:
        own = rng.normal(0, 0.7, len(sizes))[of_row]
        for seed in seeds:
            ease = common + own + rng.normal(0, seed_spread)
            score = 1 / (1 + np.exp(1 - ease + rng.normal(0, 1, len(of_row))))
            loss = tokens * np.exp(0.5 - 0.3 * ease + rng.normal(0, 0.3, len(of_row)))
            right = rng.random(len(of_row)) < 1 / (1 + np.exp(-ease))
            texts = dict.fromkeys(TEXT_SCORES, score)
            runs.append(answers([str(unit) for unit in of_row], right, method, seed, tokens, loss, **texts))
    return runs
