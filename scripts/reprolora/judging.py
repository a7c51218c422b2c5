"""A language model as the judge of answers: whether fine-tuning made them better, and how far to trust it.

Each answer is compared with the one before fine-tuning twice, in both orders, since judges prefer a place (Zheng et
al., NeurIPS 2023); only a verdict that both orders share counts, and everything else is a tie. Agreement with a person
is the share of equal verdicts and Cohen's kappa.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.proportion import proportion_confint

from reprolora.arms import KEY, read_texts
from reprolora.chat_endpoint import ChatEndpoint
from reprolora.errors import UserError
from reprolora.rounding import rounded
from reprolora.structured import read_form

VERDICTS = ("win", "tie", "loss")  # of the answer after fine-tuning


class Comparison(BaseModel):
    """The form of the judge's answer: the reason first, so that it is thought of first."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: str
    better: Literal["A", "B", "tie"]


@dataclass(frozen=True)
class Pair:
    """An answer of an arm (a row of its predictions.jsonl) and the one before fine-tuning."""

    arm: Mapping[str, Any]
    row: Mapping[str, Any]
    before: str

    @property
    def after(self) -> str:
        return self.row["answer"]


@dataclass(frozen=True)
class Judgement:
    """What the judge said of a pair: with the old answer first, with the new one first, and both together.

    All are None, and `reason` says why, when it refused or never answered in form.
    """

    before_first: str | None
    after_first: str | None
    reason: str

    @property
    def verdict(self) -> str | None:
        return self.before_first if self.before_first == self.after_first else "tie"


def sample_pairs(
    arms: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]], before: str, rows: int, seed: int
) -> list[Pair]:
    """The pairs to judge: at most `rows` rows, the same for every arm, whose order a hash of their ids decides.

    `arms` has the metrics and the predictions of each; `before` is the method that asks the model as it is.
    """
    old = {
        metrics["arm"]["model"]: {row["id"]: row["answer"] for row in predictions}
        for metrics, predictions in arms
        if metrics["arm"]["method"] == before
    }
    pairs = []
    for metrics, predictions in arms:
        arm = metrics["arm"]
        if arm["method"] == before:
            continue
        if arm["model"] not in old:
            logging.warning("%s: nothing to compare %s with, since %s failed", arm["model"], arm["method"], before)
            continue
        chosen = sorted(predictions, key=lambda row: hashlib.sha256(f"{seed}\n{row['id']}".encode()).digest())[:rows]
        pairs += [Pair(arm, row, old[arm["model"]][row["id"]]) for row in chosen]
    return pairs


def judge_pair(pair: Pair, endpoint: ChatEndpoint) -> Judgement:
    """Ask the judge in both orders; equal answers are a tie without asking."""
    if pair.before.split() == pair.after.split():
        return Judgement("tie", "tie", "the answers are the same")
    found, reasons = [], []
    for first, second, words in (
        (pair.before, pair.after, {"A": "loss", "B": "win"}),
        (pair.after, pair.before, {"A": "win", "B": "loss"}),
    ):
        said = messages(endpoint.settings["instructions"], pair.row, first, second)
        comparison, trouble = endpoint.ask(said, "comparison", Comparison, lambda text: read_form(text, Comparison))
        if comparison is None:
            return Judgement(None, None, trouble)
        found.append(words.get(comparison.better, "tie"))
        reasons.append(comparison.reason)
    return Judgement(*found, " / ".join(reasons))


def messages(instructions: str, row: Mapping[str, Any], first: str, second: str) -> list[dict[str, str]]:
    """The chat messages that ask which of two answers to a row is better."""
    question = row["instruction"] + (f"\n\n{row['input']}" if row["input"] else "")
    parts = {"question": question, "reference": row["reference"], "answer_A": first, "answer_B": second}
    shown = "\n\n".join(f"<{name}>\n{text}\n</{name}>" for name, text in parts.items())
    task = 'Compare the answers, as JSON: {"reason": "one sentence", "better": "A", "B" or "tie"}. Nothing else.'
    return [{"role": "system", "content": instructions}, {"role": "user", "content": f"{shown}\n\n{task}"}]


def read_labels(path: Path) -> dict[tuple[str, str, str], str]:
    """A person's verdicts on pairs of answers, by the row's id and the two answers.

    The file is a copy of judge_verdicts.csv with the column `label` filled in where somebody judged.

    Raises:
        UserError: a column is missing, or a label is none of win, tie and loss.
    """
    table = read_texts(path)
    if missing := [name for name in ("id", "before", "after", "label") if name not in table]:
        raise UserError(f"{path}: no column {missing[0]!r}; fill in the column `label` of a copy of judge_verdicts.csv")
    labels = {}
    for number, row in enumerate(table.to_dict("records"), 2):
        label = row["label"].strip().casefold()
        if label and label not in VERDICTS:
            raise UserError(f"{path}:{number}: label {row['label']!r} is none of win, tie and loss; correct it")
        if label:
            labels[_key(row["id"], row["before"], row["after"])] = label
    return labels


def label_of(pair: Pair, labels: Mapping[tuple[str, str, str], str]) -> str | None:
    return labels.get(_key(pair.row["id"], pair.before, pair.after))


def _key(name: str, before: str, after: str) -> tuple[str, str, str]:
    """White space aside, in which a spreadsheet may change a text."""
    return name, " ".join(before.split()), " ".join(after.split())


def summarize(
    judged: Iterable[tuple[Pair, Judgement]], labels: Mapping[tuple[str, str, str], str], judge: str
) -> list[dict[str, Any]]:
    """The rows of judge.csv, one for each arm.

    The win rate is the share of wins in all judged pairs, ties among them, with its 95 % interval (Wilson, 1927).
    """
    arms: dict[tuple, list[tuple[Pair, Judgement]]] = {}
    for pair, judgement in judged:
        arms.setdefault(tuple(pair.arm[key] for key in KEY), []).append((pair, judgement))
    table = []
    for arm, pairs in arms.items():
        found = [(pair, judgement) for pair, judgement in pairs if judgement.verdict]
        counts, n = Counter(judgement.verdict for _, judgement in found), len(found)
        low, high = proportion_confint(counts["win"], n, method="wilson") if n else (None, None)
        inconsistent = sum(judgement.before_first != judgement.after_first for _, judgement in found)
        both = [(label, j.verdict) for pair, j in found if (label := label_of(pair, labels))]
        table.append(
            dict(zip(KEY, arm, strict=True))
            | {"judge": judge, "n": n, "wins": counts["win"], "ties": counts["tie"], "losses": counts["loss"]}
            | {"unjudged": len(pairs) - n, "inconsistent": inconsistent / n if n else None}
            | {"win_rate": counts["win"] / n if n else None, "win_rate_low": low, "win_rate_high": high}
            | {"labelled": len(both)}
            | agreement(both)
        )
    return rounded(table)


def agreement(both: Sequence[tuple[str, str]]) -> dict[str, float | None]:
    """How far a person and the judge agree; kappa is None when chance alone would make both say the same."""
    if not both:
        return {"agreement": None, "kappa": None}
    person, judge = zip(*both, strict=True)
    kappa = None if len({*person, *judge}) == 1 else cohen_kappa_score(person, judge, labels=VERDICTS)
    return {"agreement": np.mean([a == b for a, b in both]), "kappa": kappa}
