"""The answer in sentences, each made from the tables, and what to know before trusting it."""

import math
from collections.abc import Mapping

import pandas as pd

from reprolora.arms import CLASSICAL
from reprolora.report.results import Results
from reprolora.report.wording import capital, percent, score
from reprolora.statistics import equivalence_clause, interval_of_difference, p_text

FEW_ROWS = 200


def answer(results: Results) -> list[str]:
    """The answer to the experiment's question: which arm is best, what fine-tuning buys, whether quantization costs."""
    contenders = results.contenders()
    if contenders.empty:
        return ["Every arm failed, so there is no answer yet; the reasons are below."]
    best = results.ranked(contenders).iloc[0].to_dict()
    sentences = [_best_sentence(best, len(contenders)), _gain_sentence(results, contenders, best)]
    return [text for text in [*sentences, quantization_sentence(results, contenders, best)] if text]


def _best_sentence(best: Mapping, count: int) -> str:
    which = "has the highest accuracy" if count > 1 else "has an accuracy"
    average = f" on average over {best['seeds']} seeds" if best["seeds"] > 1 else ""
    scores = (
        f"{percent(best['accuracy'])}{average} (95 % interval {percent(best['accuracy_low'])} to "
        f"{percent(best['accuracy_high'])}), with a macro-F1 of {score(best['macro_f1'])} "
        f"({score(best['macro_f1_low'])} to {score(best['macro_f1_high'])})"
    )
    return f"{capital(best['name'])} {which}{':' if count > 1 else ' of'} {scores}, on {best['n']:,} test rows."


def _gain_sentence(results: Results, contenders: pd.DataFrame, best: Mapping) -> str:
    """The best adapter against TF-IDF and against the same model before fine-tuning."""
    adapters = contenders[contenders["kind"] == "adapter"]
    if adapters.empty:
        return "No adapter was evaluated, so what fine-tuning buys cannot be said."
    tuned = results.ranked(adapters).iloc[0].to_dict()
    wanted = {
        "tfidf-logistic-regression": "TF-IDF with logistic regression",
        "zero-shot": "the model before fine-tuning",
    }
    parts = []
    for kind, name in wanted.items():
        for other in contenders[contenders["kind"] == kind].to_dict("records"):
            row = results.compare(tuned, other) if other["model"] in (CLASSICAL, tuned["model"]) else None
            if row:
                parts.append(difference_words(row, name, results.measures[0]))
                break
    if not parts:
        return "There is no TF-IDF and no zero-shot baseline to compare it with."
    subject = "That is" if tuned["name"] == best["name"] else f"The best adapter, {tuned['name']}, is"
    return f"{subject} {' and '.join(parts)}."


def difference_words(row: Mapping, other: str, measure: str) -> str:
    """A comparison from the side of its first, in words that follow "is"."""
    points, side = _points(row[f"{measure}_difference"])
    shown = "difference shown" if row["difference_shown"] else "no difference shown"
    where = f"{points} {side}" if side else "the same as"
    return f"{where} {other} ({interval_of_difference(row, measure)}; {shown}, p {p_text(row['p_value_holm'])})"


def quantization_sentence(results: Results, contenders: pd.DataFrame, best: Mapping) -> str:
    """Whether an adapter over quantized weights matches the same adapter over plain ones."""
    pair = quantization_pair(results, contenders, best)
    if pair is None:
        return ""
    plain, quantized = pair
    row = results.compare(quantized, plain)
    if row is None:
        return ""
    measure = results.measures[0]
    points, side = _points(row[f"{measure}_difference"])
    same = f"has the {measure.replace('_', ' ')} of {plain['name']}"
    where = f"is {points} {side} {plain['name']}" if side else same
    text = f"{capital(quantized['name'])} {where} ({interval_of_difference(row, measure)}): "
    p = f"p {p_text(row['p_value_holm'])}"
    if row["difference_shown"]:
        text += f"the difference is shown ({p})."
    else:
        could = row["smallest_detectable_difference"] * 100
        unseen = "" if math.isnan(could) else f", though one below {could:.1f} points would likely have gone unseen"
        text += f"no difference is shown ({p}){unseen}."
    clause = equivalence_clause(row)
    return f"{text} {capital(clause)}." if clause else text


def quantization_pair(results: Results, contenders: pd.DataFrame, best: Mapping) -> tuple[dict, dict] | None:
    """A plain and a quantized adapter that are the same otherwise; the best arm's model, mode and method first."""

    def rank(arm: dict) -> tuple:
        return tuple(arm[key] != best[key] for key in ("model", "mode", "method"))

    adapters = sorted(contenders[contenders["kind"] == "adapter"].to_dict("records"), key=rank)
    methods = results.settings["methods"]
    for first in adapters:
        for second in adapters:
            plain, quantized = (second, first) if results.quantized(first["method"]) else (first, second)
            same = all(plain[key] == quantized[key] for key in ("model", "mode"))
            trained = [
                [methods[arm["method"]].get(key) for key in ("peft", "learning_rate", "loraplus_lr_ratio")]
                for arm in (plain, quantized)
            ]
            kinds = results.quantized(quantized["method"]) and not results.quantized(plain["method"])
            if same and trained[0] == trained[1] and kinds:
                return plain, quantized
    return None


def _points(difference: float) -> tuple[str, str]:
    points = f"{abs(difference) * 100:.1f}"
    if float(points) == 0:
        return points, ""
    return f"{points} {'point' if points == '1.0' else 'points'}", "above" if difference > 0 else "below"


def notices(results: Results) -> list[str]:
    """What a reader must know before trusting the numbers."""
    found = notices_of_arms(results)
    if absent := results.split["absent_classes"]["test"]:
        found.append(f"The test rows have no row of: {', '.join(absent)}. Macro-F1 counts such a class as 0.")
    return found


def notices_of_arms(results: Results) -> list[str]:
    """Those about the arms and the number of test rows, which are the same for both tasks."""
    found = []
    if results.failures:
        names = ", ".join(failure["name"] for failure in results.failures)
        found.append(f"Left out because they failed: {names}. The reasons are below.")
    if (n := int(results.table["n"].iloc[0]) if len(results.table) else 0) and n < FEW_ROWS:
        found.append(f"Only {n} test rows: intervals are wide, and small differences cannot be shown.")
    return found
