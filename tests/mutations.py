"""Breaks one central line at a time, in a copy of the headers, and checks that a test notices.

Usage: python3 tests/mutations.py TORCH_FOLDER [--jobs N] [--only REGEX], where TORCH_FOLDER is LibTorch's (of pip: site-packages/torch).
A mutant is a line of MUTANTS: a header, a part of a line that it has exactly once, its replacement, and the test file that should fail.
Each test file is compiled with the headers alone: first with none broken, when it must pass, and then for each of its mutants. It takes
about a minute a mutant and core, less with Clang: CXX names the compiler.
"""

import argparse
import os
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
    ("dispatch/filters.hpp", "return n > *after &&", "return n >= *after &&", "dispatch/filters"),
    ("dispatch/filters.hpp", "if (n >= before) return false;", "if (n > before) return false;", "dispatch/filters"),
    # Text: numbers, names, limits.
    ("reflect/interval.hpp", "number > 0 && number < 1 ?", "number > 0 && number <= 1 ?", "reflect/interval"),
    # Files: nothing half-written has its final name, no size is believed.
    ("io/folder.hpp", "files_.rename(partial_, target_);", "files_.rename(target_, partial_);", "io/folder"),
    ("formats/safetensors_header.hpp", "offsets_[1] > data_size_", "offsets_[0] > data_size_", "formats/safetensors_header"),
    # Data: each example once an epoch.
    ("data/shuffle.hpp", "while (number >= size_);", "while (number > size_);", "data/shuffle"),
    # Optimizers, clipping, schedules.
    ("optim/impl/adam.ipp", "square = square * beta2 + gradient * gradient * (1 - beta2);", "square = square * beta2 + gradient * gradient;", "optim/adam"),
    ("optim/impl/adam.ipp", "values.mul_(1 - group.lr * group.weight_decay);", "values.mul_(1 - group.weight_decay);", "optim/adam"),
    ("optim/impl/clipping.ipp", "const double factor = max_norm / (value + 1e-6);", "const double factor = value / (max_norm + 1e-6);", "optim/flat_parameters"),
    ("optim/impl/schedules.ipp", "step < warmup ?", "step <= warmup + 1 ?", "optim/schedules"),
    ("precision/impl/grad_scaler.ipp", "++growth_tracker_ >= options_.growth_interval", "++growth_tracker_ > options_.growth_interval", "precision/grad_scaler"),
    ("precision/impl/grad_scaler.ipp", "if (!unscale(optimizer)) return false;", "unscale(optimizer);", "precision/grad_scaler"),
    # The loop: what is due, how much, how often.
    ("callbacks/default_flow.hpp", "if (step >= e.state.max_steps) {", "if (step > e.state.max_steps) {", "callbacks/default_flow"),
    ("callbacks/default_flow.hpp", "e.state.global_step % steps == 0;", "e.state.global_step % steps == 1;", "callbacks/default_flow"),
    ("callbacks/impl/early_stopping.ipp", "(greater ? value - *bar : *bar - value) > by;", "(greater ? *bar - value : value - *bar) > by;", "callbacks/early_stopping"),
    ("loop/impl/log_window.ipp", "const double mean = sums.loss / updates;", "const double mean = sums.loss;", "loop/log_window"),
    ("loop/requests.hpp", "else if (keep)", "else if (!keep)", "loop/checkpoints"),
    # Checkpoints: the newest is resumed, the best is never removed.
    ("checkpoint/impl/store.ipp", "std::ranges::stable_sort(found, std::ranges::greater(),", "std::ranges::stable_sort(found, std::ranges::less(),", "checkpoint/store"),
    ("checkpoint/impl/store.ipp", "const bool too_many = limit && left > *limit;", "const bool too_many = limit && left >= *limit;", "checkpoint/store"),
    ("checkpoint/impl/store.ipp", "|| (best && entry.path.filename() == best->filename());", ";", "checkpoint/store"),
]


def run(torch, include, test, folder):
    """The exit status and output of a test file, compiled with these headers; None if it doesn't compile."""
    program = folder / "test"
    torch_flags = [f"-isystem{torch}/include", f"-isystem{torch}/include/torch/csrc/api/include", f"-isystem{ROOT}/cmake/gloo"]
    libraries = [f"-L{torch}/lib", f"-Wl,-rpath,{torch}/lib", "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10"]
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O0", "-w", "-pthread", "-DFMT_HEADER_ONLY=1", f"-I{include}", f"-I{ROOT}/tests", *torch_flags]
    command += ["-include", "torch/torch.h"]  # as in the build: it defines a CHECK of its own, which doctest replaces
    command += [f"{ROOT}/tests/{test}.cpp", f"{ROOT}/tests/main.cpp", "-o", str(program), *libraries, "-ldl"]
    compiled = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if compiled.returncode != 0:
        return None, compiled.stderr
    try:
        ran = subprocess.run([program, "--minimal"], capture_output=True, text=True, cwd=folder, timeout=300, env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"})
    except subprocess.TimeoutExpired:
        return 1, "it ran for five minutes"
    return ran.returncode, ran.stdout + ran.stderr


def outcome(torch, mutant):
    header, old, new, test = mutant
    with tempfile.TemporaryDirectory() as folder:
        include = Path(shutil.copytree(ROOT / "include", Path(folder) / "include"))
        if header:
            file = include / "etude" / header
            text = file.read_text()
            if text.count(old) != 1:
                return f"{header}: '{old}' should be there once, and is there {text.count(old)} times"
            file.write_text(text.replace(old, new))
        status, output = run(torch, include, test, Path(folder))
    if status is None:
        return f"{test} doesn't compile: {output[-2000:]}"
    if header and status == 0:
        return f"no test in {test} fails with '{new}' in {header}"
    if not header and status != 0:
        return f"{test} should pass with no line broken: {output[-2000:]}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="the mutants whose header or test matches")
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if re.search(options.only, m[0]) or re.search(options.only, m[3])]
    whole = [("", "", "", test) for test in sorted({m[3] for m in chosen})]
    failures = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, fault in zip(whole + chosen, pool.map(lambda m: outcome(options.torch.resolve(), m), whole + chosen)):
            failures += bool(fault)
            print(fault or (f"caught: {mutant[0]}: {mutant[2]}" if mutant[0] else f"passes: {mutant[3]}"), flush=True)
    print(f"{len(chosen)} mutants, {failures} faults")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
