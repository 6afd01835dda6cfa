"""Shared by the tests of exported models: the program of exported.cpp, and models without dropout."""

import json
import os
import pathlib
import signal
import subprocess
import sys

from checks import check

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# torchvision is in a separate folder, since its operators aren't compiled for this torch, and transformers would import it.
sys.path += [str(ROOT / ".venv" / "vision"), str(ROOT / "tools")]
try:
    import accelerate  # transformers' Trainer needs it
    import safetensors.torch
    import torch

    import exported_models  # declares operators for torchvision, which timm imports
    import timm
    import transformers
    import xxhash
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
PROGRAM = sys.argv[1]


def close(a, b, relative):
    return abs(a - b) <= relative * max(abs(a), abs(b), 1e-6)


def loss_of(model, batch, kind):
    batch = dict(batch)
    if kind == "own":
        output = model(**batch)
        return output["loss"] if isinstance(output, dict) else output.loss
    labels = batch.pop("labels")
    return torch.nn.functional.cross_entropy(model(**batch), labels)


def batch_at(data, step, size):
    """The batch of a step, counted from 0, if the examples repeat in order."""
    begin = step * size % len(next(iter(data.values())))
    return {name: value[begin : begin + size] for name, value in data.items()}


def run(folder, model, data, kind, *arguments, kill_at=None, processes=1):
    """Trains and evaluates in C++. Returns the first process's loss in each step, and the metrics."""
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if kill_at:
        environment["ETUDE_KILL_AT"] = str(kill_at)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes, "--no-python"] if processes > 1 else []
    command = [*launcher, PROGRAM, model, data, kind, "--output_dir", folder, "--train_sampling_strategy", "sequential", "--disable_tqdm", "true", *arguments]
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    check(ran.returncode == (-signal.SIGKILL if kill_at else 0), f"{model.name}: the program ended with {ran.returncode}:\n{ran.stderr}")
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"')]
    return {line["step"]: line["loss"] for line in lines if "step" in line}, lines[-1] if lines else {}
