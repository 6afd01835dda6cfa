"""Every schedule has the learning rates, and the momentum, of its namesake in torch.optim and transformers: over the whole
training and beyond its end, with groups of different rates."""

import json
import math
import random
import subprocess
import sys
import warnings

from checks import check

try:
    import torch
    from torch.optim import lr_scheduler
    from transformers import get_scheduler
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
warnings.simplefilter("ignore")

RATES = [0.5, 0.125]
BEYOND = 20
TORCH = {"step_lr": "StepLR", "multi_step_lr": "MultiStepLR", "constant_lr": "ConstantLR", "linear_lr": "LinearLR",
         "exponential_lr": "ExponentialLR", "polynomial_lr": "PolynomialLR", "cosine_annealing_lr": "CosineAnnealingLR",
         "cosine_annealing_warm_restarts": "CosineAnnealingWarmRestarts", "cyclic_lr": "CyclicLR", "one_cycle_lr": "OneCycleLR"}
METRIC = ["reduce_lr_on_plateau", "greedy"]


def sgd(lrs):
    return torch.optim.SGD([{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in lrs], lr=lrs[0], momentum=0.9)


def part(kwargs, optimizer, steps):
    """A scheduler in the list of another one."""
    own = {name: value for name, value in kwargs.items() if name not in ("type", "warmup_steps")}
    return made(kwargs["type"], own, optimizer, kwargs.get("warmup_steps", 0), steps)


def made(name, kwargs, optimizer, warmup, total):
    if name == "sequential_lr":
        ends = [*kwargs["milestones"], total]
        parts = [part(each, optimizer, end - start) for each, start, end in zip(kwargs["schedulers"], [0, *ends], ends)]
        return lr_scheduler.SequentialLR(optimizer, parts, kwargs["milestones"])
    if name == "chained_scheduler":
        return lr_scheduler.ChainedScheduler([part(each, optimizer, total) for each in kwargs["schedulers"]])
    if name in TORCH:
        if name == "one_cycle_lr":
            kwargs = {"total_steps": total, **kwargs}
        return getattr(lr_scheduler, TORCH[name])(optimizer, **kwargs)
    return get_scheduler(name, optimizer, warmup, total, kwargs)


def theirs(case):
    """The rates of all groups and the momentum for each step. OneCycleLR has none beyond its end: at step `total_steps`, which no
    update uses, it leaves its last phase or divides by zero, and then it throws."""
    optimizer = sgd(case["lrs"])
    scheduler = made(case["type"], case["kwargs"], optimizer, case["warmup"], case["total"])
    end = case["kwargs"].get("total_steps", case["total"]) if "one_cycle_lr" in str(case) else case["steps"]
    rows = []
    for step in range(case["steps"]):
        rows.append([float(group["lr"]) for group in optimizer.param_groups] + [optimizer.param_groups[-1]["momentum"]])
        optimizer.step()
        if step + 1 == end:
            break
        scheduler.step(*case["metrics"][step : step + 1])
    return rows


CASES = []


def add(name, warmup=0, total=60, lrs=RATES, metrics=(), **kwargs):
    steps = len(metrics) or total + BEYOND
    CASES.append({"type": name, "kwargs": kwargs, "warmup": warmup, "total": total, "lrs": lrs, "metrics": list(metrics), "steps": steps})


# transformers
for warmup, total in [(0, 60), (7, 60), (60, 60), (59, 60), (0, 1), (1, 1), (80, 60)]:
    for name in ["linear", "cosine", "constant", "constant_with_warmup", "inverse_sqrt", "cosine_with_restarts"]:
        add(name, warmup, total)
    for cycles in [0.5, 1.0, 1.5]:
        add("cosine", warmup, total, num_cycles=cycles)
        for least in [{"min_lr": 0.05}, {"min_lr_rate": 0.3}]:
            add("cosine_with_min_lr", warmup, total, num_cycles=cycles, **least)
            add("cosine_warmup_with_min_lr", warmup, total, num_cycles=cycles, **least)
            add("cosine_warmup_with_min_lr", warmup, total, num_cycles=cycles, warmup_lr_rate=0.2, **least)
    if warmup != total:  # transformers divides by zero
        for power in [0.5, 1.0, 3.0]:
            add("polynomial", warmup, total, power=power)
            add("polynomial", warmup, total, power=power, lr_end=0.02)
    add("inverse_sqrt", warmup, total, timescale=11)
    for stable in [{}, {"num_stable_steps": 3}, {"num_stable_steps": 30}]:
        for shape in ["linear", "cosine", "1-sqrt"]:
            add("warmup_stable_decay", warmup, total, num_decay_steps=13, warmup_type=shape, decay_type=shape, min_lr_ratio=0.1, **stable)
    add("warmup_stable_decay", warmup, total, num_decay_steps=90, num_cycles=2.5)
# Cycles that begin between steps, or at steps whose fraction is exact. Where it isn't, transformers may begin a cycle with a step at 0.
for cycles, total in [(3, 61), (2.5, 64), (4, 64), (2, 17), (7, 50)]:
    add("cosine_with_restarts", 0, total, num_cycles=cycles)

# torch.optim
for size in [1, 7, 100]:
    for gamma in [0.1, 0.9, 1.1]:
        add("step_lr", step_size=size, gamma=gamma)
for milestones in [[30], [0, 3, 3, 59], [50, 10, 70]]:
    add("multi_step_lr", milestones=milestones)
    add("multi_step_lr", milestones=milestones, gamma=0.7)
add("constant_lr")
add("constant_lr", factor=0.7, total_iters=70)
add("constant_lr", factor=1.0, total_iters=1)
add("linear_lr")
add("linear_lr", start_factor=1.0, end_factor=0.0, total_iters=60)
add("linear_lr", start_factor=0.01, end_factor=0.6, total_iters=1)
add("linear_lr", start_factor=0.9, end_factor=0.3, total_iters=75)
for gamma in [0.5, 0.97, 1.01]:
    add("exponential_lr", gamma=gamma)
for power in [0.0, 0.5, 1.0, 2.5]:
    add("polynomial_lr", power=power)
    add("polynomial_lr", power=power, total_iters=1)
    add("polynomial_lr", power=power, total_iters=70)
for eta in [0.0, 0.01, 0.3]:
    for length in [1, 2, 7, 60, 200]:
        add("cosine_annealing_lr", total=150, T_max=length, eta_min=eta)
        for factor in [1, 2, 5]:
            add("cosine_annealing_warm_restarts", total=150, T_0=length, T_mult=factor, eta_min=eta)
for mode, gamma in [("triangular", 1.0), ("triangular2", 1.0), ("exp_range", 0.98)]:
    for sizes in [{}, {"step_size_up": 7}, {"step_size_up": 4, "step_size_down": 9}, {"step_size_up": 1}, {"step_size_up": 60, "step_size_down": 1}]:
        add("cyclic_lr", base_lr=0.01, max_lr=0.3, mode=mode, gamma=gamma, **sizes)
        add("cyclic_lr", base_lr=0.0, max_lr=0.3, mode=mode, gamma=gamma, base_momentum=0.5, max_momentum=0.99, **sizes)
        add("cyclic_lr", base_lr=0.4, max_lr=0.3, mode=mode, gamma=gamma, cycle_momentum=False, **sizes)
for strategy in ["cos", "linear"]:
    for three in [False, True]:
        # pct_start * total is 1 nowhere: torch divides by zero there.
        for share, total in [(0.3, 60), (0.3, 61), (0.0, 60), (1.0, 60), (0.7, 60), (0.3, 1), (0.3, 2), (0.5, 5)]:
            add("one_cycle_lr", total=total, max_lr=0.8, pct_start=share, anneal_strategy=strategy, three_phase=three)
        add("one_cycle_lr", max_lr=0.8, total_steps=40, anneal_strategy=strategy, three_phase=three, div_factor=3.0, final_div_factor=7.0)
        add("one_cycle_lr", max_lr=0.8, anneal_strategy=strategy, three_phase=three, base_momentum=0.1, max_momentum=0.7)
        add("one_cycle_lr", max_lr=0.8, anneal_strategy=strategy, three_phase=three, cycle_momentum=False)

STEP = {"type": "step_lr", "step_size": 5, "gamma": 0.5}
LINEAR = {"type": "linear_lr", "start_factor": 0.1, "total_iters": 10}
COSINE = {"type": "cosine_annealing_lr", "T_max": 20, "eta_min": 0.01}
RESTARTS = {"type": "cosine_annealing_warm_restarts", "T_0": 5, "T_mult": 2}
EXPONENTIAL = {"type": "exponential_lr", "gamma": 0.9}
HELD = {"type": "constant_lr", "factor": 0.5, "total_iters": 4}
POLYNOMIAL = {"type": "polynomial_lr", "total_iters": 30, "power": 2.0}
MILESTONES = {"type": "multi_step_lr", "milestones": [2, 8], "gamma": 0.3}
FROM_TRANSFORMERS = [{"type": "cosine", "warmup_steps": 5}, {"type": "linear"}, {"type": "inverse_sqrt", "warmup_steps": 3}]
for first in [STEP, LINEAR, COSINE, RESTARTS, EXPONENTIAL, HELD, POLYNOMIAL, MILESTONES, *FROM_TRANSFORMERS]:
    for second in [STEP, LINEAR, COSINE, RESTARTS, EXPONENTIAL, HELD, POLYNOMIAL, MILESTONES, *FROM_TRANSFORMERS]:
        add("sequential_lr", schedulers=[first, second], milestones=[11])
        add("sequential_lr", schedulers=[LINEAR, first, second], milestones=[10, 33])
add("sequential_lr", schedulers=[STEP], milestones=[])
add("sequential_lr", schedulers=[STEP, EXPONENTIAL], milestones=[0])
add("sequential_lr", schedulers=[LINEAR, STEP, EXPONENTIAL], milestones=[7, 7])
# OneCycleLR and CyclicLR set the initial rates of the groups, from which torch's other schedulers begin: here it is the same for all.
CYCLIC = {"type": "cyclic_lr", "base_lr": 0.5, "max_lr": 0.9, "step_size_up": 4}
CYCLE = {"type": "one_cycle_lr", "max_lr": 0.5, "div_factor": 1.0}
for schedulers in [[CYCLIC, STEP, CYCLIC], [STEP, CYCLIC, LINEAR], [CYCLE, STEP], [LINEAR, CYCLE], [STEP, CYCLE, COSINE]]:
    add("sequential_lr", lrs=[0.5, 0.5], schedulers=schedulers, milestones=[12, 40][: len(schedulers) - 1])
# Those that torch chains: each factor depends on the step alone.
FACTORS = [STEP, LINEAR, EXPONENTIAL, HELD, POLYNOMIAL, MILESTONES]
for first in FACTORS:
    for second in FACTORS:
        add("chained_scheduler", schedulers=[first, second])
    add("chained_scheduler", total=0, schedulers=[first, {**COSINE, "eta_min": 0.0}])
add("chained_scheduler", schedulers=[LINEAR, {"type": "cosine_annealing_lr", "T_max": 25}])
add("chained_scheduler", schedulers=FACTORS)

# Those that follow a metric
random.seed(5)
NOISY = [3 * math.exp(-step / 40) + random.gauss(0, 0.2) for step in range(400)]
for mode, metrics in [("min", NOISY), ("max", [-metric for metric in NOISY])]:
    for threshold_mode in ["rel", "abs"]:
        for options in [{}, {"factor": 0.5, "patience": 2}, {"factor": 0.9, "patience": 0, "cooldown": 3}, {"factor": 0.3, "patience": 1, "min_lr": 0.01},
                        {"factor": 0.5, "patience": 1, "eps": 1e-3, "threshold": 0.05}]:
            add("reduce_lr_on_plateau", metrics=metrics, mode=mode, threshold_mode=threshold_mode, **options)
        for options in [{}, {"factor": 0.8, "patience": 1}, {"factor": 0.5, "patience": 0, "cooldown": 2, "warmup": 3},
                        {"factor": 0.5, "patience": 1, "min_lr": 0.05, "max_lr": 0.6, "reset_start": 4},
                        {"factor": 0.7, "patience": 1, "smooth": True, "window_size": 5, "threshold": 0.01}]:
            add("greedy", metrics=metrics, mode=mode, threshold_mode=threshold_mode, **options)

ran = subprocess.run([sys.argv[1]], input="".join(json.dumps(case) + "\n" for case in CASES), capture_output=True, text=True)
check(ran.returncode == 0, ran.stderr)
lines = ran.stdout.splitlines()
check(len(lines) == len(CASES), f"{len(lines)} of {len(CASES)} lines")

compared, worst, changing = 0, 0.0, set()
for case, line in zip(CASES, lines):
    where = f"{case['type']} {case['kwargs']}, warmup {case['warmup']}, total {case['total']}"
    numbers = [float(word) for word in line.split()]
    width = len(numbers) // case["steps"]
    ours = [numbers[i : i + width] for i in range(0, len(numbers), width)]
    expected = theirs(case)
    if any(row != expected[0] for row in expected):
        changing.add(case["type"])
    for step, (mine, row) in enumerate(zip(ours, expected)):
        if len(mine) == 2:
            check(row[2] == 0.9, f"{where}: the momentum changes in Python only, in step {step}")
        for value, other in zip(mine, row):
            # torch subtracts nearly equal numbers where a rate is close to zero, so there it has fewer digits.
            off = abs(value - other) / (abs(other) + 1e-3 * max(case["lrs"]))
            check(off <= 1e-12, f"{where}: step {step} has {mine}, expected {row}")
            worst = max(worst, off)
            compared += 1
missing = set(["constant"]) ^ ({case["type"] for case in CASES} - changing)
check(not missing, f"never changed: {missing}")
print(f"{compared} numbers of {len(CASES)} schedules agree; the largest difference is {worst:.1e}")
