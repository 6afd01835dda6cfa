"""Reads what Etude's headers declare: structs, the fields of ETUDE_STRUCT, enums, docstrings. tables.py makes pages from it."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include" / "etude"


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
    """(name, default, help) of the public members that have a docstring, above or after them."""
    public = re.split(r"^ (?:private|protected):", body, maxsplit=1, flags=re.M)[0]
    above, default = r"((?:^  ///.*\n)*)", r"(?:\s*=\s*([^;\n]+)|\{\})?"
    behind = r"[ ]*(///< .*(?:\n {20,}///<.*)*)?"
    pattern = above + r"^  (?! |//|static|using|friend|explicit)(.+?)\s(\w+)" + default + ";" + behind
    for above, type_name, name, default, behind in re.findall(pattern, public, re.M):
        is_function = "(" in re.sub(r"<.*>", "", type_name)
        words = plain(re.sub("///<?", "", above + behind))
        if not is_function and not type_name.startswith("detail::") and words:
            yield name, default.strip(), words[0].lower() + words[1:].rstrip(".")


def fields(body):
    """(type, name, default, docstring) of a plain struct's members, with or without a docstring."""
    above, behind = r"((?:^  ///.*\n)*)", r"[ ]*(///< .*(?:\n {6,}///<.*)*)?"
    pattern = above + r"^  (?! |//|using|void|friend)([^(\n=;]+?[ &*])(\w+)(?:\s*=\s*([^;\n]+))?;" + behind
    for doc, kind, name, default, after in re.findall(pattern, body, re.M):
        yield kind.strip(), name, default.strip(), plain(re.sub("///<?", "", doc + after))


def changes(code, name):
    """Whether a callback's code changes its member."""
    field = rf"(?<![\w.>])(?<![\w>&*] ){name}"
    assigned = rf"{field}(\[[^\]]*\])?(\.\w+)?\s*(=[^=]|[-+*/|]=|\+\+|--)|(\+\+|--){name}\b|= {name} = "
    called = rf"{field}\.(push|pop|emplace|insert|erase|assign|clear|reset|open|begin(?!\(\)))\w*\("
    return re.search(f"{assigned}|{called}", code) is not None


def code_of(path):
    """A header and its definitions, without declarations of members."""
    source = ROOT / "src" / path.relative_to(HEADERS).with_suffix(".cpp")
    code = path.read_text() + (source.read_text() if source.exists() else "")
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
    """A struct and its bases, the most distant base first."""
    return [each for base in ALL[name][2] if base in ALL for each in with_bases(base)] + [name]


def events_of(name):
    heard = {}
    for each in with_bases(name):
        for const, event in re.findall(r"\bvoid on\((const )?([\w:]+)&", ALL[each][3]):
            heard[event] = not const
    return heard
