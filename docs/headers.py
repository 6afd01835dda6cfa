#!/usr/bin/env python3
"""Writes docs/callbacks.md, the catalogue of callbacks, from their headers. With --check, reports whether it is up to
date, whether the pages name only things that exist, and whether their links work."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include" / "etude"
PAGE = ROOT / "docs" / "callbacks.md"

BEGINNING = """# Callbacks

All of Etude's callbacks, generated from their headers by `docs/callbacks.py`. `#include <etude/etude.hpp>` includes them all,
except the trackers of `etude/integrations/`, each of which has its own include ([trackers.md](trackers.md)), and SamplesToFolderCallback.
Options are members, by name: `etude::EarlyStoppingCallback{.early_stopping_patience = 3}`. State is changed by the callback itself, and
restored from a checkpoint. Options are saved with it, but the resumed program's win: a difference is reported. Members under
"Given" and constructor arguments aren't saved. The callback may change events in bold.

"""


def balanced(text, start):
    """The text between the parenthesis at `start` and the one that closes it."""
    depth, quoted, i = 0, False, start
    while True:
        c = text[i]
        if quoted:
            i += c == "\\"
            quoted = c != '"'
        elif text.startswith("'\"'", i):
            i += 2
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


def help_of(text):
    """The description of a field, with its allowed values: `"steps" | at_least(1)` is "steps (at least 1)"."""
    limits = re.findall(r"\b(at_least|above|at_most|below|between|or_just)\(([^()]*)\)", text.rpartition('"')[2])
    words = {"between": "from {0} to {1}", "or_just": "or {0}"}
    limits = [words.get(name, name.replace("_", " ") + " {0}").format(*map(plain, values.split(","))) for name, values in limits]
    limits = " and ".join(limits).replace(" and or ", ", or ").replace("INFINITY", "infinity")
    return literal(text) + (f" ({limits})" if limits else "")


def cell(text):
    return text.replace("|", "\\|")


def declared(body):
    """(name, default, help) of the fields that ETUDE_STRUCT declares, and their types."""
    at = body.find("ETUDE_STRUCT(")
    if at < 0:
        return [], []
    entries = [parts(entry[1:-1]) for entry in parts(balanced(body, body.index("(", at)))[1:]]
    return [(entry[1], ", ".join(entry[3:]), help_of(entry[2])) for entry in entries], [entry[0] for entry in entries]


def members(body):
    """(name, default, help) of the public members that have a docstring, above or behind them."""
    public = re.split(r"^ (?:private|protected):", body, maxsplit=1, flags=re.M)[0]
    above, default = r"((?:^  ///.*\n)*)", r"(?:\s*=\s*([^;\n]+)|\{\})?"
    behind = r"[ ]*(///< .*(?:\n {20,}///<.*)*)?"
    pattern = above + r"^  (?! |//|static|using|friend|explicit)(.+?)\s(\w+)" + default + ";" + behind
    for above, type_name, name, default, behind in re.findall(pattern, public, re.M):
        is_function = "(" in re.sub(r"<.*>", "", type_name)
        if not is_function and not type_name.startswith("detail::") and (words := plain(re.sub("///<?", "", above + behind))):
            yield name, default.strip(), words[0].lower() + words[1:].rstrip(".")


def changes(code, name):
    """Whether a callback's code changes its member."""
    field = rf"(?<![\w.>])(?<![\w>&*] ){name}"
    assigned = rf"{field}(\[[^\]]*\])?(\.\w+)?\s*(=[^=]|[-+*/|]=|\+\+|--)|(\+\+|--){name}\b|= {name} = "
    called = rf"{field}\.(push|pop|emplace|insert|erase|assign|clear|reset|open|begin(?!\(\)))\w*\("
    return re.search(f"{assigned}|{called}", code) is not None


def included(path):
    """The header that a user includes: comet.hpp for comet/comet_callback.hpp."""
    return path.parent.with_suffix(".hpp") if path.stem == path.parent.name + "_callback" else path


def code_of(path):
    """A header and its definitions, without declarations of members."""
    stem = included(path).with_suffix("")
    inline = stem.parent / "impl" / (stem.name + ".ipp")
    code = path.read_text() + (inline.read_text() if inline.exists() else "")
    for match in reversed(list(re.finditer(r"ETUDE_STRUCT\(", code))):
        code = code[: match.end()] + code[match.end() + len(balanced(code, match.end() - 1)) :]
    return code


def constructors(name, body):
    """(call, help) of the constructors that have parameters or a docstring."""
    pattern = r"((?:^  ///.*\n)*)(?:^  template <.*>\n(?:^    requires[^;{]*?\n)?)?^  (?:explicit )?" + name + r"\("
    for match in re.finditer(pattern, body, re.M):
        taken = plain(balanced(body, match.end() - 1))
        words = plain(match[1].replace("///", ""))
        if taken or words:
            yield taken, words


PATTERN = r"((?:^///.*\n)+|^)((?:template <.*>\n(?:  requires.*\n)*)?)^(?:struct|class) (\w+)([^;{]*)\{"


def structs():
    """Every struct and class of the headers, by name: docstring, template, bases, body and header."""
    found = {}
    for path in sorted(HEADERS.rglob("*.hpp")):
        text = path.read_text()
        for match in re.finditer(PATTERN, text, re.M):
            bases = re.findall(r"(?:public |^|: )(\w+)", re.sub(r"<.*>", "", match[4].replace(" final", "")))
            found.setdefault(match[3], (match[1], match[2], bases, body_of(text, match.end(3)), path))
    return found


ALL = structs()


def with_bases(name):
    """A struct and those that it derives from, the furthest first."""
    return [each for base in ALL[name][2] if base in ALL for each in with_bases(base)] + [name]


def events_of(name):
    heard = {}
    for each in with_bases(name):
        for const, event in re.findall(r"\bvoid on\((const )?([\w:]+)&", ALL[each][3]):
            heard[event] = not const
    return heard


def is_callback(name):
    doc, _, _, _, path = ALL[name]
    header = path.relative_to(HEADERS)
    if header.parts[0] in ("loop", "testing", "callback.hpp") or header.as_posix() == "dispatch/filters.hpp" or name.endswith("Base"):
        return False
    is_a_part = re.search("allbacks? that (have|has) one", plain(doc.replace("///", "")))
    return doc and not is_a_part and bool(events_of(name))


def table(heading, rows):
    text = f"| {heading} | Default | Meaning |\n|---|---|---|\n"
    for name, default, meaning in rows:
        text += f"| `{name}` | {'`' + cell(default) + '`' if default else ''} | {cell(meaning)} |\n"
    return text + "\n"


def options_and_state(name):
    """The options that users choose, and the state that the callback changes, which is declared after them."""
    code = code_of(ALL[name][4])
    fields, types = declared(ALL[name][3])
    is_state = [(kind in ALL and declared(ALL[kind][3])[0]) or changes(code, field[0]) for field, kind in zip(fields, types)]
    first = ([bool(each) for each in is_state] + [True]).index(True)
    given = [member for member in members(ALL[name][3]) if not changes(code, member[0])]
    return fields[:first], given, fields[first:]


def entry(name):
    doc, template, _, body, path = ALL[name]
    title = name
    if template:
        parameters = parts(re.search("<(.*)>", template)[1])
        title += "<" + ", ".join(p.split("=")[0].split()[-1] + "..." * ("..." in p) for p in parameters) + ">"
    text = f"## {title}\n\n`etude/{included(path).relative_to(HEADERS)}`\n\n"
    text += "\n".join(line[3:].strip() for line in doc.splitlines()).strip() + "\n\n"
    heard = {e: writes for e, writes in events_of(name).items() if e in ALL}
    text += "Events: " + (", ".join(f"**`{e}`**" if writes else f"`{e}`" for e, writes in heard.items()) or "all") + "\n\n"

    family = [each for each in with_bases(name) if each == name or each.endswith("Base")]
    made = [made for each in family for made in constructors(each, ALL[each][3])]
    for taken, words in made:
        text += f"- `{name}({taken})`" + (f": {words}\n" if words else "\n")
    text += "\n" if made else ""
    for taken, _ in made:
        for type_name in re.findall(r"\b(\w+Options)\b", taken):
            body = ALL[type_name][3]
            text += table(f"`{type_name}`", [*declared(body)[0], *members(body)])

    options, given, state = options_and_state(name)
    if options:
        text += table("Option", options)
    if given:
        text += table("Given", given)
    if state:
        text += "State: " + ", ".join(f"`{field}` ({words})" for field, _, words in state) + ".\n\n"
    elif any("load_state(const" in ALL[each][3] for each in family):
        text += "State: what `state()` gives.\n\n"
    return title, text


def page():
    bases = {base for _, _, names, _, _ in ALL.values() for base in names}
    found = dict(entry(name) for name in ALL if name not in bases and is_callback(name))
    return BEGINNING + "\n".join(found[name] for name in sorted(found, key=str.lower)).rstrip() + "\n", len(found)


def unknown_names():
    """Names that the pages use as etude::NAME, args.NAME or {.NAME = ...}, and that no header has."""
    words = set()
    for path in HEADERS.rglob("*.hpp"):
        words.update(re.findall(r"\w+", path.read_text()))
    pages = "".join((ROOT / page).read_text() for page in ("README.md", "docs/porting.md", "docs/checkpoints.md",
                                                          "docs/several-processes.md", "docs/trackers.md"))
    named = set(re.findall(r"(?:etude::(?:metrics::)?|[{ ]\.)(\w+)|\bargs\.(\w+)\(", pages))
    named = {name for pair in named for name in pair if name} - {"header_only", "pch", "etude", "testing"}
    arguments = {field for field, _, _ in declared(ALL["TrainingArguments"][3])[0]}
    return sorted(named - words) + sorted("args." + name for name in set(re.findall(r"\bargs\.(\w+)(?![\w(])", pages)) - arguments)


def missing_handlers():
    """Handlers of other trainers in README's table of events that callback_names.hpp doesn't have for the same event."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \|", (ROOT / "README.md").read_text(), re.M)
    known = set(re.findall(r"X\((on_\w+), (\w+)\)", (HEADERS / "dispatch" / "callback_names.hpp").read_text()))
    return [name for event, *names in rows for name in re.findall(r"`(on_\w+)`", "".join(names)) if (name, event) not in known]


def missing_trackers():
    """Trackers without a row in the table of docs/trackers.md that has their name, callback and option."""
    rows = re.findall(r"^  tracker\((\w+), (\w+), (\w+)\)", (HEADERS / "training_arguments.hpp").read_text(), re.M)
    page = (ROOT / "docs" / "trackers.md").read_text()
    return [row[0] for row in rows if not re.search("`{}` \\| `{}` .*`ETUDE_{}`".format(*row), page)]


def anchors(text):
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall("^#+ (.*)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links():
    """Links of the pages to files and headings that don't exist; links out of docs/, which a site made of docs/ lacks; and
    pages that docs/index.md doesn't link."""
    docs = sorted((ROOT / "docs").glob("*.md"))
    linked = set()
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs]:
        text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            if ":" in path:
                continue
            target = (page.parent / path).resolve() if path else page
            outside = page in docs and target.parent != page.parent
            if outside or not target.exists() or (anchor and anchor not in anchors(target.read_text())):
                yield f"{page.relative_to(ROOT)}: {link}"
            if page.name == "index.md":
                linked.add(target)
    yield from (f"docs/index.md: {page.name}" for page in docs if page.name != "index.md" and page not in linked)


def main():
    text, count = page()
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit("docs/callbacks.md is not as the headers are: run docs/callbacks.py")
        if unknown := unknown_names():
            sys.exit("no header has " + ", ".join(unknown))
        if missing := missing_handlers():
            sys.exit("callback_names.hpp does not have " + ", ".join(missing))
        if missing := missing_trackers():
            sys.exit("the table of docs/trackers.md does not have " + ", ".join(missing))
        if broken := list(broken_links()):
            sys.exit("links that lead nowhere, or are missing: " + ", ".join(broken))
        return
    PAGE.write_text(text)
    print(f"{count} callbacks")


if __name__ == "__main__":
    main()
