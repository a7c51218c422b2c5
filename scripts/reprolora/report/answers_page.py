"""The report of an experiment with instructions; what it shares with the other is in `shared`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reprolora.answer_runs import column_of
from reprolora.answer_statistics import SCORES
from reprolora.arms import KEY, arm_names, read_table, read_texts
from reprolora.report.answer import difference_words, notices_of_arms, quantization_sentence
from reprolora.report.answers_method import answers_method
from reprolora.report.evidence import download, linker
from reprolora.report.results import Results
from reprolora.report.shared import CAPTIONS, render, shared_sections
from reprolora.report.sources import Sources
from reprolora.report.tables import settings_rows
from reprolora.report.wording import capital, percent, score
from reprolora.splits import SPLITS

# The claim of a public tutorial on fine-tuning for a domain: domain accuracy before and after, without an interval.
CLAIM = {"before": 0.723, "after": 0.912}
MOST_EXAMPLES = 8
MOST_ANSWERS = 4  # of an example, the one before fine-tuning among them
LONGEST_ANSWER = 600  # characters; the file has all
OWN_CAPTIONS = {
    "answers": (
        "Domain accuracy, generated answers and loss",
        "Scores of each method on the test rows, with 95 % intervals. Domain accuracy: share of the questions for "
        "which the reference answer is likelier, per token, than the answers to other questions about the same "
        "document; the dashed line is guessing. Exact match, token F1, ROUGE-L and chrF compare greedy answers "
        "with the references. The loss is that of the references.",
    ),
    "changes": (
        "Before and after",
        "ROUGE-L of the generated answers and loss of the references before fine-tuning, across, and after, upwards. "
        "On the dashed line nothing changed; above it ROUGE-L is better, below it the loss is. Each point is a "
        "document of the test rows, its area their number, or where the documents are not known, a row; seeds are "
        "averaged.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class AnswerSources(Sources):
    """With the tables of instruction experiments."""

    answers_table: Path
    judge_table: Path | None = None  # where another model judged the answers


def build_answers_report(settings: Mapping[str, Any], sources: AnswerSources, template: Path, output: Path) -> str:
    """The page. Links to files are relative to the folder of `output`; `settings` has also `by_document`."""
    scored = read_table(sources.pooled_table)["domain_accuracy"].notna().any()
    # Where no row has distractors, exact match is what was tested.
    results = Results.read(settings, sources, ("domain_accuracy" if scored else "exact_match", "rouge_l"))
    link, by_document = linker(output), settings["by_document"]
    shared = shared_sections(results, sources, CAPTIONS | OWN_CAPTIONS, link)
    sections = {
        "answer": answer(results),
        "notices": notices(results),
        "scores": SCORES,
        "tested": SCORES[results.measures[0]],
        "counts": counts(results),
        "by_document": by_document,
        "claim": claim_rows(results),
        "examples": examples(results, read_texts(sources.answers_table)),
        "judge": judge_rows(sources.judge_table),
        "data": data_section(results),
        "settings_rows": settings_rows(settings, "answers"),
        "method_section": answers_method(settings, results.dataset, results.split, results.trainings, by_document),
    }
    shared["downloads"] |= {
        name: download(file, link)
        for name, file in {"answers": sources.answers_table, "judge": sources.judge_table}.items()
        if file
    }
    return render(template, shared | sections)


def answer(results: Results) -> list[str]:
    """Which method is best, what fine-tuning buys, and whether quantization costs."""
    contenders = results.contenders()
    if contenders.empty:
        return ["Every arm failed, so there is no answer yet; the reasons are below."]
    best = results.ranked(contenders).iloc[0].to_dict()
    sentences = [_best_sentence(results, best, len(contenders)), _gain_sentence(results, contenders, best)]
    return [text for text in [*sentences, quantization_sentence(results, contenders, best)] if text]


def _best_sentence(results: Results, best: Mapping, count: int) -> str:
    measure = results.measures[0]
    what = SCORES[measure].lower()
    n = int(best["n_choices"] if measure == "domain_accuracy" else best["n"])
    average = f" on average over {best['seeds']} seeds" if best["seeds"] > 1 else ""
    documents = f" from {int(best['documents']):,} documents" if results.settings["by_document"] else ""
    return (
        f"{capital(best['name'])} has {'the highest' if count > 1 else 'a'} {what}{':' if count > 1 else ' of'} "
        f"{percent(best[measure])}{average} ({_interval(best, measure, percent)}) on {n:,} test questions{documents}, "
        f"with a ROUGE-L of {score(best['rouge_l'])} ({_interval(best, 'rouge_l', score)}) for its generated answers."
    )


def _interval(row: Mapping, measure: str, show: Callable[[float], str]) -> str:
    low, high = row[f"{measure}_low"], row[f"{measure}_high"]
    return "no interval" if math.isnan(low) else f"95 % interval {show(low)} to {show(high)}"


def _gain_sentence(results: Results, contenders: pd.DataFrame, best: Mapping) -> str:
    """The best adapter against the same model before fine-tuning: the tested score, and the loss of the references."""
    adapters = contenders[contenders["kind"] == "adapter"]
    if adapters.empty:
        return "No adapter was evaluated, so what fine-tuning buys cannot be said."
    tuned = results.ranked(adapters).iloc[0].to_dict()
    before = contenders[(contenders["kind"] == "zero-shot") & (contenders["model"] == tuned["model"])]
    row = results.compare(tuned, before.iloc[0].to_dict()) if len(before) else None
    if row is None:
        return "The model was not evaluated before fine-tuning, so what that buys cannot be said."
    measure = results.measures[0]
    subject = "That is" if tuned["name"] == best["name"] else f"The best adapter, {tuned['name']}, is"
    change = "falls" if row["loss_difference"] < 0 else "rises"
    low, high = row["loss_difference_low"], row["loss_difference_high"]
    interval = "" if math.isnan(low) else f" (95 % interval of the change {low:.2f} to {high:.2f})"
    return (
        f"{subject} {difference_words(row, 'the model before fine-tuning', measure)}, which has "
        f"{percent(row[f'{measure}_b'])}; the loss of the reference answers {change} from {row['loss_b']:.2f} to "
        f"{row['loss_a']:.2f} nats per token{interval}."
    )


def notices(results: Results) -> list[str]:
    """What a reader must know before trusting the numbers."""
    found = []
    if results.dataset.get("review", {}).get("skipped"):
        pairs = results.dataset["rows"]["all"]
        found.append(
            f"The review was skipped: no person looked at any of the {pairs:,} questions and answers, so how many of "
            "the references are right is not known."
        )
    found += notices_of_arms(results)
    if len(results.table):
        first = results.table.iloc[0]
        if results.settings["by_document"] and first["documents"] < 2:
            found.append("All test rows are from one document, so there are no intervals.")
        if not first["n_choices"]:
            found.append("No test row's document has enough other answers, so there is no domain accuracy.")
    if len(results.settings["models"]) > 1:
        found.append("Losses per token can be compared between arms of one model only; another's tokens are others.")
    return found


def counts(results: Results) -> dict[str, Any]:
    """How many test rows the scores are of, from how many documents, and which splits the distractors are from."""
    if results.table.empty:
        return {}
    return {key: int(results.table.iloc[0][key]) for key in ("n", "n_choices", "documents")} | {
        "distractors": results.metrics[0]["distractors"]
    }


def claim_rows(results: Results) -> list[dict]:
    """Domain accuracy before and after each method, to stand beside what the tutorial claims."""
    if results.measures[0] != "domain_accuracy":
        return []
    contenders = results.contenders()
    rows = []
    for tuned in results.ranked(contenders[contenders["kind"] == "adapter"]).to_dict("records"):
        before = contenders[(contenders["kind"] == "zero-shot") & (contenders["model"] == tuned["model"])]
        row = results.compare(tuned, before.iloc[0].to_dict()) if len(before) else None
        if row:
            rows.append({"name": tuned["name"], "before": before.iloc[0].to_dict(), "after": tuned, "row": row})
    return [{"name": "claim", **CLAIM}, *rows] if rows else []


def examples(results: Results, table: pd.DataFrame) -> dict | None:
    """Some test rows, drawn with the split's seed, with what was answered before fine-tuning and after."""
    arms = pd.DataFrame([{key: content["arm"][key] for key in KEY} for content in results.metrics], columns=KEY)
    if arms.empty or table.empty:
        return None
    arms = arms.assign(name=arm_names(arms), kind=[results.kind(method) for method in arms["method"]])
    best = results.ranked(results.contenders()).iloc[0]
    arms = arms[arms["model"] == best["model"]].drop_duplicates("method")
    # The first seed of each method; before fine-tuning first, then the best.
    order = arms.assign(after=arms["kind"] == "adapter", other=arms["method"] != best["method"])
    chosen = order.sort_values(["after", "other"], kind="stable").head(MOST_ANSWERS)
    drawn = np.random.default_rng(results.settings["experiment"]["split"]["seed"]).permutation(len(table))
    rows = []
    for row in table.iloc[np.sort(drawn[:MOST_EXAMPLES])].to_dict("records"):
        answers = [
            {
                "name": "before fine-tuning" if arm["kind"] == "zero-shot" else arm["name"],
                "text": _shortened(row[column_of("answer", arm["name"])]),
                "finished": row[column_of("finished", arm["name"])] == "True",
                "correct": {"True": True, "False": False}.get(row[column_of("correct", arm["name"])]),
                "rouge_l": float(row[column_of("rouge_l", arm["name"])]),
                "token_f1": float(row[column_of("token_f1", arm["name"])]),
            }
            for arm in chosen.to_dict("records")
        ]
        texts = {key: _shortened(row[key]) for key in ("instruction", "input", "reference")}
        rows.append({"id": row["id"], "document": row["document"], **texts, "answers": answers})
    return {"rows": rows, "total": len(table), "model": best["model"]}


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_ANSWER else text[: LONGEST_ANSWER - 1] + "…"


def judge_rows(file: Path | None) -> list[dict[str, Any]]:
    """What the judge said of each arm; missing values are None."""
    if file is None:
        return []
    table = read_table(file)
    table = table.assign(name=arm_names(table)).astype(object)
    return table.where(table.notna(), None).to_dict("records")


def data_section(results: Results) -> dict[str, Any]:
    """What became of the documents, and how the rows were split; `made` is None for rows that came as they are."""
    dataset, split = results.dataset, results.split
    return {
        "made": dataset if "documents" in dataset else None,
        "rows": sum(dataset["rows"].values()),
        "group": split["group"],
        "splits": [
            {
                "name": name,
                "rows": split["rows"][name],
                "groups": split["groups"][name],
                "near": split["near_duplicates"].get(name, {}).get("rows"),
            }
            for name in SPLITS
        ],
        "removed": _removed(split["removed"]),
        "near": [
            {"split": name, "test": pair[0], "train": pair[1]}
            for name, found in split["near_duplicates"].items()
            for pair in found["examples"]
        ],
        "limited": split["before_limits"] != split["rows"],
        "before": [split["before_limits"][name] for name in SPLITS],
    }


def _removed(removed: Mapping[str, int]) -> list[dict[str, Any]]:
    """How many rows each split yielded to another."""
    pairs: Sequence[tuple[Sequence[str], int]] = [(name.split("_in_"), count) for name, count in removed.items()]
    return [{"split": lesser, "other": greater, "rows": count} for (lesser, greater), count in pairs if count]
