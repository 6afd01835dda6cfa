#!/usr/bin/env python3
"""track_mlflow.py PROGRAM [CASE...]: trains with PROGRAM (tracked.cpp) into a real MLflow server on loopback, and reads what it has with
MLflow's own client: counts, steps and values are exact. Meanwhile the server is killed and restarted. In front of it is a proxy
that answers with errors, hangs, loses answers and requires credentials."""

import base64
import glob
import hashlib
import os
import re
import sys
import threading
import time

PROGRAM = os.path.abspath(sys.argv[1])
import samples  # noqa: E402
from checks import check, same  # noqa: E402
from mlflow_server import (HERE, MlflowClient, Proxy, Server, Training, free_port, histories, histories_of, the_run)  # noqa: E402


def fit(name):
    """Renames them like Hugging Face's callback."""
    return re.sub(r"[^0-9A-Za-z_\-\. :/]", "_", name)


class Place:
    """A folder and an experiment for one case."""

    count = 0

    def __init__(self, client):
        Place.count += 1
        self.client, self.name = client, f"case {Place.count}/a"
        self.folder = os.path.join(HERE.name, f"case{Place.count}")

    def train(self, address, *arguments, **environment):
        return Training(PROGRAM, "mlflow", self.folder, *arguments,
                        **{"MLFLOW_TRACKING_URI": address, "MLFLOW_EXPERIMENT_NAME": self.name, **environment})

    def run(self, count=1):
        experiment = self.client.get_experiment_by_name(self.name)
        check(experiment, f"there is no experiment {self.name}")
        return the_run(self.client, experiment.experiment_id, count)

    def check_run(self, trainings, status="FINISHED", count=1):
        run = self.run(count)
        same(run.info.status, status, "status; " + trainings[-1].errors())
        same(histories_of(self.client, run), histories(trainings, fit), "metrics")
        same(trainings[-1].spools(), [], "spools that are left")
        return run


def whole_run(server, client):
    place = Place(client)
    training = place.train(server.address, "--odd", "true", "--save_strategy", "epoch", "--run_name", "first: a (1)", "--evaluate_after",
                           "true", HF_MLFLOW_LOG_ARTIFACTS="1", MLFLOW_TAGS='{"team": "ä", "size": 3}').end()
    run = place.check_run([training])
    same(sum(len(points) for points in histories_of(client, run).values()), 8 * 8 + 9 + 11, "points")
    same([value for _, value in histories_of(client, run)["odd_nan"]], ["nan"] * 10, "NaN")
    check(run.info.end_time >= run.info.start_time > 1.6e12, "times in milliseconds")
    same(run.info.run_name, "first: a (1)", "name")
    tags = run.data.tags
    same((tags["team"], tags["size"], tags["mlflow.source.type"]), ("ä", "3", "LOCAL"), "tags")
    check(tags["mlflow.source.name"].endswith(os.path.basename(PROGRAM)), tags)
    same(run.data.params["per_device_train_batch_size"], "2", "a parameter")
    same(run.data.params["disable_tqdm"], "True", "a parameter")
    same(run.data.params["report_to"], '["mlflow"]', "a parameter")
    check(len(run.data.params) > 50, "parameters")
    for checkpoint in training.checkpoints:
        name = os.path.basename(checkpoint)
        sent = {os.path.basename(file.path) for file in client.list_artifacts(run.info.run_id, name)}
        same(sent, set(os.listdir(checkpoint)), "files of " + name)
        copy = client.download_artifacts(run.info.run_id, name, HERE.name)
        for file in sent:
            same(digest(f"{copy}/{file}"), digest(f"{checkpoint}/{file}"), f"{name}/{file}")
    same(len(training.checkpoints), 2, "checkpoints")
    check(f"runs/{run.info.run_id}" in training.errors(), "the address of the run's page is reported")


def check_samples(client, run):
    """A run's artifacts are the samples of steps 4 and 8."""
    def files(folder):
        return sorted(file.path for file in client.list_artifacts(run.info.run_id, folder))

    def read(path):
        with open(client.download_artifacts(run.info.run_id, path, HERE.name), "rb") as file:
            return file.read()

    same(run.data.tags["mlflow.loggedImages"], "True", "the tag by which the run's page finds pictures")
    pictures = files("images")
    same(len(pictures), 2 * 3 * 2, "pictures and thumbnails")
    seen = set()
    for path in pictures:
        key, step, thumbnail = re.fullmatch(r"images/eval_([a-z~]+)\+step\+(\d)\+timestamp\+\d{13}\+[0-9a-f]{16}(\+compressed)?\.png", path).groups()
        seen.add((key, step, thumbnail))
        samples.check_picture(read(path), key.replace("~", "/"), int(step))
    same(len(seen), len(pictures), "different pictures")
    same(files("texts"), ["texts/eval_cats", "texts/eval_story"], "texts")
    for step in (4, 8):
        same(read(f"texts/eval_story/step-{step}.txt").decode(), samples.text(step), "a text")
        same(read(f"texts/eval_cats/first/step-{step}.caption.txt").decode(), samples.CAPTIONS["cats/first"], "a caption")
        same(read(f"audio/eval_mew/step-{step}.caption.txt").decode(), samples.CAPTIONS["mew"], "a caption")
        samples.check_sound(read(f"audio/eval_mew/step-{step}.wav"))


def samples_of_evaluations(proxy, client):
    place = Place(client)
    args = ("--samples", "true", "--eval_strategy", "epoch")
    training = place.train(proxy.address, *args).end()
    run = place.check_run([training])
    check_samples(client, run)
    check("0 were dropped" not in training.errors(), training.errors())

    # If the server is down, the files wait for the next run.
    place = Place(client)
    first = place.train(address := f"http://127.0.0.1:{free_port()}", *args).end()
    spool = os.path.join(place.folder, ".etude-spool", first.spools()[0])
    same([name for name in os.listdir(spool) if name.startswith(".sample")], [], "temporary files")
    with open(f"{spool}/run.json", encoding="utf-8") as file:
        lines = file.read()
    with open(f"{spool}/run.json", "w", encoding="utf-8") as file:
        file.write(lines.replace(address, proxy.address))
    second = place.train(proxy.address, "--max_steps", "1").end()
    run = place.run(2)
    runs = client.search_runs([run.info.experiment_id])
    check_samples(client, next(run for run in runs if "mlflow.loggedImages" in run.data.tags))
    same(second.spools(), [], "spools that are left")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def many_metrics(proxy, client):
    place = Place(client)
    before = len(proxy.requests)
    training = place.train(proxy.address, "--extra", "1500", "--max_steps", "2").end()
    run = place.run()
    same(len(run.data.metrics), 1500 + 4 + 5, "metrics")
    same([run.data.metrics[f"extra_{i}"] for i in range(1500)], [float(i) for i in range(1500)], "values")
    for name in ("extra_0", "extra_999", "extra_1000", "extra_1499"):
        same([metric.step for metric in client.get_metric_history(run.info.run_id, name)], [1, 2, 2], name)
    bodies = [body for _, path, _, body, status in proxy.requests[before:] if path.endswith("log-batch")]
    check(all(len(body) < 1e6 for body in bodies), "a request of less than 1 MB")
    check(all(status == 200 for *_, status in proxy.requests[before:] if status != 404), "no request is refused")


def parameters(server, client):
    place = Place(client)
    long_name = "x" * 6001
    training = place.train(server.address, "--max_steps", "1", "--metric_for_best_model", long_name, "--run_name",
                           "named", MLFLOW_MAX_LOG_PARAMS="40").end()
    run = place.check_run([training])
    check(len(run.data.params) in (39, 40), f"{len(run.data.params)} parameters, of the first 40")


def experiment_race(server, client):
    place = Place(client)
    trainings = [place.train(server.address) for _ in range(3)]
    for training in trainings:
        training.end()
    place.run(3)


def resumed(server, client):
    place = Place(client)
    failed = place.train(server.address, "--fail_at", "6", "--step_seconds", "0.5", "--save_strategy", "steps", "--save_steps", "2").end(3)
    run = place.check_run([failed], "FAILED")
    again = place.train(server.address, "--resume", "true", "--weight_decay", "0.5", "--save_strategy", "steps", "--save_steps", "2").end()
    same(again.logs[0][0], 7 if failed.checkpoints[-1].endswith("6") else 5, "the step that it goes on with")
    more = place.check_run([failed, again])
    same(more.info.run_id, run.info.run_id, "the run that goes on")
    same(more.data.params["weight_decay"], "0.0", "a parameter that was changed")
    check("weight_decay" in again.errors(), "a changed parameter is reported")


def attached(server, client):
    place = Place(client)
    experiment = client.create_experiment(place.name)
    given = client.create_run(experiment, run_name="given").info.run_id
    trainings = [place.train(server.address, MLFLOW_RUN_ID=given).end() for _ in range(2)]
    run = place.check_run(trainings)
    same((run.info.run_id, run.info.run_name), (given, "given"), "the run that was there")
    client.delete_run(given)
    for run_id, why in ((given, "deleted"), ("0" * 32, "doesn't exist")):
        refused = place.train(server.address, MLFLOW_RUN_ID=run_id).end(3)
        check("MLFLOW_RUN_ID" in refused.failed and why in refused.failed, refused.failed)
    client.restore_run(given)
    refused = place.train(server.address, MLFLOW_RUN_ID=given, MLFLOW_EXPERIMENT_NAME="another").end(3)
    check("MLFLOW_EXPERIMENT_NAME" in refused.failed, refused.failed)


def nested(server, client):
    place = Place(client)
    experiment = client.create_experiment(place.name)
    parent = client.create_run(experiment).info.run_id
    training = place.train(server.address, MLFLOW_NESTED_RUN="TRUE", MLFLOW_PARENT_RUN_ID=parent).end()
    runs = client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent}'")
    same(len(runs), 1, "runs within the parent")
    same(histories_of(client, runs[0]), histories([training], fit), "metrics")


def trials(server, client):
    """Four processes with a trial each. The first learns that the search has no run once a second process asks too, or after 3 s."""
    one_asks, another_asks = threading.Event(), threading.Event()

    def way(method, path, headers, body):
        if b"etude.search" in body and path.endswith("runs/search"):
            if one_asks.is_set():
                another_asks.set()
            else:
                one_asks.set()
                another_asks.wait(3)
        return "pass"

    proxy = Proxy(server, way)
    place = Place(client)

    def trial(number, *arguments):
        return place.train(proxy.address, "--output_dir", f"search/run-{number}", "--trial", f"run-{number}", "--learning_rate",
                           str(0.1 * (number + 1)), "--save_strategy", "steps", "--save_steps", "2", "--step_seconds", "0.5", *arguments)

    first = [trial(number, *(["--fail_at", "6"] if number == 3 else [])) for number in range(4)]
    for number, training in enumerate(first):
        training.end(3 if number == 3 else 0)
    again = trial(3, "--resume", "true").end()
    proxy.stop()
    experiment = client.get_experiment_by_name(place.name).experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    same(sorted(runs), ["run-0", "run-1", "run-2", "run-3", "search"], "runs")
    same(len(client.search_runs([experiment])), 5, "number of runs")
    parent = runs.pop("search")
    same((parent.info.status, parent.data.metrics, parent.data.params), ("FINISHED", {}, {}), "the search's run")
    check(parent.info.end_time >= parent.info.start_time > 1.6e12, "the search's times")
    check("mlflow.parentRunId" not in parent.data.tags, parent.data.tags)
    best = client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}' and params.width = '4'",
                              order_by=["metrics.train_loss ASC"])
    same(sorted(run.info.run_name for run in best), sorted(runs), "runs within the search's")
    for number, training in enumerate(first):
        run = runs[f"run-{number}"]
        same(run.info.status, "FINISHED", f"status of trial {number}")
        same(run.data.params["learning_rate"], str(0.1 * (number + 1)), "a hyperparameter")
        same(histories_of(client, run), histories([training, again] if number == 3 else [training], fit), f"metrics of trial {number}")
    same(again.spools(), [], "spools that are left")
    same(sorted(os.listdir(f"{place.folder}/search")), [".etude-search", "run-0", "run-1", "run-2", "run-3"], "files of the search")


def killed(server, client):
    """kill -9 of the training: its logs are on the server, or the next run sends them."""
    place = Place(client)
    training = place.train(server.address, "--step_seconds", "0.5").read_to(5)
    time.sleep(0.2)  # the program prints a log before its tracker gets it
    training.process.kill()
    training.process.wait()
    run = place.run()
    same(run.info.status, "RUNNING", "status of what was killed")
    next_one = place.train(server.address, "--max_steps", "1").end()
    run = next(run for run in client.search_runs([run.info.experiment_id]) if run.info.status == "RUNNING")
    same(histories_of(client, run), histories([training], fit), "metrics of what was killed")
    same(next_one.spools(), [], "spools that are left")

    place = Place(client)
    training = place.train(server.address, "--step_seconds", "0.2").read_to(3)
    training.process.terminate()
    training.end(-15)
    run = place.run()
    same((run.info.status, histories_of(client, run)), ("KILLED", histories([training], fit)), "what SIGTERM has ended")
    same(place.train(server.address, "--max_steps", "1").end().spools(), [], "spools that are left")


def down_at_start(server, client):
    place = Place(client)
    port = free_port()
    proxied = f"http://127.0.0.1:{port}"
    first = place.train(proxied, "--save_strategy", "epoch", HF_MLFLOW_LOG_ARTIFACTS="1").end()
    check("wait in" in first.errors() and "for the next run" in first.errors(), first.errors())
    same(len(first.spools()), 1, "spools")
    spool = os.path.join(place.folder, ".etude-spool", first.spools()[0])
    same(os.stat(spool).st_mode & 0o777, 0o700, "who may read the spool")

    proxy = Proxy(server)
    # The server returns, on a port that was free until now.
    lines = open(f"{spool}/run.json", encoding="utf-8").read()
    open(f"{spool}/run.json", "w", encoding="utf-8").write(lines.replace(proxied, proxy.address))
    second = place.train(proxy.address, "--max_steps", "1").end()
    run = place.run(2)
    runs = client.search_runs([run.info.experiment_id])
    seen = sorted((len(run.data.metrics["loss"] and histories_of(client, run)["loss"]), run.info.status) for run in runs)
    same(seen, [(1, "FINISHED"), (8, "FINISHED")], "the runs of both")
    old = next(run for run in runs if len(histories_of(client, run)["loss"]) == 8)
    same(histories_of(client, old), histories([first], fit), "metrics of the first")
    same({file.path for file in client.list_artifacts(old.info.run_id)}, {"checkpoint-4", "checkpoint-8"}, "its files")
    same(second.spools(), [], "spools that are left")
    proxy.stop()


def restarted(server, client):
    """Killed in the middle of a run, and restarted before its end."""
    place = Place(client)
    training = place.train(server.address, "--step_seconds", "0.1", "--num_train_epochs", "500").read_to(20)
    server.kill()
    training.read_to(40)
    starting = threading.Thread(target=server.start)
    starting.start()
    while starting.is_alive():
        training.read_to(training.logs[-1][0] + 1)
    training.read_to(training.logs[-1][0] + 20)
    training.process.terminate()  # however long the server has taken
    training.end(-15)
    run = place.run()
    same((run.info.status, histories_of(client, run)), ("KILLED", histories([training], fit)), "metrics")
    check("warning" in training.errors(), "that the server was gone is reported")
    slowest = max(after - before for before, after in zip(training.times, training.times[1:]))
    return f"(of {len(training.logs)} steps of 0.1 s the longest took {slowest:.3f} s)"


def troubles(server, client):
    """Errors, silence and lost answers: the training takes no longer, and the next one sends the remaining data."""
    alone = Training(PROGRAM, None, os.path.join(HERE.name, "alone"), "--num_train_epochs", "40", "--extra", "20").end()
    place = Place(client)
    fail = {"way": 503}
    proxy = Proxy(server, lambda *_: fail["way"])
    for way in (500, 503, "hang"):
        fail["way"] = way
        training = place.train(proxy.address, "--num_train_epochs", "40", "--extra", "20").end()
        limit = 2.5 if way == "hang" else 1.0
        check(training.seconds < alone.seconds + limit, f"{way}: {training.seconds} s, without a tracker {alone.seconds} s")
        check(training.loop_seconds() < alone.loop_seconds() + 0.5,
              f"{way}: the loop takes {training.loop_seconds()} s, without a tracker {alone.loop_seconds()} s")
        same(len(training.spools()), 1 if way == 500 else 2 if way == 503 else 3, "spools")
    fail["way"] = "pass"
    later = [place.train(proxy.address, "--max_steps", "1").end()]
    while later[-1].spools() and len(later) < 5:  # the end of one training may be too short for a slow server
        later.append(place.train(proxy.address, "--max_steps", "1").end())
    same(later[-1].spools(), [], "spools that are left")
    run = place.run(3 + len(later))
    runs = client.search_runs([run.info.experiment_id])
    same(sorted(len(histories_of(client, run)["extra_19"]) for run in runs if "extra_19" in run.data.metrics), [161] * 3, "points")
    same({run.info.status for run in runs}, {"FINISHED"}, "status")
    proxy.stop()


def lost_answers(server, client):
    """A request that succeeded isn't repeated, and a proxy's own error page isn't taken for the server's answer."""
    place = Place(client)
    lost = {"runs/create": 1, "log-batch": 3, "runs/update": 1, "experiments/create": 1}

    def lose(method, path, *_):
        for ending in lost:
            if path.endswith(ending) and lost[ending] > 0:
                lost[ending] -= 1
                return "lose"
        return "pass"

    proxy = Proxy(server, lose)
    training = place.train(proxy.address, "--step_seconds", "0.05", "--num_train_epochs", "40").end()
    place.check_run([training])
    same(lost, {"runs/create": 0, "log-batch": 0, "runs/update": 0, "experiments/create": 0}, "answers that were lost")
    proxy.stop()

    place = Place(client)
    proxy = Proxy(server, lambda method, path, headers, body: "pass" if path.startswith("/api") and time.monotonic() > up else (404, b"<html>"))
    up = time.monotonic() + 1.5
    place.check_run([place.train(proxy.address, "--step_seconds", "0.1", "--num_train_epochs", "15").end()])
    proxy.stop()


def in_the_way(server, client):
    """A proxy that redirects to a login, refuses the method or returns 503, during the run and at its end: nothing is lost."""
    place = Place(client)
    ways = {"log-batch": [(302, b"<html>"), (405, b"<html>"), (400, b"<html>")], "runs/update": [503, (302, b"")], "model.safetensors": [(400, b"")]}

    def way(method, path, *_):
        return next((ways[ending].pop(0) for ending in ways if path.endswith(ending) and ways[ending]), "pass")

    proxy = Proxy(server, way)
    training = place.train(proxy.address, "--step_seconds", "0.5", "--save_strategy", "epoch", HF_MLFLOW_LOG_ARTIFACTS="1").end()
    place.check_run([training])
    same(list(ways.values()), [[], [], []], "answers that are left")
    check("dropped" not in training.errors(), training.errors())
    proxy.stop()


def credentials(server, client):
    user, password, token = "somebody", "pass:word/1", "ToKeN0123456789"
    basic = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    wanted = {}
    proxy = Proxy(server, lambda method, path, headers, body:
                  "pass" if headers.get("Authorization") == wanted["is"]
                  else (401, f"who is {headers.get('Authorization')}".encode()))
    host = proxy.address.removeprefix("http://")
    home = os.path.join(HERE.name, "home")
    os.makedirs(f"{home}/.mlflow")
    with open(f"{home}/.mlflow/credentials", "w", encoding="utf-8") as file:
        file.write(f"[other]\nmlflow_tracking_username = x\n[mlflow]\nmlflow_tracking_username = {user}\nmlflow_tracking_password = {password}\n")
    ways = {
        "variables": (basic, proxy.address, {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password, "MLFLOW_TRACKING_TOKEN": token}),
        "token": ("Bearer " + token, proxy.address, {"MLFLOW_TRACKING_TOKEN": token}),
        "address": (basic, f"http://{user}:pass%3Aword%2F1@{host}", {}),
        "file": (basic, proxy.address, {"HOME": home}),
    }
    for way, (header, address, environment) in ways.items():
        place = Place(client)
        wanted["is"] = "nothing"
        refused = place.train(address, "--max_steps", "1", "--save_strategy", "epoch", **environment).end()
        check("401" in refused.errors(), way)
        texts = [refused.errors()]
        for path in glob.glob(f"{place.folder}/**", recursive=True, include_hidden=True):
            if os.path.isfile(path):
                texts.append(open(path, encoding="utf-8", errors="replace").read())
        check(len(texts) > 5, "files")
        encoded = basic.removeprefix("Basic ")
        for secret in (password, "pass%3Aword", token, encoded):
            for text in texts:
                check(secret not in text, f"{way}: {secret} is in {text}")
        wanted["is"] = header
        proxy.requests.clear()
        again = place.train(address, "--max_steps", "1", **environment).end()
        same(place.run(2).info.status, "FINISHED", way)
        same(again.spools(), [], "spools that are left")
        check(not any("@" in path or token in path for _, path, *_ in proxy.requests), "requests' addresses")
    proxy.stop()


def wrong_options(client):
    place = Place(client)
    for address in ("sqlite:///x.db", "databricks", "file:///tmp/x", "ftp://user:secret@host"):
        refused = place.train(address).end(3)
        check("MLFLOW_TRACKING_URI" in refused.failed and "https://" in refused.failed and "secret" not in refused.failed, refused.failed)
    check("MLFLOW_TRACKING_URI is set" in place.train("").end(3).failed, "no address")
    check("MLFLOW_TAGS" in place.train("http://127.0.0.1:1", MLFLOW_TAGS="[1]").end(3).failed, "tags")
    off = place.train("http://127.0.0.1:1", DISABLE_MLFLOW_INTEGRATION="TRUE").end()
    check("DISABLE_MLFLOW_INTEGRATION" in off.errors() and not off.spools(), off.errors())


def main():
    begun = time.monotonic()
    server = Server().start()
    client = MlflowClient(server.address)
    proxy = Proxy(server)
    cases = {
        "a whole run": lambda: whole_run(server, client),
        "samples": lambda: samples_of_evaluations(proxy, client),
        "1500 metrics": lambda: many_metrics(proxy, client),
        "parameters": lambda: parameters(server, client),
        "three at once": lambda: experiment_race(server, client),
        "failed and resumed": lambda: resumed(server, client),
        "a run that was there": lambda: attached(server, client),
        "a run within another": lambda: nested(server, client),
        "trials of a search": lambda: trials(server, client),
        "kill -9 and SIGTERM": lambda: killed(server, client),
        "no server at the start": lambda: down_at_start(server, client),
        "errors and silence": lambda: troubles(server, client),
        "lost answers": lambda: lost_answers(server, client),
        "a proxy in the way": lambda: in_the_way(server, client),
        "credentials": lambda: credentials(server, client),
        "wrong options": lambda: wrong_options(client),
        "a server that is killed and begun again": lambda: restarted(server, client),
    }
    try:
        for name, case in cases.items():
            if not sys.argv[2:] or name in sys.argv[2:]:
                print(f"{time.monotonic() - begun:6.1f} s  {name} {case() or ''}", flush=True)
    except AssertionError:
        print(server.log()[-3000:] if "500 Internal" in server.log() else "", file=sys.stderr)
        raise
    finally:
        server.kill()


if __name__ == "__main__":
    main()
