"""docs/events.md: every event, in the order of etude/events.hpp."""

import re

from headers import HEADERS, balanced, cell, fields, plain

BEGINNING = """# Events

Every moment of a training that a callback can handle: when it comes and what it carries. A callback handles an event with
`void on(const etude::StepEnd& e)`; [Writing callbacks](writing-callbacks.md) has the rest, and the pages under [Coming
from](coming-from.md) say what other libraries call each event. This page is generated from `etude/events.hpp` by `docs/tables.py`.

A handler that takes `Event&` without `const` may change the fields in bold.

An event that begins something has a counterpart that ends it: `TrainEnd`, `PhaseEnd`, `EpochEnd`, `TrainingRunEpochEnd`, `EvaluateEnd` and
`PredictEnd` are raised on every way out, exceptions included, and reach every callback even if one of them throws. `StepEnd` means that
an update was made, so an abandoned step has none.

## In order

"""

COMMON = """## What every event has

"""


def with_links(text, names):
    """Turns a docstring's first mention of each event in `names` into a link."""
    for name in names:
        text = re.sub(rf"(?<!\[)`{name}`(?!\])", f"[`{name}`](#{name.lower()})", text, count=1)
    return text


def is_writable(kind):
    return not kind.startswith("const") and kind[-1] not in "&*"


def structs():
    """(name, docstring, body) of each event in the vocabulary, in the file's order, and of Context."""
    text = (HEADERS / "events.hpp").read_text()
    vocabulary = re.search(r"using Vocabulary =\s*events<(.*?)>;", text, re.S)[1]
    names = {name.strip() for name in vocabulary.split(",")}
    found = []
    for doc, name, start in ((m[1], m[2], m.end(2)) for m in re.finditer(r"((?:^///.*\n)+)^struct (\w+)", text, re.M)):
        found.append((name, plain(doc.replace("///", "")), balanced(text, text.index("{", start))))
    missing = names - {name for name, _, _ in found}
    if missing:
        raise SystemExit("no docstring in events.hpp for " + ", ".join(sorted(missing)))
    return [each for each in found if each[0] in names], next(each for each in found if each[0] == "Context")


def table(rows):
    text = "| Field | Type | Meaning |\n|---|---|---|\n"
    for kind, name, default, doc in rows:
        bold = "**" if is_writable(kind) else ""
        text += f"| {bold}`{name}`{bold} | `{cell(kind.replace('const ', '').rstrip('&* '))}` | {cell(doc)} |\n"
    return text + "\n"


def page():
    events, (_, _, context) = structs()
    names = [name for name, _, _ in events]
    text = BEGINNING + "| Event | When | Carries |\n|---|---|---|\n"
    for name, doc, body in events:
        first = re.match(r"(.+?[.:])(?: |$)", doc)[1].rstrip(":.")
        carried = ", ".join(f"**`{field}`**" if is_writable(kind) else f"`{field}`" for kind, field, _, _ in fields(body))
        text += f"| [`{name}`](#{name.lower()}) | {cell(first)} | {carried} |\n"
    text += "\n" + COMMON + table((kind, name, default, doc) for kind, name, default, doc in fields(context) if name != "pending_logs")
    methods = re.findall(r"^  void (log\w*)\(([^;{]*)\) const", context, re.M)
    text += "Besides, it has these functions:\n\n"
    text += "".join(f"- `{name}({plain(taken)})`\n" for name, taken in methods) + "\n"
    text += (
        "`log` adds to the next log, which reports the mean of the values since the last one; a tensor isn't read before then. The others\n"
        "log [texts, pictures and sounds](trackers.md#texts-pictures-and-sounds) at once.\n\n"
    )
    for name, doc, body in events:
        text += f"## {name}\n\n{with_links(doc, [each for each in names if each != name])}\n\n"
        if rows := list(fields(body)):
            text += table(rows)
    return text.rstrip() + "\n"
