"""Texts that are nearly the same: all pairs above a similarity, found exactly.

The similarity of two texts is the Jaccard index of their shingles, the sets of five neighbouring characters (case and
white space aside): shared shingles over all shingles of either (Broder, 1997). Pairs are found by prefix filtering
(Chaudhuri, Ganti & Kaushik, 2006; Bayardo, Ma & Srikant, 2007): two sets that are that similar have some in common of
the few shingles of each that are rarest in the whole data. So few pairs are ever compared, and none is missed, as
MinHash would now and then.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from reprolora.splits import normalised

SHINGLE = 5  # characters
# Rare shingles that two texts must share to be compared (one would do, but several leave a tenth of the pairs).
SHARED = 4
# Rows whose partners are looked for at once, and pairs that are compared at once: they bound the memory.
BLOCK, PAIRS = 512, 50_000


def shingles(text: str) -> set[str]:
    """The shingles of a text; one that is shorter than a shingle is one by itself."""
    text = normalised(text)
    return {text[start : start + SHINGLE] for start in range(max(1, len(text) - SHINGLE + 1))}


def shingle_sets(texts: Sequence[str]) -> csr_array:
    """The shingles of each text, shape (texts, shingles), with a shingle's column the lower the rarer it is."""
    sets = csr_array(CountVectorizer(analyzer=shingles, dtype=np.int32).fit_transform(texts))
    frequency = np.bincount(sets.indices, minlength=sets.shape[1])
    column = np.empty(sets.shape[1], sets.indices.dtype)
    column[np.argsort(frequency, kind="stable")] = np.arange(sets.shape[1])
    sets.indices = column[sets.indices]
    sets.sort_indices()
    return sets


def nearest(sets: csr_array, groups: np.ndarray, similarity: float, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each of `rows`, its most similar other text in each group, if there is one at least so similar.

    `sets` are those of `shingle_sets`, `groups` says by a number from 0 in which group each of them is. Returns the
    similarities (0 where there is none) and the texts' positions (-1), each of shape (rows, groups). Of partners that
    are equally similar it is the first.
    """
    found = np.zeros((len(rows), groups.max() + 1))
    partner = np.full(found.shape, -1)
    for left, right, value in _similar_pairs(sets, similarity, rows):
        # The least similar first, and of equals the last, so that what is written last is what is wanted.
        order = np.lexsort((-right, value))
        place = left[order], groups[right[order]]
        found[place], partner[place] = value[order], right[order]
    return found, partner


def _similar_pairs(
    sets: csr_array, similarity: float, rows: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Blocks of pairs: positions in `rows`, positions in `sets`, and similarities; all pairs of a row in one block."""
    sizes = np.diff(sets.indptr)
    least = np.ceil(similarity * sizes - 1e-9).astype(int)  # what a set shares with any that is so similar
    prefixes = _beginnings(sets, np.minimum(sizes, sizes - least + SHARED))
    transposed = csr_array(prefixes.T)
    for start in range(0, len(rows), BLOCK):
        candidates = (prefixes[rows[start : start + BLOCK]] @ transposed).tocoo()
        left, right = candidates.coords[0] + start, candidates.coords[1]
        smaller, larger = np.sort([sizes[rows[left]], sizes[right]], axis=0)
        shares = candidates.data >= np.minimum(SHARED, np.ceil(similarity * larger - 1e-9))
        possible = shares & (smaller >= similarity * larger - 1e-9) & (rows[left] != right)
        left, right = left[possible], right[possible]
        shared = np.concatenate(
            [
                sets[rows[left[at : at + PAIRS]]].multiply(sets[right[at : at + PAIRS]]).sum(axis=1)
                for at in range(0, len(left), PAIRS)
            ]
            or [np.zeros(0)]
        )
        value = shared / (sizes[rows[left]] + sizes[right] - shared)
        similar = value >= similarity - 1e-9
        yield left[similar], right[similar], value[similar]


def _beginnings(sets: csr_array, lengths: np.ndarray) -> csr_array:
    """Of each set its first shingles, so many.

    Of sets x and y that share n shingles, at most |x| - n of x are not in y, so the k-th shared one is among the first
    |x| - n + k of x, and likewise of y; and n is at least s |x| and s |y| when their Jaccard index is at least s.
    """
    place = np.arange(sets.nnz) - np.repeat(sets.indptr[:-1], np.diff(sets.indptr))
    chosen = place < np.repeat(lengths, np.diff(sets.indptr))
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    return csr_array((sets.data[chosen], sets.indices[chosen], pointers), shape=sets.shape)
