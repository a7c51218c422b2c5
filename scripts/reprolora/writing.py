"""Which writing system a text is in. Languages that share one, such as English and German, are not told apart."""

import re
import unicodedata
from collections import Counter
from functools import cache

# Code says nothing of the language that it is explained in.
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
# Written without spaces, so that each character counts like a word of the others. Chinese and Japanese share theirs.
EAST_ASIAN = "Chinese or Japanese"
_EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA")
# With fewer words than this, a name or a number decides.
FEWEST = 3


def writing_system(text: str) -> str | None:
    """The writing system of most words, such as "Latin"; None when there are hardly any words."""
    words: Counter[str] = Counter()
    for word in re.findall(r"[^\W\d_]+", _CODE.sub(" ", text)):
        systems = [_system(letter) for letter in word]
        words.update(system for system in systems if system == EAST_ASIAN)
        words.update({system for system in systems if system != EAST_ASIAN})
    return words.most_common(1)[0][0] if words.total() >= FEWEST else None


@cache
def _system(letter: str) -> str:
    first = unicodedata.name(letter, "OTHER").split()[0]
    return EAST_ASIAN if first in _EAST_ASIAN else first.capitalize()
