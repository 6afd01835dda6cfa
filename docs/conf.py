"""Configures the site that ./dev docs builds from these pages, which stay readable as plain Markdown."""

import pathlib
import re

from docutils import nodes

ROOT = pathlib.Path(__file__).resolve().parent.parent

project = "Etude"
version = ".".join(str(int(re.search(r"ETUDE_VERSION (\d+)", (ROOT / "include/etude/version.hpp").read_text())[1]) // step % 100) for step in (10000, 100, 1))
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"Etude {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False


def add_menu(app, name, source):
    """Makes the menu from the sections and links of index.md, since GitHub would show directives in it as plain text."""
    if name != "index":
        return
    menu = ""
    for heading, section in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", source[0], re.M | re.S):
        pages = "\n".join(dict.fromkeys(re.findall(r"\]\(([\w-]+)\.md\)", section)))
        menu += f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{pages}\n```\n"
    source[0] += menu


def put_side_by_side(app, tree):
    """Puts the two code blocks after a "side by side" comment next to each other where there is room."""
    is_comment = lambda node: isinstance(node, (nodes.comment, nodes.raw))
    for comment in [node for node in tree.findall(is_comment) if "side by side" in node.astext()]:
        siblings = comment.parent.children
        place = siblings.index(comment) + 1
        blocks = [node for node in siblings[place : place + 4] if isinstance(node, nodes.literal_block)][:2]
        for block in blocks:
            comment.parent.remove(block)
        comment.replace_self(nodes.container("", *blocks, classes=["side-by-side"]))


def setup(app):
    app.connect("source-read", add_menu)
    app.connect("doctree-read", put_side_by_side)
