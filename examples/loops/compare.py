#!/usr/bin/env python3
"""Runs an example and the handwritten loop that it replaces, compares the values that both print, and counts their lines.

compare.py NAME [--tolerance T | --at_least QUANTITY VALUE] [--kept N] --example PROGRAM ARGUMENT... --loop PROGRAM ARGUMENT...

Both print lines like "epoch 3 loss 0.123456 accuracy 0.9", or "step 300 loss 0.123456": the values of one epoch or step. With
--tolerance, values that both print must agree to this relative difference. With --at_least, the last value of QUANTITY must
reach VALUE in both. With --kept, the example is the loop itself with at most N lines changed or added.
"""

import difflib
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent


def arguments(argv):
    """The name, the options, and the two commands."""
    example, loop = argv.index("--example"), argv.index("--loop")
    options = argv[1:example]
    tolerance = float(options[options.index("--tolerance") + 1]) if "--tolerance" in options else None
    at_least = None
    if "--at_least" in options:
        place = options.index("--at_least")
        at_least = options[place + 1], float(options[place + 2])
    if tolerance is None and at_least is None:
        sys.exit("compare.py: --tolerance or --at_least is missing")
    return argv[0], tolerance, at_least, argv[example + 1 : loop], argv[loop + 1 :]


def run(command):
    """The values that a program prints, by (epoch, quantity), and its seconds."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} exits with {done.returncode}:\n{done.stdout}{done.stderr}")
    values = {}
    for epoch, rest in re.findall(r"^(?:epoch|step) (\d+) (.*)$", done.stdout, re.MULTILINE):
        for quantity, value in re.findall(r"([a-z_]+) (-?[0-9.]+|nan|-?inf)", rest):
            values[int(epoch), quantity] = float(value)
    if not values:
        sys.exit(f"{' '.join(command)} prints no values:\n{done.stdout}{done.stderr}")
    return values, time.monotonic() - begin


def lines_of_code(source):
    """Lines that aren't blank or only a comment."""
    lines = (line.strip() for line in source.read_text().splitlines())
    return sum(1 for line in lines if line and not line.startswith("//"))


def changed_lines(before, after):
    """The lines of a program that another one doesn't have, except for the comment at its beginning."""
    lines = [[line for line in path.read_text().splitlines() if not line.startswith("///")] for path in (before, after)]
    return sum(1 for line in difflib.ndiff(*lines) if line.startswith("+ "))


def main():
    name, tolerance, at_least, example, loop = arguments(sys.argv[1:])
    (ours, our_seconds), (by_hand, loop_seconds) = run(example), run(loop)

    print(f"{'':24} {'Etude':>12} {'by hand':>12}")
    common = sorted(ours.keys() & by_hand.keys())
    worst = 0.0
    for epoch, quantity in common:
        a, b = ours[epoch, quantity], by_hand[epoch, quantity]
        difference = abs(a - b) / max(abs(b), 1e-12)
        worst = math.inf if math.isnan(difference) else max(worst, difference)
        print(f"{f'epoch {epoch} {quantity}':24} {a:12.6f} {b:12.6f}")
    kept = int(sys.argv[sys.argv.index("--kept") + 1]) if "--kept" in sys.argv else None
    paths = [EXAMPLES / folder / f"{name}.cpp" for folder in ("" if kept is None else "kept", "loops")]
    counts = [lines_of_code(path) for path in paths]
    print(f"{'lines of code':24} {counts[0]:12} {counts[1]:12}")
    print(f"{'seconds':24} {our_seconds:12.1f} {loop_seconds:12.1f}")
    print(f"the largest relative difference is {worst:.2g}")

    faults = []
    if kept is not None and (changed := changed_lines(paths[1], paths[0])) > kept:
        faults.append(f"{changed} lines are changed or added: must be at most {kept}")
    if tolerance is not None:
        if ours.keys() != by_hand.keys():
            only = sorted(ours.keys() ^ by_hand.keys())
            faults.append(f"only one of them prints {only}")
        if worst > tolerance:
            faults.append(f"the values differ by more than {tolerance:g}")
    if at_least is not None:
        quantity, least = at_least
        for who, values in (("Etude", ours), ("the loop", by_hand)):
            last = max((key for key in values if key[1] == quantity), default=None)
            if last is None or not values[last] >= least:
                faults.append(f"the last {quantity} of {who} is {values.get(last)}: must be at least {least:g}")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
