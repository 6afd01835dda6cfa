"""Wraps the prose of a page. Tables, headings, code, HTML, link definitions and lines with a hard break stay as they are."""

import re

WIDTH = 100
# At the beginning of a line, these would be markup.
MARKUP = re.compile(r"([-+*#>=~]+|\|.*|\d+[.)])$")
ITEM = re.compile(r"(\s*(?:[-*+]|\d+[.)])\s+)(.*)")


def filled(prefix, indent, text):
    """The lines of one paragraph or list item."""
    words = []
    for word in text.split():
        if words and MARKUP.match(word):
            words[-1] += " " + word
        else:
            words.append(word)
    lines, line = [], prefix
    for word in words:
        if len(line) + len(word) > WIDTH and line.strip() and line not in (prefix, indent):
            lines.append(line.rstrip())
            line = indent
        line += word + " "
    return [*lines, line.rstrip()]


def wrapped(text):
    result, block = [], None  # of the paragraph: its prefix, the indentation of its next lines, its text

    def flush():
        nonlocal block
        if block:
            result.extend(filled(*block))
            block = None

    fence = None
    for line in text.splitlines():
        mark = re.match(r"\s*(?:[-*+] |\d+\. )?(```+|~~~+|:::+)", line)
        if fence or mark:
            flush()
            result.append(line)
            if fence and line.strip() == fence:
                fence = None
            elif not fence:
                fence = mark[1]
        elif not line.strip() or re.match(r"\s*(#|\||<|\[[^\]]+\]: |---)", line) or line.endswith(("  ", "\\")):
            flush()
            result.append(line)
        elif item := ITEM.match(line):
            flush()
            block = [item[1], " " * len(item[1]), item[2]]
        elif block:
            block[2] += " " + line.strip()
        else:
            indent = re.match(r"\s*(> )?", line)[0]
            block = [indent, indent, line[len(indent) :]]
    flush()
    return "\n".join(result) + "\n"
