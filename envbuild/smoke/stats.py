"""Statistics of few, skewed measurements: medians, quartiles, and an interval that assumes no distribution."""
from __future__ import absolute_import, division, print_function

import math

LEAST = 6               # rounds: with fewer, no interval reaches 95 %, and their autocorrelation cannot be estimated
MOST_DEPENDENT = 0.95   # a larger autocorrelation counts as this one
ESTIMATE_MISSES = 5.5   # this / number of rounds is added to the measured autocorrelation, which tends to be too small
DEPENDENT, ITS_LEVEL = 0.5, 0.94        # above this autocorrelation, the report states at most this level for an interval


def median(values):
    """The middle value, or the mean of the two middle ones."""
    return quantile(values, 0.5)


def quantile(values, q):
    """The q-quantile by linear interpolation between order statistics (NumPy's default rule)."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def relative_iqr(values):
    """Interquartile range over the median: a robust measure of noise."""
    middle = median(values)
    return (quantile(values, 0.75) - quantile(values, 0.25)) / middle if middle else 0.0


def coverage(n, k):
    """The probability that the median lies between the k-th smallest and the k-th largest of n values (k from 1)."""
    tail, term = 0, 1
    for i in range(k):
        tail += term
        term = term * (n - i) // (i + 1)
    return 1.0 - 2.0 * tail / 2.0 ** n


def median_interval(values, level=0.95):
    """Return (low, high, level reached). The level is exact for the median of any continuous distribution.

    The interval is the narrowest symmetric pair of order statistics that reaches `level`. With fewer than six values no pair
    reaches 95 %, so the smallest and the largest value are returned with the level that they do reach. A bootstrap interval of
    so few values claims 95 %, but contains the median in only about 90 % of all cases.
    """
    ordered = sorted(values)
    k = 1
    while 2 * (k + 1) <= len(ordered) and coverage(len(ordered), k + 1) >= level:
        k += 1
    return ordered[k - 1], ordered[-k], coverage(len(ordered), k)


def autocorrelation(values):
    """How much a round resembles the round before it: the lag-1 autocorrelation of the ranks. None for fewer than six values.

    Each value is replaced by its rank, so that one very slow round does not dominate the result. With few values, the estimate
    is too small by (1 + 4 r) / n (Marriott and Pope 1954, https://doi.org/10.1093/biomet/41.3-4.390), which is corrected here.
    """
    n = len(values)
    if n < LEAST:
        return None
    places = dict((value, [i for i, other in enumerate(sorted(values)) if other == value]) for value in values)
    ranks = [sum(places[value]) / float(len(places[value])) - (n - 1) / 2.0 for value in values]
    spread = sum(rank * rank for rank in ranks)
    if not spread:
        return 0.0
    found = sum(a * b for a, b in zip(ranks, ranks[1:])) / spread
    return max(-1.0, min(1.0, (n * found + 1) / (n - 4.0)))


def interval(values):
    """{'lo', 'hi', 'level', 'autocorrelation'}: median_interval(), widened if the rounds depend on each other.

    Rounds that resemble their neighbours contain less information than as many independent rounds: with an autocorrelation of
    0.5, an interval that claims 96 % contains the true value in only 83 % of all runs. So both sides are stretched by
    sqrt((1 + r) / (1 - r)), the ratio of the standard errors of a mean of dependent and of independent values. Few rounds often
    show less autocorrelation than there is, so r is the measured value plus ESTIMATE_MISSES / n. With this correction,
    intervals of 6 to 30 rounds contained the true value in at least 94 % of simulated runs, for autocorrelations up to 0.7
    (benchmarks/interval_coverage.py). One value has no interval.
    """
    found = autocorrelation(values)
    if len(values) < 2:
        return {'lo': None, 'hi': None, 'level': 0.0, 'autocorrelation': found}
    low, high, level = median_interval(values)
    if found is not None:
        middle, r = median(values), max(0.0, min(MOST_DEPENDENT, found + ESTIMATE_MISSES / len(values)))
        if r > 0:
            low, high = (_stretched(middle, end, math.sqrt((1 + r) / (1 - r))) for end in (low, high))
        level = min(level, ITS_LEVEL) if found > DEPENDENT else level
    return {'lo': low, 'hi': high, 'level': level, 'autocorrelation': found}


def _stretched(middle, end, factor):
    """Move the end of an interval away from its middle by a factor.

    If both are positive, their ratio is stretched, so that the end stays positive.
    """
    if middle > 0 and end > 0:
        return middle * (end / middle) ** factor
    return middle + (end - middle) * factor


def paired_ratios(numerators, denominators, factor=1.0):
    """Return factor * a / b for each round. Both values come from the same round, so that a drift of the machine cancels."""
    return [factor * a / b for a, b in zip(numerators, denominators)]


def summary(values):
    """Median, quartiles and interval of a list, as the report stores them."""
    return dict(interval(values), median=median(values), q1=quantile(values, 0.25), q3=quantile(values, 0.75), rounds=len(values))


def percent(share):
    """A share as a percentage with one decimal; with more decimals if one decimal would show a share below 1 as 100 %."""
    digits = 1
    while share < 1 and digits < 6 and round(100 * share, digits) >= 100:
        digits += 1
    return '%.*f %%' % (digits, 100 * share)


def words(found):
    """`1.53 [1.45, 1.57]` of a summary; the median alone if there is no interval."""
    if found['lo'] is None:
        return '%.2f' % found['median']
    return '%.2f [%.2f, %.2f]' % (found['median'], found['lo'], found['hi'])
