"""Shared by the checks of MLflowCallback and AzureMLCallback: a real MLflow server on loopback, a proxy in front of it that
behaves like a bad network, and trainings by the program `tracked`."""

import http.client
import http.server
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

from checks import check, same

HERE = tempfile.TemporaryDirectory()
# In memory if possible: on a busy disk, a server can take longer to commit than a training waits at its end.
DATABASES = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
for name in list(os.environ):
    if name.startswith(("MLFLOW_", "HF_MLFLOW", "DISABLE_MLFLOW", "AZUREML_", "ETUDE_SPOOL")) or name.lower().endswith("_proxy"):
        del os.environ[name]
os.environ.update(HOME=HERE.name, OMP_NUM_THREADS="1", MLFLOW_DISABLE_TELEMETRY="true", MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false",
                  MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR="false", MLFLOW_HTTP_REQUEST_MAX_RETRIES="2")
os.chdir(HERE.name)
try:
    import mlflow
    from mlflow import MlflowClient
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """`mlflow server` with its own database and folder of artifacts, which it keeps when it is restarted."""

    def __init__(self, *arguments, scheme="http", prefix=""):
        self.folder, self.database = tempfile.mkdtemp(dir=HERE.name), tempfile.mkdtemp(dir=DATABASES.name)
        self.arguments = arguments
        self.port = free_port()
        self.scheme, self.prefix = scheme, prefix
        self.address = f"{scheme}://127.0.0.1:{self.port}{prefix}"
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{self.database}/mlflow.db",
                   "--artifacts-destination", f"{self.folder}/artifacts", "--host", "127.0.0.1", "--port", str(self.port),
                   "--workers", "1", *self.arguments]
        with open(f"{self.folder}/server.log", "ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)
        for _ in range(600):
            if self.answers():
                return self
            check(self.process.poll() is None, "mlflow server ended: " + self.log()[-2000:])
            time.sleep(0.1)
        raise AssertionError("mlflow server doesn't answer: " + self.log()[-2000:])

    def answers(self):
        import ssl
        connection = (http.client.HTTPSConnection("127.0.0.1", self.port, timeout=2, context=ssl._create_unverified_context())
                      if self.scheme == "https" else http.client.HTTPConnection("127.0.0.1", self.port, timeout=2))
        for path in ("/health", self.prefix + "/health"):
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                if response.read() == b"OK" and response.status == 200:
                    return True
            except OSError:
                return False
        return False

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def log(self):
        with open(f"{self.folder}/server.log", encoding="utf-8", errors="replace") as file:
            return file.read()


class Proxy:
    """Forwards requests to a server depending on the result of `self.way(handler, method, path, body)`: "pass"; a status;
    "hang"; "lose" the answer. Records (method, path, headers, body, status) of each in `requests`."""

    def __init__(self, upstream=None, way=lambda *_: "pass"):
        self.upstream, self.way, self.requests = upstream, way, []
        self.over = threading.Event()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                way = proxy.way(self.command, self.path, self.headers, body)
                if way == "hang":
                    proxy.over.wait(600)
                    self.close_connection = True
                    return
                if isinstance(way, tuple):
                    status, answer = way
                elif isinstance(way, int):
                    status, answer = way, b'{"error_code": "TEMPORARILY_UNAVAILABLE", "message": "on purpose"}'
                else:
                    status, answer = proxy.forward(self.command, self.path, self.headers, body)
                proxy.requests.append((self.command, self.path, dict(self.headers), body, status))
                if way == "lose":
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = handle_any

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def forward(self, method, path, headers, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream.port, timeout=30)
        connection.request(method, path, body, {"Content-Type": headers.get("Content-Type", "application/json")})
        response = connection.getresponse()
        return response.status, response.read()

    def calls(self, ending):
        return [json.loads(body) for _, path, _, body, _ in self.requests if path.endswith(ending)]

    def stop(self):
        self.over.set()
        self.server.shutdown()


class Training:
    """A run of `tracked` while it lasts: its logs (step, {name: value}), the time of each, and its other output."""

    def __init__(self, program, tracker, folder, *arguments, **environment):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.errors_path = os.path.join(folder, f"stderr{time.monotonic_ns()}")
        command = [program, "--output_dir", "out", "--log_level", "info", *arguments]
        if tracker:
            command += ["--report_to", tracker]
        with open(self.errors_path, "wb") as errors:
            self.process = subprocess.Popen(command, cwd=folder, env={**os.environ, **environment}, stdout=subprocess.PIPE,
                                            stderr=errors, text=True)
        self.logs, self.times, self.checkpoints, self.seconds, self.failed = [], [], [], None, None

    def read_to(self, step=None):
        """Waits for the log of `step`, or the end."""
        for line in self.process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "log":
                at, _, logs = rest.partition(" ")
                self.logs.append((int(at), json.loads(logs)))
                self.times.append(time.monotonic())
            elif word == "checkpoint":
                self.checkpoints.append(rest)
            elif word == "finished":
                self.seconds = float(rest)
            elif word == "failed":
                self.failed = rest
            if step is not None and self.logs and self.logs[-1][0] >= step:
                return self
        return self

    def end(self, code=0):
        self.read_to()
        same(self.process.wait(), code, "exit code; " + self.errors())
        return self

    def errors(self):
        with open(self.errors_path, encoding="utf-8") as file:
            return file.read()

    def loop_seconds(self):
        """The time from the first log to the log of the last step."""
        return self.times[-2] - self.times[0]

    def spools(self):
        folder = os.path.join(self.folder, ".etude-spool")
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def number(value):
    """The form in which the server stores it."""
    value = float(value) if isinstance(value, str) else value
    return math.copysign(sys.float_info.max, value) if math.isinf(value) else value


def histories(trainings, rename=lambda name: name):
    """The logs of trainings, by name: [(step, value)]."""
    values = {}
    for training in trainings:
        for step, logs in training.logs:
            for name, value in logs.items():
                values.setdefault(rename(name), []).append((step, str(number(value))))
    return values


def histories_of(client, run):
    return {name: [(metric.step, str(metric.value)) for metric in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics}


def the_run(client, experiment="0", count=1):
    """The newest run of an experiment, which must have `count` runs."""
    runs = client.search_runs([experiment], order_by=["attributes.start_time DESC"])
    same(len(runs), count, f"runs of experiment {experiment}")
    return runs[0]
