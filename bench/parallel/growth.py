"""Computes the table of docs/growth-of-processes.md: the milliseconds that messages take, by a model of the network.

usage: growth.py [MICROSECONDS_OF_A_HOP [GIGABYTES_A_SECOND [MEGABYTES_OF_GRADIENTS]]]
"""

import math
import sys

HOP, RATE, GRADIENTS = [float(word) for word in sys.argv[1:]] + [50, 3, 100][len(sys.argv) - 1 :]
HOP, RATE, GRADIENTS = HOP * 1e-6, RATE * 1e9, GRADIENTS * 1e6
CHUNK = 25 * 2**20  # ddp_bucket_cap_mb
SMALL_MESSAGES = 2  # a step's results, and the requests of callbacks
STORE_READ = 20e-6  # the store answers one process after another
GENERATORS = 5e3  # bytes of each process's generator states in a checkpoint


def ring_sum(processes, size):
    """Gloo's all-reduce: each of 2 (N - 1) hops carries 1/N of the data."""
    return 2 * (processes - 1) * (HOP + size / processes / RATE)


def ring_gather(processes, size):
    """Gloo's all-gather of `size` bytes from each process."""
    return (processes - 1) * (HOP + size / RATE)


def halving_doubling_sum(processes, size):
    """Recursive halving and doubling, which Gloo's all-reduce doesn't use."""
    return 2 * math.log2(processes) * HOP + 2 * (processes - 1) / processes * size / RATE


def gather_bytes(processes, size):
    return ring_gather(processes, 8) + ring_gather(processes, size)


def join(processes):
    """Each process reads every other process's address from the store."""
    return processes * (processes - 1) * STORE_READ


def gradients(processes):
    chunks = math.ceil(GRADIENTS / CHUNK)
    return chunks * ring_sum(processes, GRADIENTS / chunks)


ROWS = {
    "gradients, in a ring": gradients,
    "gradients, by halving and doubling": lambda n: halving_doubling_sum(n, GRADIENTS),
    "two small messages, in a ring": lambda n: SMALL_MESSAGES * ring_sum(n, 64),
    "two small messages, by halving and doubling": lambda n: SMALL_MESSAGES * halving_doubling_sum(n, 64),
    "gradients and values with shards": lambda n: 2 * (n - 1) / n * GRADIENTS / RATE + math.ceil(GRADIENTS / CHUNK) * n * HOP,
    "generators, in a checkpoint": lambda n: gather_bytes(n, GENERATORS),
    "1 MB of predictions of each process": lambda n: gather_bytes(n, 1e6),
    "joining": join,
}


def main():
    sizes = [2, 8, 32, 128, 512]
    print("| ms | " + " | ".join(f"{n} processes" for n in sizes) + " |")
    print("| --- |" + " --- |" * len(sizes))
    for name, seconds in ROWS.items():
        print(f"| {name} | " + " | ".join(f"{1e3 * seconds(n):,.3g}" for n in sizes) + " |")


if __name__ == "__main__":
    main()
