"""Requests to a server, healthy or not."""

import glob
import os
import signal
import socket
import subprocess
import time
from collections import Counter

from checks import check, same
from comet_offline import upload
from comet_server import Server
from comet_tools import KEY, PROGRAM, REFERENCE, Folder, Reported, python

ONLINE = dict(COMET_API_KEY=KEY)


def bodies(server):
    """The sets of names sent to each address."""
    found = {}
    for request in server.requests:
        body = request["json"]
        if body is None:
            names = tuple(sorted(request["query"]))
        elif "values" in body:
            names = tuple(sorted(body)) + tuple(sorted({"values." + name for value in body["values"] for name in value}))
        else:
            names = tuple(sorted(body))
        found.setdefault(request["path"].replace("/api/rest/v2/", "/REST/").replace("/clientlib/rest/v2/", "/REST/"), set()).add(
            names
        )
    return found


def online_is_what_the_package_sends():
    folder = Folder()
    server = Server()
    reported = folder.train(
        "--odd",
        "true",
        "--save_strategy",
        "epoch",
        "--step_seconds",
        "0.3",
        **ONLINE,
        COMET_URL_OVERRIDE=server.address,
        COMET_LOG_ASSETS="1",
        COMET_PROJECT_NAME="project",
        COMET_WORKSPACE="space",
        COMET_START_EXPERIMENT_TAGS="a,b",
    )
    same(folder.archives(), [], "archives")
    same(server.points(), reported.points(), "metrics")
    opened = server.to("/logger/add/run")[0]["json"]
    same((opened["projectName"], opened["teamName"], opened["offline"]), ("project", "space", False), "the experiment")
    key = opened["experimentKey"]
    same(
        {
            request["json"]["experimentKey"]
            for request in server.requests
            if request["json"] and "experimentKey" in request["json"]
        },
        {key},
        "whose it is",
    )
    same({request["authorization"] for request in server.requests}, {KEY}, "who asks")
    check(all(KEY not in request["url"] for request in server.requests), "the key is in an address")
    same(folder.spooled(), b"", "what waits")
    beats = [request["json"]["is_alive"] for request in server.to("/status-report/update")]
    check(len(beats) >= 4 and beats[-1] is False and all(beats[:-1]), f"heartbeats {beats}")
    times = server.to("/set-start-end-time")[0]["json"]
    check(2000 < times["endTimeMillis"] - times["startTimeMillis"] < 60000, "times")
    names = {
        value["parameterName"]: value["parameterValue"]
        for request in server.to("/experiment/parameter")
        for value in request["json"]["values"]
    }
    same((names["args|logging_steps"], names["args|seed"]), (1, 42), "parameters")
    same(
        {request["json"]["key"]: request["json"]["value"] for request in server.to("/log-other")},
        {"Created from": "etude", "hasNestedParams": True},
        "others",
    )
    same([request["json"]["command"] for request in server.to("/system-details")], [[PROGRAM]], "the command")
    uploads = {request["query"]["fileName"]: request["raw"] for request in server.to("/upload-asset")}
    check("out/checkpoint-8/trainer_state.json" in uploads, f"files {sorted(uploads)}")
    with open(folder.path + "/out/checkpoint-8/trainer_state.json", "rb") as file:
        check(file.read() in uploads["out/checkpoint-8/trainer_state.json"], "a file's bytes")
    check("wait in" not in reported.err, reported.err)

    # The package, online or uploading an archive of ours, sends the same data under the same names.
    package = Server()
    python(REFERENCE, folder.path, ONLINE="1", COMET_API_KEY=KEY, COMET_URL_OVERRIDE=package.address, ASSETS=folder.path + "/out")
    folder.train("--odd", "true", COMET_MODE="offline", COMET_START_EXPERIMENT_TAGS="a")
    upload(package, folder.archives()[0])
    ours, theirs = bodies(server), bodies(package)
    for path in ours:
        if path.endswith(("/set-start-end-time", "/tags", "/upload-asset")):
            continue  # the package uses other addresses for these; its REST client has them
        check(path in theirs, f"the package doesn't know {path}: {sorted(theirs)}")
        check(ours[path] <= theirs[path], f"{path}: {ours[path]}, and the package's are {theirs[path]}")
    server.stop()
    package.stop()


def failed_and_resumed_online():
    folder = Folder()
    server = Server()
    first = folder.train(
        "--fail_at", "3", "--save_steps", "2", "--save_strategy", "steps", code=3, **ONLINE, COMET_URL_OVERRIDE=server.address
    )
    failed = server.to("/update-status")
    same(
        [(request["json"]["error"], request["json"]["hasCrashed"]) for request in failed],
        [("failed on purpose", True)],
        "the error",
    )
    server.lose_next_open = True
    second = folder.train("--resume", "true", **ONLINE, COMET_URL_OVERRIDE=server.address)
    same(len(set(server.keys())), 1, "experiments")
    same(server.points(), sorted(first.points() + second.points()), "metrics")
    server.stop()


def a_key_that_is_given():
    folder = Folder()
    server = Server()
    given = "A" * 32
    reported = folder.train(**ONLINE, COMET_URL_OVERRIDE=server.address, COMET_EXPERIMENT_KEY=given, COMET_MODE="create")
    # The answer is lost, but the experiment exists and belongs to this run.
    other = "B" * 32
    server.lose_next_open = True
    again = folder.train(
        "--step_seconds", "0.4", **ONLINE, COMET_URL_OVERRIDE=server.address, COMET_EXPERIMENT_KEY=other, COMET_MODE="create"
    )
    same(server.points(given), reported.points(), "metrics of the first")
    same(server.points(other), again.points(), "metrics of the second")
    # The experiment belongs to another run, so logged data waits.
    refused = folder.train(**ONLINE, COMET_URL_OVERRIDE=server.address, COMET_EXPERIMENT_KEY=given, COMET_MODE="create")
    check("it exists" in refused.err and "wait in" in refused.err, refused.err + refused.out)
    same(server.points(given), reported.points(), "metrics of the first, afterwards")
    check(b"train/loss" in folder.spooled(), "nothing waits")
    server.stop()


def a_refused_value_costs_no_other():
    folder = Folder()
    server = Server()
    server.refused = {"train/extra_1", "args|seed"}
    reported = folder.train("--extra", "3", **ONLINE, COMET_URL_OVERRIDE=server.address)
    points = [point for point in reported.points() if point[0] not in server.refused]
    same(server.points(), points, "metrics")
    names = [value["parameterName"] for request in server.to("/experiment/parameter") for value in request["json"]["values"]]
    check("args|seed" not in names and "args|logging_steps" in names, f"parameters {names}")
    check(f"{len(reported.points()) - len(points) + 1} were dropped" in reported.err, reported.err)
    server.stop()


def terminated_online():
    """A signal ends an experiment, though no destructor runs."""
    folder = Folder()
    server = Server()
    process = folder.start("--step_seconds", "0.3", **ONLINE, COMET_URL_OVERRIDE=server.address)
    lines = [process.stdout.readline() for _ in range(3)]
    process.send_signal(signal.SIGTERM)
    rest, err = process.communicate(timeout=60)
    reported = Reported("".join(lines) + rest, err, process.returncode, -signal.SIGTERM)
    same(server.points(), reported.points(), "metrics")
    same(len(server.to("/set-start-end-time")), 1, "ends")
    check(server.to("/status-report/update")[-1]["json"]["is_alive"] is False, "it is still said to be alive")
    same(server.to("/update-status"), [], "what failed")
    same(folder.spooled(), b"", "what waits")
    server.stop()


def a_server_with_a_certificate_of_its_own():
    folder = Folder()
    pem = folder.path + "/own.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", pem + ".key", "-out", pem, "-days", "2"]
        + ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    with open(pem) as certificate, open(pem + ".key") as key, open(pem + ".both", "w") as both:
        both.write(certificate.read() + key.read())
    server = Server(certificate=pem + ".both")
    to_it = dict(COMET_URL_OVERRIDE=server.address, **ONLINE)
    reported = folder.train(**to_it)
    check("certificate" in reported.err and "wait in" in reported.err and not server.requests, reported.err)
    trusting = [
        dict(COMET_INCLUDE_CUSTOM_CA_BUNDLE=pem),
        dict(REQUESTS_CA_BUNDLE=pem),
        dict(COMET_INTERNAL_CHECK_TLS_CERTIFICATE="0"),
    ]
    points = reported.points()
    for variables in trusting:
        points += folder.train("--step_seconds", "0.05", **variables, **to_it).points()
        same(server.points(), sorted(points), f"{variables}: metrics")
    server.stop()


def wrong_key():
    folder = Folder()
    server = Server()
    reported = folder.train(COMET_API_KEY="another" + KEY[::-1], COMET_URL_OVERRIDE=server.address)
    check("not registered" in reported.err and KEY[::-1] not in reported.err, reported.err)
    later = folder.train(**ONLINE, COMET_URL_OVERRIDE=server.address)
    wait_for(lambda: once(server.points()) == once(reported.points() + later.points()), "what waited for the right key")
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
    base = subprocess.run(
        [PROGRAM, "--output_dir", plain.path + "/out", "--step_seconds", "0.05"], text=True, capture_output=True, cwd=plain.path
    )
    seconds = Reported(base.stdout, base.stderr, base.returncode).seconds
    for mode in ("down", "hangs", "500"):
        folder = Folder()
        port = free_port()
        server = None if mode == "down" else Server(port, mode)
        reported = folder.train("--step_seconds", "0.05", **ONLINE, COMET_URL_OVERRIDE=f"http://127.0.0.1:{port}/clientlib/")
        print(f"  {mode}: {reported.seconds:.2f} s, without a tracker {seconds:.2f} s")
        check(reported.seconds < 1.5 * seconds + 0.6, f"{mode}: {reported.seconds} s instead of {seconds} s")
        check("0 messages of experiment" in reported.err and "wait in" in reported.err and "0 were dropped" in reported.err, reported.err)
        spooled = folder.spooled()
        check(KEY.encode() not in spooled and b"train/loss" in spooled, f"{mode}: the spool")
        for path in glob.glob(folder.path + "/spool/*"):
            same(os.stat(path).st_mode & 0o77, 0, "who may read the spool")
        if server:
            server.stop()
        well = Server(port)
        later = folder.train("--step_seconds", "0.05", **ONLINE, COMET_URL_OVERRIDE=well.address)
        same(well.points(), sorted(reported.points() + later.points()), f"{mode}: what is there in the end")
        same(len(well.experiments), 2, f"{mode}: experiments")
        same(folder.spooled(), b"", f"{mode}: the spool in the end")
        well.stop()


def once(points):
    """The server's data without duplicates, which it may have received after a kill."""
    return sorted(set(points))


def restarted_in_the_middle():
    folder = Folder()
    server = Server()
    process = folder.start("--step_seconds", "0.3", "--num_train_epochs", "4", **ONLINE, COMET_URL_OVERRIDE=server.address)
    lines = [process.stdout.readline() for _ in range(5)]
    wait_for(server.points, "nothing was sent")
    port = server.port
    server.stop()
    lines += [process.stdout.readline() for _ in range(8)]
    again = Server(port, experiments=server.experiments)
    rest, err = process.communicate(timeout=60)
    reported = Reported("".join(lines) + rest, err, process.returncode)
    # The old server serves open connections to their end.
    seen = sorted(server.points() + again.points())
    same(once(seen), once(reported.points()), "metrics")
    check(len(seen) - len(reported.points()) in (0, 4, 5), f"{len(seen)} instead of {len(reported.points())} metrics")
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
    logged = Reported("".join(lines) + rest, err, 0)
    server = Server(port)
    later = folder.train(**ONLINE, COMET_URL_OVERRIDE=address)
    seen = server.points()
    left = list((Counter(seen) - Counter(later.points())).elements())
    same(len(left), len(seen) - len(later.points()), "what the later training had logged")
    check(logged.could_have_left(left), f"what the killed process had logged: {left}")
    same(len(server.experiments), 2, "experiments")
    server.stop()
