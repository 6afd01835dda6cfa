"""Compares the samplers of etude/study with Optuna's: the median distance from the minimum, over seeds. Writes study.md and
study.json."""

import argparse
import json
import math
import statistics
import subprocess
import warnings
from pathlib import Path

import optuna
from optuna.samplers import QMCSampler, RandomSampler, TPESampler

SAMPLERS = {"tpe": TPESampler, "random": RandomSampler, "qmc": lambda seed: QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False)}


def point(trial, n, low, high):
    return [trial.suggest_float(f"x{i}", low, high) for i in range(n)]


def branin(trial):
    x, y = trial.suggest_float("x", -5, 10), trial.suggest_float("y", 0, 15)
    return (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887


def hartmann6(trial):
    scale = [1, 1.2, 3, 3.2]
    widths = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    centres = [[0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886], [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
               [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650], [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381]]
    x = point(trial, 6, 0, 1)
    return 3.32237 - sum(s * math.exp(-sum(w * (v - c) ** 2 for w, v, c in zip(ws, x, cs))) for s, ws, cs in zip(scale, widths, centres))


def rosenbrock5(trial):
    x = point(trial, 5, -5, 10)
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in zip(x, x[1:]))


def ackley10(trial):
    x = point(trial, 10, -32.768, 32.768)
    return -20 * math.exp(-0.2 * math.sqrt(sum(v * v for v in x) / 10)) - math.exp(sum(math.cos(2 * math.pi * v) for v in x) / 10) + 20 + math.e


def conditional(trial):
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam"])
    rate = math.log10(trial.suggest_float("lr", 1e-5, 1, log=True))
    layers = trial.suggest_int("layers", 1, 8)
    if optimizer == "sgd":
        momentum = trial.suggest_float("momentum", 0, 0.99)
        return (rate + 1.5) ** 2 + 2 * (momentum - 0.9) ** 2 + 0.1 * abs(layers - 4) + 0.1
    beta2 = trial.suggest_float("beta2", 0.9, 0.9999)
    return (rate + 3) ** 2 + 20 * (beta2 - 0.98) ** 2 + 0.1 * abs(layers - 3)


FUNCTIONS = [branin, hartmann6, rosenbrock5, ackley10, conditional]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, help="study_bench")
    parser.add_argument("--output", type=Path, help="folder for study.md and study.json")
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="three seeds, as a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.seeds = 3
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore")  # QMCSampler calls itself experimental
    ours = json.loads(subprocess.run([options.program, str(options.seeds), str(options.trials)], check=True, capture_output=True, text=True).stdout)
    theirs = {}
    for function in FUNCTIONS:
        for name, make in SAMPLERS.items():
            best = theirs.setdefault(function.__name__, {}).setdefault(name, [])
            for seed in range(options.seeds):
                study = optuna.create_study(sampler=make(seed=seed))
                study.optimize(function, n_trials=options.trials)
                best.append(study.best_value)
    lines = [f"Medians over {options.seeds} seeds of the distance from the least value after {options.trials} trials, and the quartiles: Etude, Optuna {optuna.__version__}.", "",
             "| function | " + " | ".join(f"{name}: Etude | Optuna" for name in SAMPLERS) + " |", "|" + "---|" * (1 + 2 * len(SAMPLERS))]
    for function in FUNCTIONS:
        cells = []
        for name in SAMPLERS:
            for results in (ours, theirs):
                low, middle, high = statistics.quantiles(results[function.__name__][name], n=4)
                cells.append(f"{middle:.3g} ({low:.2g} to {high:.2g})")
        lines.append(f"| {function.__name__} | " + " | ".join(cells) + " |")
    text = "\n".join(lines) + "\n"
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "study.md").write_text(text)
    (options.output / "study.json").write_text(json.dumps({"etude": ours, "optuna": theirs}, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
