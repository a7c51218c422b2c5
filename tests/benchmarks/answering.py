"""Evaluation: ours against the tutorials' loop over rows."""

import time
from collections.abc import Sequence
from statistics import mean

from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict

from benchmarks.report import Report
from benchmarks.workload import Workload
from reprolora.engine import plain
from reprolora.errors import ArmFailed
from reprolora.evaluation import Asker
from reprolora.labels import extract_label

CHECKED = 16  # rows of a repeat whose likeliest label is compared with the loop's, which needs a pass for each label


class Loop(Asker):
    """The tutorials' way: `model.generate` on one row after another, and one pass for each label."""

    def __init__(self, *args):
        super().__init__(*args)
        self.engine, self.options = plain, {}


def measure(workload: Workload, report: Report, trained: PeftModel, rows: int, repeats: int) -> None:
    """Both of our modes against the generating loop on the same test rows, with the adapter of `trained`: in the
    precision that the workflow takes here and, if that is another, in fp32.

    Raises:
        ArmFailed: an answer in fp32 differs from the loop's. In a narrower type another order of summation decides what
            is as likely in two ways, so there the report says how many labels are the same.
    """
    report.note("evaluation_rows", rows)
    _measure(workload, report, trained, workload.precision, "", rows, repeats)
    if workload.precision != "fp32":
        _measure(workload, report, trained, "fp32", "_fp32", rows, repeats)


def _measure(
    workload: Workload, report: Report, trained: PeftModel, precision: str, suffix: str, rows: int, repeats: int
) -> None:
    model = workload.adapted("lora", precision).eval()
    set_peft_model_state_dict(model, get_peft_model_state_dict(trained))
    labels, tokens = workload.settings["labels"], workload.settings["evaluation"]["max_new_tokens"]
    mine, loop = (kind(model, workload.encoder, labels) for kind in (Asker, Loop))
    generate, likelihood, same, agreement = [], [], [], []
    for repeat in range(repeats):
        start = repeat * rows % max(1, len(workload.test) - rows + 1)
        texts = [row["text"] for row in workload.test[start : start + rows]]
        expected, loop_seconds = _timed(lambda texts=texts: loop.generate(texts, tokens))
        found, generate_seconds = _timed(lambda texts=texts: mine.generate(texts, tokens))
        scores, likelihood_seconds = _timed(lambda texts=texts: mine.log_probabilities(texts))
        likeliest = [labels[place] for place in scores.argmax(1)]
        if precision == "fp32":
            checked = [labels[place] for place in loop.log_probabilities(texts[:CHECKED]).argmax(1)]
            _check_same("answers", found, expected)
            _check_same("likeliest labels", likeliest[:CHECKED], checked)
        found, expected = ([extract_label(answer, labels) for answer in answers] for answers in (found, expected))
        generate.append(loop_seconds / generate_seconds)
        likelihood.append(loop_seconds / likelihood_seconds)
        same.append(_share(found, expected))
        agreement.append(_share(likeliest, expected))
    report.add(f"evaluate_generate_vs_loop{suffix}", generate)
    report.add(f"evaluate_likelihood_vs_loop{suffix}", likelihood)
    report.add(f"generate_same_labels{suffix}", same)
    report.add(f"likelihood_agrees_with_generate{suffix}", agreement)


def _timed(action) -> tuple:
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def _share(a: Sequence, b: Sequence) -> float:
    return mean(x == y for x, y in zip(a, b, strict=True))


def _check_same(what: str, found: Sequence, expected: Sequence) -> None:
    if found != expected:
        raise ArmFailed(f"only {_share(found, expected):.1%} of {len(found)} {what} are the loop's")
