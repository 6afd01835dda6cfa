"""Etude's program, C++ libraries and headers, and Python tools. `python -m etude --help` says where they are."""

from ._build import VERSION as __version__
from .trainer import PredictionOutput, Trainer, TrainingArguments, TrainOutput

__all__ = ["PredictionOutput", "Trainer", "TrainOutput", "TrainingArguments", "__version__"]
