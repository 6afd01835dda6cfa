"""The part of Weights & Biases' server that `wandb sync` uses; it records every request."""

import http.server
import json
import threading
import urllib.parse
import zlib

ENTITY = "us"


class Run:
    """The server's record of a run."""

    def __init__(self, name):
        self.name = name
        self.upserts = []
        self.streams = {}  # by file: lines by their offset
        self.files = {}
        self.artifacts = []
        self.complete = None
        self.exit_code = None

    def lines(self, file):
        return [self.streams.get(file, {})[k] for k in sorted(self.streams.get(file, {}))]

    def history(self):
        return [json.loads(line) for line in self.lines("wandb-history.jsonl")]

    def summary(self):
        lines = self.lines("wandb-summary.json")
        return json.loads(lines[-1]) if lines else {}

    def config(self):
        for upsert in reversed(self.upserts):
            if upsert.get("config"):
                return {k: v["value"] for k, v in json.loads(upsert["config"]).items()}
        return {}


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    runs = {}
    operations = []
    unknown = []
    uploads = {}
    lock = threading.Lock()

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            data = zlib.decompress(data, 31)
        return data

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_PUT(self):
        data = self.body()
        _, _, run, name = urllib.parse.unquote(self.path).split("/", 3)
        with self.lock:
            (self.uploads if run == "artifact" else self.run_of(run).files)[name] = data
        self.answer({})

    def do_GET(self):
        self.answer({})

    def do_POST(self):
        data = json.loads(self.body() or b"{}")
        with self.lock:
            if self.path.endswith("/graphql"):
                self.graphql(data)
            elif self.path.endswith("/file_stream"):
                self.file_stream(data)
            else:
                self.unknown.append(self.path)
                self.answer({})

    def url(self, *parts):
        return f"http://127.0.0.1:{self.server.server_address[1]}/upload/" + urllib.parse.quote("/".join(parts))

    def run_of(self, name):
        return self.runs.setdefault(name, Run(name))

    def file_stream(self, data):
        run = self.run_of(self.path.split("/")[-2])
        for name, chunk in data.get("files", {}).items():
            lines = run.streams.setdefault(name, {})
            for i, line in enumerate(chunk["content"]):
                lines[chunk["offset"] + i] = line
        if "complete" in data:
            run.complete, run.exit_code = data["complete"], data.get("exitcode")
        self.answer({"exitcode": None, "limits": {}})

    def graphql(self, data):
        variables, query = data.get("variables", {}), data["query"]
        name = data.get("operationName") or query.split("(")[0].split("{")[0].split()[-1]
        self.operations.append(name)
        handler = getattr(self, "do_" + name, None)
        if handler is None:
            self.unknown.append(name)
            return self.answer({"errors": [{"message": f"unknown {name}"}]})
        self.answer({"data": handler(variables, query)})

    def do_ServerFeaturesQuery(self, variables, query):
        return {"serverInfo": {"features": []}}

    def project(self):
        return {"id": "P", "name": "p", "entity": {"id": "E", "name": ENTITY}}

    def do_UpsertBucket(self, variables, query):
        run = self.run_of(variables["name"])
        inserted = not run.upserts
        run.upserts.append(variables)
        bucket = {
            "id": "ID-" + run.name,
            "name": run.name,
            "displayName": variables.get("displayName") or "sunny-lion-1",
            "description": None,
            "config": variables.get("config"),
            "sweepName": None,
            "project": {**self.project(), "name": variables.get("project")},
            "historyLineCount": len(run.lines("wandb-history.jsonl")),
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}

    def do_RunResumeStatus(self, variables, query):
        run = self.runs.get(variables["name"])
        if run is None:
            return {"model": {**self.project(), "bucket": None}}
        history = run.lines("wandb-history.jsonl")
        bucket = {
            "id": "ID-" + run.name,
            "name": run.name,
            "summaryMetrics": (run.lines("wandb-summary.json") or ["{}"])[-1],
            "displayName": "sunny-lion-1",
            "logLineCount": 0,
            "historyLineCount": len(history),
            "eventsLineCount": 0,
            "historyTail": json.dumps(history[-1:]),
            "eventsTail": "[]",
            "config": run.upserts[-1].get("config") or "{}",
            "tags": [],
            "notes": None,
            "wandbConfig": json.dumps({"t": 1}),
        }
        return {"model": {**self.project(), "bucket": bucket}}

    def do_CreateRunFiles(self, variables, query):
        run = variables["run"]
        files = [{"name": f, "uploadUrl": self.url(run, f)} for f in variables["files"]]
        return {"createRunFiles": {"runID": "ID-" + run, "uploadHeaders": [], "files": files}}

    def do_CreateArtifact(self, variables, query):
        given = variables["input"]
        artifact = {"input": given, "manifests": [], "files": [], "committed": False, "id": f"A{len(self.artifacts())}"}
        self.run_of(given["runName"]).artifacts.append(artifact)
        return {"createArtifact": {"artifact": {"id": artifact["id"], "digest": given["digest"], "state": "PENDING",
                                                "aliases": [], "artifactSequence": {"id": "S", "latestArtifact": None}}}}

    def artifacts(self):
        return [artifact for run in self.runs.values() for artifact in run.artifacts]

    def artifact(self, id):
        return next(a for a in self.artifacts() if a["id"] == id)

    def do_CreateArtifactManifest(self, variables, query):
        self.artifact(variables["artifactID"])["manifests"].append(variables)
        file = {"id": "F", "uploadUrl": self.url("artifact", variables["artifactID"] + "-manifest"), "uploadHeaders": []}
        return {"createArtifactManifest": {"artifactManifest": {"id": variables["artifactID"], "file": file}}}

    def do_UpdateArtifactManifest(self, variables, query):
        id = variables["artifactManifestID"]
        file = {"id": "F", "uploadUrl": self.url("artifact", id + "-manifest"), "uploadHeaders": []}
        return {"updateArtifactManifest": {"artifactManifest": {"id": id, "file": file}}}

    def do_CreateArtifactFiles(self, variables, query):
        edges = []
        for spec in variables["input"]["artifactFiles"]:
            self.artifact(spec["artifactID"])["files"].append(spec)
            edges.append({"node": {"id": "F", "name": spec["name"], "displayName": spec["name"],
                                   "storagePath": spec["name"],
                                   "uploadUrl": self.url("artifact", spec["artifactID"] + "/" + spec["name"]),
                                   "uploadHeaders": [], "uploadMultipartUrls": None,
                                   "artifact": {"id": spec["artifactID"]}}})
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def do_CommitArtifact(self, variables, query):
        artifact = self.artifact(variables["artifactID"])
        artifact["committed"] = True
        return {"commitArtifact": {"artifact": {"id": artifact["id"], "digest": artifact["input"]["digest"]}}}


def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.handle_error = lambda *_: None  # wandb drops connections
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"
