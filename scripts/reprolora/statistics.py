"""Paired comparisons of arms that answered the same rows.

All arms are resampled together: a bootstrap draw takes the same rows for every arm, so the difference of two arms is
paired in each draw. Several seeds of one method are pooled with a hierarchical bootstrap over seeds and rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binom, norm, t
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_effectsize

from reprolora.arms import CLASSICAL, Run, arm_names
from reprolora.metrics import CONFIDENCE_LEVEL, DIGITS, RESAMPLES, macro_f1_of_counts, tail_quantiles

SIGNIFICANCE = 1 - CONFIDENCE_LEVEL
POWER = 0.8
# How many numbers a block of bootstrap draws holds, so that many arms or rows do not fill the memory.
BLOCK = 5_000_000
COLUMNS = [
    "level",
    "mode",
    "model_a",
    "method_a",
    "seed_a",
    "model_b",
    "method_b",
    "seed_b",
    "n",
    "accuracy_a",
    "accuracy_b",
    "accuracy_difference",
    "accuracy_difference_low",
    "accuracy_difference_high",
    "macro_f1_a",
    "macro_f1_b",
    "macro_f1_difference",
    "macro_f1_difference_low",
    "macro_f1_difference_high",
    "only_a_right",
    "only_b_right",
    "test",
    "p_value",
    "p_value_holm",
    "cohens_h",
    "smallest_detectable_difference",
    "difference_shown",
    "sentence",
]
# The seed of a row in which all seeds of a method are pooled.
ALL_SEEDS = "all"
SIDE = ["model", "method", "seed"]
MCNEMAR = "McNemar exact"
STUDENT = "t, hierarchical bootstrap"


@dataclass(frozen=True)
class Scores:
    """The scores of some contenders: arms, or methods with their seeds pooled."""

    accuracy: np.ndarray  # (contenders,)
    macro_f1: np.ndarray  # (contenders,)
    accuracy_draws: np.ndarray  # (contenders, resamples)
    macro_f1_draws: np.ndarray  # (contenders, resamples)
    accuracy_seed_variance: np.ndarray  # (contenders,): what the choice of seeds adds to the variance of the mean
    macro_f1_seed_variance: np.ndarray  # (contenders,)
    correct: np.ndarray  # (contenders, rows): 1 where right, 0 where wrong; pooled: the share of the seeds
    seeds: np.ndarray  # (contenders,): how many seeds are pooled


def compare_runs(runs: Sequence[Run], *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Compare every pair of methods, and every pair of single arms with the same seed, in the same mode.

    The rows of level `method` answer the experiment's question: one for each pair of methods, with all seeds pooled.
    Rows of level `seed` are there where a method has several seeds; an arm without a partner of its seed (a baseline
    that runs once) meets each of them. Holm's correction is made within each level. Classical baselines have no mode
    of their own and meet every mode. Differences are a - b.
    """
    scores = score_runs(runs, resamples=resamples, seed=seed)
    groups: dict[tuple[str, str, str], list[int]] = {}
    for k, run in enumerate(runs):
        groups.setdefault((run.model, run.method, run.mode), []).append(k)
    members = list(groups.values())
    pooled = pool_seeds(scores, members, seed=seed)
    mode = np.array([mode for _, _, mode in groups])
    first, second = np.triu_indices(len(groups), 1)
    together = (mode[first] == mode[second]) | (mode[first] == CLASSICAL) | (mode[second] == CLASSICAL)
    first, second = first[together], second[together]

    methods = pd.DataFrame(list(groups), columns=["model", "method", "mode"])
    methods["seed"] = [runs[group[0]].seed if len(group) == 1 else ALL_SEEDS for group in members]
    tables = [_table("method", methods, pooled, first, second)]
    pairs = [pair for a, b in zip(first, second, strict=True) for pair in _seed_pairs(runs, members[a], members[b])]
    if pairs:
        arms = pd.DataFrame([{key: getattr(run, key) for key in [*SIDE, "mode"]} for run in runs])
        tables.append(_table("seed", arms, scores, *np.array(pairs).T))
    return pd.concat(tables, ignore_index=True)


def score_runs(runs: Sequence[Run], *, resamples: int = RESAMPLES, seed: int = 0) -> Scores:
    """The accuracy and macro-F1 of every run, on its rows and on `resamples` draws of rows that all runs share."""
    labels = runs[0].labels
    n, classes = len(labels), len(runs[0].label_names)
    predictions = np.stack([run.predictions for run in runs])
    correct = predictions == labels
    cells = labels * (classes + 1) + predictions
    counts = np.stack([np.bincount(row, minlength=classes * (classes + 1)) for row in cells])
    accuracy_draws = np.empty((len(runs), resamples))
    macro_f1_draws = np.zeros((len(runs), resamples))
    rng = np.random.default_rng(seed)
    # Whole numbers of rows are exact in single precision, and half the work.
    rows_of = [(labels == k, correct[:, labels == k].astype(np.float32), (predictions == k).astype(np.float32))
               for k in range(classes)]  # fmt: skip
    step = max(1, BLOCK // n)
    for start in range(0, resamples, step):
        block = slice(start, min(start + step, resamples))
        weights = rng.multinomial(n, np.full(n, 1 / n), size=block.stop - block.start).astype(np.float32)
        hits_in_all = 0
        for members, correct_of_class, predicted_class in rows_of:
            weights_of_class = weights[:, members]
            hits = correct_of_class @ weights_of_class.T
            total = weights_of_class.sum(axis=1) + predicted_class @ weights.T
            macro_f1_draws[:, block] += np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)
            hits_in_all = hits_in_all + hits
        accuracy_draws[:, block] = hits_in_all / n
    return Scores(
        accuracy=correct.mean(axis=1),
        macro_f1=macro_f1_of_counts(counts.reshape(len(runs), classes, classes + 1)),
        accuracy_draws=accuracy_draws,
        macro_f1_draws=macro_f1_draws / classes,
        accuracy_seed_variance=np.zeros(len(runs)),
        macro_f1_seed_variance=np.zeros(len(runs)),
        correct=correct.astype(float),
        seeds=np.ones(len(runs), dtype=int),
    )


def pool_seeds(scores: Scores, groups: Sequence[Sequence[int]], *, seed: int = 0) -> Scores:
    """The scores of each group of runs (one method's seeds) as one contender: the mean over its seeds.

    The hierarchical bootstrap draws rows (the same for every seed and method, for they answered the same rows) and
    then seeds. Drawing seeds alone would count the noise of the rows, which is in every seed's score, a second time,
    and would understate the spread of k seeds by (k - 1) / k. So the drawn seeds' deviation is scaled to the unbiased
    estimate of the variance between seeds; it is 0 where the seeds differ no more than the rows explain. That this
    estimate rests on few seeds is made up for where differences are taken (`_difference_interval`).
    """
    rng = np.random.default_rng([seed, 1])
    resamples = scores.accuracy_draws.shape[1]
    drawn = [rng.integers(len(group), size=(resamples, len(group))) for group in groups]
    pooled = {}
    for name in ("accuracy", "macro_f1"):
        values, draws = getattr(scores, name), getattr(scores, f"{name}_draws")
        parts = [_pool(values[group], draws[group], seeds) for group, seeds in zip(groups, drawn, strict=True)]
        pooled[name] = np.array([values[group].mean() for group in groups])
        pooled[f"{name}_draws"] = np.stack([draws for draws, _ in parts])
        pooled[f"{name}_seed_variance"] = np.array([variance for _, variance in parts])
    return Scores(
        **pooled,
        correct=np.stack([scores.correct[group].mean(axis=0) for group in groups]),
        seeds=np.array([len(group) for group in groups]),
    )


def _pool(values: np.ndarray, draws: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, float]:
    """The draws of the mean over seeds, and the part of their variance that comes from the choice of seeds."""
    k = len(values)
    mean = draws.mean(axis=0)
    if np.ptp(values) == 0:
        return mean, 0.0
    spread = values.var(ddof=1)
    noise = (draws - mean).var(axis=1).mean() * k / (k - 1)
    between = max(0.0, spread - noise)
    return mean + np.sqrt(between / spread * k / (k - 1)) * (values[drawn].mean(axis=1) - values.mean()), between / k


def mcnemar_p_values(only_a: np.ndarray, only_b: np.ndarray) -> np.ndarray:
    """McNemar's exact test for many pairs at once: two-sided, on the numbers of rows that only one of two got right.

    As `statsmodels.stats.contingency_tables.mcnemar(exact=True)`, which takes one pair.
    """
    return np.minimum(1.0, 2 * binom.cdf(np.minimum(only_a, only_b), only_a + only_b, 0.5))


def smallest_detectable_difference(n: int, discordance: np.ndarray) -> np.ndarray:
    """The accuracy difference that McNemar's test on `n` rows finds with a power of 0.8 at the 5 % level.

    Connor's sample size (Biometrics 43, 1987), n = (z_a sqrt(D) + z_b sqrt(D - d^2))^2 / d^2, solved for d; D is the
    share of rows on which the two differ, z_a and z_b the normal quantiles of 1 - 0.05/2 and of the power. The exact
    test needs a few rows on one side to reach 5 % at all (6, as 2 * 0.5^6 = 0.03), so d is never below their share.
    """
    z_a, z_b = norm.isf(SIGNIFICANCE / 2), norm.isf(1 - POWER)
    discordance = np.asarray(discordance, dtype=float)
    a = z_a * np.sqrt(discordance)
    # (n + z_b^2) d^2 - 2 a sqrt(n) d + a^2 - z_b^2 D = 0
    root = np.sqrt(n * a**2 - (n + z_b**2) * (a**2 - z_b**2 * discordance))
    fewest = np.ceil(np.log2(2 / SIGNIFICANCE))
    return np.clip((a * np.sqrt(n) + root) / (n + z_b**2), fewest / n, 1)


def _seed_pairs(runs: Sequence[Run], group_a: list[int], group_b: list[int]) -> list[tuple[int, int]]:
    if len(group_a) == len(group_b) == 1:
        return []
    alone = 1 in (len(group_a), len(group_b))
    return [(a, b) for a in group_a for b in group_b if alone or runs[a].seed == runs[b].seed]


def _table(level: str, arms: pd.DataFrame, scores: Scores, first: np.ndarray, second: np.ndarray) -> pd.DataFrame:
    """One row for each pair of contenders, whose names are in the rows of `arms`."""
    n = scores.correct.shape[1]
    rate_a, rate_b = scores.accuracy[first], scores.accuracy[second]
    right_in_both = (scores.correct @ scores.correct.T)[first, second]
    only_a, only_b = rate_a * n - right_in_both, rate_b * n - right_in_both
    accuracy_low, accuracy_high, error, freedom = _difference_interval(
        scores.accuracy_draws, scores.accuracy_seed_variance, scores.seeds, first, second
    )
    macro_f1_low, macro_f1_high, _, _ = _difference_interval(
        scores.macro_f1_draws, scores.macro_f1_seed_variance, scores.seeds, first, second
    )
    difference = rate_a - rate_b
    single = (scores.seeds[first] == 1) & (scores.seeds[second] == 1)
    # Two contenders with the same draws throughout have no error; their difference is 0, and so p is 1.
    ratio = np.divide(np.abs(difference), error, out=np.zeros_like(difference), where=error > 0)
    p = np.where(single, mcnemar_p_values(only_a.round(), only_b.round()), 2 * t.sf(ratio, freedom))
    detectable = np.where(
        single,
        smallest_detectable_difference(n, (only_a + only_b) / n),
        (t.isf(SIGNIFICANCE / 2, freedom) + t.isf(1 - POWER, freedom)) * error,
    )
    mode = arms["mode"].to_numpy()
    table = pd.concat(
        [
            pd.DataFrame({"level": level, "mode": np.where(mode[first] == CLASSICAL, mode[second], mode[first])}),
            arms[SIDE].iloc[first].add_suffix("_a").reset_index(drop=True),
            arms[SIDE].iloc[second].add_suffix("_b").reset_index(drop=True),
        ],
        axis=1,
    )
    numbers = {
        "accuracy_a": rate_a,
        "accuracy_b": rate_b,
        "accuracy_difference": difference,
        "accuracy_difference_low": accuracy_low,
        "accuracy_difference_high": accuracy_high,
        "macro_f1_a": scores.macro_f1[first],
        "macro_f1_b": scores.macro_f1[second],
        "macro_f1_difference": scores.macro_f1[first] - scores.macro_f1[second],
        "macro_f1_difference_low": macro_f1_low,
        "macro_f1_difference_high": macro_f1_high,
        "only_a_right": only_a,
        "only_b_right": only_b,
    }
    table = table.assign(n=n, **{key: value.round(DIGITS) for key, value in numbers.items()})
    table["test"] = np.where(single, MCNEMAR, STUDENT)
    table["p_value"] = _significant(p)
    table["p_value_holm"] = _significant(multipletests(p, method="holm")[1] if len(p) else p)
    table["cohens_h"] = proportion_effectsize(rate_a, rate_b).round(DIGITS)
    table["smallest_detectable_difference"] = detectable.round(DIGITS)
    table["difference_shown"] = table["p_value_holm"] < SIGNIFICANCE
    names = np.array(arm_names(arms), dtype=object)
    table["sentence"] = [
        sentence(row, a, b) for row, a, b in zip(table.to_dict("records"), names[first], names[second], strict=True)
    ]
    return table[COLUMNS]


def _significant(values: np.ndarray) -> np.ndarray:
    """Values with DIGITS significant digits; p-values may be tiny."""
    return np.array([float(f"{value:.{DIGITS}g}") for value in values])


def _difference_interval(
    draws: np.ndarray, seed_variance: np.ndarray, seeds: np.ndarray, first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The ends of the percentile interval, the standard error and its degrees of freedom, of each pair's difference.

    A variance between k seeds has k - 1 degrees of freedom, the variance over rows in effect no end of them; their sum
    has those that Satterthwaite's formula gives. The interval of the draws is widened by Student's quantile over the
    normal one, which changes nothing where no seeds are pooled or where they do not differ.
    """
    low, high, error = np.empty(len(first)), np.empty(len(first)), np.empty(len(first))
    center = np.empty(len(first))
    step = max(1, BLOCK // draws.shape[1])
    for start in range(0, len(first), step):
        block = slice(start, start + step)
        difference = draws[first[block]] - draws[second[block]]
        error[block], center[block] = difference.std(axis=1), difference.mean(axis=1)
        low[block], high[block] = np.quantile(difference, tail_quantiles(), axis=1, overwrite_input=True)
    terms = seed_variance**2 / np.maximum(seeds - 1, 1)
    uncertain = terms[first] + terms[second]
    freedom = np.divide(error**4, uncertain, out=np.full(len(first), np.inf), where=uncertain > 0)
    wider = t.isf(SIGNIFICANCE / 2, freedom) / norm.isf(SIGNIFICANCE / 2)
    return center + (low - center) * wider, center + (high - center) * wider, error, freedom


def sentence(row: dict, name_a: str, name_b: str) -> str:
    """A row of the comparison table in words, from the side of a."""
    points = f"{abs(row['accuracy_difference']) * 100:.1f}"
    name_a = name_a[:1].upper() + name_a[1:]
    interval = (
        f"{CONFIDENCE_LEVEL:.0%} interval {row['accuracy_difference_low'] * 100:.1f} "
        f"to {row['accuracy_difference_high'] * 100:.1f}"
    ).replace("%", " %")
    if float(points) == 0:
        where = f"{name_a} and {name_b} have the same accuracy to a tenth of a point"
    else:
        side = "above" if row["accuracy_difference"] > 0 else "below"
        where = f"{name_a} is {points} {'point' if points == '1.0' else 'points'} {side} {name_b} in accuracy"
    p = f"p {p_text(row['p_value_holm'])} after Holm's correction"
    if row["difference_shown"]:
        return f"{where} ({interval}); the difference is shown ({p})."
    could = f"{row['smallest_detectable_difference'] * 100:.1f}"
    return f"{where} ({interval}); no difference shown ({p}); this test could show {could} points."


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
            swap[key] = -value
        elif key.endswith("_difference_low"):
            swap[key[: -len("low")] + "high"] = -value
        elif key.endswith("_difference_high"):
            swap[key[: -len("high")] + "low"] = -value
        elif key.endswith("_a"):
            swap[key[:-1] + "b"] = value
        elif key.endswith("_b"):
            swap[key[:-1] + "a"] = value
        else:
            swap[key] = value
    swap["only_a_right"], swap["only_b_right"] = row["only_b_right"], row["only_a_right"]
    return swap
