#!/usr/bin/env python3
"""Checks that each event, callback, argument, optimizer and function of etude.h is in all places that CONTRIBUTING.md names, and says which
place lacks it."""

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import callback_table
import optimizer_table
from headers import ALL, HEADERS, declared


@functools.cache
def words(pattern, *but):
    """All names in the files that match, but those in `but`."""
    return {word for path in ROOT.glob(pattern) if path not in but for word in re.findall(r"\w+", path.read_text())}


@functools.cache
def under_laws():
    """The callbacks that a test checks for the laws of callbacks."""
    return {name for path in ROOT.glob("tests/**/*.cpp") for name in re.findall(r"\b(?:broken|check)<(?:\w+::)*(\w+)", path.read_text())}


def events():
    file = HEADERS / "events.hpp"
    header = file.read_text()
    raised = set(re.search(r"using Vocabulary =\s*events<(.*?)>;", header, re.S)[1].replace(",", " ").split())
    for name in re.findall(r"^struct (\w+) : Context \{", header, re.M):
        if name not in raised:
            yield f"{name} is new: add it to `Vocabulary` in include/etude/events.hpp"
        elif name not in words("src/**/*.?pp") | words("include/etude/**/*.hpp", file):
            yield f"{name} is new: raise it in src/loop"
        elif name not in words("tests/**/*.?pp"):
            yield f"{name} is new: add its test to tests/events.cpp"


def callbacks():
    bases = {base for _, _, names_of_bases, _, _ in ALL.values() for base in names_of_bases}
    umbrella = (HEADERS / "etude.hpp").read_text()
    for name, (*_, path) in sorted(ALL.items()):
        header = path.relative_to(HEADERS)
        if name in bases or header.parts[0] == "dispatch" or not callback_table.is_callback(name):
            continue
        needs_a_library = '#error "etude/' in path.read_text()
        if header.parts[0] != "integrations" and not needs_a_library and f'"etude/{header}"' not in umbrella:
            yield f"{name} is new: include etude/{header} in include/etude/etude.hpp"
        test = ROOT / "tests" / header.with_suffix(".cpp")
        if not test.exists() and name not in words(f"tests/{header.parent}/*.cpp"):
            yield f"{name} is new: write its test, {test.relative_to(ROOT)}"
        if name not in under_laws():
            yield f"{name} is new: add a line with it to tests/testing/laws_*.cpp"


# These need only sizes, devices or gradients of the parameters.
READ_NO_PARAMETERS = {
    "ClippedGradientNormMonitor",
    "DeviceMemoryMonitor",
    "EvaluationSamplesCallback",
    "GradientNormMonitor",
    "MemoryMetricsCallback",
    "ModelSummaryCallback",
    "MoveModulesToDeviceCallback",
    "ProfilerCallback",
    "ReportCallback",
}


def parameters():
    for name, (_, _, _, body, path) in sorted(ALL.items()):
        if name in READ_NO_PARAMETERS or "reads_parameters()" in body or not callback_table.is_callback(name):
            continue
        source = ROOT / "src" / path.relative_to(HEADERS).with_suffix("")
        code = "".join(each.read_text() for each in [path, source.with_suffix(".cpp"), *source.glob("*.cpp")] if each.exists())
        if re.search(r"\b(named_parameters|parameters|state_dict)\(\)|\bAveragedWeights\b", code):
            yield f"{name} uses the model's parameters: add reads_parameters(), or its name to READ_NO_PARAMETERS in tests/complete.py"


def arguments():
    for name, _, _ in declared(ALL["TrainingArguments"][3])[0]:
        if name not in words("tests/**/*.?pp") | words("tests/**/*.py"):
            yield f"{name} is new: test the code that obeys it, in the folder of tests/ with that code's name"


def optimizers():
    for name, kind, *_ in optimizer_table.rows():
        test = ROOT / "tests" / optimizer_table.header_of(kind)[0].relative_to(HEADERS).with_suffix(".cpp")
        if not test.exists() and kind not in words("tests/**/*.cpp"):
            yield f"{name} is new: write its test, {test.relative_to(ROOT)}"
        if name not in optimizer_table.ABOUT:
            yield f"{name} is new: say in docs/optimizer_table.py what its state takes and when to use it"


def c_functions():
    header = (ROOT / "include" / "etude.h").read_text()
    bound = words("src/fortran/etude_c.f90")
    for name in re.findall(r"^[a-z].*?\b(etude_\w+)\(", header, re.M):
        if name not in bound:
            yield f"{name} is new: bind it in src/fortran/etude_c.f90, and add a procedure to src/fortran/etude.f90"


found = [*events(), *callbacks(), *parameters(), *arguments(), *optimizers(), *c_functions()]
print("\n".join(found))
sys.exit(bool(found))
