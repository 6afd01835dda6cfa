#!/usr/bin/env python3
"""Checks that includes go down: a header includes its own room and the layers below, and no two rooms include each other."""

import pathlib
import re
import sys

HEADERS = pathlib.Path(__file__).resolve().parent.parent / "include" / "etude"

# The lowest first. Rooms of one layer don't include each other. A name with ".hpp" is a header at the root.
LAYERS = [
    ["version.hpp", "base"],
    ["reflect", "libtorch"],
    ["io"],
    ["report"],
    ["study"],
    ["callback.hpp"],
    ["dispatch"],
    ["trainer_control.hpp", "trainer_state.hpp", "training_arguments.hpp"],
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
    ["etude.hpp"],
]
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
# A callback sees events, and what stands below them; a tracker, callbacks too.
NEVER = {"callbacks": {"loop"}, "integrations": {"loop", "trainer.hpp"}}


def room_of(header):
    """The room of a path below include/etude, or the header at the root that it is or defines."""
    parts = header.parts
    if parts[0] == "impl":
        return header.with_suffix(".hpp").name
    return parts[0]


def faults():
    for path in sorted(p for p in HEADERS.rglob("*.?pp")):
        header = path.relative_to(HEADERS)
        room = room_of(header)
        if room not in LAYER:
            yield f"{header}: tests/layers.py knows no layer of '{room}'"
            continue
        for line, text in enumerate(path.read_text().splitlines(), 1):
            if not (match := re.match(r'\s*#\s*include\s+["<]etude/([^">]+)', text)):
                continue
            other = room_of(pathlib.Path(match[1]))
            if other == room:
                continue
            if LAYER.get(other, len(LAYERS)) >= LAYER[room]:
                yield f"{header}:{line}: includes {match[1]}, which is not below {room}"
            elif other in NEVER.get(room, ()):
                yield f"{header}:{line}: includes {match[1]}; {room} must not see {other}"


found = list(faults())
print("\n".join(found))
sys.exit(bool(found))
