"""The review of generated pairs: which a person looks at, the page for that, and what the decisions amount to.

Pairs that nobody looked at are as good as the sample was before anything in it was mended. So the pass rate is that of
the pairs as they were first generated: an edited one did not pass, and one that replaces a rejected one does not count,
though it is looked at too.
"""

import csv
import hashlib
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from statsmodels.stats.proportion import proportion_confint

from reprolora.decisions import Decision
from reprolora.errors import UserError

COLUMNS = [
    "id",
    "document",
    "headings",
    "chunk",
    "instruction",
    "output",
    "decision",
    "edited_instruction",
    "edited_output",
]
NAMED = 5  # documents that a message names


def draw_sample(pairs: Sequence[Mapping[str, Any]], share: float, seed: int) -> dict[str, list[str]]:
    """The ids of the pairs to review: `first`, a share of those that were generated first; `replacements`, all.

    A pair's place depends on the seed and the pair alone, so that a sample changes little when documents are added.
    """
    first = sorted((pair["id"] for pair in pairs if not pair["attempt"]), key=lambda identity: _rank(identity, seed))
    replacements = [pair["id"] for pair in pairs if pair["attempt"] and not pair["rejected"]]
    return {"first": first[: math.ceil(share * len(first))], "replacements": replacements}


def _rank(identity: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\n{identity}".encode()).digest()


def review_rows(
    sample: Mapping[str, Sequence[str]],
    pairs: Sequence[Mapping[str, Any]],
    chunks: Mapping[str, Mapping[str, Any]],
    decisions: Mapping[str, Decision],
) -> list[dict[str, str]]:
    """What the reviewer sees, by `COLUMNS`: the sample with what was decided already."""
    by_id = {pair["id"]: pair for pair in pairs}
    rows = []
    for identity in [*sample["first"], *sample["replacements"]]:
        pair, decision = by_id[identity], decisions.get(identity, Decision(""))
        chunk = chunks[pair["chunk"]]
        rows.append(
            {
                "id": identity,
                "document": pair["document"],
                "headings": " > ".join(chunk["headings"]),
                "chunk": chunk["text"],
                "instruction": pair["instruction"],
                "output": pair["output"],
                "decision": decision.verdict,
                "edited_instruction": decision.instruction,
                "edited_output": decision.output,
            }
        )
    return rows


def as_csv(rows: Sequence[Mapping[str, str]]) -> str:
    """The rows for a spreadsheet; with a byte order mark, since some would take them for another encoding."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return "\ufeff" + text.getvalue()


def as_page(template: str, name: str, rows: Sequence[Mapping[str, str]], flagged: Sequence[str]) -> str:
    """The page: one file that needs no server and no network."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(template).render(
        name=name, data={"name": name, "rows": rows, "flagged": list(flagged), "columns": COLUMNS}
    )


def judge(
    pairs: Sequence[Mapping[str, Any]],
    sample: Mapping[str, Sequence[str]],
    decisions: Mapping[str, Decision],
    pass_rate: float,
    page: str,
) -> dict[str, Any]:
    """The outcome of a review: counts, pass rate and its 95 % interval (Wilson, 1927).

    Raises:
        UserError: the sample is not decided on yet, or did not pass.
    """
    document = {pair["id"]: pair["document"] for pair in pairs}
    asked = [*sample["first"], *sample["replacements"]]
    open_ = [identity for identity in asked if identity not in decisions]
    first = [identity for identity in sample["first"] if identity in decisions]
    verdicts = Counter(decisions[identity].verdict for identity in first)
    failed = Counter(document[identity] for identity in first if decisions[identity].verdict != "accept")
    if len(first) == len(sample["first"]) and verdicts["accept"] / len(first) < pass_rate:
        raise UserError(
            f"{_rate(verdicts['accept'], len(first))} passed the review, less than review.pass_rate {pass_rate:.0%}; "
            f"rejected or edited were pairs from {_documents(failed)}. The pairs that nobody saw are no better: change "
            "the generator, or leave these documents out (documents.exclude), and review again"
            + (f"; {len(sample['replacements'])} replacements wait on {page}" if sample["replacements"] else "")
        )
    if open_:
        raise UserError(
            f"{len(open_)} of the {len(asked)} pairs to review are undecided; open {page} in a browser, or fill in "
            "sample.csv beside it, put the exported decisions where review.decisions says, and run again"
        )
    low, high = proportion_confint(verdicts["accept"], len(first), method="wilson")
    return {
        "skipped": False,
        "reviewed": len(first),
        **{f"{word}ed": verdicts[word] for word in ("accept", "reject", "edit")},
        "replacements": len(sample["replacements"]),
        "pass_rate": round(verdicts["accept"] / len(first), 6),
        "pass_rate_low": round(float(low), 6),
        "pass_rate_high": round(float(high), 6),
        "failed_documents": dict(failed),
        "stale_decisions": len(decisions.keys() - document.keys()),
    }


def _rate(passed: int, total: int) -> str:
    low, high = proportion_confint(passed, total, method="wilson")
    return f"{passed} of {total} pairs ({passed / total:.1%}, 95 % interval {low:.1%} to {high:.1%})"


def _documents(counts: Counter[str]) -> str:
    named = [f"{name} ({count})" for name, count in counts.most_common(NAMED)]
    return ", ".join(named) + (f" and {len(counts) - NAMED} more" if len(counts) > NAMED else "")
