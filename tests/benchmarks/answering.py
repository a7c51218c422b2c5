"""Evaluation: ours against the tutorials' loop over rows."""

import time
from collections.abc import Sequence

from peft import PeftModel

from benchmarks.report import Report
from benchmarks.workload import Workload
from reprolora.engine import last_layer, lora, plain
from reprolora.errors import ArmFailed
from reprolora.evaluation import Asker
from reprolora.labels import extract_label

CHECKED = 16  # rows of a repeat whose likeliest label is compared with the loop's, which needs a pass for each label


class Loop(Asker):
    """The tutorials' way: `model.generate` on one row after another, and one pass for each label."""

    def __init__(self, *args):
        super().__init__(*args)
        self.engine, self.options = plain, {}


def measure(workload: Workload, report: Report, model: PeftModel, rows: int, repeats: int) -> None:
    """Both of our modes against the generating loop, on the same test rows.

    Raises:
        ArmFailed: an answer differs from the loop's.
    """
    lora.remove(model)
    last_layer.remove(model)
    model.get_base_model().set_attn_implementation("sdpa")
    model.eval()
    labels, tokens = workload.settings["labels"], workload.settings["evaluation"]["max_new_tokens"]
    mine, loop = (kind(model, workload.encoder, labels) for kind in (Asker, Loop))
    generate, likelihood, agreement = [], [], []
    for repeat in range(repeats):
        start = repeat * rows % max(1, len(workload.test) - rows + 1)
        texts = [row["text"] for row in workload.test[start : start + rows]]
        expected, loop_seconds = _timed(lambda texts=texts: loop.generate(texts, tokens))
        found, generate_seconds = _timed(lambda texts=texts: mine.generate(texts, tokens))
        scores, likelihood_seconds = _timed(lambda texts=texts: mine.log_probabilities(texts))
        if found != expected:
            raise ArmFailed(f"{_differences(found, expected)} of {len(texts)} answers differ from the loop's")
        likeliest = [labels[place] for place in scores.argmax(1)]
        checked = [labels[place] for place in loop.log_probabilities(texts[:CHECKED]).argmax(1)]
        if likeliest[:CHECKED] != checked:
            raise ArmFailed(f"{_differences(likeliest[:CHECKED], checked)} of {len(checked)} likeliest labels differ")
        generate.append(loop_seconds / generate_seconds)
        likelihood.append(loop_seconds / likelihood_seconds)
        agreement.append(
            1 - _differences([extract_label(answer, labels) for answer in expected], likeliest) / len(texts)
        )
    report.add("evaluate_generate_vs_loop", generate)
    report.add("evaluate_likelihood_vs_loop", likelihood)
    report.add("likelihood_agrees_with_generate", agreement)
    report.note("evaluation_rows", rows)


def _timed(action) -> tuple:
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def _differences(a: Sequence, b: Sequence) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))
