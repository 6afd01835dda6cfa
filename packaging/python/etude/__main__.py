"""Starts the program etude, or one of the Python tools.

etude export ...     runs etude.export; prepare works the same, if it is there; everything else goes to the program
etude --cmake-prefix the folder for CMAKE_PREFIX_PATH, so that find_package(etude) finds the compiled libraries
etude --include      the folder of the headers
etude --lib          the folder of libetude.so
etude --pkg-config   the folder for PKG_CONFIG_PATH, for programs in C (etude-c) and Fortran (etude-fortran)
"""

import importlib.util
import os
import pathlib
import re
import sys

from ._build import TORCH, VERSION

PACKAGE = pathlib.Path(__file__).resolve().parent
FOLDERS = {"--cmake-prefix": PACKAGE, "--include": PACKAGE / "include", "--lib": PACKAGE / "lib", "--pkg-config": PACKAGE / "share" / "pkgconfig"}
TOOLS = {"export": "etude.export", "prepare": "etude.prepare"}


def fail(message):
    print(f"etude: {message}", file=sys.stderr)
    raise SystemExit(2)


def checked_torch():
    """The folder of the torch that Python would import. Exits if it isn't the one that this wheel was built with."""
    # Found without importing it, which takes seconds.
    spec = importlib.util.find_spec("torch")
    remedy = f"pip install torch=={TORCH}"
    if not spec or not spec.submodule_search_locations:
        fail(f"torch is not installed; etude {VERSION} was built with torch {TORCH}: {remedy}")
    folder = pathlib.Path(spec.submodule_search_locations[0])
    try:
        version = re.search(r"""^__version__ = ["']([^"']+)""", (folder / "version.py").read_text(), re.M)[1]
    except (OSError, TypeError):
        fail(f"the torch in {folder} has no version.py with its version; etude {VERSION} was built with torch {TORCH}: {remedy}")
    # The part after a +, as in 2.13.0+cpu, says where torch runs; to the loader, the libraries are the same.
    if version.partition("+")[0] != TORCH:
        fail(f"torch {version} is installed, but etude {VERSION} was built with torch {TORCH}: {remedy}, or install an etude built with {version}")
    return folder


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 1 and arguments[0] in FOLDERS:
        print(FOLDERS[arguments[0]])
        return
    torch = checked_torch()
    if arguments and arguments[0] in TOOLS:
        module = TOOLS[arguments[0]]
        if importlib.util.find_spec(module):
            sys.argv = [f"etude {arguments[0]}", *arguments[1:]]
            return importlib.import_module(module).main()
    if torch.parent.resolve() != PACKAGE.parent:
        # The program looks for torch only next to etude.
        paths = [str(torch / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
        os.environ["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    program = PACKAGE / "bin" / "etude"
    os.execv(program, ["etude", *arguments])


if __name__ == "__main__":
    sys.exit(main())
