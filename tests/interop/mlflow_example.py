"""Runs examples/mlflow_metrics against a server that records its requests, and checks them.

usage: mlflow_example.py PROGRAM [ARGUMENT...]
"""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

CALLS = []


class Server(http.server.BaseHTTPRequestHandler):
    def answer(self, body=None):
        CALLS.append((self.path.split("?")[0].removeprefix("/api/2.0/mlflow/"), body))
        run = {"info": {"run_id": "0123abc", "experiment_id": "0", "artifact_uri": "mlflow-artifacts:/0/0123abc"}}
        answer = {"run": run, "experiment": {"experiment_id": "0", "name": "Default"}}
        if CALLS[-1][0] == "runs/search":
            answer = {}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, *_):
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "DISABLE_MLFLOW"))}
    with tempfile.TemporaryDirectory() as spool:
        subprocess.run(sys.argv[1:], check=True, env={**environment, "MLFLOW_TRACKING_URI": address, "ETUDE_SPOOL_DIR": spool})
        assert os.listdir(spool) == [], os.listdir(spool)

    assert sum(method == "runs/create" for method, _ in CALLS) == 1, CALLS
    assert CALLS[-1] == ("runs/update", {"run_id": "0123abc", "status": "FINISHED", "end_time": CALLS[-1][1]["end_time"]}), CALLS[-1]
    values = {}
    for method, body in CALLS:
        if method != "runs/log-batch":
            continue
        assert body["run_id"] == "0123abc"
        for metric in body.get("metrics", []):
            assert metric["timestamp"] > 1.6e12, metric  # milliseconds
            values.setdefault(metric["key"], []).append((metric["step"], metric["value"]))
    assert set(values) >= {"train_loss_epoch", "eval_loss_epoch", "eval_accuracy"} and "loss" not in values, values.keys()
    for name in ("train_loss_epoch", "eval_loss_epoch"):
        (first_step, first), (second_step, second) = values[name]
        assert (first_step, second_step) == (45, 90), values[name]  # 1,437 images in batches of 32
        assert second < first, values[name]
    assert values["eval_accuracy"][-1][1] > 0.8, values["eval_accuracy"]
    print("MLflow heard", len(CALLS), "calls")


if __name__ == "__main__":
    main()
