"""Every optimizer updates weights as a Python implementation does, over 200 steps of a small network, and resumes bit for bit.

Both sides train the same network with the same batches: groups with and without weight decay, one with half the learning rate, a
learning rate that changes, clipped gradients from two backward passes, a parameter that is used in every third step, one that is
never used, and one that is frozen. In float64, weights may differ by 1e-6 of the largest weight of their parameter. In float32,
rounding differs: ours may be a few times as far from Python's float64 weights as Python's own float32 weights are.
ETUDE_OPTIMIZER_STEPS makes the trainings longer.
"""

import concurrent.futures
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from checks import check
from optimizers_table import ROWS

import safetensors.torch
import torch

torch.set_num_threads(1)
STEPS = int(os.environ.get("ETUDE_OPTIMIZER_STEPS", "200"))
RECORDS = sorted({1, 2, 3, 5, 10, 20, 50, 100, 150, 200, *range(0, STEPS + 1, 1000), STEPS} - {0})
RECORDS = [step for step in RECORDS if step <= STEPS]
BATCHES, PASSES, BATCH = 40, 2, 8
TIMES = 4  # our float32 training may be this many times as far from float64 as Python's
# Factors of the learning rate for 50 steps, repeated.
FACTORS = [0.1 + 0.9 * (1 + math.cos(math.pi * i / 50)) / 2 for i in range(50)]

SHAPES = {
    "dense": {
        "conv.weight": (5, 3, 2),
        "first.weight": (24, 45),
        "first.bias": (24,),
        "norm.weight": (24,),
        "frozen.weight": (24,),
        "sometimes.weight": (24, 24),
        "sometimes.bias": (24,),
        "never.weight": (3, 4),
        "second.weight": (4, 24),
        "second.bias": (4,),
        "scale": (),
    },
    # Its gradients are sparse.
    "sparse": {"first.weight": (30, 6), "second.weight": (30, 6), "sometimes.weight": (30, 6), "never.weight": (5, 2)},
}


def make_data():
    generator = torch.Generator().manual_seed(3)

    def random(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    data = {
        "inputs": random(BATCHES, PASSES, BATCH, 3, 10),
        "targets": random(BATCHES, PASSES, BATCH, 4),
        "tokens": torch.randint(0, 30, (BATCHES, PASSES, BATCH, 3), generator=generator),
        "products": random(BATCHES, PASSES, BATCH, 6),
    }
    for network, shapes in SHAPES.items():
        for name, shape in shapes.items():
            spread = shape[-1] ** -0.5 if len(shape) > 1 else 0.3
            data[f"{network}/{name}"] = random(*shape) * spread + (name in ("norm.weight", "scale"))
    return data


DATA = make_data()


def steps_of(row, dtype):
    return min(STEPS, row.longest) // (1 if dtype == "float64" else 4)


def cases_of(row):
    """Etude's kernels and LibTorch's operators in float64, and kernels in float32, by name."""
    for dtype, kernels in (("float64", True), ("float64", False), ("float32", True)):
        yield f"{row.name} {dtype} {'kernels' if kernels else 'operators'}", {
            "arguments": row.arguments(),
            "network": row.network,
            "dtype": dtype,
            "kernels": kernels,
            "max_norm": row.max_norm,
            "accumulation": PASSES,
            "batches": row.batches,
            "steps": steps_of(row, dtype),
        }


def loss_of(row, p, step, number, dtype):
    def batch(name):
        data = DATA[name][step % row.batches][number]
        return data.to(dtype) if data.is_floating_point() else data

    if row.network == "dense":
        h = torch.conv1d(batch("inputs"), p["conv.weight"])
        h = torch.tanh(torch.nn.functional.linear(h.flatten(1), p["first.weight"], p["first.bias"]))
        h = h * p["norm.weight"] + p["frozen.weight"]
        if step % 3 == 1:
            h = h + torch.tanh(torch.nn.functional.linear(h, p["sometimes.weight"], p["sometimes.bias"]))
        output = torch.nn.functional.linear(h, p["second.weight"], p["second.bias"]) * p["scale"]
        return (output - batch("targets")).square().mean()

    def rows(name):
        return torch.nn.functional.embedding(batch("tokens"), p[name], sparse=True)

    h = rows("first.weight").sum(1)
    if step % 3 == 1:
        h = h + rows("sometimes.weight").sum(1)
    return (h * rows("second.weight").sum(1) - batch("products")).square().mean()


def groups_of(row, parameters):
    """Parameters by learning rate and weight decay, which biases and norms don't have."""
    groups = {}
    for name, parameter in parameters.items():
        if parameter.requires_grad:
            lr = row.lr * row.factors.get(name.split(".")[0], 1)
            weight_decay = 0.0 if "bias" in name or "norm" in name else row.weight_decay
            groups.setdefault((lr, weight_decay), []).append(parameter)
    return [{"params": params, "lr": lr, "weight_decay": weight_decay} for (lr, weight_decay), params in groups.items()]


def train(row, dtype):
    """Trains by Python's optimizer. Returns the weights after the recorded steps, and the norms of all steps."""
    steps, dtype = steps_of(row, dtype), getattr(torch, dtype)
    torch.set_default_dtype(dtype)
    prefix = row.network + "/"
    parameters = {
        name.removeprefix(prefix): DATA[name].to(dtype, copy=True).requires_grad_("frozen" not in name) for name in sorted(DATA) if name.startswith(prefix)
    }
    optimizer = row.reference(groups_of(row, parameters))
    rates = [(group, group["lr"]) for group in optimizer.param_groups if group["lr"] is not None]
    weights, norms = {}, []
    for step in range(steps):
        for group, lr in rates:
            group["lr"] = lr * FACTORS[step % len(FACTORS)]

        def compute():
            for parameter in parameters.values():
                parameter.grad = None
            total = torch.zeros(())
            for number in range(PASSES):
                loss = loss_of(row, parameters, step, number, dtype) / PASSES
                loss.backward()
                total += loss.detach()
            return total

        if row.optim == "lbfgs":
            optimizer.step(compute)
            norms.append(0.0)
        else:
            compute()
            norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), row.max_norm).item() if row.max_norm else 0.0)
            optimizer.step()
        if step + 1 in RECORDS:
            now = {name: parameter.detach() for name, parameter in parameters.items()}
            if hasattr(optimizer, "averaged"):
                averaged = optimizer.averaged(list(parameters.values()))
                now |= {f"averaged {name}": values for name, values in zip(parameters, averaged)}
            weights[step + 1] = {name: values.to(torch.float64, copy=True) for name, values in now.items()}
    return weights, norms


def distance(a, b):
    """The largest difference between two weights, as a part of the largest weight of their parameter; infinite for NaN."""
    parts = [(a[name] - b[name]).abs().max().item() / b[name].abs().max().item() for name in b]
    return math.inf if any(map(math.isnan, parts)) else max(parts)


def compare(row, ours, report):
    """Returns what is wrong, in lines, and the largest difference of each case, as a part of what is allowed."""
    errors = [f"{case}: {report[case]['error']}" for case, _ in cases_of(row) if "error" in report[case]]
    if errors:
        return errors[:1], []
    theirs = {dtype: train(row, dtype) for dtype in ("float64", "float32")}
    exact = theirs["float64"][0]
    faults, worst = [], []
    for case, request in cases_of(row):
        if report[case]["differs_after_resume"]:
            faults.append(f"{case}: {report[case]['differs_after_resume']} differs after resuming")
        weights, norms = theirs[request["dtype"]]
        parts = []
        for step in weights:
            mine = {name: ours[f"{case}/{step}/{name}"].double() for name in weights[step] if f"{case}/{step}/{name}" in ours}
            if mine.keys() != weights[step].keys():
                faults.append(f"{case}: after step {step}, there are no averaged weights")
                continue
            far, allowed = distance(mine, exact[step]), row.tolerance
            if weights is not exact:
                allowed = TIMES * max(distance(weights[step], exact[step]), row.tolerance)
            if far > allowed:
                faults.append(f"{case}: after step {step}, weights differ by {far:.2g}, allowed {allowed:.2g}")
            parts.append(far / allowed)
        if weights is exact:
            wrong = [number for number, (mine, norm) in enumerate(zip(ours[f"{case}/norms"].tolist(), norms), 1) if abs(mine - norm) > 1e-6 * norm]
            if wrong:
                faults.append(f"{case}: the norms of the gradients differ in {len(wrong)} steps, first in step {wrong[0]}")
        worst.append(max(parts, default=math.inf))
    return faults, worst


def test(names):
    """Trains the rows of these names by C++ and by Python, and compares. Returns what is wrong, in lines."""
    warnings.simplefilter("ignore")
    rows = [row for row in ROWS if row.name in names]
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        safetensors.torch.save_file(DATA, folder / "data.safetensors")
        request = {"records": RECORDS, "factors": FACTORS, "cases": dict(case for row in rows for case in cases_of(row))}
        (folder / "request.json").write_text(json.dumps(request))
        ran = subprocess.run([sys.argv[1], folder], capture_output=True, text=True)
        check(ran.returncode == 0, f"the program ended with {ran.returncode}:\n{ran.stderr}")
        ours, report = safetensors.torch.load_file(folder / "results.safetensors"), json.loads((folder / "report.json").read_text())
    for missing in set(report["optimizers"]) - {row.optim for row in ROWS}:
        faults.append(f"{missing} has no row in optimizers_table.py")
    for row in rows:
        found, worst = compare(row, ours, report["cases"])
        faults += found
        print(row.name, *(f"{part:.2g}" for part in worst), *(["FAILED"] if found else []), flush=True)
    return faults


def main():
    names = [row.name for row in ROWS if all(word in row.name for word in sys.argv[2:])]
    check(names, f"no optimizer has {sys.argv[2:]} in its name")
    check(len(set(names)) == len(names), "two rows have the same name")
    workers = os.cpu_count() if STEPS > 200 else 1
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        faults = sum(pool.map(test, [names[i::workers] for i in range(workers) if names[i::workers]]), [])
    check(not faults, "\n".join(faults))


if __name__ == "__main__":
    main()
