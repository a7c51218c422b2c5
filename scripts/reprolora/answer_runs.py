"""The answers of the arms of an instruction experiment, with their scores, as arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reprolora.arms import KEY, Answered, predictions_of, read_predictions
from reprolora.errors import UserError

# Scores of a generated answer, each from 0 to 1.
TEXT_SCORES = ("exact_match", "token_f1", "rouge_l", "chrf")
# All arms of these experiments are asked in one mode.
MODE = "answer"


@dataclass(frozen=True)
class Answers(Answered):
    """What one arm answered to the test rows. Arrays have the shape (rows,)."""

    ids: tuple[str, ...]
    documents: tuple[str, ...]
    correct: np.ndarray  # 1 where the reference is preferred to its distractors, 0 where not, NaN without distractors
    scores: Mapping[str, np.ndarray]  # by TEXT_SCORES
    loss: np.ndarray  # of the reference, summed over its tokens, in nats
    tokens: np.ndarray  # of the reference
    finished: np.ndarray  # whether the answer was ended by its terminator

    @property
    def has_choice(self) -> np.ndarray:
        return ~np.isnan(self.correct)


def read_answers(metrics_file: Path) -> Answers:
    """The answers that an arm's metrics.json was made of."""
    metrics, rows = read_predictions(metrics_file)
    return Answers(
        *(metrics["arm"][key] for key in KEY),
        MODE,
        ids=tuple(row["id"] for row in rows),
        documents=tuple(row["document"] for row in rows),
        correct=np.array([np.nan if row["correct"] is None else float(row["correct"]) for row in rows]),
        scores={name: np.array([row["scores"][name] for row in rows], dtype=float) for name in TEXT_SCORES},
        loss=np.array([row["reference_loss"] for row in rows], dtype=float),
        tokens=np.array([row["reference_tokens"] for row in rows], dtype=float),
        finished=np.array([row["finished"] for row in rows], dtype=bool),
    )


def column_of(what: str, name: str) -> str:
    """What a column of tables/answers.csv is called that is about the arm of this name."""
    return f"{what} of {name}"


def read_all_answers(metrics_files: Sequence[Path]) -> list[Answers]:
    """The answers of all arms; refused unless they are to the same rows, with the same distractors."""
    answers = [read_answers(file) for file in metrics_files]
    for one, file in zip(answers, metrics_files, strict=True):
        same = one.ids == answers[0].ids and one.documents == answers[0].documents
        if not same or (one.has_choice != answers[0].has_choice).any():
            raise UserError(
                f"{predictions_of(file)}: its rows differ from those of {predictions_of(metrics_files[0])}; "
                "arms are compared on the same rows, so remove the older of the two and run again"
            )
    return answers
