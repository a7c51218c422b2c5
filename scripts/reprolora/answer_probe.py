"""What a model makes of a few instructions, by which a reloaded model is compared with the trained one."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedModel

from reprolora.asking import ModelAsker
from reprolora.prompts import InstructionEncoder

# Enough to see a difference, and few enough to take seconds: answers are long.
PROBE_ROWS = 16
PROBE_TOKENS = 16


def probe_answers(
    model: PreTrainedModel, encoder: InstructionEncoder, rows: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Of the first rows, how a greedy answer begins, and the mean log-probability of the reference's tokens.

    In the form that `check_reloaded` compares: {"id", "raw", "log_probabilities": {"reference": value}}.
    """
    rows, asker = rows[:PROBE_ROWS], ModelAsker(model, encoder)
    prompts = [encoder.encode_prompt(row) for row in rows]
    references = [[encoder.encode_completion(row["output"])] for row in rows]
    begun = asker.engine.generate(model, prompts, PROBE_TOKENS, asker.terminators, **asker.options)
    scores = asker.engine.completion_log_probabilities(model, prompts, references, **asker.options)
    return [
        {
            "id": row["id"],
            "raw": asker.decode(answer),
            "log_probabilities": {"reference": reference.mean().item()},
        }
        for row, answer, [reference] in zip(rows, begun, scores, strict=True)
    ]
