"""Reading a label out of what a model said."""

import re
from collections.abc import Sequence

INVALID = "INVALID"
_NEGATION = re.compile(r"\b(not|no|never|neither|nor|non|without|cannot)\b|n['\u2019]t\b", re.IGNORECASE)


def extract_label(answer: str, labels: Sequence[str]) -> str:
    """The label that `answer` names, or "INVALID".

    Only the first line that says anything counts, for a model that goes on may start another turn. It must name exactly
    one label, as a whole word and whatever its case, with no negation before it: "JOY." is joy; "joyful", "not joy" and
    "joy or anger" are INVALID. Where a label contains another ("positive", "very positive"), the longer one is read.
    """
    line = next((line for line in answer.splitlines() if line.strip()), "")
    longest_first = sorted(labels, key=len, reverse=True)
    pattern = "|".join(re.escape(label) for label in longest_first)
    found = list(re.finditer(rf"(?<![\w-])(?:{pattern})(?!\w|-\w)", line, re.IGNORECASE))
    canonical = {label.casefold(): label for label in labels}
    named = {canonical[match.group().casefold()] for match in found}
    if len(named) != 1 or _NEGATION.search(line[: found[0].start()]):
        return INVALID
    return named.pop()
