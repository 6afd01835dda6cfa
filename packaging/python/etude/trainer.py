"""A trainer for notebooks and scripts, which runs the program etude:

    from etude import Trainer, TrainingArguments

    trainer = Trainer(model="model.pt2", args=TrainingArguments(output_dir="out", learning_rate=1e-3), train_dataset="train.safetensors",
                      eval_dataset="test.safetensors", compute_metrics=["accuracy"])
    trainer.train(resume_from_checkpoint=True)
    trainer.state.log_history
"""

import codecs
import dataclasses
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import types

COMMAND = [sys.executable, "-m", "etude"]
COLUMNS = 100
TRAINING_OPTIONS = ("random_resized_crop", "random_flip", "hyperparameter_search", "hp_space")


class TrainingArguments(types.SimpleNamespace):
    """The arguments of a training, with Hugging Face's names and Etude's defaults: `etude describe` lists them. The program checks
    names and values when it starts."""

    def __init__(self, output_dir="trainer_output", **arguments):
        super().__init__(output_dir=output_dir, **arguments)


@dataclasses.dataclass
class TrainOutput:
    global_step: int
    training_loss: float
    metrics: dict


@dataclasses.dataclass
class PredictionOutput:
    predictions: object  # a tensor, or a dict of several by name
    label_ids: object  # None without labels
    metrics: dict


class Trainer:
    """Trains a model with the program etude, which needs no Python while it runs.

    model            a .pt2 file of `etude export`, or a torch.nn.Module, which is exported with the first rows of `train_dataset` and has
                     the trained weights afterwards
    args             TrainingArguments, or a dict
    train_dataset    a file or a list of them, as `etude train` takes them; or a dict of tensors with the examples along the first
                     dimension, by the names of the parameters of the model's forward, and labels
    eval_dataset     the same
    loss             as `--loss`, if the model doesn't compute it
    compute_metrics  a list of names, as `--compute_metrics`
    callbacks        a list of names, or of pairs of a name and a dict of options
    options          further options of `etude train`, by name; options that read files or load weights also apply to evaluate() and predict()

    Wrong arguments raise ValueError, other failures RuntimeError, both with the program's message.
    """

    def __init__(self, model, args=None, train_dataset=None, eval_dataset=None, loss=None, compute_metrics=(), callbacks=(), **options):
        args = args or TrainingArguments()
        self.args = args if isinstance(args, TrainingArguments) else TrainingArguments(**args)
        self.model, self.options = model, options
        self.train_dataset, self.eval_dataset, self.loss = train_dataset, eval_dataset, loss
        self.compute_metrics, self.callbacks = as_list(compute_metrics), as_list(callbacks)
        self.state = types.SimpleNamespace(log_history=[], global_step=0)
        self._weights = None
        self._files = tempfile.TemporaryDirectory(prefix="etude-")

    def train(self, resume_from_checkpoint=None):
        """Trains, and returns a TrainOutput. `resume_from_checkpoint` is True for the newest checkpoint in output_dir, if there is one, or a
        checkpoint's folder."""
        resume = {None: "none", False: "none", True: "newest"}.get(resume_from_checkpoint, resume_from_checkpoint)
        self._run("train", self.args, train_dataset=self._paths(self.train_dataset, "train"), eval_dataset=self._paths(self.eval_dataset, "eval"),
                  callback=[spelled(callback) for callback in self.callbacks], resume_from_checkpoint=str(resume), compute_metrics=self.compute_metrics,
                  **{name: value for name, value in self.options.items() if name in TRAINING_OPTIONS})  # fmt: skip
        output = pathlib.Path(self.args.output_dir)
        self.state = types.SimpleNamespace(**json.loads((output / "trainer_state.json").read_text()))
        self._weights = output
        if self._has_module():
            safetensors("torch").load_model(self.model, output / "model.safetensors")
        metrics = json.loads((output / "train_results.json").read_text())
        return TrainOutput(self.state.global_step, metrics.get("train_loss", float("nan")), metrics)

    def evaluate(self, eval_dataset=None):
        """The metrics of `eval_dataset`, or of the trainer's, as a dict."""
        paths = self._paths(self.eval_dataset if eval_dataset is None else eval_dataset, "eval")
        return json.loads(self._run("evaluate", self._quietly(), capture=True, eval_dataset=paths, json=True, compute_metrics=self.compute_metrics))

    def predict(self, test_dataset):
        """The model's outputs for each example, as torch.Tensors, and the labels if there are any and the model or the loss takes them."""
        output = pathlib.Path(self._files.name, "predictions.safetensors")
        self._run("predict", self._quietly(), capture=True, dataset=self._paths(test_dataset, "test"), output=str(output))
        tensors = safetensors("torch").load_file(output)
        labels = tensors.pop("labels", None)
        return PredictionOutput(next(iter(tensors.values())) if len(tensors) == 1 else tensors, labels, {})

    def save_model(self, output_dir):
        """Copies the trained weights and the files next to them to a folder."""
        if not self._weights:
            raise RuntimeError("there are no weights to save before train()")
        target = pathlib.Path(output_dir)
        target.mkdir(parents=True, exist_ok=True)
        others = ("trainer_state.json", "all_results.json", "train_results.json", "eval_results.json", "latest")
        for path in pathlib.Path(self._weights).iterdir():
            if path.is_file() and path.name not in others:
                (target / path.name).write_bytes(path.read_bytes())

    def _quietly(self):
        return TrainingArguments(**vars(self.args) | {"report": "quiet", "report_to": []})

    def _has_module(self):
        return not isinstance(self.model, (str, os.PathLike))

    def _weights_of_now(self, subcommand):
        """The module's weights, or the last training's unless another training begins."""
        if self._has_module():
            path = pathlib.Path(self._files.name, "weights.safetensors")
            safetensors("torch").save_model(self.model, path)
            return {"weights": str(path)}
        return {"weights": str(self._weights)} if self._weights and subcommand != "train" else {}

    def _model_file(self):
        if not self._has_module():
            return str(self.model)
        path = pathlib.Path(self._files.name, "model.pt2")  # exported once; the weights are passed separately
        if not path.exists():
            from . import export

            if not isinstance(self.train_dataset, dict):
                raise ValueError("train_dataset must be a dict of tensors by the names of forward's parameters, to export the model with")
            taken = export.forward_parameters(self.model)
            export.export_model(self.model, {name: rows[:4] for name, rows in self._tensors(self.train_dataset).items() if name in taken}, path)
        return str(path)

    def _tensors(self, dataset):
        import torch

        return {name: torch.as_tensor(rows).contiguous() for name, rows in dataset.items()}

    def _paths(self, dataset, name):
        if dataset is None:
            return []
        if isinstance(dataset, dict):
            path = pathlib.Path(self._files.name, f"{name}.safetensors")
            safetensors("torch").save_file(self._tensors(dataset), path)
            return [str(path)]
        return [str(path) for path in ([dataset] if isinstance(dataset, (str, os.PathLike)) else dataset)]

    def _run(self, subcommand, args, capture=False, **arguments):
        """Runs a subcommand, and returns its standard output if it is captured."""
        given = {name: [value] if name == "report_to" and isinstance(value, str) else value for name, value in vars(args).items()}
        given |= {"model": self._model_file(), **({"loss": self.loss} if self.loss else {})}
        given |= {name: value for name, value in self.options.items() if name not in TRAINING_OPTIONS}
        given |= self._weights_of_now(subcommand) | arguments
        config = pathlib.Path(self._files.name, f"{subcommand}.json")
        config.write_text(json.dumps(given, default=str))
        command = [*COMMAND, subcommand, "--config", str(config)]
        status, text, errors = run_captured(command) if capture else run_shown(command)
        if status:
            message = errors.replace(f"{config}: ", "").replace(f"etude {subcommand}: --help lists all flags", "").removeprefix(f"etude {subcommand}: ").strip()
            raise (ValueError if status == 2 else RuntimeError)(message or f"etude {subcommand} ended with status {status}")
        return text


def safetensors(module):
    try:
        return __import__(f"safetensors.{module}", fromlist=[module])
    except ImportError:
        raise ImportError("etude.Trainer needs the package safetensors: pip install safetensors") from None


def spelled(callback):
    """A callback as `--callback` takes it."""
    if isinstance(callback, str):
        return callback
    name, options = callback
    return f"{name}:" + ",".join(f"{option}={str(value).lower() if isinstance(value, bool) else value}" for option, value in options.items())


def run_captured(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def as_list(values):
    return [values] if isinstance(values, str) else list(values)


def run_shown(command):
    """Shows the program's output as it arrives. In a notebook, where sys.stdout is no terminal, the program gets a pseudo-terminal, so that
    it draws its progress bar."""
    draws = sys.stdout.isatty() or "ipykernel" in sys.modules
    ours, its = pty.openpty() if draws else os.pipe()
    if draws:
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    # Notebooks count color codes as characters at a carriage return.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=its, stderr=its, start_new_session=True, env=os.environ | {"NO_COLOR": "1"})
    os.close(its)
    decoder, text, interrupted = codecs.getincrementaldecoder("utf-8")("replace"), "", False
    while True:
        try:
            read = os.read(ours, 1 << 16)
        except KeyboardInterrupt:  # the program saves a checkpoint then
            interrupted = True
            process.send_signal(signal.SIGINT)
            continue
        except OSError:  # the program has ended, which closes its terminal
            read = b""
        if not read:
            break
        shown = for_notebooks(decoder.decode(read))
        sys.stdout.write(shown)
        sys.stdout.flush()
        text = (text + shown)[-20_000:]
    os.close(ours)
    status = process.wait()
    if interrupted:
        raise KeyboardInterrupt
    lines = [line.rpartition("\r")[2].strip() for line in text.replace("\r\n", "\n").split("\n")]
    lines = [line for line in lines if line]
    return status, "", "\n".join(lines if status == 2 else lines[-1:])


def for_notebooks(text):
    """Adapts the program's output to notebooks, which support a carriage return but can't erase a line."""
    text = text.replace("\r\n", "\n").replace("\r\x1b[K", "\r" + " " * (COLUMNS - 1) + "\r")
    return re.sub(r"\x1b\[[0-9;]*[A-Za-ln-z]", "", text)
