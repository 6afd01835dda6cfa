"""Measures the training steps/s of Etude and its alternatives. Writes train.md and train.json.

Each contestant has its own process, and only one of them works at a time. All of them train a workload together, from the
same initial weights: in each round every contestant trains a slice of some 50 ms, in a new random order. Only slices of one
round are compared. Trainings are repeated in new processes.
"""

import argparse
import ctypes
import importlib.metadata
import json
import os
import platform
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from ratios import describe, ratios

HERE = Path(__file__).parent
CPP = ["today", "best", "forward_backward", "etude", "etude_none", "etude_16", "etude_exported", "etude_bf16"]
NEEDS_LIBTORCH = {"best": (2, 4)}  # for its fused optimizers; an older LibTorch leaves it out
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
SLICES = 4  # of a training
CHECKED_SLICES = 8  # of the training whose loss is compared
WARMUP = 3  # steps of a training before its first slice
TOLERANCE = 1e-3  # of the loss, relative to `today`'s
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
            self.command = [sys.executable, HERE / "peers.py", name, options.data]
        elif name in CPP:
            self.command = [options.program, name, options.data]
        else:
            self.command = [options.against_program, "etude", options.data]
        self.start()

    def start(self):
        # By default, OpenMP's threads spin for up to 0.2 s after a slice, waiting for work; with this, for about 1 ms.
        environment = os.environ | {
            "OMP_NUM_THREADS": str(self.threads),
            "MKL_NUM_THREADS": str(self.threads),
            "GOMP_SPINCOUNT": "20000",
            "KMP_BLOCKTIME": "1",
        }
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=self.command[-1]
        )
        # Other programs may keep one core busier than another.
        if self.threads == 1 and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.process.pid, {min(os.sched_getaffinity(0))})
        self.counter = instruction_counter(self.process.pid)

    def ask(self, request, ends=False):
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # then there is nothing to read either
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the process has ended"}
        if "error" in answer:
            self.fail(answer["error"])
        if ("calls" in answer) != ends:
            self.fail("too few steps")
        return answer

    def begin(self, workload, steps, slices, with_loss):
        """Trains up to the first slice."""
        self.training = workload
        self.calls = WARMUP + steps * slices + 1
        self.ask(f"{workload} {WARMUP} {steps} {slices} {with_loss:d}")

    def train_slice(self):
        before = self.instructions()
        answer = self.ask("")
        return answer if before is None else answer | {"instructions": self.instructions() - before}

    def finish(self):
        answer = self.ask("", ends=True)
        if answer["calls"] != self.calls:
            self.fail(f"{answer['calls']} steps instead of {self.calls}")
        if answer["threads"] != self.threads:
            self.fail(f"{answer['threads']} threads instead of {self.threads}")
        return answer

    def instructions(self):
        return None if self.counter is None else int.from_bytes(os.read(self.counter, 8), sys.byteorder)

    def fail(self, why):
        if self.name in CPP:
            sys.exit(f"{self.name}, {self.training}: {why}")
        raise PeerFailed(f"{self.training}, {self.threads} thread{'s' * (self.threads > 1)}: {why}")

    def end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()
        if self.counter is not None:
            os.close(self.counter)


def instruction_counter(process):
    """Opens a file that counts the instructions that a process has retired; None if the system has no such counter."""
    perf_event_open = {"x86_64": 298, "aarch64": 241}.get(platform.machine())
    if sys.platform != "linux" or perf_event_open is None:
        return None
    hardware, instructions, size = 0, 1, 64
    flags = 1 << 1 | 1 << 5 | 1 << 6  # inherit by threads, exclude the kernel and the hypervisor
    attributes = struct.pack("2I5Q2IQ", hardware, size, instructions, 0, 0, 0, flags, 0, 0, 0)
    file = ctypes.CDLL(None).syscall(perf_event_open, attributes, process, -1, -1, 0)
    return file if file >= 0 else None


def say(text):
    print(text, file=sys.stderr, flush=True)


def available(names, in_cpp, version, with_peers):
    """Returns the named contestants that are available, and reports the missing ones."""
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


def in_turn(contestants, work, left_out):
    """Runs each contestant's work, in random order, and returns the results. A peer that fails is left out from then on."""
    results = {}
    for contestant in random.sample(contestants, len(contestants)):
        try:
            results[contestant.name] = work(contestant)
        except PeerFailed as failure:
            say(f"left out: {contestant.name}, {failure}")
            left_out[contestant.name] = str(failure)
            contestants.remove(contestant)
            contestant.end()
    return results


def train(contestants, workload, steps, slices, left_out, with_loss=False):
    """Runs one training by all contestants together, in slices of the given number of steps, and returns each one's answer."""
    in_turn(contestants, lambda contestant: contestant.begin(workload, steps, slices, with_loss), left_out)
    rounds = [in_turn(contestants, Contestant.train_slice, left_out) for _ in range(slices)]
    answers = in_turn(contestants, Contestant.finish, left_out)
    return {name: answer | {"steps": steps, "slices": [done[name] for done in rounds]} for name, answer in answers.items()}


def steps_of_slice(today, workload, seconds):
    slices = train([today], workload, 5, 8, {})["today"]["slices"]
    return max(1, round(5 * seconds / min(s["seconds"] for s in slices)))


def measure(names, threads, options, results, losses, left_out, write):
    """Adds all answers to `results`, {workload: {contestant: [answer of each training]}}, and to `losses`, {workload: {contestant: loss}}.

    Records in `left_out` why a peer has none."""
    contestants = [Contestant(name, options, threads) for name in names]
    today = next(contestant for contestant in contestants if contestant.name == "today")
    steps = {}
    for workload in options.workloads:
        say(f"{workload}, {threads} thread{'s' * (threads > 1)}: the loss")
        steps[workload] = steps_of_slice(today, workload, options.seconds)
        answers = train(contestants, workload, CHECKED_SLICES * steps[workload], 1, left_out, with_loss=True)
        losses[workload] = {name: answer["loss"] for name, answer in answers.items()}
        results[workload] = {}
    for number in range(options.trainings):
        for contestant in contestants:
            if contestant.name not in PEERS:  # memory layout makes a process up to 2 % faster or slower for its lifetime
                contestant.end()
                contestant.start()
        for workload in options.workloads:
            train(contestants, workload, 1, 1, left_out)  # warms up memory and code
            for name, answer in train(contestants, workload, steps[workload], SLICES, left_out).items():
                results[workload].setdefault(name, []).append(answer)
            write()
        say(f"{threads} thread{'s' * (threads > 1)}: training {number + 1} of {options.trainings}")
    for contestant in contestants:
        contestant.end()


def peak_memory(names, options):
    """The peak memory in bytes of a process that only trains `wide`."""
    peaks = {}
    for name in names:
        contestant = Contestant(name, options, 1)
        peaks[name] = train([contestant], "wide", 200, 1, {})[name]["peak_memory"]
        contestant.end()
    return peaks


def loss_differences(losses):
    """The relative difference of each loss from `today`'s, by number of threads, workload and contestant."""
    return {
        (threads, workload, name): abs(loss - by_name["today"]) / by_name["today"]
        for threads, by_workload in losses.items()
        for workload, by_name in by_workload.items()
        for name, loss in by_name.items()
        if name != "forward_backward"  # it trains nothing
    }


def steps_per_second(answers, measured):
    return statistics.median(a["steps"] / s[measured] for a in answers for s in a["slices"])


def table(head, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]) + "\n"


def table_of(results, names, cell):
    """`cell` formats a contestant's answer, given all answers to a workload and the contestant's name."""
    rows = [[workload, *(cell(answers, name) if name in answers else "—" for name in names)] for workload, answers in results.items()]
    return table(["workload", *names], rows)


def speed_table(results, names, measured):
    def cell(answers, name):
        today = answers["today"]
        return f"{steps_per_second(today, measured):,.0f} steps/s" if name == "today" else describe(ratios(today, answers[name], measured))

    return table_of(results, [name for name in names if name != "forward_backward"], cell)


def etude_table(results, names, measured):
    return table_of(results, names, lambda answers, name: describe(ratios(answers[name], answers["etude"], measured)))


def instruction_table(results, names):
    return table_of(results, names, lambda answers, name: describe(ratios(answers["etude"], answers[name], "instructions")))


def startup_table(results, names):
    return table_of(results, names, lambda answers, name: f"{1e3 * statistics.median(a['startup'] for a in answers[name]):,.1f}")


def token_table(results, names):
    rows = [
        [workload, *(f"{tokens * steps_per_second(results[workload][name], 'seconds'):,.0f}" if name in results[workload] else "—" for name in names)]
        for workload, tokens in TOKENS.items()
        if workload in results
    ]
    return table(["workload", *names], rows) if rows else ""


def compiling_table(results):
    return table_of(results, ["pytorch_compile"], lambda answers, name: f"{max(a['compiling'] for a in answers[name]):.0f}")


def left_out_table(left_out):
    rows = [[name, " ".join(why.split()).replace("|", "\\|")[:300]] for name, why in left_out.items()]
    return table(["left out", "because it fails"], rows)


def report(results, losses, peaks, machine, names, clock, left_out):
    kinds = ", ".join(f"{package} {version}" for package, version in machine["packages"].items())
    worst = max(d for (*_, name), d in loss_differences(losses).items() if not name.endswith("_bf16"))
    text = (
        f"{machine['cpu']}, {machine['cores']} cores; LibTorch {machine['libtorch']}; {kinds}. "
        f"Losses differ by at most {worst:.1e} of their value.\n\n"
        "Ratios are medians over the trainings, with a 95 % confidence interval, and \"none\" where the difference from 1 lies inside it. "
        "A training's ratio is the median of those of its slices.\n"
    )
    for threads, by_workload in results.items():
        kept = [name for name in names if any(name in answers for answers in by_workload.values())]
        others = [name for name in kept if name not in ("today", "etude")]
        measured = clock if threads == 1 else "seconds"  # a thread that waits for another takes CPU time too
        where = f"{threads} thread{'s' * (threads > 1)}{', in CPU time' * (measured == 'cpu_seconds')}"
        text += f"\n## Steps/s as a multiple of `today`, {where}\n\n" + speed_table(by_workload, kept, measured)
        if "etude" in kept and others:
            text += f"\n## Steps/s of `etude` as a multiple of each other contestant's, {where}\n\n" + etude_table(by_workload, others, measured)
            if "instructions" in next(iter(by_workload.values()))["today"][0]["slices"][0]:
                text += f"\n## Instructions of `etude` as a multiple of each other contestant's, {where}\n\n" + instruction_table(by_workload, others)
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


def build_against(commit, options):
    """Builds the program with the library of another commit, with the same compiler, flags and LibTorch."""
    git = ["git", "-C", HERE]
    found = subprocess.run([*git, "rev-parse", "--verify", "--short", commit + "^{commit}"], capture_output=True, text=True)
    if found.returncode != 0:
        sys.exit(f"--against {commit}: {found.stderr.strip()}")
    name = found.stdout.strip()
    folder = options.output / "against" / name
    source, build = folder / "source", folder / "build"
    say(f"building {name}")
    if not source.exists():
        subprocess.run([*git, "worktree", "add", "--quiet", "--force", "--detach", source, name], check=True)
    cache = next(p / "CMakeCache.txt" for p in options.program.parents if (p / "CMakeCache.txt").exists()).read_text()
    same = dict(re.findall(r"^(Torch_DIR|CMAKE_GENERATOR|CMAKE_BUILD_TYPE|CMAKE_CXX_COMPILER|CMAKE_CXX_FLAGS\w*):\w+=(.*)$", cache, re.MULTILINE))
    generator = same.pop("CMAKE_GENERATOR")
    variables = [f"-D{key}={value}" for key, value in same.items()]
    configure = ["cmake", "-S", HERE, "-B", build, "-G", generator, f"-DETUDE_SOURCE={source}", "--log-level=WARNING", *variables]
    for command in configure, ["cmake", "--build", build, "--parallel", str(os.cpu_count())]:
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            sys.exit(f"--against {commit}: today's benchmark (bench/train) can't be built with the library of {name}; the messages above say why")
    return f"etude at {name}", build / "train_bench"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, required=True, help="train_bench")
    parser.add_argument("--output", type=Path, required=True, help="folder for train.md and train.json")
    parser.add_argument("--against", metavar="COMMIT", help="also measure the Etude of another commit, which is built first")
    parser.add_argument("--trainings", type=int, default=12, help=f"of each workload, in {SLICES} slices each; fewer than 6 have no confidence interval")
    parser.add_argument("--seconds", type=float, default=0.05, help="duration of a slice of `today`; the others do as many steps")
    parser.add_argument("--workloads", type=lambda s: s.split(","), default=WORKLOADS)
    parser.add_argument("--contestants", type=lambda s: s.split(","), default=CPP + list(PEERS))
    parser.add_argument("--threads", type=lambda s: [int(n) for n in s.split(",")], default=[1], help="one number, or several: 1,2")
    parser.add_argument(
        "--cpu-time",
        dest="clock",
        action="store_const",
        const="cpu_seconds",
        default="seconds",
        help="compare CPU time, for a machine whose cores are busy",
    )
    parser.add_argument("--no-peers", action="store_true", help="C++ only")
    parser.add_argument("--quick", action="store_true", help="6 trainings in short slices, as a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.trainings, options.seconds = 6, 0.01
    options.program, options.output = options.program.resolve(), options.output.resolve()
    options.data = options.output / "train"
    options.data.mkdir(parents=True, exist_ok=True)
    if "today" not in options.contestants:
        options.contestants.insert(0, "today")
    return options


def main():
    options = arguments()
    reported = json.loads(subprocess.run([options.program, "info"], check=True, capture_output=True, text=True).stdout)
    subprocess.run([options.program, "export", options.data], check=True)
    names = available(options.contestants, reported["contestants"], reported["libtorch"], not options.no_peers)

    against = None
    if options.against:
        against, options.against_program = build_against(options.against, options)
        names.insert(names.index("etude") + 1 if "etude" in names else 1, against)

    left_out = {}
    if "etude_exported" in names:
        exported = subprocess.run([sys.executable, HERE / "peers.py", "export", options.data, *options.workloads], stderr=subprocess.PIPE, text=True)
        if exported.returncode != 0:
            say(exported.stderr)
            left_out["etude_exported"] = "the export: " + (exported.stderr.splitlines() or ["no message"])[-1]

    machine = info(reported["libtorch"])
    results, losses, peaks = {}, {}, {}

    def write():
        text = report(results, losses, peaks, machine, names, options.clock, left_out)
        (options.output / "train.md").write_text(text)
        raw = {"machine": machine, "peak_memory": peaks, "threads": results, "losses": losses, "left_out": left_out}
        (options.output / "train.json").write_text(json.dumps(raw, indent=1) + "\n")
        return text

    try:
        for threads in options.threads:
            chosen = [name for name in names if name not in left_out and (threads == options.threads[0] or name in [*SCALING, against])]
            results[threads], losses[threads] = {}, {}
            measure(chosen, threads, options, results[threads], losses[threads], left_out, write)
        peaks |= peak_memory([name for name in ("today", "best", "etude") if name in names], options)
    except KeyboardInterrupt:
        sys.exit(f"interrupted: {options.output}/train.md and train.json have the results so far")
    print("\n" + write())

    wrong = [
        f"{name}, {workload}, {threads} thread{'s' * (threads > 1)}: by {d:.1e}"
        for (threads, workload, name), d in loss_differences(losses).items()
        if d > tolerance(name)
    ]
    if wrong:
        sys.exit("not the same work, for the losses differ:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
