"""Searches with the program examples/search: killed again and again, by several processes at once, and driven by Optuna.

search.py PROGRAM kills | workers | crashes | signals | hangs | full | optuna | pruning
ETUDE_SEARCH_KILLS is the number of kills (5), ETUDE_SEED the seed of their moments, ETUDE_SEARCH_SEEDS the number of searches with
and without pruning (2).
"""

import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from checks import check, same

PROGRAM = sys.argv[1]
KILLS = int(os.environ.get("ETUDE_SEARCH_KILLS", "5"))
SEED = int(os.environ.get("ETUDE_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
COMMON = ["--num_train_epochs", "3", "--disable_tqdm", "true", "--eval_strategy", "epoch", "--max_restarts", "1000"]


def start(folder, *arguments, **options):
    return subprocess.Popen([PROGRAM, "--output_dir", folder, *COMMON, *arguments], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, start_new_session=True, **options)


def finish(process):
    _, errors = process.communicate(timeout=300)
    same(process.returncode, 0, f"the program's end: {errors}")


def trials_of(folder):
    """The trials of a journal, each with its records, read without Optuna and without Etude."""
    trials = []
    for line in (pathlib.Path(folder) / "study.log").read_text().splitlines():
        if not line.strip():  # a torn record, overwritten with spaces
            continue
        record = json.loads(line)
        if record["op_code"] == 4:
            trials.append({"state": 0, "params": {}, "reports": [], "finished": 0, "begun": 1, "attrs": {}})
        elif record["op_code"] >= 5:
            trial = trials[record["trial_id"]]
            if record["op_code"] == 5:
                trial["params"][record["param_name"]] = (record["param_value_internal"], record["distribution"])
            elif record["op_code"] == 6:
                trial["state"] = record["state"]
                trial["values"] = record["values"]
                trial["finished"] += record["state"] in (1, 2, 3)
            elif record["op_code"] == 7:
                trial["reports"].append((record["step"], record["intermediate_value"]))
            elif record["op_code"] == 8:
                trial["attrs"].update(record["user_attr"])
    return trials


def outcome(trial):
    return (trial["state"], trial["params"], trial["values"], trial["reports"])


def kill_all(processes):
    for process in processes:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def kills(folder):
    """One worker, killed at random moments: the study equals that of an unbroken search."""
    moments = random.Random(SEED)
    pruner = moments.choice(["median", "percentile", "halving"])
    arguments = ["--n_trials", "12", "--pruner", pruner]
    whole = folder / "whole"
    began = time.monotonic()
    finish(start(whole, *arguments))
    expected = [outcome(trial) for trial in trials_of(whole)]
    check(any(state == 2 for state, *_ in expected), "no trial was pruned")
    length = time.monotonic() - began
    killed = rounds = continued = 0
    while killed < KILLS:
        rounds += 1
        broken = folder / f"broken-{rounds}"
        while killed < KILLS:
            process = start(broken, *arguments)
            try:
                process.wait(timeout=moments.uniform(0.05, max(0.3, length / 6)))
                finish(process)
                break
            except subprocess.TimeoutExpired:
                kill_all([process])
                killed += 1
        else:
            finish(start(broken, *arguments))
        trials = trials_of(broken)
        same(len(trials), len(expected), f"seed {SEED}: the number of trials after {killed} kills")
        for number, (trial, whole_trial) in enumerate(zip(trials, expected)):
            same(outcome(trial), whole_trial, f"seed {SEED}: trial {number} after {killed} kills")
            same(trial["finished"], 1, f"seed {SEED}: results of trial {number}")
        continued += sum(json.loads(line)["op_code"] == 9 for line in (broken / "study.log").read_text().splitlines())
    # A few kills may all come before the first trial.
    check(continued > 0 or KILLS < 20, "no trial was resumed")
    print(f"{killed} kills of {rounds} searches, {continued} trials resumed: each study equals the unbroken one, with the pruner {pruner}")


def workers(folder):
    """Three workers on one journal, one of them with two processes for trials; they are killed one by one, at random."""
    moments = random.Random(SEED)
    count = 10 + 2 * KILLS
    arguments = ["--n_trials", str(count)]
    kinds = [["--n_jobs", "2"], [], []]
    running = [start(folder, *arguments, *kind) for kind in kinds]
    killed = 0
    while killed < KILLS:
        time.sleep(moments.uniform(0.05, 0.6))
        which = moments.randrange(3)
        if running[which].poll() is None:
            # Half of the kills spare the worker's child processes, which then write a checkpoint and end.
            if moments.random() < 0.5:
                kill_all([running[which]])
            else:
                running[which].kill()
                running[which].wait()
            killed += 1
        elif all(process.poll() is not None for process in running):
            break
        running[which] = start(folder, *arguments, *kinds[which])
    for process in running:
        finish(process)
    trials = trials_of(folder)
    same(len(trials), count, f"seed {SEED}: the number of trials after {killed} kills")
    for number, trial in enumerate(trials):
        same(trial["state"], 1, f"seed {SEED}: the state of trial {number}")
        same(trial["finished"], 1, f"seed {SEED}: results of trial {number}")
        same([step for step, _ in trial["reports"]], [1, 2, 3], f"seed {SEED}: reports of trial {number}")
    same(sorted(path.name for path in folder.glob("*.lock")), [], f"seed {SEED}: locks that are left")
    print(f"{killed} kills of three workers: {count} trials, each done once")


def children_of(process):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == process.pid:
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


def crashes(folder):
    """A killed process loses its trial, and no other."""
    process = start(folder, "--n_trials", "6", "--trial_processes", "true", "--num_train_epochs", "20")
    victim = None
    while victim is None:
        check(process.poll() is None, "the search has ended")
        time.sleep(0.005)
        children = children_of(process)
        if children and (folder / "run-1" / "checkpoint-45").exists():
            victim = children[0]
            os.kill(victim, signal.SIGKILL)
    finish(process)
    states = [trial["state"] for trial in trials_of(folder)]
    same((len(states), states.count(1), states.count(3)), (6, 5, 1), f"the states {states}")
    failed = trials_of(folder)[states.index(3)]
    check("signal 9" in failed["attrs"]["error"], f"the error is {failed['attrs']}")
    print("a trial whose process was killed is failed, and the five others are complete")


def wait_for(condition, process, what, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        check(process.poll() is None, f"the search has ended before {what}")
        check(time.monotonic() < deadline, f"no {what} after {seconds} seconds")
        time.sleep(0.01)


def is_running(number):
    try:
        return pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def signals(folder):
    """SIGTERM and Ctrl-C end a search and its children, soon after their beginning and while they train, and leave no lock."""
    for whole_group in (False, True):
        for is_training in (False, True):
            where = folder / f"{whole_group}-{is_training}"
            process = start(where, "--n_trials", "4", "--n_jobs", "2", "--num_train_epochs", "2000", "--save_strategy", "no")
            wait_for(lambda: len(children_of(process)) == 2, process, "two children")
            if is_training:
                wait_for(lambda: len(list(where.glob("run-*/hyperparameters.json"))) == 2, process, "two trainings")
            children = children_of(process)
            began = time.monotonic()
            if whole_group:
                os.killpg(process.pid, signal.SIGINT)
            else:
                process.terminate()
            process.communicate(timeout=60)
            seconds = time.monotonic() - began
            what = f"a signal {'to all' if whole_group else 'to the parent'} {'in' if is_training else 'before'} the trainings"
            check(process.returncode in (-signal.SIGTERM, -signal.SIGINT), f"{what}: the status is {process.returncode}")
            check(not any(map(is_running, children)), f"{what}: a child is left")
            same(sorted(path.name for path in where.glob("*.lock*")), [], f"{what}: the locks")
            check(all(trial["state"] == 0 for trial in trials_of(where)), f"{what}: a trial has ended")
            print(f"{what}: {seconds:.2f} s")


def hangs(folder):
    """A trial whose process hangs fails after its time limit, and no other trial does."""
    process = start(folder, "--n_trials", "4", "--trial_timeout", "30", "--n_jobs", "1")
    wait_for(lambda: (folder / "run-1" / "hyperparameters.json").exists() and children_of(process), process, "second training")
    os.kill(children_of(process)[0], signal.SIGSTOP)
    finish(process)
    states = [trial["state"] for trial in trials_of(folder)]
    same((len(states), states.count(3)), (4, 1), f"the states {states}")
    failed = trials_of(folder)[states.index(3)]
    same(failed["attrs"]["error"], "it takes longer than trial_timeout, 30 seconds", "the error")
    print("a trial whose process was stopped is failed, and the others are complete")


def full(folder):
    """Without room for checkpoints the search stops, says so, and continues with the same trial later."""
    import resource

    def few_bytes():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))

    for jobs in ("1", "2"):
        where = folder / jobs
        arguments = ["--n_trials", "3", "--n_jobs", jobs]
        for _ in range(2):
            process = start(where, *arguments, preexec_fn=few_bytes)
            _, errors = process.communicate(timeout=300)
            check(process.returncode != 0, "a search without room succeeds")
            check("the next call resumes the search with the same trial" in errors, f"it says {errors}")
            check(all(trial["state"] == 0 for trial in trials_of(where)), "a trial was failed")
        finish(start(where, *arguments))
        same([trial["state"] for trial in trials_of(where)], [1, 1, 1], "the states")
    print("no trial was lost for want of room")


def optuna(folder):
    """Optuna's samplers and pruners run the program."""
    try:
        import optuna
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(77)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sys.path.append(str(pathlib.Path(__file__).parent.parent.parent / "tools"))
    import optuna_driver

    def command(name, *more):
        return [PROGRAM, "--output_dir", str(folder / name), *COMMON, *more]

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.CmaEsSampler(seed=1, warn_independent_sampling=False)
                                if importable("cmaes") else optuna.samplers.TPESampler(seed=1),
                                pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
    study.enqueue_trial({"learning_rate": 0.01, "optim": "adamw_torch_fused", "weight_decay": 0.01, "width": 64, "layers": 1,
                         "activation": "relu", "dropout": 0.0})
    optuna_driver.run(study, command("driven"), 8)
    same(len(study.trials), 8, "the number of trials")
    check(all(trial.state.name in ("COMPLETE", "PRUNED") for trial in study.trials), f"{[trial.state for trial in study.trials]}")
    first = study.trials[0]
    same(first.params["width"], 64, "the enqueued trial")
    check(first.value > 0.9, f"its accuracy is {first.value}")
    pruned = [trial for trial in study.trials if trial.state.name == "PRUNED"]
    check(pruned and all(trial.user_attrs["global_step"] < 135 for trial in pruned), "no trial was pruned")
    for trial in study.trials:
        same("weight_decay" in trial.params, trial.params["optim"] == "adamw_torch_fused", "the condition")
        written = json.loads((folder / "driven" / f"run-{trial.number}" / "hyperparameters.json").read_text())
        same(written, trial.params, "the file of hyperparameters")

    # The same values give the same results, whoever chose them.
    for trial in study.trials[:3]:
        again = optuna.create_study(direction="maximize")
        again.enqueue_trial(trial.params)
        optuna_driver.run(again, command(f"again-{trial.number}"), 1)
        steps = trial.intermediate_values
        same({step: again.trials[0].intermediate_values[step] for step in steps}, steps, f"trial {trial.number} again")

    # Several programs, one of which dies.
    many = optuna.create_study(direction="maximize", pruner=optuna.pruners.NopPruner())
    optuna_driver.run(many, command("many"), 6, jobs=2)
    same([trial.state.name for trial in many.trials], ["COMPLETE"] * 6, "trials of two programs")
    for study, program, error in [(many, command("many", "--learning_rate", "-1"), RuntimeError),
                                  (many, ["/nonexistent"], FileNotFoundError),
                                  (optuna.create_study(direction="minimize"), command("minimized"), RuntimeError)]:
        try:
            optuna_driver.run(study, program, 1)
        except error:
            pass
        else:
            check(False, f"{program} is no error")
    print("8 trials of Optuna's sampler, 6 in two programs")


def pruning(folder):
    """Pruning saves at least half of the steps, and finds as good a network."""
    seeds = int(os.environ.get("ETUDE_SEARCH_SEEDS", "2"))
    results = {}
    for pruner in ("none", "percentile"):
        for seed in range(1, seeds + 1):
            where = folder / f"{pruner}-{seed}"
            finish(start(where, "--n_trials", "40", "--num_train_epochs", "12", "--save_strategy", "no", "--seed", str(seed), "--pruner", pruner))
            trials = trials_of(where)
            same(len(trials), 40, "the number of trials")
            steps = sum(trial["attrs"]["global_step"] for trial in trials)
            results.setdefault(pruner, []).append((steps, max(trial["values"][0] for trial in trials if trial["state"] == 1)))
    steps = {pruner: sum(steps for steps, _ in runs) for pruner, runs in results.items()}
    best = {pruner: [best for _, best in runs] for pruner, runs in results.items()}
    means = {pruner: statistics.mean(values) for pruner, values in best.items()}
    spread = statistics.stdev(best["none"]) if seeds >= 10 else 0.015
    share = steps["percentile"] / steps["none"]
    print(f"{share:.3f} of the steps; best accuracy {means['percentile']:.4f} with and {means['none']:.4f} without pruning, "
          f"over {seeds} seeds; one standard deviation is {spread:.4f}")
    # A few seeds show little more than that it prunes.
    check(share <= (0.5 if seeds >= 10 else 0.7), f"the share of the steps is {share}")
    check(means["percentile"] >= means["none"] - spread, f"the best accuracies are {best}")


def importable(name):
    import importlib.util
    return importlib.util.find_spec(name) is not None


with tempfile.TemporaryDirectory() as temporary:
    globals()[sys.argv[2]](pathlib.Path(temporary))
