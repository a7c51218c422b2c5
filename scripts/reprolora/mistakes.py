"""What arms get wrong: the worst mistakes, where arms disagree, and for which rows they are right how often.

The runs of several seeds are one contender: its answer to a row is the likeliest label on average over the seeds, and
in a mode without probabilities the answer that most seeds gave (of equals, the first label; INVALID last).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from statsmodels.stats.proportion import proportion_confint

from reprolora.arms import ALL_SEEDS, CONTENDER, Run, arm_names, group_runs
from reprolora.labels import INVALID
from reprolora.metrics import CONFIDENCE_LEVEL
from reprolora.rounding import DIGITS

MOST_MISTAKES = 20  # of each contender
MOST_CONTENDERS = 8  # side by side in the table of disagreements
LENGTH_GROUPS = 4
KEY = ["arm", "model", "method", "mode", "seeds"]
MISTAKES = [*KEY, "rank", "id", "label", "answer", "confidence", "seeds_wrong", "arms_wrong", "arms", "text"]
DISAGREEMENTS = ["id", "label", "right", "arms"]  # then a column for each contender, and the text
ANSWER_OF = "answer of "
BREAKDOWN = [*KEY, "by", "group", "n", "accuracy", "accuracy_low", "accuracy_high"]
CALIBRATION = ["model", "method", "seed", "mode", "n", "accuracy", "ece", "brier"]


@dataclass
class Contender:
    """The runs of a model and method in a mode, over seeds."""

    name: str
    model: str
    method: str
    mode: str
    seeds: int
    answers: np.ndarray  # (rows,) positions in the labels, INVALID after the last
    confidence: np.ndarray | None  # (rows,) the mean probability of the answer, where there are probabilities
    right: np.ndarray  # (rows,) share of the seeds that are right

    @property
    def constant(self) -> bool:
        """Whether it says the same of every row, as the majority class does; such an arm disagrees with all others."""
        return bool((self.answers == self.answers[0]).all())


def contenders(runs: Sequence[Run]) -> list[Contender]:
    """The contenders in the order of their first runs. The runs have answered the same rows."""
    groups = group_runs(runs)
    keys = pd.DataFrame(list(groups), columns=CONTENDER).assign(seed=ALL_SEEDS)
    return [
        _contender(name, [runs[position] for position in positions])
        for name, positions in zip(arm_names(keys), groups.values(), strict=True)
    ]


def _contender(name: str, seeds: Sequence[Run]) -> Contender:
    first = seeds[0]
    confidence = None
    if first.probabilities is not None:
        mean = np.mean([run.probabilities for run in seeds], axis=0)
        answers = mean.argmax(axis=1)
        confidence = mean[np.arange(len(mean)), answers]
    else:
        names = np.arange(len(first.label_names) + 1)
        answers = np.sum([run.predictions[:, None] == names for run in seeds], axis=0).argmax(axis=1)
    right = np.mean([run.predictions == run.labels for run in seeds], axis=0)
    return Contender(name, first.model, first.method, first.mode, len(seeds), answers, confidence, right)


def mistakes_table(found: Sequence[Contender], run: Run, texts: Sequence[str]) -> pd.DataFrame:
    """The worst mistakes of each contender, worst first.

    Those with the highest confidence, where there are probabilities; elsewhere those that the most seeds made, and of
    these the rows that the most contenders got wrong. `run` is any of the runs, for the rows' ids and labels.
    """
    wrong = np.array([contender.answers != run.labels for contender in found])
    together = wrong.sum(axis=0)
    names = [*run.label_names, INVALID]
    rows = []
    for contender, missed in zip(found, wrong, strict=True):
        order = (
            np.lexsort((-together, contender.right))
            if contender.confidence is None
            else np.argsort(-contender.confidence, kind="stable")
        )
        confidence = np.full(len(missed), np.nan) if contender.confidence is None else contender.confidence
        for rank, row in enumerate(order[missed[order]][:MOST_MISTAKES], 1):
            rows.append(
                {
                    **_key(contender),
                    "rank": rank,
                    "id": run.ids[row],
                    "label": names[run.labels[row]],
                    "answer": names[contender.answers[row]],
                    "confidence": round(float(confidence[row]), DIGITS),
                    "seeds_wrong": round(contender.seeds * (1 - contender.right[row])),
                    "arms_wrong": int(together[row]),
                    "arms": len(found),
                    "text": texts[row],
                }
            )
    return pd.DataFrame(rows, columns=MISTAKES)


def disagreements_table(found: Sequence[Contender], run: Run, texts: Sequence[str]) -> pd.DataFrame:
    """The rows to which the contenders give different answers, a column for each of the best of them.

    First the rows on which they are the most evenly divided between right and wrong. A contender that says the same of
    every row is left out.
    """
    able = [contender for contender in found if not contender.constant]
    best = sorted(able, key=lambda contender: -contender.right.mean())[:MOST_CONTENDERS]
    chosen = [contender for contender in able if contender in best]
    names = np.array([*run.label_names, INVALID], dtype=object)
    answers = np.array([contender.answers for contender in chosen]).reshape(len(chosen), len(run.ids))
    different = (answers != answers[:1]).any(axis=0)
    right = (answers == run.labels).sum(axis=0)
    order = np.argsort(-np.minimum(right, len(chosen) - right), kind="stable")
    order = order[different[order]]
    given = (np.array(run.ids, dtype=object)[order], names[run.labels[order]], right[order], len(chosen))
    table = pd.DataFrame(dict(zip(DISAGREEMENTS, given, strict=True)))
    for contender, said in zip(chosen, answers, strict=True):
        table[ANSWER_OF + contender.name] = names[said[order]]
    return table.assign(text=np.array(texts, dtype=object)[order])


def breakdown_table(found: Sequence[Contender], run: Run, texts: Sequence[str]) -> pd.DataFrame:
    """How often each contender is right for the rows of each class, and of each quarter of lengths.

    Lengths are in characters; texts of a length are in one group. The accuracy is the mean over seeds; its interval is
    Wilson's for so many rows, since seeds answer the same rows and make none of them two.
    """
    groups = [("label", name, run.labels == k) for k, name in enumerate(run.label_names)]
    groups += [("characters", name, inside) for name, inside in length_groups([len(text) for text in texts])]
    rows = []
    for contender in found:
        for kind, name, inside in groups:
            n = int(inside.sum())
            if n:
                accuracy = float(contender.right[inside].mean())
                low, high = proportion_confint(accuracy * n, n, alpha=1 - CONFIDENCE_LEVEL, method="wilson")
                scores = {"accuracy": accuracy, "accuracy_low": low, "accuracy_high": high}
                rows.append({**_key(contender), "by": kind, "group": name, "n": n, **scores})
    return pd.DataFrame(rows, columns=BREAKDOWN).round(DIGITS)


def length_groups(lengths: Sequence[int]) -> list[tuple[str, np.ndarray]]:
    """The quarters of the lengths, shortest first: the name (`10-25`), and which rows are in it; less when many tie."""
    values = np.array(lengths)
    ends = np.unique(np.quantile(values, np.arange(1, LENGTH_GROUPS + 1) / LENGTH_GROUPS, method="inverted_cdf"))
    group = np.searchsorted(ends, values)
    insides = [group == k for k in range(len(ends))]
    return [(f"{values[inside].min()}-{values[inside].max()}", inside) for inside in insides]


def calibration_table(metrics: Iterable[Mapping]) -> pd.DataFrame:
    """The calibration of each arm that gives probabilities, from its metrics.json."""
    rows = [
        {
            **{key: content["arm"][key] for key in ("model", "method", "seed")},
            "mode": mode,
            "n": scores["n"],
            "accuracy": scores["accuracy"],
            "ece": scores["calibration"]["ece"],
            "brier": scores["calibration"]["brier"],
        }
        for content in metrics
        for mode, scores in content["modes"].items()
        if "calibration" in scores
    ]
    return pd.DataFrame(rows, columns=CALIBRATION)


def _key(contender: Contender) -> dict[str, str | int]:
    values = (contender.name, contender.model, contender.method, contender.mode, contender.seeds)
    return dict(zip(KEY, values, strict=True))
