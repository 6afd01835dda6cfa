"""Runs examples/fortran/learn_flux.f90: alone and by mpirun, killed and resumed, and compared with `etude train`.

learn_flux.py TEST PROGRAM..., where the tests and their programs are
  result  learn_flux                          the model is much better than the upwind scheme
  kills   learn_flux                          a twentieth of ETUDE_KILLS kills leave no trace
  mpi     learn_flux learn_flux_mpi           two processes do as one does, killed a tenth as often
  train   learn_flux learn_flux_data etude    the same batches in `etude train` give the same losses
"""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from checks import check, same

try:
    import torch  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

os.environ["OMP_NUM_THREADS"] = "1"
STEPS = 3200
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
MODEL = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "fortran" / "model.py"


def fresh_folder(model):
    folder = pathlib.Path(tempfile.mkdtemp(dir=model.parent))
    (folder / "flux.pt2").symlink_to(model)
    return folder


def run(command, folder):
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    check(ran.returncode == 0, f"{command} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def errors_in(output):
    """The mean errors of the upwind scheme and of the model."""
    errors = [float(line.split()[-1]) for line in output.splitlines() if line.startswith("mean error")]
    same(len(errors), 2, f"the errors in:\n{output}")
    return errors


def losses_in(folder):
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return {entry["step"]: entry["loss"] for entry in history if "loss" in entry}


def outcome(output, folder):
    """What a killed training must have in common with an unbroken one: losses, weights, the fields of the simulation, the end of
    the output."""
    last = folder / "learn_flux_output" / f"checkpoint-{STEPS}"
    tensors = {str(path.relative_to(last)): path.read_bytes() for path in sorted(last.rglob("*.safetensors")) if path.is_file()}
    check(any("model" in name for name in tensors) and any("program_state" in name for name in tensors), f"files: {list(tensors)}")
    return losses_in(last), errors_in(output), tensors


def check_same(ours, expected, what):
    for seen, other, part in zip(ours, expected, ("losses", "errors")):
        same(seen, other, f"{part} {what}")
    same(sorted(ours[2]), sorted(expected[2]), f"files {what}")
    for name in expected[2]:
        check(ours[2][name] == expected[2][name], f"{name} differs {what}")


def processes_of(started):
    """The process itself, or those that mpirun has started."""
    children = pathlib.Path(f"/proc/{started.pid}/task/{started.pid}/children")
    try:
        return [int(pid) for pid in children.read_text().split()] or [started.pid]
    except OSError:
        return []


def run_with_kills(command, model, kills, expected, longest):
    """Kills a process after a random time, starts again, and so on; a training that ends is compared, and another begins."""
    seed = int(os.environ.get("ETUDE_SEED", random.randrange(2**32)))
    print(f"ETUDE_SEED={seed}", flush=True)
    numbers = random.Random(seed)
    done = trainings = 0
    while done < kills:
        folder = fresh_folder(model)
        resumed = 0
        while True:
            started = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if done < kills:
                try:
                    started.wait(numbers.uniform(0, longest))
                except subprocess.TimeoutExpired:
                    processes = processes_of(started)
                    if processes:
                        os.kill(numbers.choice(processes), signal.SIGKILL)
                        done += 1
            output, errors = started.communicate(timeout=300)
            if started.returncode == 0:
                break
            # With mpirun, the other process may notice first, and say so.
            check(done > 0 and (command[0] == "mpirun" or started.returncode == -signal.SIGKILL), f"after {done} kills:\n{output}{errors}")
            resumed += any((folder / "learn_flux_output").glob("checkpoint-*"))
        check_same(outcome(output, folder), expected, f"after {done} kills")
        trainings += 1
    print(f"{done} kills in {trainings} trainings")


def kills_of(share):
    return max(1, int(os.environ.get("ETUDE_KILLS", "1000")) // share)


def time_of(command, model):
    folder = fresh_folder(model)
    start = time.monotonic()
    output = run(command, folder)
    return outcome(output, folder), time.monotonic() - start


def test_result(model, program):
    output = run([program], fresh_folder(model))
    upwind, trained = errors_in(output)
    check(trained < upwind / 2, output)
    same(re.findall(r"^step +(\d+): loss", output, re.MULTILINE), [str(step) for step in range(400, STEPS + 1, 400)], "the lines")


def test_kills(model, program):
    expected, seconds = time_of([program], model)
    run_with_kills([program], model, kills_of(20), expected, seconds / 2)


def test_mpi(model, alone, program):
    (losses, errors, _), _ = time_of([alone], model)
    expected, seconds = time_of([*MPIRUN, program], model)
    single = time_of([program], model)[0]
    same(single[0], losses, "the losses of one process with MPI")
    # The sums have another order.
    check(abs(expected[0][400] - losses[400]) < 1e-3 * losses[400], f"losses {expected[0]}, by one process {losses}")
    same(expected[1][0], errors[0], "the error of the upwind scheme by two processes")
    check(expected[1][1] < errors[0] / 2, f"errors {expected[1]}, by one process {errors}")
    run_with_kills([*MPIRUN, program], model, kills_of(200), expected, seconds / 2)


def test_train(model, program, data, etude):
    folder = fresh_folder(model)
    (folder / "data").mkdir()
    run([data], folder)
    run([program], folder)
    run([etude, "train", "--model", model, "--loss", "mse", "--train_dataset", "data", "--train_sampling_strategy", "sequential",
         "--per_device_train_batch_size", "8", "--num_train_epochs", "1", "--learning_rate", "3e-3", "--logging_steps", "400",
         "--save_strategy", "no", "--output_dir", "train"], folder)  # fmt: skip
    losses, expected = losses_in(folder / "learn_flux_output" / f"checkpoint-{STEPS}"), losses_in(folder / "train")
    same(sorted(losses), list(range(400, STEPS + 1, 400)), "the steps")
    same(sorted(losses), sorted(expected), "the steps of `etude train`")
    for step, loss in losses.items():
        check(abs(loss - expected[step]) <= 1e-6 * expected[step], f"the loss of step {step} is {loss}, expected {expected[step]}")
    print(f"largest relative difference of losses: {max(abs(losses[step] / expected[step] - 1) for step in losses)}")


TESTS = {"result": test_result, "kills": test_kills, "mpi": test_mpi, "train": test_train}
with tempfile.TemporaryDirectory() as work:
    subprocess.run([sys.executable, MODEL], cwd=work, check=True)
    TESTS[sys.argv[1]](pathlib.Path(work, "flux.pt2"), *map(os.path.abspath, sys.argv[2:]))
