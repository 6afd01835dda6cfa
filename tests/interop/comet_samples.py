"""The part of track_comet.py about samples: in an archive, uploaded from it by Comet's package, and sent online."""

import glob
import json

import samples
from checks import check, same
from comet_offline import upload
from comet_online import ONLINE
from comet_server import Server
from comet_tools import Archive, Folder, python

ARGUMENTS = ("--samples", "true", "--eval_strategy", "epoch")

# Comet's own client, with the same samples.
REFERENCE = """
import comet_ml, numpy
experiment = comet_ml.OfflineExperiment(project_name="p", workspace="w", offline_directory="reference", log_code=False,
                                        auto_metric_logging=False, auto_output_logging=False, display_summary_level=0)
experiment.log_image(numpy.arange(60, dtype="uint8").reshape(4, 5, 3), name="eval/cats/first", step=4)
experiment.log_audio(numpy.ones(8, dtype="float32"), sample_rate=8000, file_name="eval/mew.wav", step=4)
experiment.log_text("a text", step=4)
experiment.end()
"""


def name_of(parameters, metadata):
    name = parameters.get("figName") or metadata.get("name") or parameters["fileName"]
    return name.removeprefix("eval/").removesuffix(".wav")


def check_file(name, step, data):
    if name == "story":
        same(data.decode(), samples.text(step), "a text")
    elif name == "mew":
        samples.check_sound(data)
    else:
        samples.check_picture(data, name, step)


EXPECTED = sorted((name, step) for name in ("story", "cats/first", "grey", "clear", "mew") for step in (4, 8))
TYPES = {"story": "text-sample", "mew": "audio"}


def samples_offline():
    folder = Folder()
    folder.train(*ARGUMENTS, COMET_MODE="offline")
    (path,) = folder.archives()
    archive = Archive(path)
    archive.validate()
    uploads = archive.of("file_upload")
    seen = []
    for each in uploads:
        parameters, metadata = each["additional_params"], each["metadata"]
        name, step = name_of(parameters, metadata), parameters["step"]
        seen.append((name, step))
        same(each["upload_type"], TYPES.get(name, "visualization"), f"type of {name}")
        same(metadata.get("caption"), samples.CAPTIONS.get(name), f"caption of {name}")
        check_file(name, step, archive.files[each["file_path"]])
    same(sorted(seen), EXPECTED, "samples")
    same(len(archive.files), 2 + len(EXPECTED), "files in the archive")

    # The package writes the same names of parameters.
    python(REFERENCE, folder.path)
    (theirs,) = glob.glob(folder.path + "/reference/*.zip")
    theirs = {each["upload_type"]: each["additional_params"].keys() for each in Archive(theirs).of("file_upload")}
    for each in uploads:
        same(sorted(each["additional_params"]), sorted(theirs[each["upload_type"]]), each["upload_type"])

    server = Server()
    upload(server, path)
    bodies = [request["raw"] for request in server.requests if request["path"].endswith(("/visualizations/upload", "/asset/upload"))]
    same(len(bodies), len(EXPECTED), "uploads")
    for each in uploads:
        check(any(archive.files[each["file_path"]] in body for body in bodies), f"the bytes of {each['file_path']}")
    server.stop()


def samples_online():
    folder, server = Folder(), Server()
    folder.train(*ARGUMENTS, **ONLINE, COMET_URL_OVERRIDE=server.address)
    seen = []
    for request in server.to("/upload-asset"):
        query = request["query"]
        metadata = json.loads(query.get("metadata", "{}"))
        name, step = name_of(query, metadata), int(query["step"])
        seen.append((name, step))
        same(query["type"], TYPES.get(name, "image"), f"type of {name}")
        same(metadata.get("caption"), samples.CAPTIONS.get(name), f"caption of {name}")
        head, _, data = request["raw"].partition(b"\r\n\r\n")
        check(b'name="file"' in head, head)
        check_file(name, step, data[: data.rindex(b"\r\n--")])
    same(sorted(seen), EXPECTED, "samples")
    same(folder.spooled(), b"", "what waits")
    server.stop()
