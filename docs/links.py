#!/usr/bin/env python3
"""Checks the links and names of the pages. As a program, links.py FOLDER checks every link of a built site."""

import html.parser
import pathlib
import re
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent


def anchors(text):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall("^#+ (.*)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(pages):
    """Links of the pages to files and headings that don't exist; links out of docs/, which break on the site built from docs/; and
    pages that docs/index.md doesn't link."""
    docs = ROOT / "docs"
    linked = set()
    for page, text in pages.items():
        text = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            if ":" in path:
                continue
            target = (page.parent / path).resolve() if path else page
            outside = page.parent == docs and docs not in target.parents
            if outside or not target.exists() or (anchor and anchor not in anchors(target.read_text())):
                yield f"{page.relative_to(ROOT)}: the link {link} leads nowhere"
            if page.name == "index.md":
                linked.add(target)
    yield from (f"docs/index.md has no link to {page.name}" for page in pages if page.parent == docs and page.name != "index.md" and page not in linked)


def unknown_names(pages):
    """Names that the pages use as etude::NAME, args.NAME or {.NAME = ...}, and that no header has."""
    from headers import ALL, HEADERS, declared

    words = set()
    for path in HEADERS.rglob("*.hpp"):
        words.update(re.findall(r"\w+", path.read_text()))
    text = "".join(pages.values())
    named = set(re.findall(r"(?:etude::(?:metrics::)?|[{ ]\.)([a-zA-Z_]\w+)|\bargs\.(\w+)\(", text))
    targets = set(re.findall(r"add_library\(etude(?:::|_)(\w+)", "".join(path.read_text() for path in [ROOT / "CMakeLists.txt", *ROOT.glob("cmake/*.cmake")])))
    named = {name for pair in named for name in pair if name and not re.fullmatch("[A-Z]+", name)} - targets - {"etude"}  # COMPONENT is a placeholder
    arguments = {field for field, _, _ in declared(ALL["TrainingArguments"][3])[0]}
    arguments |= set(re.findall(r"\w+", ALL["TrainingArguments"][3].rpartition("Launch launch")[2]))
    yield from (f"no header has {name}" for name in sorted(named - words))
    yield from (f"no header has args.{name}" for name in sorted(set(re.findall(r"\bargs\.(\w+)(?![\w(])", text)) - arguments - {"hpp"}))


def unknown_handlers(pages):
    """Handlers that the event tables of the pages about Hugging Face's Trainer and pytorch-accelerated list, but that callback_names.hpp,
    which finds handlers in a callback, doesn't have for the same event."""
    known = re.findall(r"X\((on_\w+), (\w+)\)", (ROOT / "include/etude/dispatch/callback_names.hpp").read_text())
    for name in ("coming-from-hugging-face", "coming-from-pytorch-accelerated"):
        rows = re.findall(r"^\| `(on_\w+)`[^|]* \| `(\w+)`", pages[ROOT / "docs" / f"{name}.md"], re.M)
        yield from (f"callback_names.hpp does not have {handler}, {event}" for handler, event in rows if (handler, event) not in known)


def missing_trackers(pages):
    """Trackers without a row in the table of docs/trackers.md that has their name, callback and option."""
    rows = re.findall(r"^  tracker\((\w+), (\w+), (\w+)\)", (ROOT / "include/etude/training_arguments.hpp").read_text(), re.M)
    page = pages[ROOT / "docs" / "trackers.md"]
    yield from (f"the table of docs/trackers.md does not have {row[0]}" for row in rows if not re.search("`{}` \\| `{}` .*`ETUDE_{}`".format(*row), page))


def faults(pages):
    yield from broken_links(pages)
    yield from unknown_names(pages)
    yield from unknown_handlers(pages)
    yield from missing_trackers(pages)


class BuiltPage(html.parser.HTMLParser):
    """The anchors and links of a page of HTML."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def dead_links(folder):
    """Links of a built site to files and anchors that it doesn't have."""
    built = {path.resolve(): BuiltPage(path) for path in sorted(folder.rglob("*.html"))}
    for page, content in built.items():
        for link in content.links:
            parsed = urllib.parse.urlsplit(link)
            if parsed.scheme or parsed.netloc:
                continue
            target = (page.parent / urllib.parse.unquote(parsed.path)).resolve() if parsed.path else page
            lacks_anchor = parsed.fragment and target in built and urllib.parse.unquote(parsed.fragment) not in built[target].anchors
            if not target.exists() or lacks_anchor:
                yield f"{page.relative_to(folder.resolve())}: {link}"


if __name__ == "__main__":
    dead = list(dead_links(pathlib.Path(sys.argv[1])))
    if dead:
        sys.exit("dead links:\n" + "\n".join(dead))
