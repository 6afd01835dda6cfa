"""Kills random processes of examples/several_processes under torchrun: the run finishes, with the weights of an unbroken one.
With Open MPI, mpirun also starts them once.

usage: torchrun.py PROGRAM, with a twentieth of ETUDE_KILLS kills
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

try:
    import torch.distributed.run  # noqa: F401
except ImportError:
    sys.exit(77)

PROCESSES = 2
EPOCHS, STEPS = 100, 2300


def arguments_of(program, folder):
    return [program, "--output_dir", folder, "--disable_tqdm", "true", "--num_train_epochs", str(EPOCHS)]


def start(program, folder, restarts):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES),
               "--max-restarts", str(restarts), "--monitor-interval", "0.1", "--no-python", *arguments_of(program, folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def run_by_mpirun(program):
    """Open MPI only starts the processes, which Gloo connects."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(PROCESSES), *arguments_of(program, folder)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert result.returncode == 0, result.stdout + result.stderr
        return last_line(result.stdout)


def ranks_of(agent):
    """The processes that torchrun has started."""
    try:
        with open(f"/proc/{agent.pid}/task/{agent.pid}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def last_line(output):
    # After a kill between this line and the process's end, torchrun starts all again, and they print it again.
    found = set(re.findall(r"^\d+ steps, accuracy .*$", output, re.MULTILINE))
    assert len(found) == 1, output
    return found.pop()


def finish(agent):
    output, _ = agent.communicate(timeout=240)
    assert agent.returncode == 0, output
    return last_line(output)


def newest_step(folder):
    steps = [int(name.split("-")[1]) for name in os.listdir(folder) if re.fullmatch(r"checkpoint-\d+", name)]
    return max(steps, default=0)


def run_with_kills(program, kills, random_numbers):
    with tempfile.TemporaryDirectory() as folder:
        agent = start(program, folder, kills)
        done = 0
        while done < kills and agent.poll() is None:
            time.sleep(random_numbers.uniform(0.3, 2.5))
            ranks = ranks_of(agent)
            if len(ranks) < PROCESSES:
                continue
            try:
                os.kill(random_numbers.choice(ranks), signal.SIGKILL)
                done += 1
            except ProcessLookupError:
                pass
        return finish(agent), done


def check_stop_by_signal(program):
    """SIGTERM to one process ends all of them after one checkpoint, from which the next run continues to the same weights."""
    with tempfile.TemporaryDirectory() as folder:
        agent = start(program, folder, 0)
        while newest_step(folder) == 0:
            assert agent.poll() is None, agent.communicate()[0]
            time.sleep(0.01)
        os.kill(ranks_of(agent)[-1], signal.SIGTERM)
        output, _ = agent.communicate(timeout=120)
        assert agent.returncode != 0, output
        assert "writing a checkpoint" in output, output
        stopped_at = newest_step(folder)
        assert 20 <= stopped_at < STEPS, stopped_at
        return finish(start(program, folder, 0))


def check_cause(program):
    """torchrun names the process that failed, not one of those that noticed it."""
    with tempfile.TemporaryDirectory() as folder:
        agent = start(program, folder, 0)
        while newest_step(folder) == 0:
            assert agent.poll() is None, agent.communicate()[0]
            time.sleep(0.01)
        os.kill(ranks_of(agent)[0], signal.SIGKILL)
        output, _ = agent.communicate(timeout=120)
        cause = output[output.index("Root Cause"):]
        assert re.search(r"rank\s*: 0 ", cause) and "SIGKILL" in cause, output


def main():
    program, kills = sys.argv[1], int(os.environ.get("ETUDE_KILLS", "200")) // 20
    random_numbers = random.Random(16)
    with tempfile.TemporaryDirectory() as folder:
        unbroken = finish(start(program, folder, 0))
    if shutil.which("mpirun"):
        assert run_by_mpirun(program) == unbroken
    assert check_stop_by_signal(program) == unbroken
    check_cause(program)
    done = runs = 0
    while done < kills:
        result, more = run_with_kills(program, min(5, kills - done), random_numbers)
        assert result == unbroken, (result, unbroken)
        done, runs = done + more, runs + 1
    print(f"{done} kills in {runs} runs: {unbroken}")


if __name__ == "__main__":
    main()
