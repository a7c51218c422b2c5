"""Paired comparisons of arms that answered the same rows.

Intervals and standard errors come from `reprolora.bootstrap`, which pairs the arms row by row and pools the seeds of a
method. Here they become tests, a correction for their number, and sentences.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import binom, norm, t
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_effectsize

from reprolora.arms import ALL_SEEDS, CLASSICAL, CONTENDER, Answered, Run, arm_names, group_runs
from reprolora.bootstrap import Scores, difference_estimates, pool_seeds, score_runs, sums_by_cluster
from reprolora.metrics import CONFIDENCE_LEVEL, RESAMPLES
from reprolora.rounding import DIGITS

SIGNIFICANCE = 1 - CONFIDENCE_LEVEL
POWER = 0.8
# The columns of a comparison before and after those of the measures.
BEFORE = ["level", "mode", "model_a", "method_a", "seed_a", "model_b", "method_b", "seed_b", "n"]
OF_MEASURE = ["a", "b", "difference", "difference_low", "difference_high"]
AFTER = [
    "only_a_right",
    "only_b_right",
    "test",
    "p_value",
    "p_value_holm",
    "cohens_h",
    "smallest_detectable_difference",
    "difference_shown",
    "equivalence_margin",
    "equivalence_p_value",
    "equivalence",
    "sentence",
]
SIDE = ["model", "method", "seed"]
MCNEMAR = "McNemar exact"
EXCHANGE = "exact, documents exchanged"
STUDENT = "t, hierarchical bootstrap"
# The fewest rows or documents, all speaking for one side, with which an exact test reaches 5 %: 6, as 2 * 0.5^6 = 0.03.
FEWEST = int(np.ceil(np.log2(2 / SIGNIFICANCE)))
# What the two one-sided tests say of a pair.
SHOWN, REFUTED, UNDECIDED = "shown", "refuted", "undecided"


def columns(measures: Iterable[str]) -> list[str]:
    """The columns of a comparison of these measures."""
    return [*BEFORE, *(f"{measure}_{part}" for measure in measures for part in OF_MEASURE), *AFTER]


def compare_runs(
    runs: Sequence[Run], *, margin: float | None = None, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Compare the accuracy and macro-F1 of runs (`compare_scores`)."""
    return compare_scores(runs, score_runs(runs, resamples=resamples, seed=seed), margin=margin, seed=seed)


def compare_scores(
    runs: Sequence[Answered], scores: Scores, *, margin: float | None = None, seed: int = 0
) -> pd.DataFrame:
    """Compare every pair of methods, and every pair of single arms with the same seed, in the same mode.

    The rows of level `method` answer the experiment's question: one for each pair of methods, with all seeds pooled.
    Rows of level `seed` are there where a method has several seeds; an arm without a partner of its seed (a baseline
    that runs once) meets each of them. Holm's correction is made within each level. Classical baselines have no mode
    of their own and meet every mode. Differences are a - b. The test is of the first measure: McNemar's for two arms
    on independent rows, `exchange_p_values` for two arms on rows of documents, a t test on the bootstrap's standard
    error for pooled seeds. With a `margin`, a difference of that measure, each row says too whether the two are
    equivalent within it (`equivalence_p_values`, `equivalence_verdicts`).
    """
    groups = group_runs(runs)
    members = list(groups.values())
    pooled = pool_seeds(scores, members, seed=seed)
    mode = np.array([mode for _, _, mode in groups])
    first, second = np.triu_indices(len(groups), 1)
    together = (mode[first] == mode[second]) | (mode[first] == CLASSICAL) | (mode[second] == CLASSICAL)
    first, second = first[together], second[together]

    methods = pd.DataFrame(list(groups), columns=CONTENDER)
    methods["seed"] = [runs[group[0]].seed if len(group) == 1 else ALL_SEEDS for group in members]
    tables = [_table("method", methods, pooled, first, second, margin)]
    pairs = [pair for a, b in zip(first, second, strict=True) for pair in _seed_pairs(runs, members[a], members[b])]
    if pairs:
        arms = pd.DataFrame([{key: getattr(run, key) for key in [*SIDE, "mode"]} for run in runs])
        tables.append(_table("seed", arms, scores, *np.array(pairs).T, margin))
    return pd.concat(tables, ignore_index=True)


def mcnemar_p_values(only_a: np.ndarray, only_b: np.ndarray) -> np.ndarray:
    """McNemar's exact test for many pairs at once: two-sided, on the numbers of rows that only one of two got right.

    As `statsmodels.stats.contingency_tables.mcnemar(exact=True)`, which takes one pair.
    """
    return np.minimum(1.0, 2 * binom.cdf(np.minimum(only_a, only_b), only_a + only_b, 0.5))


def smallest_detectable_difference(n: int, discordance: np.ndarray) -> np.ndarray:
    """The accuracy difference that McNemar's test on `n` rows finds with a power of 0.8 at the 5 % level.

    Connor's sample size (Biometrics 43, 1987), n = (z_a sqrt(D) + z_b sqrt(D - d^2))^2 / d^2, solved for d; D is the
    share of rows on which the two differ, z_a and z_b the normal quantiles of 1 - 0.05/2 and of the power. The exact
    test needs `FEWEST` rows on one side to reach 5 % at all, so d is never below their share.
    """
    z_a, z_b = norm.isf(SIGNIFICANCE / 2), norm.isf(1 - POWER)
    discordance = np.asarray(discordance, dtype=float)
    a = z_a * np.sqrt(discordance)
    # (n + z_b^2) d^2 - 2 a sqrt(n) d + a^2 - z_b^2 D = 0
    root = np.sqrt(n * a**2 - (n + z_b**2) * (a**2 - z_b**2 * discordance))
    return np.clip((a * np.sqrt(n) + root) / (n + z_b**2), FEWEST / n, 1)


def exchange_p_values(differences: np.ndarray) -> np.ndarray:
    """An exact two-sided test for rows that depend on each other within documents; `differences` (pairs, documents).

    These are whole numbers: the rows of a document that only a got right, less those that only b got right. If a and b
    were the same, their answers to a whole document could be exchanged; so p is the share of all exchanges, equally
    likely, that give a sum as far from 0 as the one observed. With one row in each document this is McNemar's exact
    test. (Fisher's randomisation test, The Design of Experiments, 1935, with documents as its units.)
    """
    return np.array([_exchange_p_value(row) for row in np.rint(differences).astype(int)])


def _exchange_p_value(differences: np.ndarray) -> float:
    steps = np.abs(differences[differences != 0])
    if steps.max(initial=0) <= 1:
        only_a = int((differences > 0).sum())
        return float(mcnemar_p_values(np.array([only_a]), np.array([len(steps) - only_a]))[0])
    chance = np.ones(1)  # of each sum from -total to total, one document after the other
    for step in steps:
        wider = np.zeros(len(chance) + 2 * step)
        wider[: len(chance)] += chance / 2
        wider[2 * step :] += chance / 2
        chance = wider
    total = steps.sum()
    as_far = np.abs(np.arange(-total, total + 1)) >= abs(differences.sum())
    return min(1.0, float(chance[as_far].sum()))


def equivalence_p_values(
    difference: np.ndarray, error: np.ndarray, freedom: np.ndarray, n: int | np.ndarray, margin: float
) -> np.ndarray:
    """Two one-sided t tests (Schuirmann 1987): p for the claim that the true difference lies within +-`margin`.

    p is below 5 % exactly when the 90 % interval around the difference lies within the margin. The error is taken as no
    less than a true difference of `margin` would give at the least, when each of the `n` independent units (rows, or
    documents) that tells the two apart speaks for the same one: sqrt(margin (1 - margin) / n). Without this, two arms
    that agree on ten rows would be equivalent within any margin. For two single arms on independent rows that is the
    score test of Tango (Statistics in Medicine 17, 1998) where rows speak for one arm only, and close to it elsewhere.
    """
    error = np.maximum(error, np.sqrt(margin * (1 - margin) / n))
    return t.sf((margin - np.abs(difference)) / error, freedom)


def equivalence_verdicts(p: np.ndarray, low: np.ndarray, high: np.ndarray, margin: float) -> np.ndarray:
    """`shown` by the two one-sided tests, `refuted` where the 95 % interval lies beyond the margin, or `undecided`."""
    beyond = (low > margin) | (high < -margin)
    return np.select([p < SIGNIFICANCE, beyond], [SHOWN, REFUTED], UNDECIDED)


def _seed_pairs(runs: Sequence[Answered], group_a: list[int], group_b: list[int]) -> list[tuple[int, int]]:
    if len(group_a) == len(group_b) == 1:
        return []
    alone = 1 in (len(group_a), len(group_b))
    return [(a, b) for a in group_a for b in group_b if alone or runs[a].seed == runs[b].seed]


def _table(
    level: str, arms: pd.DataFrame, scores: Scores, first: np.ndarray, second: np.ndarray, margin: float | None
) -> pd.DataFrame:
    """One row for each pair of contenders, whose names are in the rows of `arms`."""
    n = scores.correct.shape[1]
    estimates = {name: difference_estimates(m, scores.seeds, first, second) for name, m in scores.measures.items()}
    tested = next(iter(scores.measures))
    rate_a, rate_b = (scores.measures[tested].values[side] for side in (first, second))
    right_in_both = (scores.correct @ scores.correct.T)[first, second]
    only_a, only_b = rate_a * n - right_in_both, rate_b * n - right_in_both
    error, freedom = estimates[tested].error, estimates[tested].freedom
    difference = rate_a - rate_b
    single = (scores.seeds[first] == 1) & (scores.seeds[second] == 1)
    # Two contenders with the same draws throughout have no error; their difference is 0, and so p is 1.
    ratio = np.divide(np.abs(difference), error, out=np.zeros_like(difference), where=error > 0)
    p = 2 * t.sf(ratio, freedom)
    detectable = (t.isf(SIGNIFICANCE / 2, freedom) + t.isf(1 - POWER, freedom)) * error
    if scores.clusters is None:
        exact, units = MCNEMAR, np.full(len(first), n)
        p = np.where(single, mcnemar_p_values(only_a.round(), only_b.round()), p)
        detectable = np.where(single, smallest_detectable_difference(n, (only_a + only_b) / n), detectable)
    else:
        exact, units = EXCHANGE, scores.measures[tested].freedom[first] + 1
        of_documents = sums_by_cluster(scores.correct, scores.clusters)
        p[single] = exchange_p_values(of_documents[first[single]] - of_documents[second[single]])
        detectable = np.where(single, np.clip(detectable, FEWEST / n, 1), detectable)
    mode = arms["mode"].to_numpy()
    table = pd.concat(
        [
            pd.DataFrame({"level": level, "mode": np.where(mode[first] == CLASSICAL, mode[second], mode[first])}),
            arms[SIDE].iloc[first].add_suffix("_a").reset_index(drop=True),
            arms[SIDE].iloc[second].add_suffix("_b").reset_index(drop=True),
        ],
        axis=1,
    )
    numbers = {"only_a_right": only_a, "only_b_right": only_b}
    for name, measure in scores.measures.items():
        a, b, ends = measure.values[first], measure.values[second], estimates[name]
        numbers |= {f"{name}_{part}": v for part, v in zip(OF_MEASURE, (a, b, a - b, ends.low, ends.high), strict=True)}
    table = table.assign(n=n, **{key: value.round(DIGITS) for key, value in numbers.items()})
    table["test"] = np.where(single, exact, STUDENT)
    table["p_value"] = _significant(p)
    table["p_value_holm"] = _significant(multipletests(p, method="holm")[1] if len(p) else p)
    table["cohens_h"] = proportion_effectsize(rate_a, rate_b).round(DIGITS)
    table["smallest_detectable_difference"] = detectable.round(DIGITS)
    table["difference_shown"] = table["p_value_holm"] < SIGNIFICANCE
    table["equivalence_margin"] = margin
    table[["equivalence_p_value", "equivalence"]] = None
    if margin is not None:
        p = equivalence_p_values(difference, error, freedom, units, margin)
        table["equivalence_p_value"] = _significant(p)
        table["equivalence"] = equivalence_verdicts(p, estimates[tested].low, estimates[tested].high, margin)
    names = np.array(arm_names(arms), dtype=object)
    table["sentence"] = [
        sentence(row, a, b, tested)
        for row, a, b in zip(table.to_dict("records"), names[first], names[second], strict=True)
    ]
    return table[columns(scores.measures)]


def _significant(values: np.ndarray) -> np.ndarray:
    """Values with DIGITS significant digits; p-values may be tiny."""
    return np.array([float(f"{value:.{DIGITS}g}") for value in values])


def sentence(row: dict, name_a: str, name_b: str, measure: str = "accuracy") -> str:
    """A row of the comparison table in words, from the side of a; `measure` is the one that was tested."""
    what = measure.replace("_", " ")
    difference = row[f"{measure}_difference"]
    points = f"{abs(difference) * 100:.1f}"
    name_a = name_a[:1].upper() + name_a[1:]
    if float(points) == 0:
        where = f"{name_a} and {name_b} have the same {what} to a tenth of a point"
    else:
        side = "above" if difference > 0 else "below"
        where = f"{name_a} is {points} {'point' if points == '1.0' else 'points'} {side} {name_b} in {what}"
    p = f"p {p_text(row['p_value_holm'])} after Holm's correction"
    parts = [f"{where} ({interval_of_difference(row, measure)})"]
    if row["difference_shown"]:
        parts.append(f"the difference is shown ({p})")
    else:
        parts.append(f"no difference shown ({p})")
        if not np.isnan(row["smallest_detectable_difference"]):
            parts.append(f"this test could show {row['smallest_detectable_difference'] * 100:.1f} points")
    if clause := equivalence_clause(row):
        parts.append(clause)
    return "; ".join(parts) + "."


def interval_of_difference(row: Mapping, measure: str) -> str:
    """The interval of a difference in words, in points; there is none over a single document."""
    low, high = row[f"{measure}_difference_low"], row[f"{measure}_difference_high"]
    if np.isnan(low):
        return "no interval"
    return f"{CONFIDENCE_LEVEL:.0%} interval {low * 100:.1f} to {high * 100:.1f}".replace("%", " %")


def equivalence_clause(row: dict) -> str:
    """What a row says of equivalence, in words; nothing when the experiment names no margin."""
    if row["equivalence"] not in (SHOWN, REFUTED, UNDECIDED):
        return ""
    points = f"{row['equivalence_margin'] * 100:g}"
    verdict = row["equivalence"] + (" with these rows" if row["equivalence"] == UNDECIDED else "")
    return f"equivalent within {points} {'point' if points == '1' else 'points'}: {verdict}"


def p_text(p: float) -> str:
    """A p-value with its relation sign."""
    if p < 0.001:
        return "< 0.001"
    return f"= {p:.3f}" if p < 0.1 else f"= {p:.2f}"


def other_side(row: dict) -> dict:
    """The same comparison with a and b changed over, so that its sentence speaks of b."""
    swap = {}
    for key, value in row.items():
        if (key.endswith("_difference") and key != "smallest_detectable_difference") or key == "cohens_h":
            swap[key] = 0 - value  # no -0.0
        elif key.endswith("_difference_low"):
            swap[key[: -len("low")] + "high"] = 0 - value
        elif key.endswith("_difference_high"):
            swap[key[: -len("high")] + "low"] = 0 - value
        elif key.endswith("_a"):
            swap[key[:-1] + "b"] = value
        elif key.endswith("_b"):
            swap[key[:-1] + "a"] = value
        else:
            swap[key] = value
    swap["only_a_right"], swap["only_b_right"] = row["only_b_right"], row["only_a_right"]
    return swap
