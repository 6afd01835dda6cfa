#!/usr/bin/env python3
"""Writes the pages of docs/ that are generated from headers, and the code blocks that come from programs, and wraps their
prose. With --check, reports whether they are up to date, whether the pages name only things that exist, and whether their links work."""

import sys

import argument_table
import callback_table
import event_table
import links
import metric_table
import optimizer_table
import schedule_table
import snippets
from headers import ROOT
from wrap import wrapped

GENERATED = {"arguments": argument_table, "callbacks": callback_table, "events": event_table, "metrics": metric_table,
             "optimizers": optimizer_table, "schedules": schedule_table}


def pages():
    """The text that each page should have, by its path."""
    docs = ROOT / "docs"
    texts = {docs / f"{name}.md": table.page() for name, table in GENERATED.items()}
    for path in [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")), *sorted(docs.glob("*.md"))]:
        texts.setdefault(path, path.read_text())
    return {path: wrapped(snippets.filled(path, text)) for path, text in texts.items()}


def main():
    found = pages()
    stale = [path for path, text in found.items() if not path.exists() or path.read_text() != text]
    if "--check" not in sys.argv:
        for path in stale:
            path.write_text(found[path])
            print(path.relative_to(ROOT))
        return
    if stale:
        sys.exit("not as the headers and programs are: " + ", ".join(str(path.relative_to(ROOT)) for path in stale) + ": run docs/tables.py")
    faults = [*snippets.faults(found), *links.faults(found)]
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
