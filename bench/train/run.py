"""Training steps/s of Etude and its alternatives: writes train.md and train.json.

Each contestant has its own process, and only one of them works at a time. In each round every contestant trains each
workload from the same initial weights, in a new random order of contestants. Only times of one round are compared.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

HERE = Path(__file__).parent
CPP = ["today", "best", "forward_backward", "etude", "etude_none", "etude_16", "etude_exported", "etude_bf16"]
NEEDS_LIBTORCH = {"best": (2, 4)}  # its fused optimizers; an older one leaves it out
PEERS = {  # with their packages
    "pytorch": ["torch", "safetensors"],
    "pytorch_default": ["torch", "safetensors"],
    "pytorch_compile": ["torch", "safetensors"],
    "pytorch_bf16": ["torch", "safetensors"],
    "transformers": ["transformers", "accelerate"],
    "pytorch_accelerated": ["pytorch-accelerated"],
    "lightning": ["lightning"],
    "ignite": ["pytorch-ignite"],
}
SCALING = ["today", "best", "forward_backward", "etude", "pytorch_compile"]  # also run with other numbers of threads
WORKLOADS = ["tiny", "perceptron", "wide", "convnet", "transformer", "gpt2"]
TOKENS = {"gpt2": 8 * 64}  # of a step
LOGGING_STEPS = 500  # of all contestants that log; so many steps are timed, or a multiple of it if they are short
WARMUP = 50
TOLERANCE = 1e-3  # of the loss, relative to that of `today`
TOLERANCE_COMPILE = 5e-3  # fused kernels round differently, which the convolutional network amplifies
TOLERANCE_BF16 = 0.1


def tolerance(name):
    return TOLERANCE_BF16 if name.endswith("_bf16") else TOLERANCE_COMPILE if name.endswith("_compile") else TOLERANCE


class PeerFailed(Exception):
    """A peer can't do its work here; the others can still be compared."""


class Contestant:
    def __init__(self, name, options, threads):
        self.name, self.threads = name, threads
        if name in PEERS:
            command = [sys.executable, HERE / "peers.py", name, options.data]
        else:
            command = [options.program, name, options.data]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=options.data
        )

    def train(self, workload, steps, warmup=WARMUP):
        try:
            self.process.stdin.write(f"{workload} {steps} {warmup}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # nothing is to be read either
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the process has ended"}
        if "error" in answer:
            self.fail(workload, answer["error"])
        if answer["calls"] != warmup + steps + 1:
            self.fail(workload, f"{answer['calls']} steps instead of {warmup + steps + 1}")
        if answer["threads"] != self.threads:
            self.fail(workload, f"{answer['threads']} threads instead of {self.threads}")
        return answer

    def fail(self, workload, why):
        if self.name in PEERS:
            raise PeerFailed(f"{workload}, {self.threads} thread{'s' * (self.threads > 1)}: {why}")
        sys.exit(f"{self.name}, {workload}: {why}")

    def end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()


def say(text):
    print(text, file=sys.stderr, flush=True)


def available(names, in_cpp, version, with_peers):
    """Those of the named contestants that are available; reports the others."""
    present = []
    for name in names:
        packages = PEERS.get(name, []) if with_peers else []
        missing = [p for p in packages if not has_package(p)]
        if name == "etude_exported" and not (with_peers and name in in_cpp):
            say(f"left out: {name}, which needs PyTorch of this LibTorch's version and libzip")
        elif name in PEERS and not with_peers:
            say(f"left out: {name}, whose LibTorch is not the one of the C++ programs")
        elif name == "pytorch_compile" and not can_compile():
            say(f"left out: {name}, which needs a C++ compiler and Python.h")
        elif missing:
            say(f"left out: {name}, which needs {', '.join(missing)}")
        elif name not in PEERS and name not in in_cpp:
            since = NEEDS_LIBTORCH.get(name, (0, 0))
            if tuple(int(n) for n in version.split(".")[:2]) >= since:
                sys.exit(f"{name} is missing from the C++ program, which has {', '.join(in_cpp)}")
            say(f"left out: {name}, which needs LibTorch {since[0]}.{since[1]}")
        else:
            present.append(name)
    return present


def can_compile():
    has_compiler = any(shutil.which(name) for name in (os.environ.get("CXX"), "g++", "clang++") if name)
    return has_compiler and Path(sysconfig.get_path("include"), "Python.h").exists()


def has_package(name):
    try:
        importlib.metadata.version(name)
        return True
    except importlib.metadata.PackageNotFoundError:
        return False


def info(version):
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        models = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
        cpu = models[0] if models else cpu
    packages = sorted({p for names in PEERS.values() for p in names if has_package(p)})
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "libtorch": version,
        "python": platform.python_version(),
        "packages": {p: importlib.metadata.version(p) for p in packages},
        "when": time.strftime("%Y-%m-%d %H:%M"),
    }


def steps_of(today, workload, seconds):
    steps = round(100 / today.train(workload, 100)["seconds"] * seconds)
    return LOGGING_STEPS * round(steps / LOGGING_STEPS) or steps


def measure(names, threads, options, left_out):
    """All answers: {workload: {contestant: [answer of each round]}}. Adds why a peer has none to `left_out`."""
    contestants = [Contestant(name, options, threads) for name in names]
    results = {}

    def train(contestant, workload, steps):
        try:
            return contestant.train(workload, steps)
        except PeerFailed as failure:
            say(f"left out: {contestant.name}, {failure}")
            left_out[contestant.name] = str(failure)
            contestants.remove(contestant)
            contestant.end()
            for answers in results.values():
                answers.pop(contestant.name, None)

    for workload in options.workloads:
        for contestant in list(contestants):
            train(contestant, workload, 20)  # warms up memory and code
        steps = options.steps or steps_of(contestants[0], workload, options.seconds)
        results[workload] = {contestant.name: [] for contestant in contestants}
        for number in range(options.rounds):
            for contestant in random.sample(contestants, len(contestants)):
                if answer := train(contestant, workload, steps):
                    results[workload][contestant.name].append(answer)
            say(f"{workload}, {threads} thread{'s' * (threads > 1)}, round {number + 1} of {options.rounds}")
    for contestant in contestants:
        contestant.end()
    return results


def peak_memory(names, options):
    """Peak bytes of a process that only trains `wide`."""
    peaks = {}
    for name in names:
        contestant = Contestant(name, options, 1)
        peaks[name] = contestant.train("wide", 200)["peak_memory"]
        contestant.end()
    return peaks


def loss_differences(results):
    """The largest difference of a loss from that of `today`, relative to it, of each workload and contestant."""
    differences = {}
    for workload, answers in results.items():
        expected = answers["today"][0]["loss"]
        for name, runs in answers.items():
            if name != "forward_backward":  # it trains nothing
                differences[workload, name] = max(abs(run["loss"] - expected) / expected for run in runs)
    return differences


def quartiles(values):
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def ratios(of, to, clock):
    """The speed of `of` in each round, as a multiple of that of `to`."""
    return [b[clock] / a[clock] for a, b in zip(of, to)]


def table(head, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]) + "\n"


def cell(values, form):
    low, middle, high = quartiles(values)
    return f"{middle:{form}} ({low:{form}}–{high:{form}})"


def speed_table(results, names, clock):
    names = [n for n in names if n not in ("today", "forward_backward")]
    beyond = [n for n in ("best", "etude") if n in names]
    rows = []
    for workload, answers in results.items():
        today = answers["today"]
        row = [workload, cell([a["steps"] / a[clock] for a in today], ",.0f")]
        row += [cell(ratios(answers[name], today, clock), ".2f") for name in names]
        if floor := answers.get("forward_backward"):
            row += [cell([100 * (r - 1) for r in ratios(floor, answers[name], clock)], ".0f") for name in beyond]
        rows.append(row)
    head = ["workload", "today, steps/s", *names]
    if "forward_backward" in next(iter(results.values())):
        head += [f"{name} beyond forward and backward, %" for name in beyond]
    return table(head, rows)


def startup_table(results, names):
    rows = [
        [workload, *(f"{1e3 * statistics.median(a['startup'] for a in answers[name]):,.1f}" for name in names)]
        for workload, answers in results.items()
    ]
    return table(["workload", *names], rows)


def token_table(results, names):
    rows = [
        [workload, *(f"{statistics.median(TOKENS[workload] * a['steps'] / a['seconds'] for a in answers[name]):,.0f}" for name in names)]
        for workload, answers in results.items()
        if workload in TOKENS
    ]
    return table(["workload", *names], rows) if rows else ""


def compiling_table(results):
    seconds = {workload: max(a["compiling"] for a in answers["pytorch_compile"]) for workload, answers in results.items()}
    return table(list(seconds), [[f"{s:.0f}" for s in seconds.values()]])


def left_out_table(left_out):
    rows = [[name, " ".join(why.split()).replace("|", "\\|")[:300]] for name, why in left_out.items()]
    return table(["left out", "because it fails"], rows)


def report(results, peaks, machine, names, worst, clock, left_out):
    kinds = ", ".join(f"{package} {version}" for package, version in machine["packages"].items())
    text = (
        f"{machine['cpu']}, {machine['cores']} cores; LibTorch {machine['libtorch']}; {kinds}. "
        f"Losses differ by at most {worst:.1e} of their value.\n"
    )
    for threads, by_workload in results.items():
        kept = [name for name in names if name in next(iter(by_workload.values()))]
        measured = clock if threads == 1 else "seconds"  # a thread that waits for another takes CPU time too
        text += (
            f"\n## Steps/s as a multiple of `today`, {threads} thread{'s' * (threads > 1)}\n\n"
            f"Medians of the rounds, with quartiles{', in CPU time' * (measured == 'cpu_seconds')}.\n\n" + speed_table(by_workload, kept, measured)
        )
        if threads == 1:
            if tokens := token_table(by_workload, kept):
                text += "\n## Tokens/s, 1 thread\n\n" + tokens
            text += "\n## From the call to the first forward pass, ms\n\n" + startup_table(by_workload, kept)
            if "pytorch_compile" in kept:
                text += "\n## Before that, torch.compile compiles for so many seconds\n\n" + compiling_table(by_workload)
    if left_out:
        text += "\n## Left out\n\n" + left_out_table(left_out)
    if peaks:
        text += "\n## Peak memory of a process that trains `wide`, MB\n\n"
        text += table(list(peaks), [[f"{peak / 1e6:.0f}" for peak in peaks.values()]])
    return text


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, required=True, help="train_bench")
    parser.add_argument("--output", type=Path, required=True, help="folder for train.md and train.json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="duration of a round of `today`")
    parser.add_argument("--steps", type=int, help="steps per round, instead of --seconds")
    parser.add_argument("--workloads", type=lambda s: s.split(","), default=WORKLOADS)
    parser.add_argument("--contestants", type=lambda s: s.split(","), default=CPP + list(PEERS))
    parser.add_argument("--threads", type=lambda s: [int(n) for n in s.split(",")], default=[1, 2])
    parser.add_argument(
        "--cpu-time",
        dest="clock",
        action="store_const",
        const="cpu_seconds",
        default="seconds",
        help="compare CPU time, for a shared machine",
    )
    parser.add_argument("--no-peers", action="store_true", help="C++ only")
    parser.add_argument("--quick", action="store_true", help="two short rounds, as a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.steps = 2, 100
    options.program = options.program.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    options.data = options.output.resolve() / "train"
    options.data.mkdir(exist_ok=True)
    if "today" not in options.contestants:
        options.contestants.insert(0, "today")
    return options


def main():
    options = arguments()
    reported = json.loads(subprocess.run([options.program, "info"], check=True, capture_output=True, text=True).stdout)
    subprocess.run([options.program, "export", options.data], check=True)
    names = available(options.contestants, reported["contestants"], reported["libtorch"], not options.no_peers)

    left_out = {}
    if "etude_exported" in names:
        exported = subprocess.run([sys.executable, HERE / "peers.py", "export", options.data, *options.workloads], stderr=subprocess.PIPE, text=True)
        if exported.returncode != 0:
            say(exported.stderr)
            left_out["etude_exported"] = "the export: " + (exported.stderr.splitlines() or ["no message"])[-1]

    results = {}
    for threads in options.threads:
        chosen = [name for name in names if name not in left_out and (threads == options.threads[0] or name in SCALING)]
        results[threads] = measure(chosen, threads, options, left_out)
    peaks = peak_memory([name for name in ("today", "best", "etude") if name in names], options)

    machine = info(reported["libtorch"])
    differences = {key: d for by_workload in results.values() for key, d in loss_differences(by_workload).items()}
    worst = max(d for (_, name), d in differences.items() if not name.endswith("_bf16"))
    text = report(results, peaks, machine, names, worst, options.clock, left_out)
    (options.output / "train.md").write_text(text)
    raw = {"machine": machine, "peak_memory": peaks, "threads": results, "left_out": left_out}
    (options.output / "train.json").write_text(json.dumps(raw, indent=1) + "\n")
    print("\n" + text)

    wrong = [f"{name}, {workload}: by {d:.1e}" for (workload, name), d in differences.items() if d > tolerance(name)]
    if wrong:
        sys.exit("not the same work, for the losses differ:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
