"""Breaks one central line at a time, in a copy of the code, and checks that a test notices.

Usage: python3 tests/mutations.py BUILD [--jobs N] [--only REGEX], where BUILD is a build folder of Ninja's, configured with -DETUDE_UNITY=OFF.
A mutant is a line of MUTANTS: a file, a part of a line that it has exactly once, its replacement, and the test file that should fail.
One file is compiled for a mutant: the broken source, or, if a header is broken, the test. Linked before the libraries, it takes the place
of what they have. First, each test has to pass with nothing broken; this builds the libraries that the tests need.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MUTANTS = [
    # Callbacks: filters, and the order in which state is restored.
    ("include/etude/dispatch/filters.hpp", "return n > *after &&", "return n >= *after &&", "dispatch/filters"),
    ("include/etude/dispatch/filters.hpp", "if (n >= before) return false;", "if (n > before) return false;", "dispatch/filters"),
    # Text: numbers, names, limits.
    ("include/etude/reflect/interval.hpp", "number > 0 && number < 1 ?", "number > 0 && number <= 1 ?", "reflect/interval"),
    ("src/reflect/read_text.cpp", "if (size > point) return NumberFault::not_whole;", "if (size >= point) return NumberFault::not_whole;", "reflect/read_text"),
    # Files: nothing half-written has its final name, no size is believed.
    ("src/io/folder.cpp", "files_.rename(partial_, target_);", "files_.rename(target_, partial_);", "io/folder"),
    ("src/formats/safetensors_header.cpp", "offsets_[1] > data_size_", "offsets_[0] > data_size_", "formats/safetensors_header"),
    # Data: each example once an epoch.
    ("src/data/shuffle.cpp", "while (number >= size_);", "while (number > size_);", "data/shuffle"),
    # Optimizers, clipping, schedules.
    ("src/optim/adam.cpp", "square = square * beta2 + gradient * gradient * (1 - beta2);", "square = square * beta2 + gradient * gradient;", "optim/adam"),
    ("src/optim/adam.cpp", "values.mul_(1 - group.lr * group.weight_decay);", "values.mul_(1 - group.weight_decay);", "optim/adam"),
    ("src/optim/clipping.cpp", "const double factor = max_norm / (value + 1e-6);", "const double factor = value / (max_norm + 1e-6);", "optim/flat_parameters"),
    ("src/optim/schedules.cpp", "step < warmup ?", "step <= warmup + 1 ?", "optim/schedules"),
    ("src/precision/grad_scaler.cpp", "++growth_tracker_ >= options_.growth_interval", "++growth_tracker_ > options_.growth_interval", "precision/grad_scaler"),
    ("src/precision/grad_scaler.cpp", "if (!unscale(optimizer)) return false;", "unscale(optimizer);", "precision/grad_scaler"),
    # The loop: what is due, how much, how often.
    ("src/callbacks/default_flow.cpp", "if (step >= e.state.max_steps) {", "if (step > e.state.max_steps) {", "callbacks/default_flow"),
    ("src/callbacks/default_flow.cpp", "e.state.global_step % steps == 0;", "e.state.global_step % steps == 1;", "callbacks/default_flow"),
    ("src/callbacks/early_stopping.cpp", "? value - *bar : *bar - value) > by;", "? *bar - value : value - *bar) > by;", "callbacks/early_stopping"),
    ("src/loop/log_window.cpp", "const double mean = sums.loss / updates;", "const double mean = sums.loss;", "loop/log_window"),
    ("src/loop/requests.cpp", "else if (keep)", "else if (!keep)", "loop/checkpoints"),
    # Checkpoints: the newest is resumed, the best is never removed.
    ("src/checkpoint/store.cpp", "std::ranges::stable_sort(found, std::ranges::greater(),", "std::ranges::stable_sort(found, std::ranges::less(),", "checkpoint/store"),
    ("src/checkpoint/store.cpp", "const bool too_many = limit && left > *limit;", "const bool too_many = limit && left >= *limit;", "checkpoint/store"),
    ("src/checkpoint/store.cpp", "|| (best && entry.path.filename() == best->filename());", ";", "checkpoint/store"),
]


class Build:
    def __init__(self, folder):
        self.folder = folder.resolve()
        entries = json.loads((self.folder / "compile_commands.json").read_text())
        self.commands = {entry["file"]: entry["command"] for entry in entries}

    def call(self, command):
        return subprocess.run(command, shell=True, cwd=self.folder, capture_output=True, text=True, check=True).stdout

    def command(self, file):
        if str(ROOT / file) not in self.commands:
            sys.exit(f"{self.folder} doesn't compile {file} by itself: configure it with -DETUDE_UNITY=OFF, and all tests")
        return self.commands[str(ROOT / file)]

    def object(self, test):
        return re.search(r" -o (\S+)", self.command(f"tests/{test}.cpp"))[1]

    def link_command(self, test, objects, program):
        """The command that links the program of the test's room, with these objects instead of its tests."""
        room = "test_" + test.partition("/")[0]
        command = self.call(f"ninja -t commands -s tests/{room}")
        return re.sub(rf"( tests/CMakeFiles/{room}\.dir/\S+)+ -o \S+", f" {' '.join(objects)} -o {program}", command)

    def make(self, tests, jobs):
        linked = " ".join(self.link_command(test, [self.object(test)], "program") for test in tests)
        subprocess.run(["ninja", f"-j{jobs}", *sorted(set(re.findall(r" ([^/\s]\S*\.[ao])(?=\s)", linked)))], cwd=self.folder, check=True)

    def compile(self, file, copy):
        """The object of a file, compiled with the copy's sources and headers. None of those may be precompiled."""
        command = re.sub(r"(-Xclang )?-include(-pch)? (-Xclang )?\S+/cmake_pch\S+", "-include torch/torch.h", self.command(file))
        for tree in "include", "src":
            command = command.replace(str(ROOT / tree), str(copy / tree))
        self.call(re.sub(r" -o \S+", f" -w -o {copy}/changed.o", command))
        return f"{copy}/changed.o"

    def link(self, test, objects, program):
        self.call(self.link_command(test, objects, program))


def run(program, folder):
    try:
        ran = subprocess.run([program, "--minimal"], capture_output=True, text=True, cwd=folder, timeout=300, env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"})
    except subprocess.TimeoutExpired:
        return 1, "it ran for five minutes"
    return ran.returncode, ran.stdout + ran.stderr


def outcome(build, mutant):
    file, old, new, test = mutant
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        objects = [build.object(test)]
        try:
            if file:
                for tree in "include", "src":
                    shutil.copytree(ROOT / tree, copy / tree)
                text = (copy / file).read_text()
                if text.count(old) != 1:
                    return f"{file}: '{old}' should be there once, and is there {text.count(old)} times"
                (copy / file).write_text(text.replace(old, new))
                if file.endswith(".hpp"):
                    objects = [build.compile(f"tests/{test}.cpp", copy)]
                else:
                    objects.append(build.compile(file, copy))
            build.link(test, objects, copy / "test")
        except subprocess.CalledProcessError as error:
            return f"{test} doesn't compile: {error.stderr[-2000:]}"
        status, output = run(copy / "test", copy)
    if file and status == 0:
        return f"no test in {test} fails with '{new}' in {file}"
    if not file and status != 0:
        return f"{test} should pass with no line broken: {output[-2000:]}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="the mutants whose file or test matches")
    options = parser.parse_args()
    build = Build(options.build)
    chosen = [m for m in MUTANTS if re.search(options.only, m[0]) or re.search(options.only, m[3])]
    whole = [("", "", "", test) for test in sorted({m[3] for m in chosen})]
    build.make([test for _, _, _, test in whole], options.jobs)
    failures = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, fault in zip(whole + chosen, pool.map(lambda m: outcome(build, m), whole + chosen)):
            failures += bool(fault)
            print(fault or (f"caught: {mutant[0]}: {mutant[2]}" if mutant[0] else f"passes: {mutant[3]}"), flush=True)
    print(f"{len(chosen)} mutants, {failures} faults")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
