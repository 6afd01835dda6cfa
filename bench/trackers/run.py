"""Compares Etude's trackers with each tool's Python client: how long a log delays the training, and how many metrics per
second reach their destination. Both log the same numbers: TensorBoard to a file, Weights & Biases and Comet to their offline
formats, MLflow to one `mlflow server` on this machine.

usage: run.py --program PROGRAM --output FOLDER [--logs N] [--metrics N] [--rounds N]
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "train"))
from run import PeerFailed, left_out_table, say  # noqa: E402

NAMES = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases, offline", "comet_ml": "Comet, offline", "mlflow": "MLflow, server"}


def client(name):
    """Returns two functions: log(numbers, step), which calls the client as Hugging Face's callback does, and close()."""
    if name == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter("runs")

        def log(numbers, step):
            for key, value in numbers.items():
                writer.add_scalar("train/" + key, value, step)
            writer.flush()

        return log, writer.close
    if name == "wandb":
        import wandb

        run = wandb.init(project="bench", mode="offline", settings=wandb.Settings(silent=True))
        return lambda numbers, step: run.log({**{"train/" + k: v for k, v in numbers.items()}, "train/global_step": step}), run.finish
    if name == "comet_ml":
        import comet_ml

        experiment = comet_ml.OfflineExperiment(offline_directory="comet", log_code=False, display_summary_level=0)
        return lambda numbers, step: experiment.log_metrics({"train/" + k: v for k, v in numbers.items()}, step=step), experiment.end
    import mlflow

    mlflow.start_run()
    return lambda numbers, step: mlflow.log_metrics(numbers, step=step, synchronous=False), mlflow.end_run


def in_python(name, logs, metrics):
    log, close = client(name)
    stalls = []
    begun = time.perf_counter()
    for step in range(1, logs + 1):
        numbers = {f"metric_{i}": i / 7 for i in range(metrics)}
        before = time.perf_counter()
        log(numbers, step)
        stalls.append(1e6 * (time.perf_counter() - before))
    close()
    stalls.sort()
    print(json.dumps({"median": stalls[len(stalls) // 2], "p99": stalls[len(stalls) * 99 // 100], "whole": time.perf_counter() - begun, "logs": logs}))


def run(command, server):
    """Runs a command in a new folder, which is also its home, and returns the last line that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"HOME": folder, "WANDB_MODE": "offline", "COMET_START_ONLINE": "0", "COMET_MODE": "create", "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **settings, "MLFLOW_TRACKING_URI": server}
        environment.pop("COMET_API_KEY", None)
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            if command[0] == sys.executable:
                raise PeerFailed(done.stderr[-200:])
            sys.exit(f"{' '.join(command)}: {done.stderr[-2000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])


def serve(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    for _ in range(300):
        try:
            urllib.request.urlopen(address + "/health", timeout=1)
            return server, address
        except OSError:
            time.sleep(0.2)
    sys.exit("mlflow server did not come up")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program")
    parser.add_argument("--output", default=".")
    parser.add_argument("--logs", type=int, default=500)
    parser.add_argument("--metrics", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client", choices=NAMES)
    options = parser.parse_args()
    if options.client:
        in_python(options.client, options.logs, options.metrics)
        return

    results, left_out = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        server, address = serve(folder)
        try:
            for _ in range(options.rounds):
                for name in [name for name in NAMES if name not in left_out]:
                    sizes = [str(options.logs), str(options.metrics)]
                    ours = run([str(pathlib.Path(options.program).resolve()), name, *sizes], address)
                    try:
                        theirs = run([sys.executable, str(pathlib.Path(__file__).resolve()), "--client", name, "--logs", sizes[0], "--metrics", sizes[1]], address)
                    except PeerFailed as failure:
                        say(f"left out: {name}, {failure}")
                        left_out[name] = str(failure)
                        results.pop(name, None)
                        continue
                    for who, result in (("etude", ours), ("python", theirs)):
                        result["events"] = result["logs"] * options.metrics / result["whole"]
                        results.setdefault(name, {}).setdefault(who, []).append(result)
        finally:
            os.killpg(server.pid, 15)

    lines = [
        f"{options.logs} logs of {options.metrics} metrics, medians of {options.rounds} rounds. Times are those for which a log holds the training up.",
        "",
        "| tracker | log in Etude, us (99 %) | log in Python, us (99 %) | ratio | metrics/s, Etude | metrics/s, Python | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, who in results.items():
        mid = {w: {key: statistics.median(r[key] for r in rounds) for key in ("median", "p99", "events")} for w, rounds in who.items()}
        ours, theirs = mid["etude"], mid["python"]
        lines.append(
            f"| {NAMES[name]} | {ours['median']:.0f} ({ours['p99']:.0f}) | {theirs['median']:.0f} ({theirs['p99']:.0f}) | {theirs['median'] / ours['median']:.1f} "
            f"| {ours['events']:,.0f} | {theirs['events']:,.0f} | {ours['events'] / theirs['events']:.1f} |"
        )
    text = "\n".join(lines) + "\n"
    if left_out:
        text += "\n" + left_out_table({NAMES[name]: why for name, why in left_out.items()})
    output = pathlib.Path(options.output)
    (output / "trackers.md").write_text(text)
    (output / "trackers.json").write_text(json.dumps(results, indent=1))
    print(text)


if __name__ == "__main__":
    main()
