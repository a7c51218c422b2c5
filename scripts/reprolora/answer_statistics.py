"""Intervals of what the arms of an instruction experiment scored, and their paired comparisons.

Questions about one document depend on each other: who knows the document answers many of them. Where the rows are
known to be from documents, documents and not rows are drawn, as a survey draws clusters; intervals are wider for it.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm, t
from statsmodels.stats.proportion import proportion_confint

from reprolora.answer_runs import TEXT_SCORES, Answers
from reprolora.bootstrap import BLOCK, Measure, Scores, mean_estimates, sums_by_cluster
from reprolora.metrics import CONFIDENCE_LEVEL, RESAMPLES
from reprolora.rounding import DIGITS

MEASURES = ("domain_accuracy", *TEXT_SCORES, "loss")
SHARES = ("domain_accuracy", "exact_match")
# The same and what follows from them, as they are called where people read them.
SCORES = {
    "domain_accuracy": "Domain accuracy",
    "exact_match": "Exact match",
    "token_f1": "Token F1",
    "rouge_l": "ROUGE-L",
    "chrf": "chrF",
    "loss": "Loss",
    "perplexity": "Perplexity",
}


def score_answers(runs: Sequence[Answers], *, by_document: bool, resamples: int = RESAMPLES, seed: int = 0) -> Scores:
    """The measures of every arm, on its rows and on draws that all arms share: of documents, or else of rows.

    Each measure is a sum over rows (of hits, scores or nats) over another (of rows with distractors, rows, or tokens),
    and so is each draw of it. Domain accuracy is what is tested, or exact match where no row has distractors.

    Few or unequal documents make the bootstrap's variance too small: by the factor 1 - 1/m, where m is the effective
    number of documents, (sum w)^2 / sum w^2 for documents of the weights w (Kish, Survey Sampling, 1965, has it for
    weighted means). The draws are spread by that much, and the variance has m - 1 degrees of freedom, for which the
    intervals are widened (`reprolora.bootstrap`). With one document nothing can be said: the draws are not numbers.
    """
    first, rows = runs[0], len(runs[0].ids)
    clusters = np.unique(first.documents, return_inverse=True)[1] if by_document else np.arange(rows)
    answered = np.ones((len(runs), rows))
    choices = np.stack([run.has_choice for run in runs]).astype(float)
    correct = np.stack([np.nan_to_num(run.correct) for run in runs])
    sums = {"domain_accuracy": (correct, choices)}
    sums |= {name: (np.stack([run.scores[name] for run in runs]), answered) for name in TEXT_SCORES}
    sums["loss"] = (np.stack([run.loss for run in runs]), np.stack([run.tokens for run in runs]))
    if not choices.any():
        del sums["domain_accuracy"]
        correct, choices = sums["exact_match"]
    of_clusters = {name: tuple(sums_by_cluster(values, clusters) for values in pair) for name, pair in sums.items()}
    draws = {name: np.empty((len(runs), resamples)) for name in sums}
    count = clusters.max() + 1
    rng = np.random.default_rng(seed)
    step = max(1, BLOCK // count)
    for start in range(0, resamples, step):
        block = slice(start, min(start + step, resamples))
        weights = rng.multinomial(count, np.full(count, 1 / count), size=block.stop - block.start).T
        for name, (total, size) in of_clusters.items():
            drawn = size @ weights
            # A draw of documents without any distractors says nothing of domain accuracy.
            same = np.broadcast_to(total.sum(axis=1, keepdims=True) / size.sum(axis=1, keepdims=True), drawn.shape)
            draws[name][:, block] = np.divide(total @ weights, drawn, out=same.copy(), where=drawn > 0)
    tested = choices[0] > 0
    spread = _spread_for_few_documents if by_document else _as_drawn
    return Scores(
        measures={name: spread(draws[name], *of_clusters[name]) for name in sums},
        correct=correct[:, tested],
        seeds=np.ones(len(runs), dtype=int),
        clusters=clusters[tested] if by_document else None,
    )


def _as_drawn(draws: np.ndarray, total: np.ndarray, size: np.ndarray) -> Measure:
    """The measure of sums over rows, both of shape (arms, rows), for as many rows as there are in any split."""
    return Measure(total.sum(axis=1) / size.sum(axis=1), draws, np.zeros(len(draws)), np.full(len(draws), np.inf))


def _spread_for_few_documents(draws: np.ndarray, total: np.ndarray, size: np.ndarray) -> Measure:
    """The measure of sums over documents, both of shape (arms, documents); see `score_answers`."""
    values = total.sum(axis=1) / size.sum(axis=1)
    effective = size.sum(axis=1) ** 2 / (size**2).sum(axis=1)
    several = effective > 1 + 1e-9
    freedom = np.where(several, effective - 1, 1)
    spread = np.where(several, np.sqrt(effective / freedom), np.nan)
    draws = values[:, None] + (draws - values[:, None]) * spread[:, None]
    return Measure(values, draws, np.zeros(len(draws)), freedom)


def intervals(scores: Scores, rows: int) -> dict[str, np.ndarray]:
    """Each score's values and the ends of its intervals, of shape (contenders,), rounded: columns of a table.

    `rows` is how many rows were answered. Shares of rows have Wilson's interval where no seeds are pooled.
    """
    columns: dict[str, np.ndarray] = {}
    for name, measure in scores.measures.items():
        estimates = mean_estimates(measure, scores.seeds)
        low, high = estimates.low, estimates.high
        if name in SHARES and (scores.seeds == 1).all():
            low, high = wilson_interval(measure, scores.correct.shape[1] if name == "domain_accuracy" else rows)
        most = np.inf if name == "loss" else 1
        columns |= {name: measure.values, f"{name}_low": low.clip(0, most), f"{name}_high": high.clip(0, most)}
    # It grows with the loss, so the ends of its interval are those of the loss.
    columns |= {f"perplexity{end}": np.exp(columns[f"loss{end}"]) for end in ("", "_low", "_high")}
    return {name: values.round(DIGITS) for name, values in columns.items()}


def wilson_interval(measure: Measure, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of the shares of single arms: of `rows` independent rows, or of as many as they are worth.

    With rows of documents that is p (1 - p) / variance, with the variance over documents, at most `rows`, and less for
    the degrees of freedom of that variance (Korn and Graubard, Survey Methodology 24, 1998). Where all rows are right,
    or none, nothing tells how alike those of a document are: then documents are counted.
    """
    share, variance, tail = measure.values, measure.draws.var(axis=1), (1 - CONFIDENCE_LEVEL) / 2
    worth = np.divide(share * (1 - share), variance, out=measure.freedom + 1, where=variance > 0)
    worth = np.minimum(worth * (norm.isf(tail) / t.isf(tail, measure.freedom)) ** 2, rows)
    worth = np.where(np.isinf(measure.freedom), rows, worth)
    low, high = proportion_confint(share * worth, worth, alpha=1 - CONFIDENCE_LEVEL, method="wilson")
    unknown = np.isnan(measure.draws).any(axis=1)
    return np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)
