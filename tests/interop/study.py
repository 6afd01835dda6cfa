"""Optuna reads and continues our study, we continue Optuna's, and both prune the same trials and see the same importances."""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import warnings

from checks import check, same

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")
STEPS, TRIALS = 16, 60
PRUNERS = {
    "none": optuna.pruners.NopPruner(),
    "median": optuna.pruners.MedianPruner(),
    "percentile": optuna.pruners.PercentilePruner(25, n_warmup_steps=2, interval_steps=3),
    "halving": optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
    "halving by itself": optuna.pruners.SuccessiveHalvingPruner(),
}


def reported(number, step):
    return ((number * 7919 + 13) % 101) / 10 + 5 / step + ((number * step * 31) % 7) / 10


def ours(journal, trials, pruner):
    ran = subprocess.run([sys.argv[1], journal, str(trials), pruner], capture_output=True, text=True)
    same(ran.returncode, 0, f"{pruner}: the program's end: {ran.stderr}")
    return [tuple(map(int, line.split())) for line in ran.stdout.splitlines()]


def study_of(journal, pruner="none", create=False, direction="minimize"):
    storage = JournalStorage(JournalFileBackend(str(journal)))
    if create:
        return optuna.create_study(study_name="digits", storage=storage, pruner=PRUNERS[pruner], direction=direction)
    return optuna.load_study(study_name="digits", storage=storage, pruner=PRUNERS[pruner])


def objective(ends):
    def run(trial):
        x = trial.suggest_float("x", -5, 5)
        trial.suggest_float("lr", 1e-4, 1, log=True)
        trial.suggest_int("layers", 2, 10, step=2)
        trial.suggest_categorical("optim", ["sgd", "adamw"])
        for step in range(1, STEPS + 1):
            trial.report(reported(trial.number, step), step)
            if trial.should_prune():
                ends.append((step, 1))
                raise optuna.TrialPruned
        ends.append((STEPS, 0))
        return x * x

    return run


def theirs(study, trials):
    ends = []
    study.optimize(objective(ends), n_trials=trials)
    return ends


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for pruner in PRUNERS:
        journal = folder / f"{pruner}.log"
        seen = ours(journal, TRIALS, pruner)
        expected = theirs(study_of(folder / f"{pruner} of Optuna.log", pruner, create=True), TRIALS)
        same(seen, expected, f"{pruner}: the steps after which trials ended")
        pruned = sum(is_pruned for _, is_pruned in seen)
        check((pruned > TRIALS / 2) == (pruner != "none"), f"{pruner}: trials ended after {seen}")

        trials = study_of(journal).trials
        same([trial.state.name for trial in trials], ["PRUNED" if is_pruned else "COMPLETE" for _, is_pruned in seen], f"{pruner}: the states")
        for trial, (end, is_pruned) in zip(trials, seen):
            same(trial.user_attrs, {"by": "C++"}, "the attributes")
            same(trial.intermediate_values, {step: reported(trial.number, step) for step in range(1, end + 1)}, "the reports")
            check(trial.params["layers"] in (2, 4, 6, 8, 10) and trial.params["optim"] in ("sgd", "adamw") and 1e-4 <= trial.params["lr"] <= 1, f"params are {trial.params}")
            if not is_pruned:
                same(trial.value, trial.params["x"] ** 2, "the value")
            check(trial.datetime_complete >= trial.datetime_start, "it ended before it began")
        print(f"{pruner}: {pruned} of {TRIALS} trials pruned, as by Optuna")

    # Both sides take turns, with a trial that the other side has enqueued.
    journal = folder / "turns.log"
    ours(journal, 5, "none")
    study = study_of(journal)
    study.enqueue_trial({"x": 1.5, "optim": "adamw", "layers": 4})
    ours(journal, 15, "median")
    enqueued = study.trials[5]
    same((enqueued.params["x"], enqueued.params["optim"], enqueued.params["layers"]), (1.5, "adamw", 4), "the enqueued trial")
    theirs(study, 5)
    ours(journal, 5, "none")
    same([trial.number for trial in study.trials], list(range(30)), "the trials")
    check(all(trial.state.is_finished() for trial in study.trials), "a trial isn't finished")
    best = min((trial.value, trial.number) for trial in study.trials if trial.state.name == "COMPLETE")
    same((study.best_value, study.best_trial.number), best, "the best trial")
    print("30 trials in turns")

    # Both sides run trials at once.
    journal = folder / "at_once.log"
    ours(journal, 1, "none")
    workers = [subprocess.Popen([sys.argv[1], journal, "15", "none"], stdout=subprocess.DEVNULL) for _ in range(2)]
    theirs(study_of(journal), 15)
    same([worker.wait() for worker in workers], [0, 0], "the ends of the workers")
    trials = study_of(journal).trials
    same(len(trials), 46, "the number of trials")
    check(all(trial.state.name == "COMPLETE" and len(trial.intermediate_values) == STEPS for trial in trials), "a trial is lost")
    print("46 trials of three workers at once")

    # Importances, with conditions, a range whose last step is short, and ranges that differ between trials.
    def every_kind(trial):
        lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
        momentum = trial.suggest_float("momentum", 0, 1 if trial.number % 3 else 0.5)
        dropout = trial.suggest_float("dropout", 0, 1, step=0.3)
        layers = trial.suggest_int("layers", 1, 8)
        hidden = trial.suggest_int("hidden", 16, 512, log=True)
        batch = trial.suggest_int("batch", 8, 1000, step=8)
        trial.suggest_int("one", 3, 3)
        optim = trial.suggest_categorical("optim", ["sgd", "adamw", None, 1.5])
        nesterov = optim == "sgd" and trial.suggest_categorical("nesterov", [False, True])
        if trial.number % 10 == 7:
            return float("nan")
        return abs(math.log(lr / 0.003)) + momentum**2 + dropout + abs(layers - 3) / 4 + hidden / 1000 + batch / 2000 - nesterov

    has_conditions = int(optuna.__version__.split(".")[0]) >= 5  # Optuna 4 leaves conditional hyperparameters out
    for direction in ("minimize", "maximize") if has_conditions else ():
        journal = folder / f"{direction}.log"
        study = study_of(journal, create=True, direction=direction)
        study.sampler = optuna.samplers.RandomSampler(seed=1)
        study.optimize(every_kind, n_trials=150)
        expected = optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
        ran = subprocess.run([sys.argv[1], journal, "importances", direction], capture_output=True, text=True, check=True)
        seen = {name: float(importance) for name, importance in map(str.split, ran.stdout.splitlines())}
        same(sorted(seen), sorted(expected), f"{direction}: the hyperparameters")
        check(all(abs(seen[name] - expected[name]) < 1e-9 for name in seen), f"{direction}: importances are {seen}: must be {expected}")
        check(max(seen.values()) > 0.2, f"{direction}: nothing is important: {seen}")
    print("importances of 150 trials in both directions, as by Optuna" if has_conditions else "importances: need Optuna 5")

    # Times.
    ran = subprocess.run([sys.argv[1], folder / "none of Optuna.log", "times"], capture_output=True, text=True, check=True)
    seen = [tuple(map(float, line.split())) for line in ran.stdout.splitlines()]
    study = study_of(folder / "none of Optuna.log")
    for trial, (start, complete) in zip(study.trials, seen, strict=True):
        times = (trial.datetime_start.timestamp(), trial.datetime_complete.timestamp())
        check(abs(start - times[0]) < 1e-5 and abs(complete - times[1]) < 1e-5, f"the times are {start} and {complete}: must be {times}")
    print(f"the times of {TRIALS} trials")

    # Every kind of record that Optuna writes, as in the tests of its storages.
    journal = folder / "every_kind.log"
    storage = JournalStorage(JournalFileBackend(str(journal)))
    for name, directions in (("many", ["minimize", "maximize"]), ("deleted", ["minimize"]), ("digits", ["minimize"]), ("empty", ["maximize"])):
        optuna.create_study(study_name=name, storage=storage, directions=directions)
    many, deleted, study = (optuna.load_study(study_name=name, storage=storage, sampler=optuna.samplers.RandomSampler(seed=1))
                            for name in ("many", "deleted", "digits"))
    study.set_user_attr("any", {"nested": [1, None, math.inf]})
    study.set_metric_names(["error"])
    distributions = optuna.distributions
    numbers = {
        "float": distributions.FloatDistribution(-1, 1),
        "log": distributions.FloatDistribution(1e-5, 1, log=True),
        "step": distributions.FloatDistribution(0, 1, step=0.3),
        "int": distributions.IntDistribution(-3, 9, step=2),
        "int log": distributions.IntDistribution(1, 100, log=True),
        "one": distributions.IntDistribution(3, 3),
        "uniform": distributions.UniformDistribution(0, 1),
        "loguniform": distributions.LogUniformDistribution(0.001, 1),
        "discrete": distributions.DiscreteUniformDistribution(0, 1, 0.25),
        "int uniform": distributions.IntUniformDistribution(1, 9, 2),
        "int loguniform": distributions.IntLogUniformDistribution(1, 9),
    }
    choices = {
        "texts": ["a", "b", ""], "mixed": [None, True, 1, 2.5, "a"], "lists": [[64], [64, 32]], "tuples": [(1,), (1, (2, 3))],
        "nested": [{"a": [None, {"b": 1}]}, []],
    }
    unusable = {"huge": distributions.IntDistribution(0, 10**30)}

    def suggest_all(trial):
        for name, distribution in {**numbers, **{name: distributions.CategoricalDistribution(each) for name, each in choices.items()}, **unusable}.items():
            trial._suggest(name, distribution)

    def begin(of):
        trial = of.ask()
        suggest_all(trial)
        return trial

    for _ in range(3):
        of_many = begin(many)
        many.tell(of_many, [1.0, math.inf])
        deleted.tell(begin(deleted), 2.0)
        trial = begin(study)
        for step, value in ((0, 0.5), (3, math.nan), (7, math.inf), (2**40, -math.inf), (10**20, 1.0)):
            trial.report(value, step)
        trial.set_user_attr("path", "\udcff")
        trial.set_user_attr("text", "\U0001f600 \u2028")
        study._storage.set_trial_system_attr(trial._trial_id, "constraints", (1.0, -1.0))
        study.tell(trial, 0.25)
    optuna.delete_study(study_name="deleted", storage=storage)
    study.tell(begin(study), state=optuna.trial.TrialState.FAIL)
    study.tell(begin(study), float("nan"), skip_if_finished=True)
    pruned = begin(study)
    pruned.report(3.0, 1)
    study.tell(pruned, state=optuna.trial.TrialState.PRUNED)
    begin(study)  # running
    study.enqueue_trial({"log": 5.0})  # outside its range
    study.tell(begin(study), -math.inf)
    study.enqueue_trial({"float": 0.5}, user_attrs={"by": "hand"})  # waiting
    study.add_trial(optuna.trial.create_trial(value=4.0, params={"float": 0.125, "lists": [64]}, intermediate_values={3: math.nan}, user_attrs={"old": []},
                                              distributions={"float": numbers["float"], "lists": distributions.CategoricalDistribution(choices["lists"])}))
    study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.PRUNED))
    # Its storage checks nothing.
    for values in (None, [math.nan], [1.0, 2.0]):
        storage.set_trial_state_values(study.ask()._trial_id, optuna.trial.TrialState.COMPLETE, values)
    storage.set_trial_param(study.ask()._trial_id, "float", 3.0, numbers["float"])

    ran = subprocess.run([sys.argv[1], journal, "trials"], capture_output=True, text=True)
    same(ran.returncode, 0, f"the program's end: {ran.stderr}")
    seen = [json.loads(line) for line in ran.stdout.strip().split("\n")]
    plain = lambda value: json.loads(json.dumps(value), parse_constant=str)
    for number, (trial, expected) in enumerate(zip(seen, storage.get_all_trials(study._study_id), strict=True)):
        has_values = expected.state.name != "COMPLETE" or (expected.values is not None and len(expected.values) == 1 and not math.isnan(expected.values[0]))
        same(trial["state"], expected.state.name.lower() if has_values else "fail", f"the state of trial {number}")
        same(trial["values"], plain(expected.values or []) if has_values else [], f"the values of trial {number}")
        params = {name: value for name, value in expected.params.items() if name not in unusable}
        same(trial["params"], plain(params), f"the params of trial {number}")
        same(trial["reports"], plain({step: value for step, value in expected.intermediate_values.items() if step < 2**63}), f"the reports of trial {number}")
        attrs = plain(expected.user_attrs)
        same(trial["user_attrs"], {name: "\ufffd" if value == "\udcff" else value for name, value in attrs.items()}, f"the attributes of trial {number}")
    ran = subprocess.run([sys.argv[1], journal, "1", "none"], capture_output=True, text=True)
    same(ran.returncode, 0, f"the program's end: {ran.stderr}")
    print(f"{len(seen)} trials of every kind, and one more")
