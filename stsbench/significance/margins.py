"""What a difference and its error say of a margin, and which differences could have been found.

That a difference is not significant does not show that it is small. Two one-sided tests against a
margin do (Schuirmann 1987, Journal of Pharmacokinetics and Biopharmaceutics 15); one of them alone
shows that an encoder is not worse by the margin. How large a difference must be in order to be
significant in most samples follows from the noncentral t distribution: its statistic is shifted by
the true difference, in units of the error, and that error is itself estimated. With an error over
items and seeds, the mean over the estimates of the variance over seeds takes its place.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from stsbench.numbers.intervals import StandardError
from stsbench.numbers.tails import SummedVariances, chi_squared_nodes, tail_quantiles
from stsbench.significance.differences import EstimatedDifference, combine_errors

MarginVerdict = Literal["within", "not worse", "worse than", "open"]
POWER = 0.8
"""The share of samples in which a difference of the smallest detectable size is significant."""
NORMAL_DF = 1e9
"""With more degrees of freedom, Student's t is the normal distribution."""
MAX_SERIES_QUANTILE = 1e3
"""Above this quantile, the series of the noncentral t distribution may not converge."""
MAX_ITEMS = 10**9
MAX_SEEDS = 1000


def margin_verdict(
    estimate: EstimatedDifference, margin: float, level: float = 0.05
) -> MarginVerdict:
    """Judge whether a difference of two scores matters: whether it exceeds a margin.

    Three one-sided tests ask whether the true difference is above -margin, below margin, and below
    -margin. A test is significant if an estimate as far from this bound as ours would have a
    probability below ``level`` if the true difference were at the bound. If the error is 0, the
    difference itself is compared with the margin.

    Args:
        estimate: The difference, second minus first, with its error.
        margin: The largest difference that does not matter, at least 0.
        level: The significance level of each one-sided test.

    Returns:
        ``within``: the difference is between -margin and margin. ``not worse``: it is above
        -margin. ``worse than``: it is below -margin. ``open``: none of these is significant.
    """
    above_lower = estimate.difference + margin
    below_upper = margin - estimate.difference
    if estimate.upper_tail(above_lower) < level:
        return "within" if estimate.upper_tail(below_upper) < level else "not worse"
    return "worse than" if estimate.upper_tail(-above_lower) < level else "open"


def interval_verdict(interval: tuple[float, float], margin: float) -> MarginVerdict:
    """Judge a difference by a margin and an interval, whose level is 1 less twice the tests'."""
    low, high = interval
    if low > -margin:
        return "within" if high < margin else "not worse"
    return "worse than" if high < -margin else "open"


def smallest_detectable(
    standard_error: StandardError, level: float = 0.05, power: float = POWER
) -> float:
    """Compute the smallest true difference that a two-sided test finds often enough.

    Args:
        standard_error: The standard error of the estimated difference, over items and perhaps over
            training seeds. Degrees of freedom are more than 0; infinite if the error is known.
        level: The significance level of the test. By Holm's correction over k tests it is 0.05 / k
            for the first of them.
        power: The share of samples in which the difference must be significant, in its direction;
            more than half of the level.

    Returns:
        The difference, in the unit of the error: 0 if the error is 0, infinite if it is infinite,
        NaN if the error or ``df`` is NaN.
    """
    # The whole error, the degrees of freedom of its part over items, and its part over seeds (0 if
    # there is none) with the degrees of freedom of that.
    error, df, seed_error, seed_df = standard_error
    if math.isnan(error) or math.isnan(df):
        return float("nan")
    if not error:
        return 0.0
    if not seed_error or math.isinf(error):
        return _smallest_noncentrality(df, level, power) * error
    # The seeds' share of the variance.
    seed_share = (seed_error / error) ** 2
    if seed_share >= 1:
        return _smallest_noncentrality(seed_df, level, power) * error
    return _smallest_over_seeds(seed_share, df, seed_df, level, power) * error


@lru_cache(maxsize=4096)
def _smallest_noncentrality(df: float, level: float, power: float) -> float:
    """Compute the smallest true difference that Student's t test finds, in units of its error.

    It is the noncentrality (the true difference divided by its error) at which Student's statistic
    exceeds the test's quantile in a share ``power`` of samples.

    Args:
        df: The degrees of freedom of the error.
        level: The significance level of the two-sided test.
        power: The share of samples in which the statistic must exceed the quantile.
    """
    from scipy import optimize, special

    # With so many degrees of freedom the statistic is normally distributed.
    if df > NORMAL_DF:
        return float(special.ndtri(1 - level / 2) + special.ndtri(power))
    quantile = float(special.stdtrit(df, 1 - level / 2))

    def error_ratio_quantile(share: float) -> float:
        """Return the quantile, at a share of samples, of the estimated error over the true one."""
        return math.sqrt(special.chdtri(df, 1 - share) / df)

    if quantile > MAX_SERIES_QUANTILE:
        # With a quantile this large (very few degrees of freedom), only the estimated error
        # decides; the noise of the difference itself is negligible.
        return quantile * error_ratio_quantile(power)
    # The estimated error and the difference are independent. Each is below its quantile of
    # sqrt(power) with this probability, so both are with the probability power: an upper bound.
    share = power**0.5
    upper_bound = quantile * error_ratio_quantile(share) + float(special.ndtri(share))
    # The root of the attained power less the required one; nctdtr is the distribution function of
    # Student's t with a noncentrality.
    return float(
        optimize.brentq(
            lambda noncentrality: 1 - special.nctdtr(df, noncentrality, quantile) - power,
            0.0,
            upper_bound + 1.0,
        )
    )


@lru_cache(maxsize=4096)
def _smallest_over_seeds(
    seed_share: float, item_df: float, seed_df: float, level: float, power: float
) -> float:
    """Compute the smallest true difference that a test over items and seeds finds.

    A test estimates the variance over seeds from few seeds. The estimate is the true variance times
    y, a random number (chi-squared divided by its degrees of freedom), on which the difference
    depends at which the test is significant. The power is averaged over y. The variance over items
    is taken as known, because there are many more of them.

    Args:
        seed_share: The share of the seeds in the variance of the difference, between 0 and 1.
        item_df: The degrees of freedom of the variance over items.
        seed_df: The degrees of freedom of the variance over seeds.
        level: The significance level of the two-sided test.
        power: The share of samples in which the difference must be significant.

    Returns:
        The difference, in units of its true error.
    """
    from scipy import optimize, special

    # Values of y, and the weight of each in a mean over the distribution of y, (nodes,).
    y_rows, weight_rows = chi_squared_nodes(np.array([[seed_df]]))
    y, y_weights = y_rows[0], weight_rows[0]
    # What the test estimates at each y, as shares of the true variance; only the part over seeds
    # varies with y. ``tail_quantiles`` has the quantiles of a test with these two variances.
    estimated = SummedVariances(
        items=np.full(len(y), 1 - seed_share),
        item_df=item_df,
        seeds=seed_share * y,
        seed_dfs=np.full(len(y), seed_df),
    )
    # The least difference that is significant at each y, (nodes,): an estimate exceeds it with the
    # probability level / 2 if the true difference is 0.
    significant = tail_quantiles(level / 2, estimated)

    def excess_power(difference: float) -> float:
        """Return by how much the power at a true difference is too large; negative if too small."""
        return float(y_weights @ special.ndtr(difference - significant)) - power

    return float(optimize.brentq(excess_power, 0.0, significant.max() + 10.0))


def required_items(
    errors: Sequence[StandardError],
    n_items: int,
    difference: float,
    level: float = 0.05,
) -> int | None:
    """Compute how many items a test needs to find a difference of two encoders.

    The items are taken to be like those of a comparison that was made. With r times as many items
    the error is divided by the root of r, and the effective number of items, which is the degrees
    of freedom plus 1, is multiplied by r.

    Args:
        errors: The error of the difference in the comparison that was made, with one seed per
            encoder, by each way to estimate it; the test must find the difference by all of them.
        n_items: The number of items of that comparison.
        difference: The difference to find, more than 0, in the unit of the error.
        level: The significance level of the test.

    Returns:
        The number of items; None if it is above ``MAX_ITEMS``.
    """

    def are_enough(n_required: int) -> bool:
        """Return whether a test over this number of items finds the difference.

        From the outer function: ``errors`` are those over ``n_items`` items, ``difference`` is the
        difference to find, ``level`` the significance level.
        """
        ratio = n_required / n_items
        required_errors = [
            StandardError(error.error / ratio**0.5, df=(error.df + 1) * ratio - 1)
            for error in errors
        ]
        return all(
            error.df >= 1 and smallest_detectable(error, level) <= difference
            for error in required_errors
        )

    # The first number that is enough, by bisection: all below are not, and all above are.
    n_required = bisect_left(range(MAX_ITEMS + 1), True, lo=1, key=are_enough)
    return None if n_required > MAX_ITEMS else n_required


def required_seeds(
    item_errors: Sequence[StandardError],
    deviation: float,
    difference: float,
    level: float = 0.05,
) -> int | None:
    """Compute how many training seeds per encoder a test needs to find a difference.

    The items stay the same. The variance of the difference is that over items, plus
    deviation² / seeds for each of the two encoders.

    Args:
        item_errors: The error of the difference over items alone, by each way to estimate it; the
            test must find the difference by all of them.
        deviation: The deviation of each encoder's score over seeds, in the unit of the error.
        difference: The difference to find, in the unit of the error.
        level: The significance level of the test.

    Returns:
        The number of seeds, at least 2; None if it is above ``MAX_SEEDS``, as it is if the items
        are too few for any number of seeds.
    """

    def are_enough(n_seeds: int) -> bool:
        """Return whether a test with this number of seeds per encoder finds the difference."""
        error_of_seeds = StandardError(deviation / n_seeds**0.5, df=n_seeds - 1)
        # The errors over items and over the seeds of both encoders, as one error.
        totals = [combine_errors(error, [error_of_seeds] * 2) for error in item_errors]
        # False for an error that is NaN or infinite: then no number is enough.
        return all(smallest_detectable(total, level) <= difference for total in totals)

    # The first number that is enough, by bisection: all below are not, and all above are.
    n_required = bisect_left(range(MAX_SEEDS + 1), True, lo=2, key=are_enough)
    return None if n_required > MAX_SEEDS else n_required
