"""Runs examples/mlflow_metrics against a server that keeps what it is sent, and looks at that.

usage: mlflow.py PROGRAM [ARGUMENT...]
"""

import http.server
import json
import os
import subprocess
import sys
import threading

CALLS = []


class Server(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        CALLS.append((self.path, body))
        answer = {"run": {"info": {"run_id": "0123abc"}}} if self.path.endswith("runs/create") else {}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    subprocess.run(sys.argv[1:], check=True, env={**os.environ, "MLFLOW_TRACKING_URI": address})

    methods = [path.removeprefix("/api/2.0/mlflow/") for path, _ in CALLS]
    assert methods[0] == "runs/create" and methods[-1] == "runs/update", methods
    assert CALLS[-1][1]["status"] == "FINISHED" and CALLS[-1][1]["run_id"] == "0123abc"
    logged = [body for path, body in CALLS if path.endswith("runs/log-batch")]
    assert len(logged) == 4, logged  # the end of training and the evaluation, of two epochs
    values = {}
    for body in logged:
        assert body["run_id"] == "0123abc"
        for metric in body["metrics"]:
            assert metric["timestamp"] > 1.6e12, metric  # milliseconds
            values.setdefault(metric["key"], []).append((metric["step"], metric["value"]))
    for name in ("train_loss_epoch", "eval_loss_epoch"):
        (first_step, first), (second_step, second) = values[name]
        assert (first_step, second_step) == (45, 90), values[name]  # 1,437 images in batches of 32
        assert second < first, values[name]
    assert values["eval_accuracy"][-1][1] > 0.8, values["eval_accuracy"]
    print("MLflow heard", len(CALLS), "calls")


if __name__ == "__main__":
    main()
