"""The C++, C and Fortran of the pages come out of programs that are compiled and run: a comment names its source, and the block
follows it.

    <!-- snippet: examples/first.cpp -->                the whole file
    <!-- snippet: examples/docs/data.cpp#noisy -->      the lines between "// [noisy]" and "// [/noisy]" there ("! [noisy]" in Fortran)
    <!-- not compiled: why -->                          a block that no program has, such as one with "..." in it
    <!-- diff: examples/loops/a.cpp examples/kept/a.cpp -->    what the second file changes in the first
"""

import difflib
import re
import textwrap

from headers import ROOT

SNIPPET = re.compile(r"^( *)<!-- snippet: (\S+?)(?:#(\w+))? -->\n(?:\n*\1```(?:cpp|c|fortran|python|sh)\n.*?^\1```\n)?", re.M | re.S)
DIFF = re.compile(r"^<!-- diff: (\S+) (\S+) -->\n(?:\n*```diff\n.*?^```\n)?", re.M | re.S)
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".c": "c", ".f90": "fortran", ".py": "python", ".sh": "sh"}
PYTHON = re.compile(r"^ *```python\n(.*?)^ *```", re.M | re.S)
COMPILED = re.compile(r"^([^\n]*)\n\n? *```(?:cpp|c\+\+|c|fortran)\n(.*?)^ *```", re.M | re.S)


def part(path, name):
    """The lines of a program between the markers of that name, without other markers and without their common indentation."""
    text = (ROOT / path).read_text()
    if name:
        found = re.findall(rf"^ *(?://|!) \[{name}\]\n(.*?)^ *(?://|!) \[/{name}\]$", text, re.M | re.S)
        if len(found) != 1:
            raise SystemExit(f"{path} has {len(found)} parts named {name}: must be one")
        text = found[0]
    text = re.sub(r"^ *(?://|!) \[/?\w+\]\n", "", text, flags=re.M)
    return textwrap.dedent(text).strip("\n") + "\n"


def filled(page, text):
    """The text of a page with the blocks that its comments name."""

    def block(match):
        indent, path, name = match.groups()
        if not (ROOT / path).is_file():
            raise SystemExit(f"{page.relative_to(ROOT)}: {path} does not exist")
        code = f"```{LANGUAGES[(ROOT / path).suffix]}\n{part(path, name)}```\n"
        marker = f"<!-- snippet: {path}{'#' + name if name else ''} -->\n\n"
        return textwrap.indent(marker + code, indent)

    def difference(match):
        sources = [(ROOT / path).read_text().splitlines() for path in match.groups()]
        code = ["@@" if line.startswith("@@") else line for line in lines_of_diff(*sources)]
        return f"<!-- diff: {match[1]} {match[2]} -->\n\n```diff\n" + "\n".join(code) + "\n```\n"

    return DIFF.sub(difference, SNIPPET.sub(block, text))


def lines_of_diff(before, after):
    """The diff of two programs without their leading comments, with a line of context around each change."""
    without = [[line for line in lines if not line.startswith("///")] for lines in (before, after)]
    return list(difflib.unified_diff(*without, n=1, lineterm=""))[2:]


def unchecked(text):
    """The blocks of a page in compiled languages that no program has, and the line before each."""
    return [(before, code) for before, code in COMPILED.findall(text) if not before.strip().startswith("<!-- snippet:")]


def faults(pages):
    """Blocks in compiled languages with neither a source nor a reason for having none, and parts of programs that no page shows."""
    shown = set()
    for path, text in pages.items():
        shown.update((source, name) for _, source, name in SNIPPET.findall(text))
        for before, code in unchecked(text):
            if path.name != "CONTRIBUTING.md" and not before.strip().startswith("<!-- not compiled: "):
                yield f"{path.relative_to(ROOT)}: no program has this block: {code.strip().splitlines()[0]}"
        for code in PYTHON.findall(text):
            try:
                compile(textwrap.dedent(code), str(path), "exec")
            except SyntaxError as error:
                yield f"{path.relative_to(ROOT)}: {error}"
    for path in sorted(path for path in (ROOT / "examples" / "docs").iterdir() if path.suffix in (".cpp", ".c", ".f90")):
        source = str(path.relative_to(ROOT))
        for name in re.findall(r"^ *(?://|!) \[(\w+)\]$", path.read_text(), re.M):
            if (source, name) not in shown:
                yield f"{source}: no page shows {name}"
