"""GradScaler scales, skips and unscales as torch.amp.GradScaler does, step by step, with two optimizers."""

import subprocess
import sys

from checks import check, same

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
torch.set_num_threads(1)


def wave(size, factor):
    return (torch.arange(size, dtype=torch.float64) * factor).sin().float()


ran = subprocess.run([sys.argv[1]], capture_output=True, text=True)
if ran.returncode == 77:
    print("skipped: this LibTorch doesn't compute in float16 on the CPU")
    sys.exit(77)
check(ran.returncode == 0, ran.stderr)
lines = ran.stdout.splitlines()
same(len(lines), 60, "the number of steps")

a, b = wave(12, 0.7).reshape(3, 4).requires_grad_(), wave(12, 1.3).reshape(3, 4).requires_grad_()
first, second = torch.optim.SGD([a], lr=0.002, momentum=0.9), torch.optim.SGD([b], lr=0.001)
scaler = torch.amp.GradScaler("cpu", init_scale=16384, growth_factor=4, backoff_factor=0.25, growth_interval=3)


def found_inf(optimizer):
    return any(found.item() for found in scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values())


seen = set()
for step, line in enumerate(lines):
    x = wave(20, 0.3 + 0.1 * step).reshape(5, 4)
    first.zero_grad()
    second.zero_grad()
    with torch.autocast("cpu", torch.float16):
        of_a = torch.nn.functional.linear(x, a)
        of_b = torch.nn.functional.linear(x * (40 if step % 7 == 3 else 1), b)
    loss = of_a.float().square().sum() + of_b.float().square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(first)
    norm = -1.0 if found_inf(first) else torch.nn.utils.clip_grad_norm_([a], 5).item()
    scaler.step(first)
    scaler.step(second)
    stepped = [not found_inf(first), not found_inf(second)]
    scaler.update()
    ours = line.split()
    where = f"step {step}"
    seen.add(tuple(stepped))
    same(ours[:2], [str(each).lower() for each in stepped], f"{where}: which optimizers step")
    same(float(ours[2]), scaler.get_scale(), f"{where}: the scale")
    same(int(ours[3]), scaler.state_dict()["_growth_tracker"], f"{where}: the growth tracker")
    theirs = [loss.item(), norm, a.sum().item(), b.square().sum().item()]
    for name, mine, value in zip(["loss", "norm", "first weights", "second weights"], map(float, ours[4:]), theirs):
        check(abs(mine - value) <= 1e-4 * max(1.0, abs(value)), f"{where}: {name} is {mine}, expected {value}")
check(len(seen) >= 3, f"too few kinds of steps to compare: {seen}")
print(f"{len(lines)} steps agree, with {sorted(seen)}")
