"""A server that answers Comet's package like Comet's own."""

import gzip
import http.server
import json
import ssl
import threading
import time
import urllib.parse

from comet_tools import KEY


class Server:
    """Answers Comet's package like Comet's server, and records every request."""

    def __init__(self, port=0, mode="well", experiments=None, certificate=None):
        self.requests, self.mode, self.lock = [], mode, threading.Lock()
        self.experiments = set() if experiments is None else experiments
        self.lose_next_open = False
        self.refused = set()  # names of metrics and parameters: a batch with one of them is refused as a whole
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
                request = {
                    "method": self.command,
                    "path": path,
                    "query": dict(urllib.parse.parse_qsl(query, keep_blank_values=True)),
                    "url": self.path,
                    "json": json.loads(body, parse_constant=lambda word: word) if kind.startswith("application/json") else None,
                    "raw": body,
                    "type": kind,
                    "authorization": self.headers.get("Authorization"),
                }
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
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.address = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}/clientlib/"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, request):
        with self.lock:
            path, body = request["path"], request["json"]
            if self.mode == "500":
                return 500, {"msg": f"no. {request['authorization']}"}
            if request["authorization"] != KEY:
                return 400, {"sdk_error_code": 90212, "msg": f"{request['authorization']} is not registered"}
            if body and any(
                value.get("metricName", value.get("parameterName")) in self.refused for value in body.get("values", [])
            ):
                return 400, {"sdk_error_code": 90001, "msg": "a value that can't be taken"}
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
                return 200, {
                    "is_alive_beat_duration_millis": 1000,
                    "gpu_monitor_interval_millis": 60000,
                    "cpu_monitor_interval_millis": 60000,
                    "parameter_update_interval_millis": 1000,
                    "pending_rpcs": False,
                }
            return 200, {"msg": "ok", "code": 200}

    @staticmethod
    def handshake(key):
        return {
            "runId": "run-" + key,
            "project_id": "project-id",
            "focusUrl": "http://127.0.0.1/x/",
            "featureToggles": [],
            "experimentKey": key,
            "name": "a name",
            "lastOffset": 0,
        }

    def stop(self):
        self.http.shutdown()
        self.http.server_close()

    def to(self, end, key=None):
        with self.lock:
            return [
                request
                for request in self.requests
                if request["path"].endswith(end)
                and (key is None or key in request["raw"].decode("utf-8", "replace") + request["url"])
            ]

    def points(self, key=None):
        return sorted(
            (value["metricName"], value["step"], value["metricValue"])
            for request in self.to("/batch/logger/experiment/metric", key)
            for value in request["json"]["values"]
        )

    def keys(self):
        return [request["json"].get("experimentKey") or request["json"]["previousExperiment"] for request in self.to("/run")]
