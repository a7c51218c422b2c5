"""Answers of arms drawn at random, without files: for tests of what is counted in them."""

import numpy as np

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
