"""Ratios of slices that ran side by side, and their statistics."""

import math
import statistics


def ratios(of, to, measured):
    """One ratio per training: the median of the ratios of its slices, which have equal numbers of steps."""
    return [statistics.median(a[measured] / b[measured] for a, b in zip(x["slices"], y["slices"])) for x, y in zip(of, to)]


def interval(values):
    """A confidence interval of at least 95 % for the median, whatever the distribution.

    It runs between two of the sorted values (Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2).
    None for fewer than six values.
    """
    values = sorted(values)
    rank, outside = 0, 1  # of 2^n equally likely cases, those with at most `rank` values on one side of the median
    while outside <= 0.025 * 2 ** len(values):
        rank += 1
        outside += math.comb(len(values), rank)
    return (values[rank - 1], values[-rank]) if rank else None


def describe(ratios):
    """The median and its interval; "none" instead of a median if the interval contains 1."""
    median, bounds = statistics.median(ratios), interval(ratios)
    if bounds is None:
        return f"{median:.3f} (too few for an interval)"
    low, high = bounds
    return f"{'none' if low <= 1 <= high else f'{median:.3f}'} ({low:.3f}–{high:.3f})"
