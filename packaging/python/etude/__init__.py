"""Etude's program, C++ libraries and headers, and Python tools. `python -m etude --help` says where they are."""

from ._build import VERSION as __version__

__all__ = ["__version__"]
