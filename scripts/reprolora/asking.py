"""What both tasks share in asking a model: its engine and terminators, the reload check, and what it took."""

import math
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from transformers import PreTrainedModel

from reprolora.engine import answers, plain
from reprolora.engine.ragged import why_not
from reprolora.errors import ArmFailed
from reprolora.measure import Meter
from reprolora.prompts import Encoder

# How far the log-probabilities of a reloaded model may differ: rounding only.
TOLERANCE = {"fp32": 1e-3, "fp16": 5e-2, "bf16": 2e-1}


class ModelAsker:
    """A model together with the encoder that makes its prompts, and the engine that it can use.

    Args:
        model: base or adapted model.
        encoder: makes the prompts, the same as in training.
        batch_tokens: tokens to run at once; None for what the memory holds.
    """

    def __init__(self, model: PreTrainedModel, encoder: Encoder, batch_tokens: int | None = None):
        self.model, self.encoder = model, encoder
        self.fallback = why_not(model)
        self.engine: ModuleType = plain if self.fallback else answers
        self.options = {} if self.fallback else {"batch_tokens": batch_tokens}
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        self.terminators = {encoder.terminator, encoder.tokenizer.eos_token_id, *ends} - {None}

    def decode(self, answer: list[int]) -> str:
        return self.encoder.tokenizer.decode(answer, skip_special_tokens=True)

    def resources(self, meter: Meter, examples: int) -> dict[str, Any]:
        """The content of resources_evaluate.json after so many answers."""
        return {
            **meter.record,
            "examples": examples,
            "examples_per_second": examples / meter.record["evaluate_seconds"],
            "engine": "plain" if self.fallback else "shared-prefix",
            "engine_reason": self.fallback,
        }


def check_reloaded(before: Sequence[Mapping], after: Sequence[Mapping], precision: str) -> float:
    """Compare the probes of the model in memory and of the reloaded one; returns the largest difference.

    A probe has rows {"id", "raw": a greedy answer, "log_probabilities": {name: value}}.

    Raises:
        ArmFailed: an answer differs, or a log-probability by more than rounding explains.
    """
    if [row["id"] for row in before] != [row["id"] for row in after]:
        raise ArmFailed("the reload check has other rows than the training had; train again")
    largest, changed = 0.0, []
    for old, new in zip(before, after, strict=True):
        gaps = [abs(old["log_probabilities"][name] - value) for name, value in new["log_probabilities"].items()]
        largest = math.nan if any(map(math.isnan, gaps)) else max(largest, *gaps)
        if old["raw"] != new["raw"]:
            changed.append(f"{old['id']}: {old['raw']!r} became {new['raw']!r}")
    if changed or not largest <= TOLERANCE[precision]:
        raise ArmFailed(
            f"the reloaded adapter is not the trained one: {len(changed)} of {len(before)} answers differ"
            f"{' (' + changed[0] + ')' if changed else ''}, log-probabilities by up to {largest:.2g}"
        )
    return largest
