"""Statistics of few, skewed measurements: medians, quartiles, and an interval that assumes no distribution."""
from __future__ import absolute_import, division, print_function


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
    """(low, high, level reached): exact for the median of any continuous distribution, from order statistics.

    The narrowest symmetric pair of order statistics that reaches `level`; with fewer than six values nothing reaches
    95 %, so the extremes are given together with the smaller level that they do have. A bootstrap of so few rounds
    covers only about 90 % where 95 % is asked.
    """
    ordered = sorted(values)
    k = 1
    while 2 * (k + 1) <= len(ordered) and coverage(len(ordered), k + 1) >= level:
        k += 1
    return ordered[k - 1], ordered[-k], coverage(len(ordered), k)


def paired_ratios(numerators, denominators, factor=1.0):
    """factor * a / b for values measured in the same round, so that a drift of the machine cancels."""
    return [factor * a / b for a, b in zip(numerators, denominators)]


def summary(values):
    """Median, quartiles and interval of a list, as the report stores them."""
    low, high, level = median_interval(values)
    return {
        'median': median(values), 'q1': quantile(values, 0.25), 'q3': quantile(values, 0.75),
        'lo': low, 'hi': high, 'level': level, 'rounds': len(values),
    }
