#!/usr/bin/env python3
"""Lets Optuna choose the hyperparameters and prune the trials of a program that calls etude::hyperparameter_search.

    python tools/optuna_driver.py --n-trials 50 --sampler GPSampler --storage study.log -- ./search --output_dir out

starts the program with `--driver stdio` and answers its requests, which are lines of JSON (see
include/etude/study/remote_study.hpp). The study is in Optuna's storage: `optuna-dashboard study.log` shows it while it grows.
With `--jobs 4`, four programs work on it at once. From Python, `run(study, command, n_trials)` takes any Optuna study.
"""

import argparse
import concurrent.futures
import json
import math
import subprocess
import sys
import threading

import optuna
from optuna.trial import TrialState


class Driver:
    """Answers one program's requests."""

    def __init__(self, study, next_trial):
        self.study = study
        self.next_trial = next_trial
        self.trials = {}

    def answer(self, request):
        if len(request) != 1:
            raise ValueError("a request has one member")
        ((kind, given),) = request.items()
        return getattr(self, "on_" + kind)(**given)

    def on_ask(self, directions):
        ours = [direction.name.lower() for direction in self.study.directions]
        if directions != ours:
            raise ValueError(f"the study's directions are {ours}: the program's, {directions}, must be the same")
        trial = self.next_trial()
        if trial is None:
            return {"number": None}
        self.trials[trial.number] = trial
        return {"number": trial.number}

    def on_suggest(self, number, name, distribution):
        trial = self.trials[number]
        d = optuna.distributions.json_to_distribution(json.dumps(distribution))
        if isinstance(d, optuna.distributions.CategoricalDistribution):
            value = trial.suggest_categorical(name, d.choices)
        elif isinstance(d, optuna.distributions.IntDistribution):
            value = trial.suggest_int(name, d.low, d.high, step=d.step, log=d.log)
        else:
            value = trial.suggest_float(name, d.low, d.high, step=d.step, log=d.log)
        return {"value": value}

    def on_report(self, number, step, value):
        trial = self.trials[number]
        trial.report(float(value), step)
        return {"prune": bool(trial.should_prune())}

    def on_set_user_attr(self, number, name, value):
        self.trials[number].set_user_attr(name, value)
        return {}

    def on_tell(self, number, state, values):
        trial = self.trials[number]
        state = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "fail": TrialState.FAIL}[state]
        if values is not None:
            values = [float(value) for value in values]
            if any(map(math.isnan, values)):
                state, values = TrialState.FAIL, None
        self.study.tell(trial, values, state=state)
        del self.trials[number]
        return {}

    def end(self):
        """Marks the trials of a program that ended without reporting results as failed."""
        for trial in self.trials.values():
            self.study.tell(trial, state=TrialState.FAIL)
        self.trials.clear()


def run(study, command, n_trials, jobs=1):
    """Runs `n_trials` more trials of `study` in `jobs` programs at once. Raises RuntimeError if one of them fails."""
    lock = threading.Lock()
    left = n_trials

    def next_trial():
        nonlocal left
        if left <= 0:
            return None
        left -= 1
        return study.ask()

    def serve():
        driver = Driver(study, next_trial)
        program = subprocess.Popen([*command, "--driver", "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, errors="replace")
        try:
            for line in program.stdout:
                if not line.startswith("{"):
                    print(line, end="", file=sys.stderr)  # output from before the search began
                    continue
                with lock:
                    try:
                        # Samplers may return NumPy numbers.
                        answer = json.dumps(driver.answer(json.loads(line)), default=lambda value: value.item())
                    except Exception as error:
                        answer = json.dumps({"error": f"{type(error).__name__}: {error}"})
                print(answer, file=program.stdin, flush=True)
        except BrokenPipeError:
            pass
        finally:
            with lock:
                driver.end()
            program.stdin.close()
            code = program.wait()
        if code:
            raise RuntimeError(f"{command[0]} ended with {code}")

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for served in [pool.submit(serve) for _ in range(jobs)]:
            served.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-trials", type=int, default=20, help="trials to run")
    parser.add_argument("--direction", choices=["minimize", "maximize"], nargs="+", default=["minimize"], help="one for each objective")
    parser.add_argument("--sampler", default="TPESampler", help="a class of optuna.samplers, such as GPSampler or CmaEsSampler")
    parser.add_argument("--pruner", default="NopPruner", help="a class of optuna.pruners, such as HyperbandPruner")
    parser.add_argument("--seed", type=int, help="of the sampler")
    parser.add_argument("--storage", help="a journal, or an address that Optuna knows; in memory by default")
    parser.add_argument("--study-name", default="etude")
    parser.add_argument("--jobs", type=int, default=1, help="programs at once")
    parser.add_argument("command", nargs="+", help="the program and its arguments, after --")
    options = parser.parse_args()
    storage = options.storage
    if storage and "://" not in storage:
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
    make = getattr(optuna.samplers, options.sampler)
    sampler = make() if options.seed is None else make(seed=options.seed)
    study = optuna.create_study(
        study_name=options.study_name,
        storage=storage,
        sampler=sampler,
        pruner=getattr(optuna.pruners, options.pruner)(),
        directions=options.direction,
        load_if_exists=True,
    )
    run(study, options.command, options.n_trials, options.jobs)
    for trial in study.best_trials:
        print(f"trial {trial.number}: {', '.join(f'{value:.6g}' for value in trial.values)}, with {trial.params}")


if __name__ == "__main__":
    main()
