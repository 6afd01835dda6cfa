#!/usr/bin/env python3
"""track_comet.py PROGRAM: trains with PROGRAM (tracked.cpp) into Comet, and has Comet's own package read it.

Offline archives are read by `comet offline`, checked against the package's schemas, compared with an archive
that the package itself writes, and sent by `comet upload` to a server of this script. Online, what the program
sends to that server is compared with what the package sends."""

import csv
import glob
import gzip
import http.server
import io
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import zipfile

PROGRAM = os.path.abspath(sys.argv[1])
KEY = "kEyThatNobodyMaySee0123456789"
HERE = tempfile.TemporaryDirectory()
PYTHON = sys.executable
COMET = [PYTHON, "-m", "comet_ml.scripts.comet"]

os.environ.update(HOME=HERE.name, COMET_ERROR_TRACKING_ENABLE="0", COMET_LOGGING_CONSOLE="INFO", OMP_NUM_THREADS="1")
for name in list(os.environ):
    if name.lower().endswith("_proxy") or (name.startswith("COMET_") and name not in ("COMET_ERROR_TRACKING_ENABLE", "COMET_LOGGING_CONSOLE")):
        del os.environ[name]
os.chdir(HERE.name)
try:
    import comet_ml
    from comet_ml import schemas
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def check(value, what):
    if not value:
        raise AssertionError(what)


def same(seen, expected, what):
    check(seen == expected, f"{what}:\n  seen     {seen!r}\n  expected {expected!r}")


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
            cwd=self.path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **self.environment, **environment})

    def train(self, *arguments, code=0, **environment):
        process = self.start(*arguments, **environment)
        return Told(*process.communicate(timeout=120), process.returncode, code)

    def archives(self):
        return sorted(glob.glob(self.path + "/archives/*.zip"))

    def spooled(self):
        text = b""
        for path in glob.glob(self.path + "/spool/**", recursive=True) + glob.glob(self.path + "/spool/.*/**", recursive=True):
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    text += file.read()
        return text


class Told:
    """What the program says that it has logged."""

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
        """(name, step, epoch, value) of each metric, as Comet has them; an epoch of None is the step's."""
        return sorted((tracked(name), step, value) for step, logs in self.logs for name, value in logs.items())


    def up_to_the_last(self):
        """Its points, with or without those of the last log: it speaks before the trackers do."""
        whole, self.logs = self.logs, self.logs[:-1]
        without, self.logs = self.points(), whole
        return without, self.points()


def tracked(name):
    for use in ("eval", "test"):
        if name.startswith(use + "_"):
            return use + "/" + name[len(use) + 1:]
    return "train/" + name


class Archive:
    def __init__(self, path):
        with zipfile.ZipFile(path) as file:
            same(file.testzip(), None, "the zip's checksums")
            self.files = {name: file.read(name) for name in file.namelist()}
        self.experiment = json.loads(self.files["experiment.json"])
        text = self.files["messages.json"].decode("ascii")
        check(text.endswith("\n"), "the last message isn't whole")
        self.messages = [json.loads(line, parse_constant=lambda word: check(False, f"{word} isn't JSON")) for line in text.splitlines()]

    def of(self, kind):
        return [message["payload"] for message in self.messages if message["type"] == kind]

    def points(self):
        return sorted((metric["metric"]["metricName"], metric["metric"]["step"], metric["metric"]["metricValue"]) for metric in self.of("metric_msg"))

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
        same([message["payload"]["message_id"] for message in self.messages], list(range(1, len(self.messages) + 1)), "message ids")


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
    done = subprocess.run([PYTHON, "-c", text], cwd=cwd, text=True, capture_output=True, env={**os.environ, **environment}, timeout=120)
    same(done.returncode, 0, f"the package's own run; it said {done.stderr}")
    return done


def offline_matches_the_package():
    folder = Folder()
    assets = folder.path + "/assets"
    os.makedirs(assets + "/deep")
    for name, text in (("a.json", "{}"), ("deep/b", "bytes")):
        with open(f"{assets}/{name}", "w") as file:
            file.write(text)
    python(REFERENCE, folder.path, COMET_OFFLINE_DIRECTORY=folder.path + "/reference", ASSETS=assets)
    reference = Archive(glob.glob(folder.path + "/reference/*.zip")[0])

    told = folder.train("--odd", "true", "--extra", "3", "--save_strategy", "epoch", "--run_name", "my run", COMET_MODE="offline",
                        COMET_LOG_ASSETS="TRUE", COMET_PROJECT_NAME="project", COMET_WORKSPACE="space", COMET_START_EXPERIMENT_TAGS="a, b")
    same(len(folder.archives()), 1, "archives")
    archive = Archive(folder.archives()[0])
    archive.validate()
    same(archive.points(), told.points(), "metrics")
    check(any(value == "NaN" for _, _, value in archive.points()), "no odd values")
    same(len(told.logs), 9, "logs")

    facts = archive.experiment
    same(facts["offline_id"] + ".zip", os.path.basename(folder.archives()[0]), "the archive's name")
    check(len(facts["offline_id"]) == 32 and facts["offline_id"].isalnum(), "the experiment's key")
    same((facts["project_name"], facts["workspace"], facts["tags"], facts["resume_strategy"], facts["customer_error_reported"]),
         ("project", "space", ["a", "b"], "get_or_create", False), "experiment.json")
    check(0 <= facts["stop_time"] - facts["start_time"] < 60_000 and abs(time.time() * 1000 - facts["stop_time"]) < 60_000, "times")

    others = {other["key"]: other["value"] for other in archive.of("log_other")}
    same(others, {"Name": "my run", "Created from": "etude", "offline_experiment": True, "hasNestedParams": True}, "others")
    parameters = {given["paramName"]: given["paramValue"] for message in archive.of("parameter_msg") for given in [message.get("param") or message["params"]]}
    same((parameters["args|run_name"], parameters["args|logging_steps"], parameters["args|output_dir"]), ("my run", 1, folder.path + "/out"), "parameters")
    same((parameters["curr_step"], parameters["curr_epoch"]), (8, 2.0), "where it was at last")
    check("in_features=3, out_features=4" in archive.of("graph")[0]["graph"], "the model")
    same(archive.of("system_details")[0]["command"][0], PROGRAM, "the command")
    same(archive.of("file_name")[0]["file_name"], os.path.realpath(PROGRAM), "the program")

    uploads = {upload["additional_params"]["fileName"]: archive.files[upload["file_path"]] for upload in archive.of("file_upload")}
    there = {}
    for directory, _, names in os.walk(folder.path + "/out"):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                if not name.startswith(".") and path != folder.path + "/out/trainer_state.json":  # a lock; written afterwards
                    there["out/" + os.path.relpath(path, folder.path + "/out")] = file.read()
    same(sorted(uploads), sorted(there), "files")
    check(uploads == there and any("checkpoint-8/" in name for name in there), "bytes of files")

    # Our optional parts of a message are those of the package.
    ours, theirs = key_sets(archive), key_sets(reference)
    for kind, sets in ours.items():
        check(sets <= theirs[kind], f"{kind}: {sets - theirs[kind]} isn't in {theirs[kind]}")
    for kind in ("experiment", "metric_msg", "parameter_msg", "log_other", "graph", "file_name", "system_details", "file_upload"):
        same(ours[kind], theirs[kind], f"names in {kind}")

    done = subprocess.run([*COMET, "offline", "--csv", folder.archives()[0]], text=True, capture_output=True)
    rows = [row for row in csv.DictReader(io.StringIO(done.stdout)) if row["level"] == "detail"]
    seen = sorted((row["name"], row["value"]) for row in rows if row["section"] == "metric")
    same(seen, sorted((name, str(value)) for name, _, value in told.points()), "what comet offline has")
    same({(row["workspace"], row["project"], row["experiment"]) for row in rows}, {("space", "project", facts["offline_id"])}, "whose it is")
    check("error" not in done.stderr.lower(), done.stderr)


class Server:
    """Answers as Comet's server does, as far as its package asks, and keeps what it was sent."""

    def __init__(self, port=0, mode="well", experiments=None):
        self.requests, self.mode, self.lock = [], mode, threading.Lock()
        self.experiments = set() if experiments is None else experiments
        self.lose_next_open = False
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if server.mode == "hangs":
                    time.sleep(30)
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                path, _, query = self.path.partition("?")
                kind = self.headers.get("Content-Type", "")
                request = {"method": self.command, "path": path, "query": dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), "url": self.path,
                           "json": json.loads(body, parse_constant=lambda word: word) if kind.startswith("application/json") else None,
                           "raw": body, "type": kind, "authorization": self.headers.get("Authorization")}
                status, answer = server.answer(request)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = handle_one

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_):
                pass

        self.http = Quiet(("127.0.0.1", port), Handler)
        self.port = self.http.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}/clientlib/"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, request):
        with self.lock:
            path, body = request["path"], request["json"]
            if self.mode == "500":
                return 500, {"msg": f"no. {request['authorization']}"}
            if request["authorization"] != KEY:
                return 400, {"sdk_error_code": 90212, "msg": f"{request['authorization']} is not registered"}
            self.requests.append(request)
            if path == "/clientlib/isAlive/ver":
                return 200, {"version": "4.40.0"}
            if path.endswith("/logger/add/run"):
                key = body["experimentKey"]
                if key in self.experiments and not body["getOrCreateEnabled"]:
                    return 400, {"sdk_error_code": 90999, "msg": "it exists"}
                self.experiments.add(key)
                if self.lose_next_open:
                    self.lose_next_open = False
                    return 502, {"msg": "lost on the way"}
                return 200, self.handshake(key)
            if path.endswith("/logger/get/run"):
                key = body["previousExperiment"]
                if key not in self.experiments:
                    return 400, {"sdk_error_code": 90210, "msg": "there is none"}
                return 200, self.handshake(key)
            if path.endswith("/status-report/update"):
                return 200, {"is_alive_beat_duration_millis": 1000, "gpu_monitor_interval_millis": 60000, "cpu_monitor_interval_millis": 60000,
                             "parameter_update_interval_millis": 1000, "pending_rpcs": False}
            return 200, {"msg": "ok", "code": 200}

    @staticmethod
    def handshake(key):
        return {"runId": "run-" + key, "project_id": "project-id", "focusUrl": "http://127.0.0.1/x/", "featureToggles": [], "experimentKey": key,
                "name": "a name", "lastOffset": 0}

    def stop(self):
        self.http.shutdown()
        self.http.server_close()

    def to(self, end, key=None):
        with self.lock:
            return [request for request in self.requests if request["path"].endswith(end) and (key is None or key in request["raw"].decode("utf-8", "replace") + request["url"])]

    def points(self, key=None):
        return sorted((value["metricName"], value["step"], value["metricValue"])
                      for request in self.to("/batch/logger/experiment/metric", key) for value in request["json"]["values"])

    def keys(self):
        return [request["json"].get("experimentKey") or request["json"]["previousExperiment"] for request in self.to("/run")]


def once(points):
    """What a server has that was told some things twice, as it may be after a kill."""
    return sorted(set(points))


def upload(server, *archives):
    done = subprocess.run([*COMET, "upload", *archives], text=True, capture_output=True, timeout=120,
                          env={**os.environ, "COMET_API_KEY": KEY, "COMET_URL_OVERRIDE": server.address})
    check(done.returncode == 0 and f"Number of uploaded experiments: {len(archives)}" in done.stdout + done.stderr, done.stdout + done.stderr)


def resumed_goes_on_in_the_experiment():
    folder = Folder()
    first = folder.train("--max_steps", "5", "--save_steps", "2", "--save_strategy", "steps", COMET_MODE="offline")
    second = folder.train("--save_steps", "2", "--save_strategy", "steps", "--resume", "true", COMET_MODE="offline")
    # In the order of the names, the second part comes first.
    paths = folder.archives()
    same(len(paths), 2, "archives")
    parts = [Archive(path) for path in paths]
    same(len({part.experiment["offline_id"] for part in parts}), 1, "experiments")
    same(parts[1].points(), first.points(), "the first part")
    same(parts[0].points(), second.points(), "the second part")
    same(second.logs[0][0], 6, "where it went on")
    same(parts[0].experiment["start_time"], parts[1].experiment["start_time"], "when it began")
    for order in (paths, paths[::-1]):
        server = Server()
        upload(server, *order)
        same(server.points(), sorted(first.points() + second.points()), "metrics that were uploaded")
        same(len(server.experiments), 1, "experiments on the server")
        server.stop()


def failed_is_said():
    folder = Folder()
    told = folder.train("--fail_at", "3", code=3, COMET_START_ONLINE="0")
    archive = Archive(folder.archives()[0])
    archive.validate()
    same((archive.experiment["customer_error_reported"], archive.experiment["customer_error_message"]), (True, "failed on purpose"), "the error")
    same(archive.points(), told.points(), "metrics")
    server = Server()
    upload(server, folder.archives()[0])
    reported = server.to("/write/experiment/update-status")
    same([request["json"]["error"] for request in reported], ["failed on purpose"], "the error on the server")
    server.stop()


def killed_is_rescued():
    folder = Folder()
    process = folder.start("--step_seconds", "0.2", "--num_train_epochs", "9", COMET_MODE="offline")
    lines = [process.stdout.readline() for _ in range(9)]
    process.send_signal(signal.SIGKILL)
    rest, err = process.communicate()
    same(process.returncode, -signal.SIGKILL, "how it ended")
    logged = Told("".join(lines) + rest, err, 0)
    same(folder.archives(), [], "archives")
    partial = glob.glob(folder.path + "/archives/.*.partial")
    same(len(partial), 1, "folders that are left")
    key = os.path.basename(partial[0])[1:-len(".partial")]
    with open(partial[0] + "/messages.json", "a") as file:
        file.write('{"payload":{"half')

    # Somebody who is alive isn't disturbed.
    alive = folder.start("--step_seconds", "0.2", "--num_train_epochs", "5", COMET_MODE="offline")
    first = alive.stdout.readline()
    told = folder.train(COMET_MODE="offline", COMET_PROJECT_NAME="next")
    out, err = alive.communicate(timeout=60)
    lived = Told(first + out, err, alive.returncode)
    same(len(folder.archives()), 3, "archives")
    same(glob.glob(folder.path + "/archives/.*"), [], "what is left")
    archives = {os.path.basename(path)[:-4]: Archive(path) for path in folder.archives()}
    killed = archives.pop(key)
    killed.validate()
    check(killed.points() in logged.up_to_the_last(), f"{killed.points()} isn't {logged.points()}")
    check(killed.experiment["customer_error_reported"] and killed.experiment["stop_time"] >= killed.experiment["start_time"], "how it ended")
    same(sorted(len(one.points()) for one in archives.values()), sorted([len(told.points()), len(lived.points())]), "the others")


ONLINE = dict(COMET_API_KEY=KEY)


def bodies(server):
    """For each address, the sets of names that were sent to it."""
    found = {}
    for request in server.requests:
        body = request["json"]
        if body is None:
            names = tuple(sorted(request["query"]))
        elif "values" in body:
            names = tuple(sorted(body)) + tuple(sorted({"values." + name for value in body["values"] for name in value}))
        else:
            names = tuple(sorted(body))
        found.setdefault(request["path"].replace("/api/rest/v2/", "/REST/").replace("/clientlib/rest/v2/", "/REST/"), set()).add(names)
    return found


def online_is_what_the_package_sends():
    folder = Folder()
    server = Server()
    told = folder.train("--odd", "true", "--save_strategy", "epoch", "--step_seconds", "0.3", **ONLINE, COMET_URL_OVERRIDE=server.address, COMET_LOG_ASSETS="1",
                        COMET_PROJECT_NAME="project", COMET_WORKSPACE="space", COMET_START_EXPERIMENT_TAGS="a,b")
    same(folder.archives(), [], "archives")
    same(server.points(), told.points(), "metrics")
    opened = server.to("/logger/add/run")[0]["json"]
    same((opened["projectName"], opened["teamName"], opened["offline"]), ("project", "space", False), "the experiment")
    key = opened["experimentKey"]
    same({request["json"]["experimentKey"] for request in server.requests if request["json"] and "experimentKey" in request["json"]}, {key}, "whose it is")
    same({request["authorization"] for request in server.requests}, {KEY}, "who asks")
    check(all(KEY not in request["url"] for request in server.requests), "the key is in an address")
    same(folder.spooled(), b"", "what waits")
    beats = [request["json"]["is_alive"] for request in server.to("/status-report/update")]
    check(len(beats) >= 4 and beats[-1] is False and all(beats[:-1]), f"heartbeats {beats}")
    times = server.to("/set-start-end-time")[0]["json"]
    check(2000 < times["endTimeMillis"] - times["startTimeMillis"] < 60000, "times")
    names = {value["parameterName"]: value["parameterValue"] for request in server.to("/experiment/parameter") for value in request["json"]["values"]}
    same((names["args|logging_steps"], names["args|seed"]), (1, 42), "parameters")
    same({request["json"]["key"]: request["json"]["value"] for request in server.to("/log-other")},
         {"Name": folder.path + "/out", "Created from": "etude", "hasNestedParams": True}, "others")
    uploads = {request["query"]["fileName"]: request["raw"] for request in server.to("/upload-asset")}
    check("out/checkpoint-8/trainer_state.json" in uploads, f"files {sorted(uploads)}")
    with open(folder.path + "/out/checkpoint-8/trainer_state.json", "rb") as file:
        check(file.read() in uploads["out/checkpoint-8/trainer_state.json"], "a file's bytes")
    check("wait in" not in told.err, told.err)

    # The package, online and uploading an archive of ours, says the same under the same names.
    package = Server()
    python(REFERENCE, folder.path, ONLINE="1", COMET_API_KEY=KEY, COMET_URL_OVERRIDE=package.address, ASSETS=folder.path + "/out")
    folder.train("--odd", "true", COMET_MODE="offline", COMET_START_EXPERIMENT_TAGS="a")
    upload(package, folder.archives()[0])
    ours, theirs = bodies(server), bodies(package)
    for path in ours:
        if path.endswith(("/set-start-end-time", "/tags", "/upload-asset")):
            continue  # the package has other addresses for these; REST has them in its own client
        check(path in theirs, f"the package doesn't know {path}: {sorted(theirs)}")
        check(ours[path] <= theirs[path], f"{path}: {ours[path]}, and the package's are {theirs[path]}")
    server.stop()
    package.stop()


def failed_and_resumed_online():
    folder = Folder()
    server = Server()
    first = folder.train("--fail_at", "3", "--save_steps", "2", "--save_strategy", "steps", code=3, **ONLINE, COMET_URL_OVERRIDE=server.address)
    failed = server.to("/update-status")
    same([(request["json"]["error"], request["json"]["hasCrashed"]) for request in failed], [("failed on purpose", True)], "the error")
    server.lose_next_open = True
    second = folder.train("--resume", "true", **ONLINE, COMET_URL_OVERRIDE=server.address)
    same(len(set(server.keys())), 1, "experiments")
    same(server.points(), sorted(first.points() + second.points()), "metrics")
    server.stop()


def a_key_that_is_given():
    folder = Folder()
    server = Server()
    given = "A" * 32
    told = folder.train(**ONLINE, COMET_URL_OVERRIDE=server.address, COMET_EXPERIMENT_KEY=given, COMET_MODE="create")
    # An answer that is lost: the experiment is there, and is this run's.
    other = "B" * 32
    server.lose_next_open = True
    again = folder.train("--step_seconds", "0.4", **ONLINE, COMET_URL_OVERRIDE=server.address, COMET_EXPERIMENT_KEY=other, COMET_MODE="create")
    same(server.points(given), told.points(), "metrics of the first")
    same(server.points(other), again.points(), "metrics of the second")
    # Somebody else's: what is logged waits.
    refused = folder.train(**ONLINE, COMET_URL_OVERRIDE=server.address, COMET_EXPERIMENT_KEY=given, COMET_MODE="create")
    check("it exists" in refused.err and "wait in" in refused.err, refused.err+refused.out)
    same(server.points(given), told.points(), "metrics of the first, afterwards")
    check(b"train/loss" in folder.spooled(), "nothing waits")
    server.stop()


def wrong_key():
    folder = Folder()
    server = Server()
    told = folder.train(COMET_API_KEY="another" + KEY[::-1], COMET_URL_OVERRIDE=server.address)
    check("not registered" in told.err and KEY[::-1] not in told.err, told.err)
    later = folder.train(**ONLINE, COMET_URL_OVERRIDE=server.address)
    wait_for(lambda: once(server.points()) == once(told.points() + later.points()), "what waited for the right key")
    check(KEY[::-1].encode() not in folder.spooled(), "the key is in the spool")
    server.stop()


def wait_for(condition, what):
    for _ in range(100):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(what)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def bad_servers_cost_nothing():
    plain = Folder()
    base = subprocess.run([PROGRAM, "--output_dir", plain.path + "/out", "--step_seconds", "0.05"], text=True, capture_output=True, cwd=plain.path)
    seconds = Told(base.stdout, base.stderr, base.returncode).seconds
    for mode in ("down", "hangs", "500"):
        folder = Folder()
        port = free_port()
        server = None if mode == "down" else Server(port, mode)
        told = folder.train("--step_seconds", "0.05", **ONLINE, COMET_URL_OVERRIDE=f"http://127.0.0.1:{port}/clientlib/")
        print(f"  {mode}: {told.seconds:.2f} s, without a tracker {seconds:.2f} s")
        check(told.seconds < seconds + 0.45, f"{mode}: {told.seconds} s instead of {seconds} s")
        check("0 messages of experiment" in told.err and "wait in" in told.err and "0 were dropped" in told.err, told.err)
        spooled = folder.spooled()
        check(KEY.encode() not in spooled and b"train/loss" in spooled, f"{mode}: the spool")
        for path in glob.glob(folder.path + "/spool/*"):
            same(os.stat(path).st_mode & 0o77, 0, "who may read the spool")
        if server:
            server.stop()
        well = Server(port)
        later = folder.train("--step_seconds", "0.05", **ONLINE, COMET_URL_OVERRIDE=well.address)
        same(well.points(), sorted(told.points() + later.points()), f"{mode}: what is there in the end")
        same(len(well.experiments), 2, f"{mode}: experiments")
        same(folder.spooled(), b"", f"{mode}: the spool in the end")
        well.stop()


def restarted_in_the_middle():
    folder = Folder()
    server = Server()
    process = folder.start("--step_seconds", "0.3", "--num_train_epochs", "4", **ONLINE, COMET_URL_OVERRIDE=server.address)
    lines = [process.stdout.readline() for _ in range(5)]
    before, port = server.points(), server.port
    check(before, "nothing was sent")
    server.stop()
    lines += [process.stdout.readline() for _ in range(8)]
    again = Server(port, experiments=server.experiments)
    rest, err = process.communicate(timeout=60)
    told = Told("".join(lines) + rest, err, process.returncode)
    # A connection that was open is served to its end.
    seen = sorted(server.points() + again.points())
    same(once(seen), once(told.points()), "metrics")
    check(len(seen) - len(told.points()) in (0, 4, 5), f"{len(seen)} instead of {len(told.points())} metrics")
    same(len(server.experiments), 1, "experiments")
    again.stop()


def killed_online():
    folder = Folder()
    port = free_port()
    address = f"http://127.0.0.1:{port}/clientlib/"
    process = folder.start("--step_seconds", "0.2", **ONLINE, COMET_URL_OVERRIDE=address)
    lines = [process.stdout.readline() for _ in range(7)]
    process.send_signal(signal.SIGKILL)
    rest, err = process.communicate()
    logged = Told("".join(lines) + rest, err, 0)
    server = Server(port)
    later = folder.train(**ONLINE, COMET_URL_OVERRIDE=address)
    seen = server.points()
    check(seen in [sorted(points + later.points()) for points in logged.up_to_the_last()], f"what the killed process had logged: {seen}")
    same(len(server.experiments), 2, "experiments")
    server.stop()


def wrong_variables():
    for variables, expected in (
        (dict(COMET_MODE="often"), "'often': must be get_or_create, create or get"),
        (dict(COMET_MODE="get"), "needs experiment_key"),
        (dict(COMET_EXPERIMENT_KEY="short"), "32 to 50 letters and digits"),
        (dict(COMET_START_ONLINE="maybe"), "COMET_START_ONLINE is 'maybe'"),
        (dict(COMET_START_ONLINE="1"), "set COMET_API_KEY"),
        (dict(COMET_URL_OVERRIDE="ftp://server", **ONLINE), "COMET_URL_OVERRIDE"),
        (dict(COMET_OFFLINE_DIRECTORY="/proc/none"), "/proc/none can't be made"),
    ):
        told = Folder().train(code=3, **variables)
        check(expected in told.out, f"{variables}: {told.out}")
    folder = Folder()
    told = folder.train(COMET_MODE="DISABLED")
    check("of an earlier version" in told.err and not os.path.exists(folder.path + "/archives"), told.err)
    told = folder.train(COMET_MODE="OFFLINE", **ONLINE)
    check("of an earlier version" in told.err and len(folder.archives()) == 1, told.err)


CASES = [offline_matches_the_package, resumed_goes_on_in_the_experiment, failed_is_said, killed_is_rescued, online_is_what_the_package_sends,
         failed_and_resumed_online, a_key_that_is_given, wrong_key, bad_servers_cost_nothing, restarted_in_the_middle, killed_online, wrong_variables]

if __name__ == "__main__":
    wanted = sys.argv[2:]
    for case in CASES:
        if wanted and case.__name__ not in wanted:
            continue
        begun = time.time()
        case()
        print(f"{case.__name__}: {time.time() - begun:.1f} s", flush=True)
    HERE.cleanup()
