"""Measures the step of each of Etude's optimizers and of the same optimizer in Python: torch.optim's with fused=True, with
foreach=True if it has no fused one, or that of another package. Prints Markdown tables, and writes optimizers.json.

Both update the same number of matrices of the same size with the same number of threads. Their gradients exist already; only
step() is timed. The two take turns, some 20 ms each, and each turn is compared with the other's next to it. An optimizer whose
package isn't installed has a dash.
"""

import argparse
import inspect
import json
import logging
import random
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

SIZES = {"100 of 32x32": (100, 32, 32), "1 of 20,000x500": (1, 20_000, 500)}
SLICE = 0.02  # seconds
BUDGET = 3  # seconds for the rounds of a pair, of which it makes at least three
# After how many steps an optimizer makes one that computes more. GaLore's projections, every 200 steps, are in no slice.
PERIODS = {"soap": 10}


def of_torch(name):
    """torch.optim's class of that name, and its fastest form."""
    import torch

    classes = {each.lower(): kind for each, kind in vars(torch.optim).items() if isinstance(kind, type)}
    kind = classes.get("adamw" if name.startswith("adamw_torch") else name)
    if kind is None:
        return None
    taken = inspect.signature(kind).parameters
    form = next((form for form in ("fused", "foreach") if form in taken and (form, name) != ("fused", "adamw_torch")), None)
    decay = {"weight_decay": 0} if "weight_decay" in taken else {}
    return f"torch, {form}" if form else "torch", lambda parameters: kind(parameters, lr=1e-3, **decay, **({form: True} if form else {}))


def of_others(name):
    """The class of the package that people use for an optimizer that torch lacks."""

    def adafactor():
        from transformers.optimization import Adafactor

        return lambda parameters: Adafactor(parameters, lr=1e-3, scale_parameter=False, relative_step=False)

    def of(package, kind, **options):
        def make():
            found = getattr(__import__(package, fromlist=[kind]), kind)
            return lambda parameters: found(parameters, lr=1e-3, weight_decay=0, **options)

        return make

    def galore():
        from galore_torch import GaLoreAdamW

        projected = {"rank": 128, "update_proj_gap": 200, "scale": 0.25, "proj_type": "std"}
        return lambda parameters: GaLoreAdamW([{"params": parameters, **projected}], lr=1e-3, no_deprecation_warning=True)

    found = {"adafactor": ("transformers", adafactor),
             "adamw_8bit": ("bitsandbytes", of("bitsandbytes.optim", "AdamW8bit")),
             "lion_8bit": ("bitsandbytes", of("bitsandbytes.optim", "Lion8bit")),
             "galore_adamw": ("galore_torch", galore),
             "schedule_free_adamw": ("schedulefree", of("schedulefree", "AdamWScheduleFree")),
             "schedule_free_sgd": ("schedulefree", of("schedulefree", "SGDScheduleFree")),
             "ademamix": ("pytorch_optimizer", of("pytorch_optimizer", "AdEMAMix", foreach=True)),
             "lamb": ("pytorch_optimizer", of("pytorch_optimizer", "Lamb", foreach=True)),
             "lars": ("pytorch_optimizer", of("pytorch_optimizer", "LARS", foreach=True)),
             "lion": ("pytorch_optimizer", of("pytorch_optimizer", "Lion", foreach=True)),
             "soap": ("pytorch_optimizer", of("pytorch_optimizer", "SOAP")),
             "stable_adamw": ("pytorch_optimizer", of("pytorch_optimizer", "StableAdamW", foreach=True, kahan_sum=False))}
    if name not in found:
        return None
    package, make = found[name]
    return package, make()


def peer(name):
    """(whose, function of parameters that makes it), or None."""
    try:
        return of_others(name) or of_torch(name)
    except ImportError as error:
        print(f"left out: {name} of another package ({error})", file=sys.stderr)
        return None


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *request):
        print(*request, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"optimizers_bench ended at: {' '.join(map(str, request))}")
        return json.loads(answer)

    def steps(self, count):
        return self.ask("step", count)["seconds"]


class Theirs:
    def __init__(self, make, count, rows, columns, device, threads):
        import torch

        torch.set_num_threads(threads)
        parameters = [torch.randn(rows, columns, device=device, requires_grad=True) for _ in range(count)]
        for each in parameters:
            each.grad = torch.randn_like(each)
        self.optimizer = make(parameters)
        self.synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
        if hasattr(self.optimizer, "train"):  # schedulefree's
            self.optimizer.train()
        self.steps(1)

    def steps(self, count):
        begin = time.perf_counter()
        for _ in range(count):
            self.optimizer.step()
        self.synchronize()
        return time.perf_counter() - begin


def slice_of(contestant, period):
    """The number of steps in a turn: whole periods."""
    once = contestant.steps(period)
    return max(1, round(SLICE / once)) * period


def measure(contestants, period, rounds):
    """The seconds of a step of each contestant, by rounds."""
    steps = [slice_of(each, period) for each in contestants]
    taken = [[] for _ in contestants]
    begin = time.perf_counter()
    while len(taken[0]) < rounds and (len(taken[0]) < 3 or time.perf_counter() - begin < BUDGET):
        for i in random.sample(range(len(contestants)), len(contestants)):
            taken[i].append(contestants[i].steps(steps[i]) / steps[i])
    return taken


def row(ours, name, rounds, device, threads):
    """The measurements of an optimizer by size, or None if it can't step like this."""
    found, whose = {}, None
    other = peer(name)
    for title, size in SIZES.items():
        made = ours.ask("make", name, *size, device, threads)
        if "left_out" in made:
            print(f"left out: {name} ({made['left_out']})", file=sys.stderr)
            return None
        contestants = [ours]
        if other:
            try:
                contestants.append(Theirs(other[1], *size, device, threads))
                whose = other[0]
            except Exception as error:  # a package may know no CPU, or not this version of torch
                print(f"left out: {name} of {other[0]} ({type(error).__name__}: {error})", file=sys.stderr)
        found[title] = measure(contestants, PERIODS.get(name, 1), rounds)
    return {"optimizer": name, "device": device, "threads": threads, "of": whose, "seconds": found}


def microseconds(taken):
    return f"{statistics.median(taken) * 1e6:,.0f}"


def table(rows):
    lines = ["| optim |" + "".join(f" {title}: Etude, µs | the other, µs | ratio |" for title in SIZES) + " the other |", "|---" * (2 + 3 * len(SIZES)) + "|"]
    for each in rows:
        line = f"| {each['optimizer']} |"
        for taken in each["seconds"].values():
            line += f" {microseconds(taken[0])} |"
            line += f" {microseconds(taken[1])} | {statistics.median(b / a for a, b in zip(*taken)):.2f} |" if len(taken) > 1 else " - | - |"
        lines.append(f"{line} {each['of'] or '-'} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, required=True, help="optimizers_bench")
    parser.add_argument("--output", type=Path, required=True, help="folder for optimizers.json")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=lambda text: [int(each) for each in text.split(",")], default=[1], help="such as 1,2 for one and two threads; several are slow on a busy machine")
    parser.add_argument("names", nargs="*", help="the optimizers to measure, instead of all")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    ours = Ours(options.program)
    about = ours.ask("about")
    if unknown := set(options.names) - set(about["names"]):
        sys.exit(f"unknown optimizer {sorted(unknown)[0]!r}: must be one of {', '.join(about['names'])}")
    results = []
    for device in about["devices"]:
        for threads in [1] if device == "cuda" else options.threads:
            rows = []
            for name in options.names or about["names"]:
                if found := row(ours, name, options.rounds, device, threads):
                    rows.append(found)
                    print(f"{device}, {threads} threads: {name}", file=sys.stderr, flush=True)
            where = "the GPU" if device == "cuda" else f"the CPU, {threads} thread{'s' * (threads > 1)}"
            print(f"A step of each optimizer on {where}. The ratio is the other's time divided by Etude's.\n\n{table(rows)}", flush=True)
            results += rows
            (options.output / "optimizers.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
