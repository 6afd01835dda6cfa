"""Shared by the parts of track_comet.py: the program, its archives, and Comet's own package."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter

from checks import check, same

PROGRAM = os.path.abspath(sys.argv[1])
KEY = "kEyThatNobodyMaySee0123456789"
HERE = tempfile.TemporaryDirectory()
PYTHON = sys.executable
COMET = [PYTHON, "-m", "comet_ml.scripts.comet"]

for name in list(os.environ):
    if name.lower().endswith("_proxy") or name.startswith("COMET_"):
        del os.environ[name]
os.environ.update(HOME=HERE.name, COMET_ERROR_TRACKING_ENABLE="0", OMP_NUM_THREADS="1")
os.chdir(HERE.name)
try:
    import comet_ml
    from comet_ml import schemas
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


class Folder:
    """A place for one case: working directory, output, archives and spool."""

    count = 0

    def __init__(self):
        Folder.count += 1
        self.path = os.path.join(HERE.name, str(Folder.count))
        os.makedirs(self.path)
        self.environment = {
            "COMET_OFFLINE_DIRECTORY": self.path + "/archives",
            "ETUDE_SPOOL_DIR": self.path + "/spool",
        }

    def start(self, *arguments, **environment):
        return subprocess.Popen(
            [PROGRAM, "--report_to", "comet_ml", "--output_dir", self.path + "/out", *arguments],
            cwd=self.path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self.environment, **environment},
        )

    def train(self, *arguments, code=0, **environment):
        process = self.start(*arguments, **environment)
        return Reported(*process.communicate(timeout=120), process.returncode, code)

    def archives(self):
        return sorted(glob.glob(self.path + "/archives/*.zip"))

    def spooled(self):
        text = b""
        for path in glob.glob(self.path + "/spool/**", recursive=True) + glob.glob(self.path + "/spool/.*/**", recursive=True):
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    text += file.read()
        return text


class Reported:
    """The logs that the program reports."""

    def __init__(self, out, err, returncode, code=0):
        same(returncode, code, f"exit code; it said {err}")
        self.out, self.err = out, err
        self.logs = []
        self.seconds = None
        for line in out.splitlines():
            if line.startswith("log "):
                _, step, text = line.split(" ", 2)
                self.logs.append((int(step), json.loads(text)))
            elif line.startswith("finished "):
                self.seconds = float(line.split()[1])
        check(KEY not in out + err, "the key to the server was printed")

    def points(self):
        """(name, step, value) of each metric, as Comet has them."""
        return sorted((tracked(name), step, value) for step, logs in self.logs for name, value in logs.items())

    def could_have_left(self, points):
        """True if a killed run can have left these points: all its points, with all, some or none of its last log, which it prints before
        a tracker writes it value by value."""
        whole, self.logs = self.logs, self.logs[:-1]
        without, self.logs = self.points(), whole
        return Counter(without) <= Counter(points) <= Counter(self.points())


def tracked(name):
    for use in ("eval", "test"):
        if name.startswith(use + "_"):
            return use + "/" + name[len(use) + 1 :]
    return "train/" + name


class Archive:
    def __init__(self, path):
        with zipfile.ZipFile(path) as file:
            same(file.testzip(), None, "the zip's checksums")
            self.files = {name: file.read(name) for name in file.namelist()}
        self.experiment = json.loads(self.files["experiment.json"])
        text = self.files["messages.json"].decode("ascii")
        check(text.endswith("\n"), "the last message isn't whole")
        self.messages = [
            json.loads(line, parse_constant=lambda word: check(False, f"{word} isn't JSON")) for line in text.splitlines()
        ]

    def of(self, kind):
        return [message["payload"] for message in self.messages if message["type"] == kind]

    def points(self):
        return sorted(
            (metric["metric"]["metricName"], metric["metric"]["step"], metric["metric"]["metricValue"])
            for metric in self.of("metric_msg")
        )

    def validate(self):
        schemas.get_experiment_file_validator(False).validate(self.experiment)
        validators = {
            "metric_msg": schemas.get_metric_msg_validator(False),
            "parameter_msg": schemas.get_parameter_msg_validator(False),
            "log_other": schemas.get_log_other_msg_validator(False),
            "graph": schemas.get_graph_msg_validator(False),
            "file_name": schemas.get_file_name_msg_validator(False),
            "system_details": schemas.get_system_details_msg_validator(False),
            "file_upload": schemas.get_upload_msg_validator(False),
        }
        for message in self.messages:
            validators[message["type"]].validate(message["payload"])
        same(
            [message["payload"]["message_id"] for message in self.messages], list(range(1, len(self.messages) + 1)), "message ids"
        )


def key_sets(archive):
    """For each type of message, the sets of names that its payloads have, one level deep."""
    found = {"experiment": {tuple(sorted(archive.experiment))}}
    for message in archive.messages:
        names = []
        for name, value in message["payload"].items():
            names.append(name)
            if isinstance(value, dict) and name in ("metric", "param", "params", "additional_params"):
                names += [f"{name}.{inner}" for inner in value]
        found.setdefault(message["type"], set()).add(tuple(sorted(names)))
    return found


REFERENCE = """
import os, sys
import comet_ml
config = comet_ml.ExperimentConfig(name="reference", tags=["a", "b"], log_code=False, log_git_metadata=False, log_git_patch=False,
    auto_output_logging=False, log_env_gpu=False, log_env_cpu=False, log_env_network=False, log_env_disk=False)
experiment = comet_ml.start(online=bool(os.environ.get("ONLINE")), experiment_config=config)
experiment.__internal_api__set_model_graph__("a graph", framework="transformers")
values = {"args": {"rate": 1e-3, "none": None, "yes": True, "text": "word", "list": [1, 2], "long": "x" * 1500, "nan": float("nan"),
                   "numbers": list(range(1000)), "a" * 150: 1}, "config": {"hidden": {"size": 8}}}
experiment.__internal_api__log_parameters__(values, framework="transformers", source="manual", flatten_nested=True)
experiment.__internal_api__log_metrics__({"train/loss": 0.5, "train/nan": float("nan"), "train/inf": float("inf"), "train/low": -float("inf"),
    "b" * 150: 1.0}, step=1, epoch=0.25, framework="transformers")
experiment.set_filename("program")
experiment.log_asset_folder(os.environ["ASSETS"], recursive=True, log_file_name=True, step=4)
experiment.end()
"""


def python(text, cwd, **environment):
    done = subprocess.run(
        [PYTHON, "-c", text], cwd=cwd, text=True, capture_output=True, env={**os.environ, **environment}, timeout=120
    )
    same(done.returncode, 0, f"the package's own run; it said {done.stderr}")
    return done
