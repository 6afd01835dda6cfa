"""Compares trainings on this machine's processor with the same trainings on 64-bit Arm, emulated by QEMU.

check.py HERE ARM EMULATOR: two build folders with the programs `etude` and docs_tutorial, and the command that runs Arm's.
"""

import contextlib
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "interop"), str(ROOT / "tools")]
import safetensors.torch
import torch
from checks import check, same
from export import export_model

torch.set_num_threads(1)
MACHINES = {platform.machine(): ([], pathlib.Path(sys.argv[1])), "aarch64": (shlex.split(sys.argv[3]), pathlib.Path(sys.argv[2]))}
HERE, ARM = MACHINES
TOLERANCE = 1e-6  # relative, of losses


def start(machine, program, *arguments, **environment):
    emulator, build = MACHINES[machine]
    return subprocess.Popen([*emulator, build / program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=dict(os.environ, OMP_NUM_THREADS="1", **environment))  # fmt: skip


def finish(process, status=0):
    text = process.communicate()[0]
    check(process.returncode == status, f"{' '.join(map(str, process.args))} ended with {process.returncode}:\n{text}")
    return text


def run(machine, program, *arguments, status=0):
    return finish(start(machine, program, *arguments), status)


def logged(folder, name="loss"):
    """A value by the step at which it was logged."""
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return {entry["step"]: entry[name] for entry in history if name in entry}


def difference(seen, expected):
    return abs(seen - expected) / abs(expected)


def check_close(seen, expected, what):
    """Compares values by step. Returns the largest relative difference."""
    same(list(seen), list(expected), f"{what}: the steps")
    check(expected, f"{what}: nothing was logged")
    worst = max(expected, key=lambda step: difference(seen[step], expected[step]))
    error = difference(seen[worst], expected[worst])
    check(error <= TOLERANCE, f"{what}: at step {worst}, {seen[worst]} instead of {expected[worst]}, a relative difference of {error:.1e}")
    return error


class Net(torch.nn.Module):
    """Classifies sequences. Its losses depend on the generator's state, since it has dropout."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(64, 32), torch.nn.Parameter(torch.randn(16, 32) / 4)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(32) for _ in range(3))
        self.projection, self.back = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
        self.wide, self.narrow = torch.nn.Linear(32, 128), torch.nn.Linear(128, 32)
        self.dropout, self.out = torch.nn.Dropout(0.1), torch.nn.Linear(32, 8)

    def forward(self, tokens):
        x = self.dropout(self.tokens(tokens) + self.positions)
        parts = self.projection(self.norms[0](x)).unflatten(-1, (3, 4, 8)).transpose(1, 3)
        mixed = torch.nn.functional.scaled_dot_product_attention(*parts.unbind(2), is_causal=True)
        x = x + self.back(mixed.transpose(1, 2).flatten(2))
        x = x + self.dropout(self.narrow(torch.nn.functional.gelu(self.wide(self.norms[1](x)))))
        return self.out(self.norms[2](x).mean(1))


def examples(count):
    tokens = torch.randint(0, 64, (count, 16), generator=torch.Generator().manual_seed(count))
    return {"tokens": tokens, "labels": tokens.sum(1) % 8}


def check_tutorial(folder):
    """The program at the end of docs/tutorial.md."""
    arguments = ["--max_steps", "100", "--logging_steps", "1", "--disable_tqdm", "true"]
    texts = {machine: run(machine, "examples/docs_tutorial", *arguments, "--output_dir", folder / machine) for machine in MACHINES}
    ends = {machine: re.search(r"^100 steps, 800 examples, F1 0\.\d+, .*", text, re.M)[0] for machine, text in texts.items()}
    error = check_close(logged(folder / ARM), logged(folder / HERE), "the tutorial's losses")
    same(ends[ARM], ends[HERE], "the last line of the tutorial's program")
    print(f"tutorial: 100 losses, relative differences up to {error:.1e}; {ends[ARM]}")


def train(machine, folder, *arguments, status=0, model="model.pt2"):
    """Trains the model beside `folder`, the output folder. Returns what the program printed."""
    return finish(start_training(machine, folder, *arguments, model=model), status)


def start_training(machine, folder, *arguments, model="model.pt2", **environment):
    loss = ["--loss", "cross_entropy"] if model == "model.pt2" else []
    data = folder.parent / "train.safetensors"
    return start(machine, "tools/etude", "train", "--model", folder.parent / model, *loss, "--train_dataset", data, "--output_dir", folder, "--max_steps", "40",
                 "--save_steps", "20", "--logging_steps", "1", "--learning_rate", "1e-3", "--disable_tqdm", "true", *arguments, **environment)  # fmt: skip


def check_exported(folder):
    """A model that Python exported: trained, evaluated, and resumed on the other machine."""
    for machine in MACHINES:
        train(machine, folder / machine)
    error = check_close(logged(folder / ARM), logged(folder / HERE), "an exported model's losses")
    error = max(error, check_close(logged(folder / ARM, "grad_norm"), logged(folder / HERE, "grad_norm"), "its gradient norms"))
    print(f"exported model: 40 losses and gradient norms, relative differences up to {error:.1e}")

    for first, second in [(HERE, ARM), (ARM, HERE)]:
        resumed = folder / f"from_{first}"
        shutil.copytree(folder / first / "checkpoint-20", resumed / "checkpoint-20")
        text = train(second, resumed)
        check("resumed after step 20 of 40" in text, f"{second} should resume the training of {first}:\n{text}")
        error = check_close(logged(resumed), logged(folder / first), f"{first}'s training, resumed on {second}")
        print(f"checkpoint of {first}, resumed on {second}: relative differences up to {error:.1e} from the unbroken training")

    scores = []
    for machine in MACHINES:
        output = folder / f"{machine}.safetensors"
        data = ["--model", folder / "model.pt2", "--weights", folder / HERE, "--dataset", folder / "train.safetensors"]
        run(machine, "tools/etude", "predict", *data, "--output", output)
        scores.append(next(iter(safetensors.torch.load_file(output).values())))
    same(scores[0].shape, (192, 8), "the shape of the scores")
    torch.testing.assert_close(scores[1], scores[0], rtol=1e-5, atol=1e-5)
    print("its scores are the same")


def check_compiled(folder):
    """A training step that was compiled for this machine isn't run on the other."""
    reason = f"the graph was compiled for {HERE}, but this machine is {ARM}"
    compiled = ["--run_compiled_code", "true", "--compiled_graph"]
    train(HERE, folder / "compiled_here", *compiled, "required", model="compiled.pt2")
    text = train(ARM, folder / "compiled", *compiled, "auto", model="compiled.pt2")
    same(text.count(reason), 1, f"how often '{reason}' is printed:\n{text}")
    check_close(logged(folder / "compiled"), logged(folder / ARM), "the losses of a file with code for another processor")
    text = train(ARM, folder / "required", *compiled, "required", status=2, model="compiled.pt2")
    check(reason in text, f"'{reason}' should be printed:\n{text}")
    print(f"compiled step: interpreted, since {reason}")


def check_ranks(folder):
    """Two processes on one machine, which share memory."""
    losses = []
    for machine in MACHINES:
        with contextlib.closing(socket.create_server(("localhost", 0))) as server:
            port = str(server.getsockname()[1])
        output = folder / f"ranks_{machine}"
        world = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
        ranks = [start_training(machine, output, RANK=str(rank), LOCAL_RANK=str(rank), **world) for rank in range(2)]
        for rank in ranks:
            finish(rank)
        losses.append(logged(output))
    error = check_close(losses[1], losses[0], "the losses of two ranks")
    check(losses[1] != logged(folder / ARM), "two ranks should train on other batches than one process")
    print(f"two ranks: relative differences up to {error:.1e}")


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    torch.manual_seed(0)
    model = Net()
    safetensors.torch.save_file(examples(192), folder / "train.safetensors")
    export_model(model, {"tokens": examples(8)["tokens"]}, folder / "model.pt2")
    export_model(model, examples(8), folder / "compiled.pt2", loss=torch.nn.functional.cross_entropy, compile="cpu")
    for part in (check_tutorial, check_exported, check_compiled, check_ranks):
        begun = time.monotonic()
        part(folder / "tutorial" if part is check_tutorial else folder)
        print(f"  {time.monotonic() - begun:.0f} s")
