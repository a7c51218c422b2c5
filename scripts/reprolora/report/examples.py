"""Rows before and after fine-tuning, as everyone can judge them."""

from collections.abc import Callable, Mapping, Sequence

from reprolora.arms import method_name, predictions_of
from reprolora.files import read_jsonl
from reprolora.labels import INVALID
from reprolora.report.results import Results

MOST_EXAMPLES_OF_A_KIND = 3
MOST_ADAPTERS_IN_EXAMPLES = 3


def examples(results: Results) -> dict | None:
    """The same rows before and after fine-tuning, wrong ones among them; None when one of the two is missing.

    The rows are the first of each kind in the order of the split, so nobody picked them.
    """
    contenders = results.contenders()
    adapters = contenders[contenders["kind"] == "adapter"]
    zero_shots = contenders[contenders["kind"] == "zero-shot"]
    if adapters.empty or zero_shots.empty:
        return None
    best = results.ranked(adapters).iloc[0]
    chosen = adapters[(adapters["model"] == best["model"]) & (adapters["mode"] == best["mode"])]
    before = zero_shots[(zero_shots["model"] == best["model"]) & (zero_shots["mode"] == best["mode"])]
    if before.empty:
        return None
    # The best first, then the others in the table's order.
    order = [best["method"], *(m for m in chosen["method"] if m != best["method"])][:MOST_ADAPTERS_IN_EXAMPLES]
    answers = [_answers(results, best["model"], method, best["mode"]) for method in [before.iloc[0]["method"], *order]]
    first, after, *others = answers
    kinds: dict[str, Callable[[str], bool]] = {
        "Wrong before, right after": lambda key: not _right(first[key]) and _right(after[key]),
        "Wrong before and after": lambda key: not _right(first[key]) and not _right(after[key]),
        "Right before, wrong after": lambda key: _right(first[key]) and not _right(after[key]),
        "The adapters disagree": lambda key: any(o[key]["prediction"] != after[key]["prediction"] for o in others),
    }
    used: set[str] = set()
    groups = []
    for title, fits in kinds.items():
        ids = _spread([key for key in first if key not in used and fits(key)], first)[:MOST_EXAMPLES_OF_A_KIND]
        used.update(ids)
        if ids:
            groups.append({"title": title, "rows": [_example(key, answers) for key in ids]})
    names = ["before fine-tuning", *(method_name(method) for method in order)]
    return {"names": names, "groups": groups, "model": best["model"]}


def _answers(results: Results, model: str, method: str, mode: str) -> dict[str, dict]:
    """The answers of an arm's first seed, by row."""
    for content, file in zip(results.metrics, results.metrics_files, strict=True):
        if content["arm"]["model"] == model and content["arm"]["method"] == method:
            return {row["id"]: row for row in read_jsonl(predictions_of(file)) if row["mode"] == mode}
    raise KeyError(method)


def _right(row: Mapping) -> bool:
    return row["prediction"] == row["label"]


def _spread(ids: Sequence[str], rows: Mapping[str, Mapping]) -> list[str]:
    """The ids in such an order that the first ones have different labels."""
    seen: dict[str, int] = {}
    rank = {}
    for key in ids:
        label = rows[key]["label"]
        rank[key] = seen[label] = seen.get(label, 0) + 1
    return sorted(ids, key=lambda key: rank[key])


def _example(key: str, answers: Sequence[Mapping[str, Mapping]]) -> dict:
    row = answers[0][key]
    return {
        "id": key,
        "text": row["text"],
        "label": row["label"],
        "answers": [
            {
                "raw": None if arm[key]["raw"] is None else arm[key]["raw"].replace("\n", "⏎"),
                "prediction": arm[key]["prediction"],
                "right": _right(arm[key]),
                "invalid": arm[key]["prediction"] == INVALID,
            }
            for arm in answers
        ],
    }
