"""Answering the test rows of an instruction experiment, and comparing the answers with the reference answers."""

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from reprolora.answer_scores import score_answer
from reprolora.asking import ModelAsker
from reprolora.choices import Row, draw_distractors
from reprolora.files import read_jsonl, sha256_of, write_json, write_jsonl
from reprolora.loading import check_context
from reprolora.measure import Meter
from reprolora.rounding import rounded

# Rounding hides the last bits, in which two builds of a linear algebra library may differ.


class InstructionAsker(ModelAsker):
    """A model together with the encoder of its instructions, an `InstructionEncoder`."""

    def generate(self, rows: Sequence[Row], max_new_tokens: int) -> list[tuple[str, bool]]:
        """Greedy answers to the rows, at most `max_new_tokens` long, and whether each ended by itself before that."""
        prompts = [self.encoder.encode_prompt(row) for row in rows]
        answers = self.engine.generate(self.model, prompts, max_new_tokens, self.terminators, **self.options)
        return [(self.decode(answer), len(answer) < max_new_tokens) for answer in answers]

    def log_probabilities(self, rows: Sequence[Row], answers: Sequence[Sequence[str]]) -> list[list[torch.Tensor]]:
        """Log-probability of each token of each row's own `answers`, the terminator last: [tokens] each."""
        prompts = [self.encoder.encode_prompt(row) for row in rows]
        completions = [[self.encoder.encode_completion(answer) for answer in own] for own in answers]
        return self.engine.completion_log_probabilities(self.model, prompts, completions, **self.options)


def answer_test(
    asker: InstructionAsker,
    settings: Mapping[str, Any],
    meter: Meter,
    args: argparse.Namespace,
    limit: int | None = None,
) -> None:
    """Answer the test rows, or the first `limit` of them, and write what the evaluation of an arm writes.

    `args` has the paths `train`, `validation` and `test` to read, `predictions`, `metrics` and `resources` to write.

    Raises:
        ArmFailed: a prompt with an answer is longer than what the model knows.
    """
    rows, asked = list(read_jsonl(args.test)), settings["answers"]
    others = read_jsonl(args.validation), read_jsonl(args.train)
    # Drawn for all rows, so that a row has the same ones whatever the limit.
    distractors = draw_distractors(rows, others, asked["distractors"], asked["choice_seed"])[:limit]
    parts = {row["id"]: "validation" for row in read_jsonl(args.validation)}
    parts |= {row["id"]: "test" for row in rows}
    rows = rows[:limit]
    check_lengths(asker, rows, distractors, asked["max_new_tokens"])
    with meter.phase("evaluate"):
        predictions = predict(asker, rows, distractors, asked["max_new_tokens"])
    write_jsonl(args.predictions, predictions)
    used = Counter(parts.get(name, "train") for row in predictions for name in row["choices"])
    facts = {
        "arm": settings["arm"],
        "split": "test",
        "task": "instruction",
        "predictions_sha256": sha256_of(args.predictions),
        "distractors": {part: used[part] for part in ("test", "validation", "train")},
    }
    write_json(args.metrics, facts | summarize(predictions))
    write_json(args.resources, asker.resources(meter, len(predictions)))


def check_lengths(
    asker: InstructionAsker, rows: Sequence[Row], distractors: Sequence[Sequence[Row]], max_new_tokens: int
) -> None:
    """Raise ArmFailed when a prompt with the longest of its answers does not fit the model's positions."""
    encoder, needed = asker.encoder, 0
    for row, others in zip(rows, distractors, strict=True):
        completions = [len(encoder.encode_completion(one["output"])) for one in (row, *others)]
        needed = max(needed, len(encoder.encode_prompt(row)) + max(max_new_tokens, *completions))
    check_context(asker.model, needed, "shorten these rows, or leave them out of the data")


def predict(
    asker: InstructionAsker, rows: Sequence[Row], distractors: Sequence[Sequence[Row]], max_new_tokens: int
) -> list[dict[str, Any]]:
    """The rows of predictions.jsonl."""
    answers = asker.generate(rows, max_new_tokens)
    outputs = [[row["output"], *(other["output"] for other in own)] for row, own in zip(rows, distractors, strict=True)]
    scores = asker.log_probabilities(rows, outputs)
    return [prediction(*parts) for parts in zip(rows, answers, distractors, scores, strict=True)]


def prediction(
    row: Row, answer: tuple[str, bool], distractors: Sequence[Row], scores: Sequence[torch.Tensor]
) -> dict[str, Any]:
    """One row of predictions.jsonl; `scores` has the log-probabilities of the reference's tokens and the distractors'.

    The answer that the model chooses is the one with the highest mean over its tokens, the terminator among them; a tie
    is no right choice.
    """
    text, finished = answer
    means = rounded([own.mean().item() for own in scores])
    return {
        "id": row["id"],
        "document": row["document"],
        "instruction": row["instruction"],
        "input": row["input"],
        "reference": row["output"],
        "answer": text,
        "finished": finished,
        "scores": rounded(score_answer(text, row["output"])),
        "reference_tokens": len(scores[0]),
        "reference_loss": rounded(-scores[0].sum().item()),
        "choices": [other["id"] for other in distractors],
        "choice_scores": means,
        "correct": means[0] > max(means[1:]) if distractors else None,
    }


def summarize(predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of metrics.json. Loss and perplexity are per token over the tokens of all references."""
    chosen = [row["correct"] for row in predictions if row["correct"] is not None]
    scores = {name: np.mean([row["scores"][name] for row in predictions]) for name in predictions[0]["scores"]}
    loss = sum(row["reference_loss"] for row in predictions) / sum(row["reference_tokens"] for row in predictions)
    metrics = {"domain_accuracy": np.mean(chosen) if chosen else None} | scores | {"loss": loss}
    # A perplexity that no number can hold is none.
    metrics["perplexity"] = math.exp(loss) if loss < math.log(np.finfo(float).max) else None
    return {
        "n": len(predictions),
        "n_choices": len(chosen),
        "metrics": rounded(metrics),
    }
