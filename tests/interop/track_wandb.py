"""A training writes an offline run; wandb's own parser reads every record of it, and wandb's own `wandb sync`
uploads it to a small server of this script, which compares what arrives with what the training has logged.

usage: track_wandb.py PROGRAM
"""

import base64
import hashlib
import html
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

try:
    import wandb
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

import samples
from wandb_log import DataStore, NEW_RESUME, kinds_of, records_of, rows_of
from wandb_server import ENTITY, Server, serve

SINGLE = {"train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos"}


# The logs that the training reports, as rows and as their summary.
def number(value):
    return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value, value)


def tracked(name):
    for use in ("eval", "test"):
        if name.startswith(use + "_"):
            return f"{use}/{name.removeprefix(use + '_')}"
    return "train/" + name


def expected(lines, first_step=0):
    rows, summary = [], {}
    for line in lines:
        if line.startswith("log "):
            _, step, logs = line.split(" ", 2)
            logs = {name: number(value) for name, value in json.loads(logs).items()}
            rows.append({tracked(k): v for k, v in logs.items() if k not in SINGLE})
            rows[-1] |= {"train/global_step": int(step), "_step": first_step + len(rows) - 1}
            summary |= rows[-1] | {k: v for k, v in logs.items() if k in SINGLE}
    return rows, summary


def same(a, b):
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def check_same(got, wanted, also=()):
    assert set(got) == set(wanted) | set(also), set(got) ^ (set(wanted) | set(also))
    for key, value in wanted.items():
        assert same(got[key], value), f"{key} is {got[key]}, and was logged as {value}"


def check_rows(rows, wanted):
    assert len(rows) == len(wanted), f"{len(rows)} rows, and {len(wanted)} logs"
    times = [row["_runtime"] for row in rows]
    assert times == sorted(times) and all(0 <= t < 100 for t in times), times
    for row, want in zip(rows, wanted):
        histograms = [key for key, value in row.items() if isinstance(value, dict)]
        check_same(row, want, ["_timestamp", "_runtime", *histograms])
        assert abs(row["_timestamp"] - time.time()) < 600, row


class Bench:
    def __init__(self, program, folder, address):
        self.program, self.folder, self.address = program, folder, address
        self.count = 0
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
        self.env = clean | {"HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
        (folder / "home").mkdir()

    def place(self):
        self.count += 1
        place = self.folder / str(self.count)
        place.mkdir()
        return place

    def begin(self, place, *options, **variables):
        arguments = [self.program, "--report_to", "wandb", "--output_dir", str(place / "out"), *options]
        return subprocess.Popen(arguments, cwd=place, env=self.env | variables, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def train(self, place, *options, code=0, **variables):
        process = self.begin(place, *options, **variables)
        out, errors = process.communicate(timeout=120)
        assert process.returncode == code, f"{process.returncode}: {out[-2000:]}{errors[-2000:]}"
        return out.splitlines(), errors

    def sync(self, folder, *options, torn=False):
        env = self.env | {"WANDB_BASE_URL": self.address, "WANDB_API_KEY": "0" * 40, "WANDB_ERROR_REPORTING": "false"}
        if not NEW_RESUME:
            env["WANDB_RESUME"] = "allow"  # newer releases read it from the log
        done = subprocess.run([sys.executable, "-m", "wandb", "sync", *options, str(folder)], env=env, cwd=self.folder,
                              capture_output=True, text=True, timeout=200)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        (path,) = folder.glob("run-*.wandb")
        assert path.with_suffix(".wandb.synced").exists() != torn, said
        assert not Server.unknown, Server.unknown
        return Server.runs[path.stem.removeprefix("run-")]


def run_folders(place):
    return sorted(place.glob("wandb/offline-run-*"))


def check_whole_run(bench):
    place = bench.place()
    said = {"WANDB_PROJECT": "crêpes", "WANDB_NAME": "a name", "WANDB_RUN_GROUP": "group 1", "WANDB_JOB_TYPE": "train",
            "WANDB_TAGS": "first, second", "WANDB_NOTES": "of\ntwo lines", "WANDB_ENTITY": ENTITY,
            "WANDB_API_KEY": "f" * 40, "WANDB_SWEEP_ID": "sweep1"}
    lines, errors = bench.train(place, "--odd", "true", "--eval_strategy", "epoch", "--evaluate_after", "true",
                                "--learning_rate", "0.25", **said)
    (folder,) = run_folders(place)
    assert f"wandb sync {folder}" in errors and errors.count("belongs to sweep sweep1") == 1, errors
    assert (place / "wandb/latest-run").resolve() == folder
    wanted, summary = expected(lines)
    assert len(wanted) == 8 + 2 + 1 + 1  # of steps, evaluations, the training's summary, and the evaluation after

    records = records_of(folder)
    kinds = kinds_of(records)
    assert kinds[:2] == ["header", "run"] and kinds[-1] == "exit", kinds
    count = {kind: kinds.count(kind) for kind in set(kinds)}
    names = {key for row in wanted for key in row} - {"_step", "train/global_step"}
    assert count == {"header": 1, "run": 1, "environment": 1, "files": 1, "config": 1, "exit": 1,
                     "metric": 2 + len(names), "history": len(wanted), "summary": len(wanted) + 1}, count
    assert records[-1].exit.exit_code == 0
    check_rows(rows_of(records), wanted)
    run = records[1].run
    assert len(run.run_id) == 8 and run.sweep_id == "sweep1" and run.project == "crêpes" and list(run.tags) == ["first", "second"], run
    metrics = [record.metric for record in records if record.WhichOneof("record_type") == "metric"]
    assert (metrics[0].name, metrics[1].glob_name, metrics[1].step_metric) == (
        "train/global_step", "*", "train/global_step")
    assert {metric.name for metric in metrics[2:]} == names
    metadata = json.loads((folder / "files/wandb-metadata.json").read_text())
    assert metadata["host"] == os.uname().nodename and metadata["program"] == pathlib.Path(bench.program).name
    for path in folder.rglob("*"):
        assert path.is_dir() or b"f" * 40 not in path.read_bytes(), f"the key is in {path}"

    there = bench.sync(folder)
    assert (there.complete, there.exit_code) == (True, 0)
    check_rows(there.history(), wanted)
    check_same({k: v for k, v in there.summary().items() if k != "_wandb"}, summary, ["_timestamp", "_runtime"])
    assert set(there.summary()["_wandb"]) == {"runtime"}
    config = there.config()
    assert config["learning_rate"] == 0.25 and config["model/num_parameters"] == 26, config
    for item in run.config.update:
        # wandb leaves out an object without members.
        assert item.key == "_wandb" or config.get(item.key, {}) == json.loads(item.value_json), item
    assert config["_wandb"]["t"]["9"] == {"1": "etude_trainer"}, config["_wandb"]
    upsert = there.upserts[0]
    keys = ("project", "entity", "displayName", "groupName", "jobType", "notes", "tags", "host", "sweep")
    assert [upsert[k] for k in keys] == ["crêpes", ENTITY, "a name", "group 1", "train", "of\ntwo lines",
                                         ["first", "second"], os.uname().nodename, "sweep1"], upsert
    assert json.loads(there.files["wandb-metadata.json"])["host"] == os.uname().nodename

    if DataStore is not None:  # releases that have it also have the older way of syncing
        (folder / f"run-{run.run_id}.wandb.synced").unlink()
        del Server.runs[run.run_id]
        there = bench.sync(folder, "--legacy")
        assert (there.complete, there.exit_code) == (True, 0)
        check_rows(there.history(), wanted)


def check_large_and_watched(bench):
    place = bench.place()
    lines, _ = bench.train(place, "--extra", "3000", "--num_train_epochs", "26", "--logging_steps", "26",
                           WANDB_MODE="offline", WANDB_WATCH="all", WANDB_RUN_ID="mine-1")
    (folder,) = run_folders(place)
    assert folder.name.endswith("-mine-1")
    wanted, _ = expected(lines)
    records = records_of(folder)
    assert max(len(record.SerializeToString()) for record in records) > 2 * 32768
    rows = rows_of(records)
    check_rows(rows, wanted)
    watched = [row for row in rows if any(isinstance(value, dict) for value in row.values())]
    assert [row["train/global_step"] for row in watched] == [104], "histograms of step 100 go with the next row"
    sizes = {"first.weight": 12, "first.bias": 4, "second.weight": 8, "second.bias": 2}
    for what in ("gradients", "parameters"):
        for name, size in sizes.items():
            histogram = watched[0][f"{what}/{name}"]
            assert histogram["_type"] == "histogram" and sum(histogram["values"]) == size, histogram
            bins = histogram["bins"]
            assert len(bins) == len(histogram["values"]) + 1 == 65 and bins == sorted(bins), histogram
            wandb.Histogram(np_histogram=(histogram["values"], bins))
    there = bench.sync(folder)
    check_rows(there.history(), wanted)
    (uploaded,) = [row for row in there.history() if "gradients/first.bias" in row]
    assert uploaded["gradients/first.bias"] == watched[0]["gradients/first.bias"]


def check_samples(bench):
    """Each evaluation has a row with its samples; wandb uploads their files, and its own classes read their values."""
    place = bench.place()
    lines, _ = bench.train(place, "--samples", "true", "--eval_strategy", "epoch", WANDB_MODE="offline")
    (folder,) = run_folders(place)
    rows = [row for row in rows_of(records_of(folder)) if "eval/mew" in row]
    assert [row["train/global_step"] for row in rows] == [4, 8], rows
    logged = [line.split(" ", 2)[1] for line in lines if line.startswith("log ")]
    assert len(rows_of(records_of(folder))) == len(logged) + 2
    there = bench.sync(folder)
    uploaded = [row for row in there.history() if "eval/mew" in row]
    names = {"eval/story", "eval/cats/first", "eval/grey", "eval/clear", "eval/mew"}
    for row, step in zip(uploaded, (4, 8), strict=True):
        assert row.keys() - names == {"train/global_step", "_step", "_timestamp", "_runtime"}, row
        for name in names:
            value = row[name]
            data = there.files[value["path"]]
            assert value["size"] == len(data) and value["sha256"] == hashlib.sha256(data).hexdigest(), value
            assert value["path"].startswith("media/") and f"{name}_{row['_step']}_{value['sha256'][:20]}" in value["path"], value
            assert value.get("caption") == samples.CAPTIONS.get(name.removeprefix("eval/")), value
            if value["_type"] == "image-file":
                assert (value["format"], value["width"], value["height"]) == ("png", 5, 6), value
                samples.check_picture(data, name.removeprefix("eval/"), step)
            elif value["_type"] == "audio-file":
                samples.check_sound(data)
            else:
                assert value["_type"] == "html-file", value
                assert "".join(re.findall(r"<pre[^>]*>(.*)</pre>", data.decode(), re.S)) == html.escape(samples.text(step), quote=False), data
    check_same({k: v for k, v in there.summary().items() if k in names}, {k: v for k, v in uploaded[-1].items() if k in names})
    # The values equal those of wandb's own classes, apart from numbers that belong to the file.
    own = wandb.init(mode="offline", dir=place, project="own", settings=wandb.Settings(silent=True))
    image = wandb.Image(samples.pixels(4)["cats/first"], caption="a <cat>")
    own.log({"eval/cats/first": image, "eval/story": (text := wandb.Html("x", inject=False))})
    assert image.to_json(own).keys() == uploaded[0]["eval/cats/first"].keys(), image.to_json(own)
    assert text.to_json(own).keys() == uploaded[0]["eval/story"].keys(), text.to_json(own)
    assert (image.get_media_subdir(), wandb.Audio.get_media_subdir(), text.get_media_subdir()) == ("media/images", "media/audio", "media/html")
    assert (image._log_type, wandb.Audio._log_type, text._log_type) == ("image-file", "audio-file", "html-file")
    own.finish()


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def check_artifacts(bench):
    place = bench.place()
    lines, _ = bench.train(place, "--save_strategy", "epoch", WANDB_MODE="offline", WANDB_LOG_MODEL="checkpoint")
    (folder,) = run_folders(place)
    checkpoints = [pathlib.Path(line.split(" ", 1)[1]) for line in lines if line.startswith("checkpoint ")]
    assert len(checkpoints) == 2
    before = [tree(checkpoint) for checkpoint in checkpoints]
    records = records_of(folder)
    artifacts = [record.artifact for record in records if record.WhichOneof("record_type") == "artifact"]
    aliases = [["base_model", "latest"], ["epoch_1.0", "checkpoint_global_step_4", "latest"],
               ["epoch_2.0", "checkpoint_global_step_8", "latest"], ["final_model", "latest"]]
    assert [list(artifact.aliases) for artifact in artifacts] == aliases
    metadata = json.loads(artifacts[1].metadata)
    assert metadata["train/global_step"] == 4 and metadata["model/num_parameters"] == 26, metadata
    assert json.loads(artifacts[3].metadata)["final_model"] is True
    run_id = records[1].run.run_id
    for artifact in artifacts:
        assert artifact.name == "model-" + run_id and artifact.type == "model" and artifact.finalize
        text = "wandb-artifact-manifest-v1\n"
        for entry in artifact.manifest.contents:
            text += f"{entry.path}:{entry.digest}\n"
            content = pathlib.Path(entry.local_path).read_bytes()
            assert entry.digest == base64.b64encode(hashlib.md5(content).digest()).decode()
            assert entry.size == len(content) and str(place / "out") not in entry.local_path
        assert artifact.digest == hashlib.md5(text.encode()).hexdigest()
    for artifact, files in zip(artifacts[1:3], before):
        assert {entry.path for entry in artifact.manifest.contents} == set(files)

    there = bench.sync(folder)
    assert [tree(checkpoint) for checkpoint in checkpoints] == before, "the checkpoints were touched"
    assert len(there.artifacts) == 4 and all(artifact["committed"] for artifact in there.artifacts)
    by_alias = {artifact["input"]["aliases"][0]["alias"]: artifact for artifact in there.artifacts}
    for alias, files in zip(("epoch_1.0", "epoch_2.0"), before):
        id = by_alias[alias]["id"]
        assert {spec["name"] for spec in by_alias[alias]["files"]} == set(files)
        for name, content in files.items():
            assert Server.uploads[f"{id}/{name}"] == content, name
    assert set(spec["name"] for spec in by_alias["final_model"]["files"]) == {"model.safetensors",
                                                                              "model_architecture.txt"}


def check_failed_and_resumed(bench):
    place = bench.place()
    first, _ = bench.train(place, "--save_strategy", "steps", "--save_steps", "3", "--fail_at", "5", code=3,
                           WANDB_MODE="offline")
    second, _ = bench.train(place, "--save_strategy", "steps", "--save_steps", "3", "--resume", "true",
                            WANDB_MODE="offline")
    before, after = run_folders(place)
    began, went_on = records_of(before), records_of(after)
    assert began[-1].exit.exit_code == 1 and went_on[-1].exit.exit_code == 0
    assert went_on[1].run.run_id == began[1].run.run_id and went_on[1].run.resumed and not began[1].run.resumed
    assert went_on[1].run.starting_step == 3
    rows, _ = expected(first)
    check_rows(rows_of(began), rows)
    more, _ = expected(second, first_step=3)
    check_rows(rows_of(went_on), more)
    there = bench.sync(before)
    assert (there.complete, there.exit_code) == (True, 1)
    there = bench.sync(after)
    assert (there.complete, there.exit_code) == (True, 0)
    got = there.history()
    assert [row["train/global_step"] for row in got] == [row["train/global_step"] for row in rows + more]
    if NEW_RESUME:  # wandb continues counting after the existing rows
        assert [row["_step"] for row in got] == list(range(len(rows) + len(more)))


def check_trials(bench):
    place = bench.place()
    wanted = {}
    for name, rate in (("run-0", "0.1"), ("run-1", "0.2")):
        lines, _ = bench.train(place, "--output_dir", str(place / "search" / name), "--trial", name, "--learning_rate", rate, WANDB_MODE="offline")
        wanted[name] = expected(lines)[0]
    folders = run_folders(place)
    assert len(folders) == 2, folders
    seen = {}
    for folder in folders:
        there = bench.sync(folder)
        name = there.upserts[0]["displayName"]
        seen[name] = (there.upserts[0]["groupName"], there.config()["learning_rate"], there.config()["width"])
        check_rows(there.history(), wanted[name])
    assert seen == {"run-0": ("search", 0.1, 4), "run-1": ("search", 0.2, 4)}, seen


def check_killed(bench):
    place = bench.place()
    process = bench.begin(place, "--step_seconds", "0.2", WANDB_MODE="offline", WANDB_LOG_MODEL="end")
    lines = []
    while len([line for line in lines if line.startswith("log ")]) < 4:
        lines.append(process.stdout.readline().rstrip("\n"))
    time.sleep(0.1)  # the row is written after the line is printed; the next step is 0.2 s away
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (folder,) = run_folders(place)
    wanted, _ = expected(lines)
    records = records_of(folder)
    assert "exit" not in kinds_of(records)
    check_rows(rows_of(records), wanted)
    there = bench.sync(folder)
    assert (there.complete, there.exit_code) == (True, 1)
    check_rows(there.history(), wanted)


def check_interrupted(bench):
    for sent in (signal.SIGTERM, signal.SIGINT):
        place = bench.place()
        process = bench.begin(place, "--step_seconds", "0.2", "--save_strategy", "steps", "--save_steps", "1000",
                              WANDB_MODE="offline", WANDB_LOG_MODEL="checkpoint")
        lines = []
        while len([line for line in lines if line.startswith("log ")]) < 3:
            lines.append(process.stdout.readline().rstrip("\n"))
        process.send_signal(sent)
        rest, errors = process.communicate(timeout=60)
        assert process.returncode == -sent, f"{process.returncode}: {errors}"
        lines += rest.splitlines()
        (checkpoint,) = [pathlib.Path(line.split(" ", 1)[1]) for line in lines if line.startswith("checkpoint ")]
        (folder,) = run_folders(place)
        records = records_of(folder)
        assert records[-1].exit.exit_code == 255, "what Python's package says of Ctrl-C"
        check_rows(rows_of(records), expected(lines)[0])
        first, last = [record.artifact for record in records if record.WhichOneof("record_type") == "artifact"]
        assert list(first.aliases) == ["base_model", "latest"], first
        assert last.aliases[1] == "checkpoint_global_step_" + checkpoint.name.split("-")[1], last
        assert {entry.path for entry in last.manifest.contents} == set(tree(checkpoint))
        there = bench.sync(folder)
        assert (there.complete, there.exit_code, len(there.artifacts)) == (True, 255, 2)


def check_torn(bench):
    place = bench.place()
    lines, _ = bench.train(place, WANDB_MODE="offline")
    (folder,) = run_folders(place)
    (path,) = folder.glob("run-*.wandb")
    path.write_bytes(path.read_bytes()[:-3])
    there = bench.sync(folder, torn=True)
    assert (there.complete, there.exit_code) == (True, 1)
    check_rows(there.history(), expected(lines)[0])


def check_switched_off(bench):
    for variables in ({"WANDB_MODE": "disabled"}, {"WANDB_DISABLED": "true"}):
        place = bench.place()
        _, errors = bench.train(place, **variables)
        assert list(place.glob("*")) == [], "something was written"
        assert ("WANDB_DISABLED" in errors) == ("WANDB_DISABLED" in variables), errors
    for command, is_reported, count in (("disabled", False, 0), ("offline", False, 1), ("online", True, 1)):
        place = bench.place()
        subprocess.run([sys.executable, "-m", "wandb", command], env=bench.env, cwd=place, check=True,
                       capture_output=True, timeout=60)
        _, errors = bench.train(place)
        assert len(run_folders(place)) == count and ("wandb sync " in errors) == is_reported, errors
    _, errors = bench.train(bench.place(), WANDB_MODE="offline", WANDB_LOG_MODEL="often", WANDB_WATCH="tv")
    assert "WANDB_LOG_MODEL is 'often'" in errors and "WANDB_WATCH is 'tv'" in errors, errors


def check_time(bench):
    def seconds(*options, **variables):
        place = bench.place()
        lines, _ = bench.train(place, "--num_train_epochs", "250", *options, WANDB_MODE="offline", **variables)
        return float(next(line for line in lines if line.startswith("finished ")).split()[1])

    with_tracker = min(seconds() for _ in range(2))
    off = min(seconds(WANDB_DISABLED="1") for _ in range(2))
    print(f"1000 logs: {with_tracker:.3f} s, and {off:.3f} s without")
    assert with_tracker - off < 1.0, "a log costs more than a millisecond"


def main():
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(folder), serve())
        for check in (check_whole_run, check_large_and_watched, check_samples, check_artifacts, check_failed_and_resumed, check_trials, check_killed,
                      check_interrupted, check_torn, check_switched_off, check_time):
            begun = time.time()
            check(bench)
            print(f"{check.__name__}: {time.time() - begun:.1f} s", flush=True)
    print(f"wandb {wandb.__version__} took", len(Server.runs), "runs")


if __name__ == "__main__":
    main()
