#!/usr/bin/env python3
"""Checks that includes go down: a file includes its own room and the layers below, and no two rooms include each other."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREES = [ROOT / "include" / "etude", ROOT / "src"]

# The lowest first. Rooms of one layer don't include each other. A name with ".hpp" is a header at the root.
LAYERS = [
    ["version.hpp", "base"],
    ["reflect", "libtorch"],
    ["io"],
    ["report"],
    ["study"],
    ["callback.hpp"],
    ["dispatch"],
    ["optimizer_names.hpp"],
    ["run.hpp", "trainer_control.hpp", "trainer_state.hpp", "training_arguments.hpp"],
    ["data"],
    ["formats"],
    ["model"],
    ["optim", "metrics"],
    ["precision"],
    ["parallel"],
    ["events.hpp"],
    ["trainer_options.hpp"],
    ["any_trainer.hpp"],
    ["checkpoint"],
    ["loop"],
    ["callbacks", "tune"],
    ["trainer.hpp"],
    ["testing", "integrations"],
    ["etude.hpp", "c"],
]
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
# A callback sees events, and what stands below them; a tracker, callbacks too.
NEVER = {"callbacks": {"loop"}, "integrations": {"loop", "trainer.hpp"}}


def room_of(path):
    """The room of a path below a tree, or the header at the root that it is or defines."""
    return path.parts[0] if len(path.parts) > 1 else path.with_suffix(".hpp").name


def faults():
    for tree, path in sorted((tree, path) for tree in TREES for path in tree.rglob("*.?pp")):
        file = path.relative_to(ROOT)
        room = room_of(path.relative_to(tree))
        if room not in LAYER:
            yield f"{file}: tests/layers.py knows no layer of '{room}'"
            continue
        for line, text in enumerate(path.read_text().splitlines(), 1):
            if not (match := re.match(r'\s*#\s*include\s+["<]etude/([^">]+)', text)):
                continue
            other = room_of(pathlib.Path(match[1]))
            if other == room:
                continue
            if LAYER.get(other, len(LAYERS)) >= LAYER[room]:
                yield f"{file}:{line}: includes {match[1]}, which is not below {room}"
            elif other in NEVER.get(room, ()):
                yield f"{file}:{line}: includes {match[1]}; {room} must not see {other}"


found = list(faults())
print("\n".join(found))
sys.exit(bool(found))
