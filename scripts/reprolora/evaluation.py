"""Asking a model about rows, reading its labels, and scoring them."""

import argparse
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from reprolora.asking import ModelAsker
from reprolora.files import read_jsonl, sha256_of, write_json, write_jsonl
from reprolora.labels import extract_label
from reprolora.measure import Meter
from reprolora.metrics import classification_metrics
from reprolora.prompts import PromptEncoder

# How many validation rows the reload check compares.
PROBE_ROWS = 64


class Asker(ModelAsker):
    """A model together with the prompt and the labels that it is asked for.

    Args:
        model: base or adapted model.
        encoder: makes the prompts, the same as in training.
        labels: the answers to choose from.
        batch_tokens: tokens to run at once; None for what the memory holds.
    """

    def __init__(
        self, model: PreTrainedModel, encoder: PromptEncoder, labels: Sequence[str], batch_tokens: int | None = None
    ):
        super().__init__(model, encoder, batch_tokens)
        self.labels = list(labels)
        self._label_ids = _prefix_free([encoder.answer_ids(label) for label in labels], encoder.terminator)

    def generate(self, texts: Sequence[str], max_new_tokens: int) -> list[str]:
        """Greedy answers, at most `max_new_tokens` tokens each, as text."""
        prompts = [self.encoder.encode_prompt(text) for text in texts]
        ids = self.engine.generate(self.model, prompts, max_new_tokens, self.terminators, **self.options)
        return [self.decode(answer) for answer in ids]

    def log_probabilities(self, texts: Sequence[str]) -> torch.Tensor:
        """Log-probability of each label as the answer: [texts, labels], not normalized over the labels."""
        prompts = [self.encoder.encode_prompt(text) for text in texts]
        return self.engine.label_log_probabilities(self.model, prompts, self._label_ids, **self.options)

    def predict(self, rows: Sequence[Mapping[str, Any]], modes: Sequence[str], max_new_tokens: int) -> list[dict]:
        """Predictions for rows {"id", "text", "label"}, one for each mode and row, in the form of predictions.jsonl."""
        texts = [row["text"] for row in rows]
        predictions = []
        for mode in modes:
            if mode == "generate":
                for row, raw in zip(rows, self.generate(texts, max_new_tokens), strict=True):
                    predictions.append(_prediction(row, mode, extract_label(raw, self.labels), raw=raw))
            else:
                for row, scores in zip(rows, self.log_probabilities(texts).softmax(1).tolist(), strict=True):
                    best = self.labels[max(range(len(scores)), key=scores.__getitem__)]
                    rounded = {label: round(score, 6) for label, score in zip(self.labels, scores, strict=True)}
                    predictions.append(_prediction(row, mode, best, probabilities=rounded))
        return predictions

    def probe(self, rows: Sequence[Mapping[str, Any]]) -> list[dict]:
        """What the model makes of the first rows: a generated answer and every label's log-probability."""
        rows = rows[:PROBE_ROWS]
        texts = [row["text"] for row in rows]
        longest = max(len(ids) for ids in self._label_ids) + 1
        raw, scores = self.generate(texts, longest), self.log_probabilities(texts).tolist()
        return [
            {"id": row["id"], "raw": answer, "log_probabilities": dict(zip(self.labels, values, strict=True))}
            for row, answer, values in zip(rows, raw, scores, strict=True)
        ]


def evaluate(asker: Asker, rows: Sequence[Mapping], evaluation: Mapping[str, Any], arm: Mapping[str, Any]):
    """Answer `rows` as the `evaluation` section says: (predictions.jsonl's rows, metrics.json's content)."""
    predictions = asker.predict(rows, evaluation["modes"], evaluation["max_new_tokens"])
    return predictions, score(predictions, asker.labels, arm)


def answer_test(
    asker: Asker,
    test: str | Path,
    settings: Mapping[str, Any],
    meter: Meter,
    outputs: argparse.Namespace,
    limit: int | None = None,
    **facts: Any,
) -> None:
    """Answer the rows of the file `test`, or the first `limit` of them, and write what every evaluation writes.

    `outputs` has the paths `predictions`, `metrics` and `resources`; `facts` are further entries of metrics.json.
    """
    rows = list(islice(read_jsonl(test), limit))
    with meter.phase("evaluate"):
        predictions, metrics = evaluate(asker, rows, settings["evaluation"], settings["arm"])
    write_jsonl(outputs.predictions, predictions)
    write_json(outputs.metrics, metrics | facts | {"predictions_sha256": sha256_of(outputs.predictions)})
    write_json(outputs.resources, asker.resources(meter, len(predictions)))


def _prediction(row, mode, prediction, raw=None, probabilities=None) -> dict:
    known = {"id": row["id"], "mode": mode, "text": row["text"], "label": row["label"]}
    return known | {"prediction": prediction, "raw": raw, "probabilities": probabilities}


def _prefix_free(labels: list[list[int]], terminator: int) -> list[list[int]]:
    """Labels' tokens such that none begins another: ended by the terminator where that is needed."""
    begins = any(a is not b and b[: len(a)] == a for a in labels for b in labels)
    return [[*ids, terminator] for ids in labels] if begins else labels


def score(predictions: Sequence[Mapping], labels: Sequence[str], arm: Mapping[str, Any]) -> dict[str, Any]:
    """The content of metrics.json: every figure of every mode."""
    modes = {}
    for mode in dict.fromkeys(row["mode"] for row in predictions):
        rows = [row for row in predictions if row["mode"] == mode]
        probabilities = [row["probabilities"] for row in rows] if rows[0]["probabilities"] else None
        modes[mode] = classification_metrics(
            [row["label"] for row in rows], [row["prediction"] for row in rows], labels, probabilities
        )
    return {"arm": dict(arm), "split": "test", "modes": modes}
