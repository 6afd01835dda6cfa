"""Trains in one of several processes with torch.nn.parallel.DistributedDataParallel over Gloo, or in a single process without it.

`ddp.py DIR` answers the same lines as `parallel_bench serve DIR` (main.cpp), and does the same work.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent.parent / "train"))
from peers import NETWORKS, Clock, Perceptron, Task, loss_of  # noqa: E402

NETWORKS.update(
    small=lambda: Perceptron(784, 128, 128, 10),
    wide=lambda: Perceptron(784, 1024, 1024, 1024, 1024, 1024, 10),
)
RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def train(task):
    network = task.network
    if WORLD_SIZE > 1:
        network = DistributedDataParallel(network, gradient_as_bucket_view=True)
    optimizer = task.optimizer(fused=True)
    for step in range(task.steps):
        first = (step * WORLD_SIZE + RANK) * task.batch_size
        rows = task.order[first : first + task.batch_size]
        optimizer.zero_grad()
        loss_of(network(task.inputs[rows]), task.targets[rows]).backward()
        optimizer.step()


@torch.no_grad()
def mean_loss(task):
    task.network.eval()
    return loss_of(task.network(task.inputs[:256]), task.targets[:256]).item()


def join():
    """Joins the process group, and returns the seconds that this takes."""
    began = time.perf_counter()
    if WORLD_SIZE > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    return time.perf_counter() - began


def answer(folder, request):
    _, name, steps, warmup, _ = request.split()
    steps, warmup = int(steps), int(warmup)
    task = Task(folder, name, steps, warmup, processes=WORLD_SIZE)
    task.network.clock = clock = Clock(warmup, steps)
    joined = join()
    train(task)
    return {
        "join": joined,
        "seconds": clock.end - clock.begin,
        "steps": steps,
        "calls": clock.calls,
        "loss": mean_loss(task),
        "threads": torch.get_num_threads(),
    }


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    print("ready", file=answers, flush=True)
    for request in sys.stdin:
        try:
            reply = answer(Path(sys.argv[1]), request)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
