"""Cuts the link between two processes of examples/several_processes, each in a separate network namespace, during training: both end
with an error that names the other, and after a restart they reach the weights of an unbroken run.

usage: namespaces.py PROGRAM, as root
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

EPOCHS, STEPS, TIMEOUT = 100, 2300, 10


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=check)


class Machines:
    """Two network namespaces, joined by a cable."""

    def __init__(self):
        self.names = [f"etude-{os.getpid()}-{rank}" for rank in range(2)]
        self.links = [f"et{os.getpid() % 10**6}-{rank}" for rank in range(2)]

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            ip("link", "add", self.links[0], "type", "veth", "peer", "name", self.links[1])
            for rank, (name, link) in enumerate(zip(self.names, self.links)):
                ip("link", "set", link, "netns", name)
                ip("-n", name, "address", "add", f"10.213.7.{rank + 1}/30", "dev", link)
                ip("-n", name, "link", "set", "lo", "up")
            self.connect(True)
            self.check()
        except (OSError, subprocess.SubprocessError) as error:
            self.__exit__()
            print(f"network namespaces can't be made here: {error}")
            sys.exit(77)
        return self

    def __exit__(self, *_):
        for name in self.names:
            ip("netns", "delete", name, check=False)

    def check(self):
        """Where a sandbox lets no packets through, there is nothing to test."""
        listen = "import socket; s = socket.create_server(('10.213.7.1', 29501)); s.settimeout(20); print(flush=True); s.accept()"
        server = subprocess.Popen(["ip", "netns", "exec", self.names[0], sys.executable, "-c", listen], stdout=subprocess.PIPE)
        server.stdout.readline()
        call = "import socket; socket.create_connection(('10.213.7.1', 29501), 10)"
        subprocess.run(["ip", "netns", "exec", self.names[1], sys.executable, "-c", call], check=True, timeout=30, capture_output=True)
        assert server.wait(timeout=30) == 0

    def connect(self, up):
        for name, link in zip(self.names, self.links):
            ip("-n", name, "link", "set", link, "up" if up else "down")

    def start(self, rank, program, folder):
        """Starts a process as torchrun does on a machine with one process."""
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                       "MASTER_ADDR": "10.213.7.1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": self.links[rank], "OMP_NUM_THREADS": "1"}
        command = ["ip", "netns", "exec", self.names[rank], program, "--output_dir", folder, "--disable_tqdm", "true", "--num_train_epochs",
                   str(EPOCHS), "--ddp_timeout", str(TIMEOUT)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    def run(self, program, folder):
        processes = [self.start(rank, program, folder) for rank in range(2)]
        outputs = [process.communicate(timeout=240)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
        return re.findall(r"^\d+ steps, accuracy .*$", outputs[0], re.MULTILINE)


def newest_step(folder):
    return max((int(name.split("-")[1]) for name in os.listdir(folder) if re.fullmatch(r"checkpoint-\d+", name)), default=0)


def main():
    program = sys.argv[1]
    if os.geteuid() != 0 or shutil.which("ip") is None:
        sys.exit(77)
    with Machines() as machines, tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as folder:
        unbroken = machines.run(program, whole)
        assert len(unbroken) == 1

        processes = [machines.start(rank, program, folder) for rank in range(2)]
        while newest_step(folder) == 0:
            assert all(process.poll() is None for process in processes), [process.communicate()[0] for process in processes]
            time.sleep(0.01)
        machines.connect(False)
        cut = time.monotonic()
        outputs = [process.communicate(timeout=120)[0] for process in processes]
        took = time.monotonic() - cut
        assert newest_step(folder) < STEPS, "the link was cut too late"
        for rank, (process, output) in enumerate(zip(processes, outputs)):
            assert process.returncode == 1, (rank, process.returncode, output)
            last = output.strip().splitlines()[-1]
            assert re.search(rf"rank {rank} of 2: .*rank {1 - rank}\b", last), (rank, output)
        machines.connect(True)
        assert machines.run(program, folder) == unbroken
    print(f"both ended {took:.1f} s after the cut, with a time-out of {TIMEOUT} s: {unbroken[0]}")


if __name__ == "__main__":
    main()
