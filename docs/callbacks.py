#!/usr/bin/env python3
"""Writes docs/callbacks.md, the catalogue of callbacks, out of their headers; with --check, says whether it is as
they are now, and whether the pages name only what there is."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include" / "etude"
PAGE = ROOT / "docs" / "callbacks.md"

BEGINNING = """# Callbacks

All of Etude's callbacks, out of their headers (`docs/callbacks.py` writes this page). `#include <etude/etude.hpp>` has them all.
Options are members, by name: `etude::EarlyStoppingCallback{.early_stopping_patience = 3}`. Those in the first table of each are saved
with checkpoints and come back with them. An event in bold is one that the callback may change.

"""


def balanced(text, start):
    """The text between the parenthesis at `start` and the one that closes it."""
    depth, quoted, i = 0, False, start
    while True:
        c = text[i]
        if quoted:
            i += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : i]
        i += 1


def parts(text):
    """The arguments of a macro: split at commas outside brackets and quotes."""
    result, depth, quoted, part = [], 0, False, ""
    for i, c in enumerate(text):
        if c == '"' and text[i - 1] != "\\":
            quoted = not quoted
        if not quoted:
            depth += c in "([{<"
            depth -= c in ")]}" or (c == ">" and text[i - 1] != "-")
            if c == "," and depth == 0:
                result.append(part.strip())
                part = ""
                continue
        part += c
    return result + [part.strip()]


def body_of(text, start):
    return balanced(text, text.index("{", start))


def plain(words):
    """A docstring or the help of a field as one line."""
    return " ".join(words.split())


def literal(text):
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)).replace('\\"', '"')


def cell(text):
    return text.replace("|", "\\|")


def fields(body):
    """(name, default, help) of what ETUDE_STRUCT declares, and of members that stand before the handlers."""
    reflected, others = [], []
    at = body.find("ETUDE_STRUCT(")
    if at >= 0:
        for entry in parts(balanced(body, body.index("(", at)))[1:]:
            entry = parts(entry[1:-1])
            reflected.append((entry[1], entry[3] if len(entry) > 3 else "", literal(entry[2])))
    public = body.split("void on(")[0]
    for member in re.finditer(r"^  [\w:<>, ()&*]+?\s(\w+)(?:\s*=\s*([^;\n]+)|\{\})?;\s*///< (.*(?:\n\s+///<.*)*)", public, re.M):
        others.append((member[1], (member[2] or "").strip(), plain(member[3].replace("///<", ""))))
    return reflected, others


def callbacks(path):
    text = path.read_text()
    pattern = r"((?:^///.*\n)+)((?:template <.*>\n(?:  requires.*\n)*)?)^(?:struct|class) (\w+)([^;{]*)\{"
    for match in re.finditer(pattern, text, re.M):
        body = body_of(text, match.end(3))
        events = re.findall(r"\bvoid on\((const )?([\w:]+)&", body)
        is_a_part = re.search("allbacks? that (have|has) one", plain(match[1].replace("///", "")))
        if not events or is_a_part or match[3].endswith("Base"):
            continue
        doc = "\n".join(line[3:].strip() for line in match[1].splitlines())
        name = match[3]
        if match[2]:
            parameters = parts(re.search("<(.*)>", match[2])[1])
            name += "<" + ", ".join(p.split("=")[0].split()[-1] + "..." * ("..." in p) for p in parameters) + ">"
        yield name, doc, fields(body), [(event, not const) for const, event in events], path, match[4].strip(" :")


def entry(name, doc, options, events, path, bases):
    text = f"## {name}\n\n`etude/{path.relative_to(HEADERS)}`"
    if bases := re.findall(r"public (\w+)|^(\w+)", bases):
        names = [a or b for a, b in bases]
        text += f", a `{names[0]}`" if names[0] not in ("final", "passive") else ""
    text += "\n\n" + doc.strip() + "\n\n"
    heard = ", ".join(f"**`{event}`**" if writes else f"`{event}`" for event, writes in dict(events).items())
    text += f"Events: {heard}\n\n"
    for rows, kind in zip(options, ("Saved", "Given")):
        if rows:
            text += f"| {kind} | Default | Meaning |\n|---|---|---|\n"
            for field, default, meaning in rows:
                text += f"| `{field}` | {'`' + cell(default) + '`' if default else ''} | {cell(meaning)} |\n"
            text += "\n"
    return text


def page():
    found = {}
    for path in sorted(HEADERS.rglob("*.hpp")):
        folder = path.relative_to(HEADERS).parts[0]
        if path.name.endswith("-inl.hpp") or folder in ("loop", "testing") or path.name in ("filters.hpp", "callback.hpp"):
            continue
        for callback in callbacks(path):
            found[callback[0]] = callback
    bases = " ".join(callback[-1] for callback in found.values())
    found = {name: entry(*callback) for name, callback in found.items() if not re.search(rf"\b{name}\b", bases)}
    return BEGINNING + "\n".join(found[name] for name in sorted(found, key=str.lower)).rstrip() + "\n", len(found)


def unknown_names():
    """What the pages call etude::NAME, and no header has."""
    words = set()
    for path in HEADERS.rglob("*.hpp"):
        words.update(re.findall(r"\w+", path.read_text()))
    pages = [ROOT / "README.md", ROOT / "docs" / "porting.md"]
    named = {name for path in pages for name in re.findall(r"etude::(?:metrics::)?(\w+)", path.read_text())}
    return sorted(named - words - {"compiled", "pch", "etude"})


def main():
    text, count = page()
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit("docs/callbacks.md is not as the headers are: run docs/callbacks.py")
        if unknown := unknown_names():
            sys.exit("no header has " + ", ".join(unknown))
        return
    PAGE.write_text(text)
    print(f"{count} callbacks")


if __name__ == "__main__":
    main()
