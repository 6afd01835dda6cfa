"""Checks archives: their contents as Comet's package reads them, and that a run creates one however it ends."""

import csv
import glob
import io
import os
import signal
import subprocess
import time

from checks import check, same
from comet_server import Server
from comet_tools import COMET, KEY, PROGRAM, REFERENCE, Archive, Folder, Reported, key_sets, python


def upload(server, *archives):
    done = subprocess.run(
        [*COMET, "upload", *archives],
        text=True,
        capture_output=True,
        timeout=120,
        env={**os.environ, "COMET_API_KEY": KEY, "COMET_URL_OVERRIDE": server.address},
    )
    check(
        done.returncode == 0 and f"Number of uploaded experiments: {len(archives)}" in done.stdout + done.stderr,
        done.stdout + done.stderr,
    )


def offline_matches_the_package():
    folder = Folder()
    assets = folder.path + "/assets"
    os.makedirs(assets + "/deep")
    for name, text in (("a.json", "{}"), ("deep/b", "bytes")):
        with open(f"{assets}/{name}", "w") as file:
            file.write(text)
    python(REFERENCE, folder.path, COMET_OFFLINE_DIRECTORY=folder.path + "/reference", ASSETS=assets)
    reference = Archive(glob.glob(folder.path + "/reference/*.zip")[0])

    reported = folder.train(
        "--odd",
        "true",
        "--extra",
        "3",
        "--save_strategy",
        "epoch",
        "--run_name",
        "my run",
        COMET_MODE="offline",
        COMET_LOG_ASSETS="TRUE",
        COMET_PROJECT_NAME="project",
        COMET_WORKSPACE="space",
        COMET_START_EXPERIMENT_TAGS="a, b",
    )
    same(len(folder.archives()), 1, "archives")
    archive = Archive(folder.archives()[0])
    archive.validate()
    same(archive.points(), reported.points(), "metrics")
    check(any(value == "NaN" for _, _, value in archive.points()), "no odd values")
    same(len(reported.logs), 9, "logs")

    info = archive.experiment
    same(info["offline_id"] + ".zip", os.path.basename(folder.archives()[0]), "the archive's name")
    check(len(info["offline_id"]) == 32 and info["offline_id"].isalnum(), "the experiment's key")
    same(
        (info["project_name"], info["workspace"], info["tags"], info["resume_strategy"], info["customer_error_reported"]),
        ("project", "space", ["a", "b"], "get_or_create", False),
        "experiment.json",
    )
    check(
        0 <= info["stop_time"] - info["start_time"] < 60_000 and abs(time.time() * 1000 - info["stop_time"]) < 60_000, "times"
    )

    others = {other["key"]: other["value"] for other in archive.of("log_other")}
    same(os.stat(folder.archives()[0]).st_mode & 0o777, 0o600, "who may read it")
    same(others, {"Name": "my run", "Created from": "etude", "offline_experiment": True, "hasNestedParams": True}, "others")
    parameters = {
        given["paramName"]: given["paramValue"]
        for message in archive.of("parameter_msg")
        for given in [message.get("param") or message["params"]]
    }
    same(
        (parameters["args|run_name"], parameters["args|logging_steps"], parameters["args|output_dir"]),
        ("my run", 1, folder.path + "/out"),
        "parameters",
    )
    same((parameters["curr_step"], parameters["curr_epoch"]), (8, 2.0), "where it was at last")
    check("in_features=3, out_features=4" in archive.of("graph")[0]["graph"], "the model")
    same(archive.of("system_details")[0]["command"], [PROGRAM], "the command")
    same(archive.of("file_name")[0]["file_name"], os.path.realpath(PROGRAM), "the program")

    uploads = {
        upload["additional_params"]["fileName"]: archive.files[upload["file_path"]] for upload in archive.of("file_upload")
    }
    there = {}
    for directory, _, names in os.walk(folder.path + "/out"):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                if not name.startswith(".") and path != folder.path + "/out/trainer_state.json":  # a lock; written afterwards
                    there["out/" + os.path.relpath(path, folder.path + "/out")] = file.read()
    same(sorted(uploads), sorted(there), "files")
    check(uploads == there and any("checkpoint-8/" in name for name in there), "bytes of files")

    # A message has the same optional parts as the package's.
    ours, theirs = key_sets(archive), key_sets(reference)
    for kind, sets in ours.items():
        check(sets <= theirs[kind], f"{kind}: {sets - theirs[kind]} isn't in {theirs[kind]}")
    for kind in ("experiment", "metric_msg", "parameter_msg", "log_other", "graph", "file_name", "system_details", "file_upload"):
        same(ours[kind], theirs[kind], f"names in {kind}")

    done = subprocess.run([*COMET, "offline", "--csv", folder.archives()[0]], text=True, capture_output=True)
    rows = [row for row in csv.DictReader(io.StringIO(done.stdout)) if row["level"] == "detail"]
    seen = sorted((row["name"], row["value"]) for row in rows if row["section"] == "metric")
    same(seen, sorted((name, str(value)) for name, _, value in reported.points()), "what comet offline has")
    same(
        {(row["workspace"], row["project"], row["experiment"]) for row in rows},
        {("space", "project", info["offline_id"])},
        "whose it is",
    )
    check("error" not in done.stderr.lower(), done.stderr)


def resumed_continues_the_experiment():
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
    reported = folder.train("--fail_at", "3", code=3, COMET_START_ONLINE="0")
    archive = Archive(folder.archives()[0])
    archive.validate()
    same(
        (archive.experiment["customer_error_reported"], archive.experiment["customer_error_message"]),
        (True, "failed on purpose"),
        "the error",
    )
    same(archive.points(), reported.points(), "metrics")
    server = Server()
    upload(server, folder.archives()[0])
    reported = server.to("/write/experiment/update-status")
    same([request["json"]["error"] for request in reported], ["failed on purpose"], "the error on the server")
    server.stop()


def terminated_is_whole():
    for number in (signal.SIGTERM, signal.SIGINT):
        folder = Folder()
        process = folder.start("--step_seconds", "0.2", COMET_MODE="offline")
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(number)
        rest, err = process.communicate(timeout=60)
        reported = Reported("".join(lines) + rest, err, process.returncode, -number)
        same(glob.glob(folder.path + "/archives/.*"), [], "what is left")
        same(len(folder.archives()), 1, "archives")
        archive = Archive(folder.archives()[0])
        archive.validate()
        same(archive.points(), reported.points(), "metrics")
        same(archive.experiment["customer_error_reported"], False, "whether it failed")


def killed_is_rescued():
    folder = Folder()
    process = folder.start("--step_seconds", "0.2", "--num_train_epochs", "9", COMET_MODE="offline")
    lines = [process.stdout.readline() for _ in range(9)]
    process.send_signal(signal.SIGKILL)
    rest, err = process.communicate()
    same(process.returncode, -signal.SIGKILL, "how it ended")
    logged = Reported("".join(lines) + rest, err, 0)
    same(folder.archives(), [], "archives")
    partial = glob.glob(folder.path + "/archives/.*.partial")
    same(len(partial), 1, "folders that are left")
    key = os.path.basename(partial[0])[1 : -len(".partial")]
    with open(partial[0] + "/messages.json", "a") as file:
        file.write('{"payload":{"half')

    # A running process's data is left alone.
    alive = folder.start("--step_seconds", "0.2", "--num_train_epochs", "5", COMET_MODE="offline")
    first = alive.stdout.readline()
    reported = folder.train(COMET_MODE="offline", COMET_PROJECT_NAME="next")
    out, err = alive.communicate(timeout=60)
    lived = Reported(first + out, err, alive.returncode)
    same(len(folder.archives()), 3, "archives")
    same(glob.glob(folder.path + "/archives/.*"), [], "what is left")
    archives = {os.path.basename(path)[:-4]: Archive(path) for path in folder.archives()}
    killed = archives.pop(key)
    killed.validate()
    check(logged.could_have_left(killed.points()), f"{killed.points()} isn't {logged.points()}")
    check(
        killed.experiment["customer_error_reported"] and killed.experiment["stop_time"] >= killed.experiment["start_time"],
        "how it ended",
    )
    same(sorted(len(one.points()) for one in archives.values()), sorted([len(reported.points()), len(lived.points())]), "the others")
