"""How near an answer comes to its reference: exact match, token F1, ROUGE-L and chrF, each from 0 to 1.

Exact match and token F1 normalise and count as SQuAD's evaluation does (Rajpurkar et al., EMNLP 2016): lower case,
without punctuation and the articles a, an and the; and ROUGE-L is the F-measure of the longest common subsequence (Lin,
ACL Workshop 2004, with equal weights) of lower-case words without stemming, as Google's rouge-score computes it. Those
two know ASCII only. Here text is first brought to Unicode's form NFKC, punctuation and letters are Unicode's, and in
scripts that put no spaces between words each character is a word of its own, as CMRC 2018 does for Chinese (Cui et al.,
EMNLP 2019): so no dictionary decides what a word is. On ASCII text all values are those of the originals. (Two texts
without any word are equal here.) chrF (Popović, WMT 2015) compares characters, so it needs no words; it is sacreBLEU's,
with its defaults.
"""

import unicodedata
from collections import Counter

import regex
from rapidfuzz.distance import LCSseq
from sacrebleu.metrics import CHRF

# The scripts that are written without spaces between words; a character goes with the marks on it.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
TOKENS = regex.compile(rf"[{UNSPACED}]\p{{M}}*|[^\s{UNSPACED}]+")
WORDS = regex.compile(rf"[{UNSPACED}]\p{{M}}*|[[\p{{L}}\p{{M}}\p{{N}}]--[{UNSPACED}]]+", regex.VERSION1)
# What ASCII counts as punctuation, with the signs that Unicode calls symbols, and all that Unicode calls punctuation.
PUNCTUATION = regex.compile(r"[\p{P}$+<=>^`|~]")
ARTICLES = regex.compile(r"\b(?:a|an|the)\b")
CHRF_OF_ANSWERS = CHRF()


def score_answer(answer: str, reference: str) -> dict[str, float]:
    """The scores of one answer: `exact_match` (0 or 1), `token_f1`, `rouge_l` and `chrf`."""
    found, wanted = squad_tokens(answer), squad_tokens(reference)
    return {
        "exact_match": int(found == wanted),
        "token_f1": _f1(sum((Counter(found) & Counter(wanted)).values()), found, wanted),
        "rouge_l": rouge_l(answer, reference),
        "chrf": CHRF_OF_ANSWERS.sentence_score(answer, [reference]).score / 100,
    }


def squad_tokens(text: str) -> list[str]:
    """The words by which exact match and token F1 compare; equal lists are equal answers."""
    text = PUNCTUATION.sub("", unicodedata.normalize("NFKC", text).lower())
    return TOKENS.findall(ARTICLES.sub(" ", text))


def rouge_l(answer: str, reference: str) -> float:
    found, wanted = (WORDS.findall(unicodedata.normalize("NFKC", text).lower()) for text in (answer, reference))
    return _f1(LCSseq.similarity(found, wanted), found, wanted)


def _f1(common: int, found: list[str], wanted: list[str]) -> float:
    """The F-measure of `common` words; where either side has none, whether both have none."""
    if not found or not wanted:
        return float(found == wanted)
    return 2 * common / (len(found) + len(wanted))
