"""track_tensorboard.py PROGRAM: TensorBoard reads the event files of the program `tracked`, with its record reader, its
EventAccumulator, and its server with both loaders."""

import collections
import glob
import json
import math
import os
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error

import samples
from tensorboard_readers import NUMBERS, EventAccumulator, Server, check, check_scalars, events, files, hparams, load, points, scalars, texts

PROGRAM = os.path.abspath(sys.argv[1])
TEXTS = 2  # arguments and model
Ran = collections.namedtuple("Ran", "code logs text errors")


def command(*args):
    return [PROGRAM, "--report_to", "tensorboard", "--log_level", "info", *map(str, args)]


def reported(text):
    """The logs, as (step, names and values)."""
    logs = []
    for line in text.splitlines():
        if line.startswith("log ") and line.endswith("}"):
            step, values = line[4:].split(" ", 1)
            logs.append((int(step), {name: float(NUMBERS.get(x, x)) for name, x in json.loads(values).items()}))
    return logs


def run(*args, code=0, env=None, before=None):
    ran = subprocess.run(command(*args), capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})}, preexec_fn=before)
    assert ran.returncode == code, (ran.returncode, ran.stdout, ran.stderr)
    return Ran(ran.returncode, reported(ran.stdout), ran.stdout, ran.stderr)


def the_run(output_dir):
    runs = sorted(glob.glob(f"{output_dir}/runs/*"))
    assert len(runs) == 1, runs
    return runs[0]


def session_of(folder):
    sessions = [entry.path for entry in os.scandir(folder) if entry.is_dir()]
    assert len(sessions) == 1, sessions
    return sessions[0]


def without_times(points):
    return {tag: values for tag, values in points.items() if not re.search("runtime|per_second", tag)}


def check_plain(root):
    ran = run("--output_dir", f"{root}/plain", "--eval_strategy", "epoch", "--odd", "true", "--extra", 40, "--evaluate_after", "true")
    folder = the_run(f"{root}/plain")
    assert re.fullmatch(r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\d\d_\d\d-\d\d-\d\d_" + re.escape(os.uname().nodename),
                        os.path.basename(folder)), folder
    [path] = files(folder)
    assert re.fullmatch(r"events\.out\.tfevents\.\d{10}\..+\.\d+\.\d+", os.path.basename(path)), path
    check(stat.S_IMODE(os.stat(path).st_mode), 0o666 & ~UMASK, "mode")
    written = events(path)
    check(len(written), 1 + TEXTS + 1 + len(ran.logs), "events")
    check([e.wall_time for e in written], sorted(e.wall_time for e in written), "times")
    assert abs(written[0].wall_time - time.time()) < 60
    check_scalars(folder, ran.logs)
    check(len(ran.logs[0][1]), 4 + 4 + 40, "metrics of a log")

    loaded = load(folder)
    assert loaded.Tags()["graph"] and not loaded.Tags()["histograms"]
    check([(node.name, node.op) for node in loaded.Graph().node], [("Net/Linear[first]", "Linear"), ("Net/Linear[second]", "Linear")], "graph")
    for name in ("args/text_summary", "model/text_summary"):
        check(loaded.SummaryMetadata(name).plugin_data.plugin_name, "text", name)
    [text] = loaded.Tensors("args/text_summary")
    args = json.loads(text.tensor_proto.string_val[0])
    assert args["output_dir"] == f"{root}/plain" and args["learning_rate"] == 5e-5, args
    assert b"Linear" in loaded.Tensors("model/text_summary")[0].tensor_proto.string_val[0]

    # The evaluation after the training is on the HPARAMS page, too.
    session = session_of(folder)
    [path] = files(session)
    check(len(events(path)), 1 + 3 + 1, "events of the session")
    seen, expected = scalars(load(session)), points(ran.logs)
    check({tag: values[-1] for tag, values in seen.items()}, {tag: expected[tag][-1] for tag in seen}, "last values")
    check(sorted(seen), sorted(expected), "tags of the session")
    begin, end = hparams(session)
    check(end.status, 1, "status")
    assert begin.start_time_secs < end.end_time_secs < time.time() and begin.start_time_secs > time.time() - 60
    check(begin.hparams["learning_rate"].number_value, 5e-5, "learning_rate")
    check(begin.hparams["eval_strategy"].string_value, "epoch", "eval_strategy")
    check(begin.hparams["disable_tqdm"].bool_value, True, "disable_tqdm")
    assert "data_seed" not in begin.hparams  # null
    assert f"{len(written) - 1 + 4} events in {folder}, 0 lost" in ran.errors, ran.errors
    return ran


def check_scripted(root):
    ran = run("--output_dir", f"{root}/scripted", "--scripted", "true", "--histogram_steps", 3, "--learning_rate", 0.1)
    folder = the_run(f"{root}/scripted")
    loaded = load(folder)
    nodes = {node.name: (node.op, list(node.input)) for node in loaded.Graph().node}
    check(nodes, {
        "input/rows": ("IO Node", []),
        "Net/Linear[first]/weight": ("prim::GetAttr", []),
        "Net/Linear[first]/bias": ("prim::GetAttr", []),
        "Net/Linear[first]/linear": ("aten::linear", ["input/rows", "Net/Linear[first]/weight", "Net/Linear[first]/bias"]),
        "Net/relu": ("aten::relu", ["Net/Linear[first]/linear"]),
        "Net/Linear[second]/weight": ("prim::GetAttr", []),
        "Net/Linear[second]/bias": ("prim::GetAttr", []),
        "Net/Linear[second]/linear": ("aten::linear", ["Net/relu", "Net/Linear[second]/weight", "Net/Linear[second]/bias"]),
        "output/output": ("IO Node", ["Net/Linear[second]/linear"])}, "graph")
    sizes = {"first.weight": 12, "first.bias": 4, "second.weight": 8, "second.bias": 2}
    check(sorted(loaded.Tags()["histograms"]), sorted(f"{what}/{name}" for what in ("gradients", "parameters") for name in sizes), "histograms")
    for name, size in sizes.items():
        for what in ("gradients", "parameters"):
            seen = loaded.Histograms(f"{what}/{name}")
            check([e.step for e in seen], [3, 6], name)
            for e in seen:
                histogram = e.histogram_value
                check((histogram.num, sum(histogram.bucket)), (float(size), float(size)), name)
                assert histogram.bucket[0] > 0 and histogram.bucket[-1] > 0, histogram
                assert histogram.min < histogram.bucket_limit[0] and histogram.max < histogram.bucket_limit[-1], histogram
                assert histogram.bucket_limit == sorted(histogram.bucket_limit), histogram
    # The L2 norm of all gradients before clipping is one of the metrics.
    norms = dict(points(ran.logs)["train/grad_norm"])
    for i, step in enumerate((3, 6)):
        squares = sum(loaded.Histograms(f"gradients/{name}")[i].histogram_value.sum_squares for name in sizes)
        assert abs(math.sqrt(squares) - norms[step]) < 1e-5, (squares, norms[step])
    return ran


def check_samples(root):
    """Samples of three evaluations, two of them in a run that is resumed from step 4, through the readers and the server."""
    args = ("--output_dir", f"{root}/samples", "--samples", "true", "--eval_strategy", "steps", "--eval_steps", 4, "--save_strategy", "steps",
            "--save_steps", 4, "--evaluate_after", "true")
    run(*args, "--fail_at", 6, code=3)
    ran = run(*args, "--resume", "true")
    folder = the_run(f"{root}/samples")
    steps = [4, 8, 8]
    loaded = EventAccumulator(folder, size_guidance={"tensors": 0, "images": 0, "audio": 0}).Reload()
    check(sorted(loaded.Tags()["images"]), ["eval/cats/first", "eval/clear", "eval/grey"], "pictures")
    for name in samples.pixels(0):
        seen = loaded.Images(f"eval/{name}")
        check([e.step for e in seen], steps, name)
        for e in seen:
            check((e.height, e.width), (6, 5), name)
            samples.check_picture(e.encoded_image_string, name, e.step)
    seen = loaded.Audio("eval/mew")
    check([(e.step, e.content_type, e.sample_rate, e.length_frames) for e in seen], [(step, "audio/wav", 8000.0, 5) for step in steps], "sounds")
    for e in seen:
        samples.check_sound(e.encoded_audio_string)
    check(texts(folder, "eval/story/text_summary"), steps, "texts")
    for tag, caption in samples.CAPTIONS.items():
        check({(e.step, e.tensor_proto.string_val[0].decode()) for e in loaded.Tensors(f"eval/{tag}/text_summary")}, {(4, caption), (8, caption)}, tag)
    for e in loaded.Tensors("eval/story/text_summary"):
        check(e.tensor_proto.string_val[0].decode(), samples.text(e.step), "a text")
    for options in ((), ("--load_fast=false",)):
        with Server(f"{root}/samples", *options) as server:
            name = os.path.relpath(folder, f"{root}/samples")
            server.wait_for("plugin/images/tags", lambda tags: len(tags.get(name, {})) == 3)
            shown = server.get("plugin/images/images", run=name, tag="eval/cats/first", sample=0)
            for each in shown:
                samples.check_picture(server.bytes("plugin/images/individualImage?" + each["query"]), "cats/first", each["step"])
            assert {each["step"] for each in shown} == {4, 8}, shown
            server.wait_for("plugin/audio/tags", lambda tags: "eval/mew" in tags.get(name, {}))
            captions = server.get("plugin/text/text", run=name, tag="eval/cats/first/text_summary")
            assert {each["step"] for each in captions} == {4, 8} and all("a &lt;cat&gt;" in each["text"] for each in captions), captions
            for each in server.get("plugin/audio/audio", run=name, tag="eval/mew", sample=0):
                samples.check_sound(server.bytes("plugin/audio/individualAudio?" + each["query"]))
            shown = server.get("plugin/text/text", run=name, tag="eval/story/text_summary")
            assert {each["step"] for each in shown} == {4, 8} and all("step" in each["text"] for each in shown), shown
    return ran


def resumable(output_dir):
    return ("--output_dir", output_dir, "--save_strategy", "steps", "--save_steps", 2, "--eval_strategy", "steps", "--eval_steps", 2,
            "--histogram_steps", 1)


def check_resumed(root):
    """A training that fails after step 7 and resumes from step 4, twice, has every point once."""
    args = resumable(f"{root}/resumed")
    whole = run(*resumable(f"{root}/whole"))
    first = run(*args, "--fail_at", 7, code=3)
    folder = the_run(f"{root}/resumed")
    check_scalars(folder, first.logs)
    check(hparams(session_of(folder))[1].status, 2, "status of a failed training")
    logs = [log for log in first.logs if log[0] <= 4]
    check(len(logs), 6, "logs until the checkpoint")
    for again in (1, 2):
        for later in glob.glob(f"{root}/resumed/checkpoint-[5-9]"):
            shutil.rmtree(later)
        ran = run(*args, "--resume", "true")
        check(the_run(f"{root}/resumed"), folder, "the folder")
        check(len(files(folder)), 1 + again, "files")
        written = events(files(folder)[-1])
        check([(e.session_log.status, e.step) for e in written[1:3]], [(1, 4), (1, 4)], "the first events of a resumed training")
        check_scalars(folder, logs + ran.logs)
        loaded = load(folder)
        check(without_times(scalars(loaded)), without_times(points(whole.logs)), "points of a training that was never interrupted")
        check(len(loaded.Tags()["histograms"]), 8, "histograms")
        for name in loaded.Tags()["histograms"]:
            check([e.step for e in loaded.Histograms(name)], list(range(1, 9)), name)
        assert loaded.Tags()["graph"]
        check(texts(folder, "args/text_summary"), [0, 4], "args")
        begin, end = hparams(session_of(folder))
        check(end.status, 1, "status")
    # If the files are missing, the numbers come from the state.
    shutil.rmtree(f"{root}/resumed/runs")
    for later in glob.glob(f"{root}/resumed/checkpoint-[5-9]"):
        shutil.rmtree(later)
    ran = run(*args, "--resume", "true")
    check(the_run(f"{root}/resumed"), folder, "the folder")
    check(len(files(folder)), 1, "files")
    check_scalars(folder, logs + ran.logs)
    return [*logs, *ran.logs]


def check_killed(root):
    args = (*resumable(f"{root}/killed"), "--num_train_epochs", 3)
    process = subprocess.Popen(command(*args, "--step_seconds", 0.2), stdout=subprocess.PIPE, text=True)
    lines = []
    while not lines or not lines[-1].startswith("log 7 "):
        lines.append(process.stdout.readline())
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    lines.append(process.stdout.read())
    process.wait()
    logs = reported("".join(lines))
    check(logs[-1][0], 7, "the step at which it was killed")
    folder = the_run(f"{root}/killed")
    [path] = files(folder)
    check(len(events(path)), 1 + TEXTS + 1 + len(logs) + 7 * 8 + 4, "events of what was killed in step 8, behind its gradients")
    check_scalars(folder, logs)
    # Simulates a crash of the machine while the last record is written.
    with open(path, "ab") as file:
        file.write(struct.pack("<Q", 500) + b"torn")
    check_scalars(folder, logs)
    ran = run(*args, "--resume", "true")
    check_scalars(folder, [log for log in logs if log[0] <= 6] + ran.logs)
    return [log for log in logs if log[0] <= 6] + ran.logs


def check_places(root):
    ran = run("--output_dir", f"{root}/elsewhere", env={"TENSORBOARD_LOGGING_DIR": "~/boards/a", "HOME": f"{root}/home"})
    check_scalars(f"{root}/home/boards/a", ran.logs)
    assert not os.path.exists(f"{root}/elsewhere/runs")
    for _ in range(3):
        run("--output_dir", f"{root}/quick", "--num_train_epochs", 1)
    check(len(glob.glob(f"{root}/quick/runs/*")), 3, "runs within a second")
    ran = run("--output_dir", f"{root}/refused", code=3, env={"TENSORBOARD_LOGGING_DIR": "/proc/none"})
    assert "failed TENSORBOARD_LOGGING_DIR is '/proc/none': must be a folder that can be written" in ran.text, ran.text


def check_full_disk(root):
    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

    ran = run("--output_dir", f"{root}/full", "--num_train_epochs", 50, before=little_room)
    [path] = files(the_run(f"{root}/full"))
    written = events(path)
    kept = len(written) - 1 - TEXTS - 1
    assert 0 < kept < len(ran.logs), kept
    check_scalars(the_run(f"{root}/full"), ran.logs[:kept])
    check(ran.errors.count("can't be written any more"), 1, "warnings")
    lost = re.search(r"warning: TensorBoard: (\d+) events in .*, (\d+) lost", ran.errors)
    assert int(lost[2]) >= len(ran.logs) - kept, ran.errors


def check_answers(server, logdir, truth, fast):
    runs = {name: os.path.relpath(the_run(f"{logdir}/{name}"), logdir) for name in truth}
    sessions = {name: os.path.relpath(session_of(f"{logdir}/{run}"), logdir) for name, run in runs.items()}
    check(sorted(server.get("runs")), sorted([*runs.values(), *sessions.values()]), "runs")
    tags = server.get("plugin/scalars/tags")
    for name, logs in truth.items():
        expected = points(logs)
        check(sorted(tags[runs[name]]), sorted(expected), f"tags of {name}")
        for one, values in expected.items():
            seen = [(step, NUMBERS.get(value, value)) for _, step, value in server.get("plugin/scalars/scalars", run=runs[name], tag=one)]
            # The fast loader shows the last of several values at one step.
            check(seen, list(dict(values).items()) if fast else values, f"{name}, {one}, {fast}")
    check(sorted(server.get("plugin/text/tags")[runs["plain"]]), ["args/text_summary", "model/text_summary"], "texts")
    assert "learning_rate" in server.get("plugin/text/text", run=runs["plain"], tag="args/text_summary")[0]["text"]
    info = server.get("plugin/graphs/info")
    for name, run in runs.items():
        assert info[run]["run_graph"], info
        graph = server.text("plugin/graphs/graph", run=run)
        assert '"Net/Linear[second]' in graph and ("aten::linear" in graph) == (name == "scripted"), graph
    histograms = server.get("plugin/histograms/histograms", run=runs["scripted"], tag="parameters/first.weight")
    check([step for _, step, _ in histograms], [3, 6], "steps of a histogram")
    for _, _, buckets in histograms:
        check(sum(count for _, _, count in buckets), 12.0, "numbers in a histogram")
        assert all(left <= right for left, right, _ in buckets), buckets
    assert "parameters/first.weight" in server.get("plugin/distributions/tags")[runs["scripted"]]
    infos = {info["name"]: info for info in server.get("plugin/hparams/experiment", {"experimentName": ""})["hparamInfos"]}
    assert infos["learning_rate"]["differs"] and not infos["weight_decay"]["differs"], infos["learning_rate"]
    groups = server.get("plugin/hparams/session_groups", {
        "experimentName": "", "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
        "colParams": [], "startIndex": 0, "sliceSize": 100})["sessionGroups"]
    seen = {group["name"]: group for group in groups}
    check(sorted(seen), sorted(sessions.values()), "sessions")
    for name, session in sessions.items():
        group = seen[session]
        check(group["hparams"]["learning_rate"], 0.1 if name == "scripted" else 5e-5, "learning_rate")
        check(group["hparams"].get("width"), 4.0 if name.startswith("search/") else None, f"width of {name}")
        check([one["status"] for one in group["sessions"]], ["STATUS_FAILURE" if name == "failed" else "STATUS_SUCCESS"], name)
        values = {one["name"]["tag"]: NUMBERS.get(one["value"], one["value"]) for one in group["metricValues"]}
        expected = {tag: float(value[-1][1]) for tag, value in points(truth[name]).items()}
        check(dict(sorted(values.items())), dict(sorted(expected.items())), f"metrics of {name}")


def check_server(logdir, truth, *options):
    """`truth` has the logs of each run by its name."""
    with Server(logdir, *options) as server:
        deadline = time.time() + 30
        while True:
            try:
                return check_answers(server, logdir, truth, fast="--load_fast=false" not in options)
            except (AssertionError, KeyError, IndexError, urllib.error.HTTPError):  # It may be loading still.
                if time.time() > deadline:
                    raise
                time.sleep(0.5)


UMASK = 0o027
os.umask(UMASK)

with tempfile.TemporaryDirectory() as root:
    os.environ.update(HOME=f"{root}/home", ETUDE_SPOOL_DIR=f"{root}/spool", OMP_NUM_THREADS="1", LC_ALL="C.UTF-8")
    os.environ.pop("TENSORBOARD_LOGGING_DIR", None)
    os.mkdir(f"{root}/home")
    os.chdir(root)
    board = f"{root}/board"
    truth = {"plain": check_plain(board).logs, "scripted": check_scripted(board).logs}
    truth["failed"] = run("--output_dir", f"{board}/failed", "--fail_at", 3, code=3).logs
    truth["killed"] = check_killed(board)
    truth["resumed"] = check_resumed(board)
    shutil.rmtree(f"{board}/whole")
    check_samples(root)
    for trial in ("run-0", "run-1"):
        truth[f"search/{trial}"] = run("--output_dir", f"{board}/search/{trial}", "--trial", trial).logs
    check_places(root)
    check_full_disk(root)
    check_server(board, truth)
    check_server(board, truth, "--load_fast=false")
print("TensorBoard reads it all")
