"""docs/callbacks.md: every callback that comes with Etude, from the headers."""

import re

from headers import ALL, HEADERS, balanced, body_of, cell, changes, code_of, constructors, declared, events_of, members, parts, plain, with_bases

BEGINNING = """# Callbacks

Every callback that comes with Etude, with its events, options and state. To use one, name it in the trainer's list; [Writing
callbacks](writing-callbacks.md) shows how to make your own. This page is generated from the headers by `docs/tables.py`.

`#include <etude/etude.hpp>` includes them all, except the trackers of `etude/integrations/`, each of which has its own include
([Trackers](trackers.md)), and SamplesToFolderCallback. Options are members, by name:
`etude::EarlyStoppingCallback{.early_stopping_patience = 3}`. State is changed by the callback itself, and restored from a checkpoint.
Options are saved with it, but if the resumed program sets another value, that value counts and the difference is reported. Members
under "Given" and constructor arguments aren't saved. The callback may change events in bold.

"""


def is_callback(name):
    doc, _, _, _, path = ALL[name]
    header = path.relative_to(HEADERS)
    if header.parts[0] in ("loop", "testing", "callback.hpp") or header.as_posix() == "dispatch/filters.hpp" or name.endswith("Base"):
        return False
    is_a_part = re.search("allbacks? that (have|has) one|a member of a callback", plain(doc.replace("///", "")))
    return doc and not is_a_part and bool(events_of(name))


def table(heading, rows):
    text = f"| {heading} | Default | Meaning |\n|---|---|---|\n"
    for name, default, meaning in rows:
        text += f"| `{name}` | {'`' + cell(default) + '`' if default else ''} | {cell(meaning)} |\n"
    return text + "\n"


def options_and_state(name):
    """The options that users choose, the members that they give, and the state that the callback changes: the fields of its member `state`."""
    body = ALL[name][3]
    kept = re.search(r"^  using State = (?:detail::)?(\w+);", body, re.M)
    own = re.search(r"^  struct State \{", body, re.M)
    state_body = body_of(body, own.start()) if own else ALL[kept[1]][3] if kept else ""
    state = declared(state_body)[0]
    fields = declared(body.replace(state_body, "") if state_body else body)[0]
    code = code_of(ALL[name][4])
    given = [member for member in members(body) if not changes(code, member[0])]
    return fields, given, state


def entry(name):
    doc, template, _, body, path = ALL[name]
    title = name
    if template:
        parameters = parts(re.search("<(.*)>", template)[1])
        title += "<" + ", ".join(p.split("=")[0].split()[-1] + "..." * ("..." in p) for p in parameters) + ">"
    text = f"## {title}\n\n`etude/{path.relative_to(HEADERS)}`\n\n"
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
    return BEGINNING + "\n".join(found[name] for name in sorted(found, key=str.lower)).rstrip() + "\n"
