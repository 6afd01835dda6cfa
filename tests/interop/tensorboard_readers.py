"""The readers of track_tensorboard.py: TensorBoard's own readers and its server. Without TensorBoard the test is skipped."""

import collections
import glob
import json
import math
import os
import re
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request

try:
    from tensorboard.backend.event_processing import plugin_event_accumulator
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.compat.proto import event_pb2
    from tensorboard.compat.tensorflow_stub import errors
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.util import tb_logging
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

tb_logging.get_logger().setLevel("ERROR")  # It reports each point that it hides.
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def tag(name):
    for use in ("eval", "test"):
        if name.startswith(use + "_"):
            return f"{use}/{name[5:]}"
    return "train/" + name


def points(logs):
    """(step, value) of each tag, in float precision."""
    result = collections.defaultdict(list)
    for step, values in logs:
        for name, value in values.items():
            result[tag(name)].append((step, struct.unpack("f", struct.pack("f", value))[0]))
    return dict(result)


def same(a, b):
    """True if two values are equal, NaN included."""
    return repr(a) == repr(b)


def check(seen, expected, what):
    assert same(seen, expected), f"{what}:\n  seen     {seen}\n  expected {expected}"


def files(folder):
    return sorted(glob.glob(f"{folder}/*tfevents*"))


def events(path, whole=True):
    """All events, read to the end of the file. Fails on a wrong checksum and, unless `whole` is false, on an incomplete record."""
    reader, result = PyRecordReader_New(path), []
    while True:
        try:
            reader.GetNext()
        except errors.OutOfRangeError:
            break
        result.append(event_pb2.Event.FromString(reader.record()))
    if whole:
        size = sum(16 + len(record) for record in lengths(path))
        check(size, os.path.getsize(path), f"bytes in {path}")
    check(result[0].file_version, "brain.Event:2", "the first event")
    return result


def lengths(path):
    """The data of each record, split by its length prefix."""
    with open(path, "rb") as file:
        while len(head := file.read(12)) == 12:
            yield file.read(struct.unpack("<Q", head[:8])[0])
            file.read(4)


def load(folder):
    accumulator = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0, "histograms": 0})
    accumulator.Reload()
    check(accumulator.file_version, 2.0, "file_version")
    return accumulator


def scalars(accumulator):
    return {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def check_scalars(folder, logs):
    seen, expected = scalars(load(folder)), points(logs)
    check(sorted(seen), sorted(expected), "tags")
    for name in expected:
        check(seen[name], expected[name], name)


def hparams(folder):
    content = load(folder).PluginTagToContent("hparams")
    parsed = {tag: plugin_data_pb2.HParamsPluginData.FromString(bytes) for tag, bytes in content.items()}
    return parsed["_hparams_/session_start_info"].session_start_info, parsed["_hparams_/session_end_info"].session_end_info


def texts(folder, tag):
    """The steps of a text, with the server's reader, because EventAccumulator doesn't hide texts."""
    accumulator = plugin_event_accumulator.EventAccumulator(folder, tensor_size_guidance={"text": 0})
    accumulator.Reload()
    return [e.step for e in accumulator.Tensors(tag)]


class Server:
    def __init__(self, logdir, *options):
        program = os.path.join(os.path.dirname(sys.executable), "tensorboard")
        self.process = subprocess.Popen(
            [sys.executable, program, "--logdir", logdir, "--host", "127.0.0.1", "--port", "0", *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said = ""
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", self.said)):
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line
        self.url = found[0] + "/data/"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def wait_for(self, path, is_there):
        """The answer, once the server has read that far."""
        for _ in range(200):
            if is_there(answer := self.get(path)):
                return answer
            time.sleep(0.1)
        raise AssertionError(f"{path}: {answer}")

    def bytes(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read()

    def text(self, path, body=None, **query):
        if query:
            path += "?" + urllib.parse.urlencode(query)
        request = urllib.request.Request(self.url + path, data=body and json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def get(self, path, body=None, **query):
        return json.loads(self.text(path, body, **query))
