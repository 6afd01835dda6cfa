"""The programs of docs/simulations.md train the network that its Python program exports, and resume exactly when they are killed.

simulations.py PROGRAM_WITH_PARTS SIMULATION...
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from checks import check, same

try:
    import safetensors.torch
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPORT = ROOT / "examples" / "docs" / "simulation.py"
os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
parts, *simulations = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])


def run(command, folder):
    ran = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True)
    check(ran.returncode == 0, f"{command[0]} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout.splitlines()


def numbers(lines):
    return [float(line.rpartition(" ")[2]) for line in lines]


def weights(folder):
    return safetensors.torch.load_file(folder / "trained" / "model.safetensors")


def begin(folder, model):
    folder.mkdir()
    shutil.copy(model, folder)
    return folder


def killed(command, folder, checkpoint):
    """Kills the program and its processes once the checkpoint has been written."""
    process = subprocess.Popen([str(word) for word in command], cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 60
    while not (folder / "training" / checkpoint).exists():
        check(process.poll() is None and time.monotonic() < end, f"{command[0]} should have written {checkpoint}")
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    check(not (folder / "trained").exists(), f"{command[0]} should have been killed before its end")


def check_simulation(command, folder, model):
    unbroken = begin(folder / "unbroken", model)
    lines = run(command, unbroken)
    same([re.match(r"step \d+|error of a time step", line)[0] for line in lines], [*(f"step {i}" for i in range(100, 700, 100)), "error of a time step"], command)
    # Without training, the error is 1, since a field differs by that much from the next.
    losses, (error,) = numbers(lines[:-1]), numbers(lines[-1:])
    check(losses[-1] < 0.05 and error < 0.2, f"{command} should have learned: {lines}")

    broken = begin(folder / "broken", model)
    for checkpoint in ("checkpoint-200", "checkpoint-400"):
        killed(command, broken, checkpoint)
    resumed = run(command, broken)
    same(resumed, lines[-len(resumed) :], f"{command}: the output after the kills")
    check(3 <= len(resumed) < 6, f"{command} should have resumed: {resumed}")
    for name, tensor in weights(unbroken).items():
        check(torch.equal(tensor, weights(broken)[name]), f"{command}: {name} differs after the kills")
    return unbroken


def check_parts(folder, model):
    begin(folder, model)
    lines = run([parts], folder)
    check("stopped after 10 steps" in lines, f"the callback should have stopped the training after its first evaluation: {lines}")
    error, largest = (float(re.search(f"^{name}: (.*)$", "\n".join(lines), re.M)[1]) for name in ("mean absolute error", "largest gradient"))
    check(0 < error < 10 and 0 < largest < 1, f"a wrong error or gradient: {lines}")
    losses = re.search("loss (.+) with sgd, (.+) with the program's own optimizer", "\n".join(lines))
    same(losses[2], losses[1], "the loss with the program's gradient descent")
    check("rows with halos: the same" in lines, f"strides and float64 should give the same prediction: {lines}")


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    package = folder / "package" / "etude"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for tool in ("export.py", "compile_graph.py"):
        shutil.copy(ROOT / "tools" / tool, package)
    os.environ["PYTHONPATH"] = str(package.parent)
    run([sys.executable, EXPORT], folder)
    model = folder / "model.pt2"

    check_parts(folder / "parts", model)
    for program in simulations:
        trained = check_simulation([program], begin(folder / program.name, model), model)
        module = {"__name__": "simulation"}
        sys.path.insert(0, str(package.parent))
        exec(EXPORT.read_text().partition("torch.manual_seed")[0], module)
        safetensors.torch.load_model(module["TimeStep"](), trained / "trained" / "model.safetensors")
    if shutil.which("mpirun"):
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", simulations[0]]
        lines = run(command, begin(folder / "mpirun", model))
        check(len(lines) == 7 and numbers(lines)[-1] < 0.2, f"two processes should train together, and one print: {lines}")
