"""Measures the steps/s of Etude and of PyTorch's DistributedDataParallel in Python with one and two processes, and each process's
traffic and memory. Writes parallel.md and parallel.json.

Each contestant has its own processes, and only one contestant's processes work at a time. In each round every contestant
trains each workload from the same initial weights, in a new random order of contestants. Only times of one round are compared.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "train"))
from run import PeerFailed, info, left_out_table, say, table  # noqa: E402

WORKLOADS = {"small": 500, "wide": 20, "transformer": 60}  # steps of a round
IN_CHUNKS = ["wide"]  # the other workloads' gradients are smaller than the smallest chunk, 1 MiB
TOLERANCE = 1e-2  # of the loss, relative to contestants with the same number of processes
WHOLE = 1_000_000  # ddp_bucket_cap_mb that sends all gradients at once, after the backward pass


class Group:
    """The processes of a contestant, with the variables that torchrun gives them."""

    def __init__(self, command, size, environment=None, is_peer=False):
        self.name, self.is_peer = command[0], is_peer
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ
                | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
                | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
                | (environment or {}),
            )
            for rank in range(size)
        ]
        self.starting = list(self.processes)

    def started(self):
        """Returns itself once all processes have started."""
        while self.starting:
            if self.starting.pop().stdout.readline() != "ready\n":
                self.fail("it doesn't start")
        return self

    def fail(self, why):
        if self.is_peer:
            raise PeerFailed(why)
        sys.exit(f"{self.name}: {why}")

    def train(self, workload, steps, policy="data", bucket=25, warmup=2):
        """The answers of all processes."""
        for process in self.processes:
            try:
                process.stdin.write(f"{policy} {workload} {steps} {warmup} {bucket}\n")
                process.stdin.flush()
            except BrokenPipeError:
                pass  # then there is nothing to read either
        answers = []
        for process in self.processes:
            line = process.stdout.readline()
            answer = json.loads(line) if line else {"error": "the process has ended"}
            if "error" in answer:
                self.fail(f"{workload}: {answer['error']}")
            if answer["calls"] != warmup + steps + 1 or answer["threads"] != 1:
                self.fail(f"{workload}: {answer['calls']} steps with {answer['threads']} threads")
            answers.append(answer)
        return answers

    def end(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait()

    def kill(self):
        """Ends processes, some of which may be waiting for one that has failed."""
        for process in self.processes:
            process.kill()
            process.wait()


def messages(program):
    group = Group([program, "messages"], 2)
    lines = [json.loads(line) for line in group.processes[0].stdout]
    group.end()
    return lines


def contestants(options, left_out):
    """By name: (group, how it trains). Contestants with the same group share processes. Records in `left_out` why a peer is missing."""
    serve = [options.program, "serve", options.data]
    etude, gloo = Group(serve, 2), Group(serve, 2, {"ETUDE_SHARED_MEMORY": "0"})
    present = {
        "etude_alone": (Group(serve, 1), {}),
        "etude": (etude, {}),
        "etude_chunks": (etude, {"bucket": 1}),
        "etude_whole": (etude, {"bucket": WHOLE}),
        "gloo": (gloo, {}),
        "gloo_chunks": (gloo, {"bucket": 1}),
        "gloo_whole": (gloo, {"bucket": WHOLE}),
    }
    if options.peers:
        ddp = [sys.executable, HERE / "ddp.py", options.data]
        present |= {"pytorch_alone": (Group(ddp, 1, is_peer=True), {}), "pytorch": (Group(ddp, 2, is_peer=True), {})}
    for name, (group, _) in list(present.items()):
        try:
            group.started()
        except PeerFailed as failure:
            leave_out(name, failure, present, left_out)
    return present


def leave_out(name, failure, present, left_out):
    say(f"left out: {name}, {failure}")
    left_out[name] = str(failure)
    present.pop(name)[0].kill()


def measure(options, present, left_out):
    """All answers of rank 0: {workload: {contestant: [answer of each round]}}, and each contestant's seconds to join."""
    results, joins = {}, {}

    def train(name, *work, **more):
        group, how = present[name]
        try:
            return group.train(*work, **how, **more)
        except PeerFailed as failure:
            leave_out(name, failure, present, left_out)
            for answers in [*results.values(), joins]:
                answers.pop(name, None)

    for workload, steps in WORKLOADS.items():
        steps = max(2, round(steps * options.length))
        names = [name for name in present if workload in IN_CHUNKS or not name.endswith(("_chunks", "_whole"))]
        for name in names:  # warms up memory and code
            if answers := train(name, workload, 2):
                joins.setdefault(name, max(answer["join"] for answer in answers))
        names = [name for name in names if name in present]
        results[workload] = {name: [] for name in names}
        for number in range(options.rounds):
            for name in random.sample(names, len(names)):
                if name in present and (answers := train(name, workload, steps, warmup=options.warmup)):
                    results[workload][name].append(answers[0])
            say(f"{workload}, round {number + 1} of {options.rounds}")
    return results, joins


def check_losses(results):
    """Checks that all contestants with the same number of processes end at the same loss."""
    for workload, answers in results.items():
        for first, alone in (("etude", False), ("etude_alone", True)):
            expected = answers[first][0]["loss"]
            for name, runs in answers.items():
                if name.endswith("_alone") == alone:
                    for run in runs:
                        if abs(run["loss"] - expected) > TOLERANCE * expected:
                            sys.exit(f"not the same work: {name}, {workload}: loss {run['loss']}, not {expected}")


def shards(options):
    """For each policy, the most bytes that a process sends and holds, with AdamW and 18 million parameters."""
    group = Group([options.program, "serve", options.data], 2).started()
    result = {}
    for policy in ("data", "shards1", "shards2"):
        for bucket in options.buckets:
            answers = group.train("large", 3, policy, bucket)
            result[policy, bucket] = {key: max(a[key] for a in answers) for key in ("bytes", "peak", "parameters")}
    group.end()
    return result


NAMES = {
    "etude_alone": "Etude, one process",
    "etude": "Etude",
    "etude_chunks": "Etude, chunks of 1 MiB",
    "etude_whole": "Etude, no overlap",
    "gloo": "Etude over Gloo",
    "gloo_chunks": "Etude over Gloo, chunks of 1 MiB",
    "gloo_whole": "Etude over Gloo, no overlap",
    "pytorch_alone": "PyTorch, one process",
    "pytorch": "PyTorch's DDP",
}
PAIRS = [
    ("Etude, two processes beside one", "etude", "etude_alone"),
    ("PyTorch, two processes beside one", "pytorch", "pytorch_alone"),
    ("Etude, chunks of 1 MiB beside no overlap", "etude_chunks", "etude_whole"),
    ("Etude over Gloo, chunks of 1 MiB beside no overlap", "gloo_chunks", "gloo_whole"),
    ("Etude beside PyTorch's DDP", "etude", "pytorch"),
    ("Etude over Gloo beside PyTorch's DDP", "gloo", "pytorch"),
]


def speed(of, to):
    """The speed of `of` as a multiple of the speed of `to` in each round: the median, with quartiles."""
    ratios = [b["seconds"] / a["seconds"] for a, b in zip(of, to)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def report(results, joins, sharded, sums, machine, left_out):
    every = {name for answers in results.values() for name in answers}
    shown = [name for name in NAMES if name in every]
    text = f"{machine['cpu']}, {machine['cores']} cores; LibTorch {machine['libtorch']}. Two processes, one thread each.\n"

    def rate(runs):
        return f"{statistics.median(run['steps'] / run['seconds'] for run in runs):,.1f}"

    text += "\n## Steps/s\n\n" + table(
        ["", *results],
        [[NAMES[name], *(rate(of[name]) if name in of else "" for of in results.values())] for name in shown],
    )
    text += "\n## Ratios of steps/s\n\nMedians of the rounds, with quartiles.\n\n" + table(
        ["", *results],
        [
            [what, *(speed(of[a], of[b]) if a in of else "" for of in results.values())]
            for what, a, b in PAIRS
            if a in shown and b in shown
        ],
    )
    text += "\n## Bytes that each process sends in a step\n\n" + table(
        ["workload", "parameters", "sent", "least possible", "messages"],
        [
            [workload, f"{a['parameters']:,}", f"{a['bytes']:,.0f}", f"{4 * a['parameters']:,}", f"{a['messages']:.1f}"]
            for workload, a in ((workload, answers["etude"][0]) for workload, answers in results.items())
        ],
    )
    text += "\n## Time to join, ms\n\n" + table(
        [NAMES[name] for name in ("etude", "gloo", "pytorch") if name in joins],
        [[f"{1e3 * joins[name]:.1f}" for name in ("etude", "gloo", "pytorch") if name in joins]],
    )
    # Two processes: parameters, gradients and two moments of 4 bytes each, as in the ZeRO paper's table for float32.
    least = {"data": 4 + 4 + 8, "shards1": 4 + 4 + 4, "shards2": 4 + 2 + 4}
    titles = {"data": "no shards", "shards1": "ShardedDataParallel<1>", "shards2": "ShardedDataParallel<2>"}
    text += "\n## Shards: what a process holds and sends in a step, MB\n\n" + table(
        ["", "ddp_bucket_cap_mb", "peak of its tensors", "least possible", "sent", "least possible"],
        [
            [titles[policy], str(bucket)]
            + [f"{a['peak'] / 1e6:,.0f}", f"{least[policy] * a['parameters'] / 1e6:,.0f}"]
            + [f"{a['bytes'] / 1e6:,.1f}", f"{4 * a['parameters'] / 1e6:,.1f}"]
            for (policy, bucket), a in sharded.items()
        ],
    )
    text += "\n## Sums over two processes, microseconds\n\n" + table(
        ["floats", "Gloo", "shared memory"],
        [[f"{line['floats']:,}", f"{line['gloo']:,.1f}", f"{line['shared']:,.1f}"] for line in sums],
    )
    if left_out:
        text += "\n## Left out\n\n" + left_out_table(left_out)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, required=True, help="parallel_bench")
    parser.add_argument("--output", type=Path, required=True, help="folder for parallel.md and parallel.json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--length", type=float, default=1, help="of each round, in units of about a second")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="C++ only")
    parser.add_argument("--quick", action="store_true", help="two short rounds, as a smoke test")
    options = parser.parse_args()
    options.warmup, options.buckets = 10, (25, 1)
    if options.quick:
        options.rounds, options.length, options.warmup, options.buckets = 2, 0.1, 2, (25,)
    options.program = options.program.resolve()
    options.data = options.output.resolve() / "parallel"
    options.data.mkdir(parents=True, exist_ok=True)
    exported = subprocess.run([options.program, "export", options.data], check=True, capture_output=True, text=True)

    sums = messages(options.program)
    left_out = {}
    present = contestants(options, left_out)
    results, joins = measure(options, present, left_out)
    for group in {group for group, _ in present.values()}:
        group.end()
    sharded = shards(options)

    text = report(results, joins, sharded, sums, machine := info(exported.stdout.strip()), left_out)
    (options.output / "parallel.md").write_text(text)
    raw = {"machine": machine, "messages": sums, "training": results, "join": joins, "left_out": left_out}
    raw["shards"] = [{"policy": policy, "bucket": bucket} | a for (policy, bucket), a in sharded.items()]
    (options.output / "parallel.json").write_text(json.dumps(raw, indent=1) + "\n")
    check_losses(results)


if __name__ == "__main__":
    main()
