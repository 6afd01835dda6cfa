"""Files with compiled graphs that don't fit the program, the processor or the model, and damaged ones.

compiled_files.py PROGRAM
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

from checks import check
from exported_tools import PROGRAM, exported_models, safetensors, torch
from exported_folders import set_dropout
from export import export_model

ARGUMENTS = ["--train_sampling_strategy", "sequential", "--disable_tqdm", "true", "--logging_strategy", "no", "--max_steps", "6", "--per_device_train_batch_size", "4"]


def rewritten(source, target, change):
    """Writes a copy of the archive, whose entries, {name: bytes}, `change` has changed. Returns its path."""
    with zipfile.ZipFile(source) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    root = next(iter(entries)).split("/")[0]
    change(entries, root + "/compiled/")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return target


def of_manifest(change):
    def changed(entries, place):
        manifest = json.loads(entries[place + "manifest.json"])
        change(manifest)
        entries[place + "manifest.json"] = json.dumps(manifest).encode()

    return changed


def first(**values):
    return of_manifest(lambda manifest: [graph.update(values) for graph in manifest["graphs"]])


def train(folder, model, kind, *arguments, temporary=None, kill_after=None):
    """Returns the exit status, the number of steps, and what was printed to stderr."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", TMPDIR=str(temporary or folder / "tmp"))
    (folder / "tmp").mkdir(exist_ok=True)
    shutil.rmtree(folder / "run", ignore_errors=True)
    command = [PROGRAM, model, folder / "data.safetensors", kind, "--output_dir", folder / "run", *ARGUMENTS, *arguments]
    ran = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    if kill_after is not None:
        time.sleep(kill_after)
        ran.send_signal(signal.SIGKILL)
    out, err = ran.communicate()
    return ran.returncode, out.count('"step"'), err


def check_interpreted(folder, model, reason, *arguments):
    """The interpreter trains, and the program gives the reason once; with `required`, it is an error before the first step."""
    status, steps, err = train(folder, model, "compiled", *arguments)
    check(status == 0 and steps == 6, f"{model.name}: the program ended with {status} after {steps} steps:\n{err}")
    check(err.count(reason) == 1, f"{model.name}: '{reason}' should be printed once:\n{err}")
    check_refused(folder, model, "must be auto or off, since " + reason, "--compiled_graph", "required", *arguments)


def check_refused(folder, model, reason, *arguments):
    status, steps, err = train(folder, model, "compiled", *arguments)
    check(status == 1 and steps == 0, f"{model.name}: the program ended with {status} after {steps} steps:\n{err}")
    check(reason in err, f"{model.name}: '{reason}' should be printed:\n{err}")


def check_never_loaded(folder, model):
    """Only a program that asks for a file's code runs it."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang-19")
    if not compiler:
        return
    marker = folder / "code_has_run"
    source = folder / "library.c"
    source.write_text(f'#include <stdio.h>\n__attribute__((constructor)) static void run(void) {{ fclose(fopen("{marker}", "w")); }}\n')
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "library.so", source], check=True)
    code = (folder / "library.so").read_bytes()
    other = rewritten(model, folder / "other_code.pt2", lambda entries, place: entries.update({place + "0.so": code}))
    status, steps, err = train(folder, other, "own")
    check(status == 0 and steps == 6 and not marker.exists(), f"code in the file has run:\n{err}")
    status, _, err = train(folder, other, "compiled")
    check(status == 1 and marker.exists(), f"the test's library should run, and be refused:\n{err}")
    print("code is loaded only if the program asks for it")


def folders_in(place):
    return [path for path in place.iterdir() if path.is_dir()]


def check_private_folder(folder, model):
    """Once another program has loaded a model, nothing is left in the temporary directory, not even by killed programs."""
    temporary = folder / "private"
    temporary.mkdir()
    for delay in range(20):
        train(folder, model, "compiled", temporary=temporary, kill_after=0.05 + delay * 0.04)
    left = len(folders_in(temporary))
    status, _, err = train(folder, model, "compiled", "--compiled_graph", "required", temporary=temporary)
    check(status == 0 and not folders_in(temporary), f"{folders_in(temporary)} are left: {err}")
    print(f"20 killed programs left {left} folders, which the next load removed")


def lies(spec):
    """Makes the model's own library claim other sizes: the text in it is changed in place."""

    def changed(entries, place):
        code = entries[place + "0.so"]
        old, new = spec
        check(old in code and len(old) == len(new), f"{old} isn't in the library")
        entries[place + "0.so"] = code.replace(old, new)

    return changed


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    torch.manual_seed(1)
    model, data, _ = exported_models.gpt2(12)
    set_dropout(model, 0.0)
    good = folder / "good.pt2"
    export_model(model, {key: value[:4] for key, value in data.items()}, good, compile="cpu")
    safetensors.torch.save_file(data, folder / "data.safetensors")
    status, steps, err = train(folder, good, "compiled", "--compiled_graph", "required")
    check(status == 0 and steps == 6, f"the compiled graph should train:\n{err}")

    make = lambda name, change: rewritten(good, folder / f"{name}.pt2", change)
    check_interpreted(folder, make("version", first(torch="2.12.1")), "the graph was compiled for LibTorch 2.12.1")
    of_a_gpu = {"machine": os.uname().machine, "features": [], "capability": "9.0"}
    check_interpreted(folder, make("device", first(device="cuda", processor=of_a_gpu)), "the file has no compiled graph for cpu")
    check_interpreted(folder, make("machine", first(processor={"machine": "riscv64", "features": []})), "the graph was compiled for riscv64")
    check_interpreted(folder, make("processor", first(processor={"machine": os.uname().machine, "features": ["fpu9000"]})), "the graph was compiled for a processor with fpu9000")
    check_interpreted(folder, make("autocast", first(autocast="bfloat16")), "the file has no compiled graph for cpu without autocast")
    check_interpreted(folder, make("none", of_manifest(lambda manifest: manifest["graphs"].clear())), "the file has no compiled graph")
    check_interpreted(folder, good, "parameter 'transformer.wte.weight' was trained when the graph was compiled", "--parameter_groups", "*wte*: frozen=true")
    print("graphs for another version, device, processor, precision or other frozen parameters aren't used: the interpreter trains")

    cut = lambda size: lambda entries, place: entries.update({place + "0.so": entries[place + "0.so"][:size]})
    check_refused(folder, make("truncated", cut(100_000)), "0.so")
    check_refused(folder, make("empty", cut(0)), "0.so")
    check_refused(folder, make("missing", lambda entries, place: entries.pop(place + "0.so")), "0.so")
    check_refused(folder, make("not_json", lambda entries, place: entries.update({place + "manifest.json": b"{"})), "manifest.json")
    check_refused(folder, make("future", of_manifest(lambda manifest: manifest.update(format=99))), "99")
    check_refused(folder, make("outside", first(library="../0.so")), "../0.so")
    check_refused(folder, make("lying_name", lies((b"transformer.wpe.weight", b"transformer.xxx.weight"))), "transformer.xxx.weight")
    check_refused(folder, make("lying_input", lies((b"attention_mask", b"attention_xxxx"))), "attention_xxxx")
    print("damaged files, and libraries that claim another model, are refused")

    check_never_loaded(folder, good)
    check_private_folder(folder, good)
