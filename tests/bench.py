#!/usr/bin/env python3
"""Checks the statistics of bench/train: ratios, confidence intervals of their median, and what counts as no difference."""

import math
import pathlib
import random
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "bench" / "train"))
from ratios import describe, interval, ratios  # noqa: E402

# The ranks of the two values around the median that Conover's method takes, from published tables.
for count, low, high in [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (17, 5, 13), (20, 6, 15), (50, 18, 33), (100, 40, 61)]:
    values = list(range(1, count + 1))
    random.Random(count).shuffle(values)
    assert interval(values) == (low, high), (count, interval(values))

assert interval([1.1, 1.2, 1.3, 1.4, 1.5]) is None

# The median of an exponential distribution is ln 2; 15 values cover it with a probability of 96.5 %.
random.seed(1)
covered = 0
for _ in range(4000):
    low, high = interval([random.expovariate(1) for _ in range(15)])
    covered += low <= math.log(2) <= high
assert 0.955 < covered / 4000 < 0.975, covered / 4000

assert describe([0.97, 0.98, 0.99, 1.00, 1.01, 1.02, 1.03]) == "none (0.970–1.030)"
assert describe([1.5, 1.2, 1.3, 1.1, 1.4, 1.6, 1.7]) == "1.400 (1.100–1.700)"


def trainings(*seconds):
    return [{"slices": [{"seconds": s} for s in slices]} for slices in seconds]


# A clock that slows both down by turns leaves their ratio as it is, and one slice in which it changes doesn't move the median.
slow = trainings([0.05, 0.10, 0.05, 0.10], [0.10, 0.05, 0.05], [0.03, 0.06, 0.12])
fast = trainings([0.04, 0.08, 0.04, 0.04], [0.08, 0.04, 0.04])  # failed in the third
assert all(math.isclose(ratio, 1.25) for ratio in ratios(slow, fast, "seconds"))
assert len(ratios(slow, fast, "seconds")) == 2
