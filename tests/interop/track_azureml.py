#!/usr/bin/env python3
"""track_azureml.py PROGRAM: trains with PROGRAM (tracked.cpp) against a real MLflow server that is reached like Azure ML's:
behind TLS with its own certificate, under a workspace's path, at an azureml:// address; and against a service of this
script that issues tokens which expire. Azure itself isn't used."""

import json
import os
import subprocess
import sys
import time

PROGRAM = os.path.abspath(sys.argv[1])
from checks import check, same  # noqa: E402
from mlflow_server import (HERE, MlflowClient, Proxy, Server, Training, histories, histories_of, the_run)  # noqa: E402

WORKSPACE = ("subscriptions/S/resourceGroups/R/providers/Microsoft.MachineLearningServices/workspaces/W")
PREFIX = "/mlflow/v1.0/" + WORKSPACE


def certificate():
    key, pem = os.path.join(HERE.name, "key.pem"), os.path.join(HERE.name, "cert.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", pem, "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return key, pem


def behind_tls(begun):
    key, pem = certificate()
    os.environ["MLFLOW_TRACKING_SERVER_CERT_PATH"] = pem  # for the official client, too
    server = Server("--static-prefix", PREFIX, "--uvicorn-opts", f"--ssl-keyfile {key} --ssl-certfile {pem}", scheme="https",
                    prefix=PREFIX).start()
    print(f"{time.monotonic() - begun:6.1f} s  the server is there", flush=True)
    try:
        client = MlflowClient(server.address)
        address = server.address.replace("https://", "azureml://") + "?ignored=1"
        environment = {"MLFLOW_TRACKING_URI": address, "MLFLOW_TRACKING_TOKEN": "T0ken"}

        # In a job the run exists, and the job ends it.
        experiment = client.create_experiment("job")
        run_id = client.create_run(experiment).info.run_id
        job = {**environment, "MLFLOW_RUN_ID": run_id, "MLFLOW_EXPERIMENT_ID": experiment, "MLFLOW_EXPERIMENT_NAME": "job"}
        folder = os.path.join(HERE.name, "job")
        training = Training(PROGRAM, "azure_ml", folder, "--odd", "true", "--save_strategy", "epoch", HF_MLFLOW_LOG_ARTIFACTS="1", **job).end()
        run = the_run(client, experiment)
        same((run.info.run_id, run.info.status), (run_id, "RUNNING"), "the job's run")
        same(histories_of(client, run), histories([training], lambda name: name.replace("(", "_").replace(")", "_")), "metrics")
        same(dict(run.data.params), {}, "parameters")
        same(list(client.list_artifacts(run_id)), [], "artifacts")
        same(training.errors().count("checkpoints aren't sent"), 1, "warnings about checkpoints")
        same(training.spools(), [], "spools that are left")
        failed = Training(PROGRAM, "azure_ml", folder, "--fail_at", "3", **job).end(3)
        same(client.get_run(run_id).info.status, "RUNNING", "the job's run, after a training that failed")
        same([metric.step for metric in client.get_metric_history(run_id, "loss")], [1, 2, 3, 4, 5, 6, 7, 8, 1, 2], "steps of both")
        check("T0ken" not in training.errors() + failed.errors(), "the token isn't reported")

        # Elsewhere the training creates its own run.
        training = Training(PROGRAM, "azure_ml", os.path.join(HERE.name, "own"), "--samples", "true", "--eval_strategy", "epoch", **environment).end()
        run = the_run(client, client.get_experiment_by_name("Default").experiment_id)
        same((run.info.status, histories_of(client, run)), ("FINISHED", histories([training])), "a run of its own")
        same(sorted(file.path for file in client.list_artifacts(run.info.run_id)), ["audio", "images", "texts"], "samples")

        # A server with an untrusted certificate is refused.
        strict = Training(PROGRAM, "azure_ml", os.path.join(HERE.name, "strict"), "--max_steps", "1",
                          **{**environment, "MLFLOW_TRACKING_SERVER_CERT_PATH": ""}).end()
        check("certificate" in strict.errors() and len(strict.spools()) == 1, strict.errors())
        insecure = Training(PROGRAM, "azure_ml", os.path.join(HERE.name, "strict"), "--max_steps", "1",
                            **{**environment, "MLFLOW_TRACKING_SERVER_CERT_PATH": "", "MLFLOW_TRACKING_INSECURE_TLS": "true"}).end()
        same(insecure.spools(), [], "spools that are left")
    finally:
        server.kill()
        del os.environ["MLFLOW_TRACKING_SERVER_CERT_PATH"]


def tokens_end(begun):
    """Each token is valid for a second; the service exchanges it for a new one, and once refuses because of too many requests."""
    issued, busy = {"t0": time.monotonic() + 1000}, [1]
    order = ["t0"]

    def way(method, path, headers, body):
        token = headers.get("Authorization", "").removeprefix("Bearer ")
        if path == f"/history/v1.0/{WORKSPACE}/experimentids/E/runs/R1/token":
            if token not in issued:
                return 401, b""
            if busy[0]:
                busy[0] -= 1
                return 429, b""
            order.append(f"t{len(order)}")
            issued[token] = min(issued[token], time.monotonic() + 0.2)
            issued[order[-1]] = time.monotonic() + 3
            return 200, f'{{"token": "{order[-1]}"}}'.encode()
        if issued.get(token, 0) < time.monotonic():
            return 401, b'{"error": {"code": "UserError"}}'
        if path.startswith(PREFIX + "/api/2.0/mlflow/runs/get"):
            return 200, b'{"run": {"info": {"run_id": "R1", "experiment_id": "E"}, "data": {}}}'
        return 200, b'{"experiment": {"experiment_id": "E", "name": "N"}}'

    proxy = Proxy(way=way)
    folder = os.path.join(HERE.name, "tokens")
    training = Training(PROGRAM, "azure_ml", folder, "--step_seconds", "0.2", "--num_train_epochs", "10", MLFLOW_TRACKING_URI=proxy.address + PREFIX,
                        AZUREML_RUN_TOKEN="t0", MLFLOW_RUN_ID="R1", MLFLOW_EXPERIMENT_ID="E",
                        MLFLOW_AML_TOKEN_REFRESH_INTERVAL="1").end()
    check(len(order) > 4, f"{len(order)} tokens")
    sent = [metric["step"] for body in proxy.calls("log-batch") for metric in body.get("metrics", []) if metric["key"] == "loss"]
    accepted = [metric["step"] for _, path, _, body, status in proxy.requests if path.endswith("log-batch") and status == 200
                for metric in json.loads(body).get("metrics", []) if metric["key"] == "loss"]
    same(accepted, list(range(1, 41)), f"losses that were taken, of {len(sent)}")
    same(proxy.calls("runs/update"), [], "what is said of the run's status")
    same(training.spools(), [], "spools that are left")
    check(not any(token in training.errors() for token in order if len(token) > 2), "tokens aren't reported")
    proxy.stop()
    print(f"{time.monotonic() - begun:6.1f} s  {len(order)} tokens, one after the other", flush=True)


def main():
    begun = time.monotonic()
    tokens_end(begun)
    behind_tls(begun)
    print(f"{time.monotonic() - begun:6.1f} s  behind TLS, under a workspace's path", flush=True)


if __name__ == "__main__":
    main()
