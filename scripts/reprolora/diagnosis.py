"""Does a training learn? Whether its loss is low enough and falls, and what it is likely due to when it does not."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import TrainerCallback

from reprolora.errors import Undertrained

log = logging.getLogger(__name__)

# Outside these, the learning rate is the first suspect: (too low, too high) for adapters and for all weights.
LEARNING_RATES = {"adapter": (2e-5, 5e-4), "full": (1e-6, 1e-4)}
# A smaller share of tokens to learn from is a suspect.
SUPERVISED_SHARE = 0.02
# Fewer logged losses have no quarters.
FEWEST = 4
# A last quarter so much above the lowest one has come up again.
RISEN = 1.05


def find_problems(losses: Sequence[tuple[int, float]], loss: float, steps: int, is_over: bool) -> list[dict[str, Any]]:
    """What is wrong with a training's losses: {"step", "problem"} for each, in order.

    Args:
        losses: (step, mean training loss since the one before), as logged so far.
        loss, steps: after so many steps the loss should be below this.
        is_over: whether the training has ended.

    It is looked at twice, after `steps` and at the end. The loss at that time is the mean of the last quarter of what
    was logged; it falls when that is below the mean of the first quarter. With fewer than four logged it is too early.
    """
    moments = [number for number, (step, _) in enumerate(losses, 1) if step >= steps and number >= FEWEST][:1]
    if is_over and len(losses) >= FEWEST and len(losses) not in moments:
        moments.append(len(losses))
    found = []
    for moment in moments:
        step = losses[moment - 1][0]
        first, *_, last = _quarters([value for _, value in losses[:moment]])
        if last > loss and step >= steps:
            found.append({"step": step, "problem": f"the loss is still {last:.2f}, above {loss:g}"})
        if last >= first:
            found.append(
                {"step": step, "problem": f"the loss does not fall: it began at {first:.2f} and is {last:.2f}"}
            )
    return found


def likely_causes(losses: Sequence[float], learning_rate: float, is_full: bool, supervised_share: float) -> list[str]:
    """Why a training may learn too little, the likeliest first: what something speaks for, then the common causes."""
    low, high = LEARNING_RATES["full" if is_full else "adapter"]
    quarters = _quarters(losses)
    has_risen = bool(quarters) and quarters[-1] > RISEN * min(quarters)
    suspects, common = [], []
    if learning_rate > high or (has_risen and learning_rate > low):
        suspects.append(f"the learning rate {learning_rate:g} is too high: try {learning_rate / 5:g}")
    elif learning_rate < low:
        suspects.append(f"the learning rate {learning_rate:g} is too low: try {learning_rate * 5:g}")
    else:
        rates = f"{learning_rate / 5:g} and {learning_rate * 5:g}"
        common.append(f"the learning rate {learning_rate:g} does not suit the model: try {rates}")
    if supervised_share < SUPERVISED_SHARE:
        suspects.append(f"only {supervised_share:.1%} of the tokens are answers: see the example in prompts.json")
    common.append("prompts and answers do not belong together: wrong columns, another language, another template")
    common.append("too few steps or too small an adapter: more epochs, a higher rank")
    return [*suspects, *common]


def _quarters(losses: Sequence[float]) -> list[float]:
    """The mean loss of each quarter; nothing when there are too few."""
    size = len(losses) // FEWEST
    starts = [0, size, len(losses) - 2 * size, len(losses) - size] if size else []
    return [sum(losses[start : start + size]) / size for start in starts]


class TrainingDiagnosis(TrainerCallback):
    """Looks at the losses of a training; says what is wrong with them, or stops it.

    Args:
        limits: {"loss", "steps"}.
        stops: whether a problem ends the training.
        learning_rate, is_full, supervised_share: what the causes are judged by.
    """

    def __init__(
        self, limits: Mapping[str, Any], stops: bool, learning_rate: float, is_full: bool, supervised_share: float
    ):
        self.limits, self.stops = limits, stops
        self._suspects = (learning_rate, is_full, supervised_share)
        self.findings: list[dict[str, Any]] = []
        self.causes: list[str] = []

    @property
    def record(self) -> dict[str, Any]:
        """What was found, for training.json."""
        return {"findings": self.findings, "causes": self.causes}

    def on_log(self, args, state, control, **kwargs):
        self._look(state, is_over=False)

    def on_train_end(self, args, state, control, **kwargs):
        self._look(state, is_over=True)

    def _look(self, state, is_over: bool) -> None:
        # The history includes what was logged before a resumption.
        losses = [(entry["step"], float(entry["loss"])) for entry in state.log_history if "loss" in entry]
        findings = find_problems(losses, self.limits["loss"], self.limits["steps"], is_over)
        if len(findings) == len(self.findings):
            return
        new, self.findings = findings[len(self.findings) :], findings
        self.causes = likely_causes([loss for _, loss in losses], *self._suspects)
        problems = "; ".join(f"after {finding['step']} steps {finding['problem']}" for finding in new)
        causes = ", ".join(f"({number}) {cause}" for number, cause in enumerate(self.causes, 1))
        if self.stops:
            raise Undertrained(f"{problems}; likely causes: {causes}")
        log.warning("%s; likely causes: %s", problems, causes)
