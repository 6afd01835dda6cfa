#!/usr/bin/env python3
"""Continues a training in Python where Etude stopped, and vice versa: weights, moments, steps and learning rates.

In your own loop:

    optimizer = torch.optim.AdamW(optimizer_state.parameter_groups(model, weight_decay=0.01))
    state = optimizer_state.to_torch("out/checkpoint-100", model, optimizer)    # loads both; returns trainer_state.json
    ...                                                                         # 100 steps
    state["global_step"] += 100
    optimizer_state.from_torch("out", model, optimizer, state)                  # writes out/checkpoint-200 for Etude

With Hugging Face's Trainer:

    optimizer_state.py to-trainer out/checkpoint-100 transformers:./my-gpt2 theirs/checkpoint-100
    optimizer_state.py from-trainer theirs/checkpoint-200 out

Etude resumes from such a checkpoint at the example that follows from `global_step`, as Hugging Face's Trainer does, and takes
the learning rate from the schedule at that step. Needs torch, safetensors and xxhash.
"""

import argparse
import functools
import json
import math
import os
import pathlib
import re
import secrets
import shutil

import safetensors.torch
import torch

MANIFEST = "etude_manifest.json"
MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "sum", "square_avg", "grad_avg", "exp_avg_sq_row", "exp_avg_sq_col",
           "exp_inf", "acc_delta", "ax", "prev", "step_size")  # fmt: skip
# Etude's names. The classes in Python are torch.optim's, except for Hugging Face's Adafactor and timm's Lion, Lamb and Lars.
CONVERTED = ("AdamW", "Adam", "SGD", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD", "Rprop", "Adafactor", "Lion", "LAMB", "LARS")
STEPLESS = ("SGD", "Lion", "LARS")  # don't count steps in Python
# State of the Python classes that is derived from options and steps, or that each step sets.
DERIVED = {"step", "RMS", "mu_product", "eta", "mu"}
# Options that are one tuple in Python, and several numbers in Etude.
TUPLES = {"betas": ("beta1", "beta2"), "eps": ("eps1", "eps2"), "etas": ("etaminus", "etaplus"), "step_sizes": ("step_size_min", "step_size_max")}
OPTIMIZERS = {"AdamW": torch.optim.AdamW, "Adam": torch.optim.Adam, "SGD": torch.optim.SGD, "Adagrad": torch.optim.Adagrad, "RMSprop": torch.optim.RMSprop}


def decays(model):
    """The names of the parameters that Etude's optimizers give weight decay: no biases, no parameters of norms."""
    norms = {
        id(parameter)
        for module in model.modules()
        if re.sub(r"[123]d$", "", type(module).__name__).lower().endswith("norm")
        for parameter in module.parameters(recurse=False)
    }
    spared = re.compile(r"bias|layernorm|rmsnorm|(^|\.)(\w*_)?norm($|\.)", re.IGNORECASE)
    return {name for name, parameter in model.named_parameters() if id(parameter) not in norms and not spared.search(name)}


def parameter_groups(model, weight_decay, decaying=None):
    """The two groups of Etude's and Hugging Face's optimizers: with weight decay and without."""
    decaying = decays(model) if decaying is None else decaying
    parameters = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for name, parameter in parameters if name in decaying], "weight_decay": weight_decay},
        {"params": [parameter for name, parameter in parameters if name not in decaying], "weight_decay": 0.0},
    ]


def read_weights(folder):
    """The tensors of model.safetensors or of its shards, by name."""
    index = folder / "model.safetensors.index.json"
    files = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else ["model.safetensors"]
    return {name: tensor for file in files for name, tensor in safetensors.torch.load_file(folder / file).items()}


def load_weights(model, weights):
    """Loads weights in which a tied parameter has only one of its names."""
    known = model.state_dict(keep_vars=True)
    loaded = {id(tensor) for name, tensor in known.items() if name in weights}
    missing = [name for name, tensor in known.items() if id(tensor) not in loaded]
    unknown = sorted(weights.keys() - known.keys())
    if missing or unknown:
        raise ValueError(f"the checkpoint isn't this model's: it lacks {missing}, and the model lacks {unknown}")
    model.load_state_dict(weights, strict=False)


def group_options(group, saved):
    """The options of a torch.optim group, with the values that Etude saved."""
    options = {name: saved[name] for name in group if name in saved and name not in ("fused", "params")}
    options |= {name: tuple(saved[part] for part in parts) for name, parts in TUPLES.items() if name in group and parts[0] in saved}
    return options | ({"initial_lr": saved["initial_lr"]} if "initial_lr" in saved else {})


@functools.cache
def product_of_momenta(beta1, momentum_decay, steps):
    return math.prod(beta1 * (1 - 0.5 * 0.96 ** (step * momentum_decay)) for step in range(1, steps + 1))


def derived_state(kind, group, steps):
    """State of a parameter that Etude's optimizers compute from the group's options and the number of steps."""
    if kind in STEPLESS or kind == "LAMB":
        return {}
    state = {"step": float(steps)}
    if kind == "NAdam":
        state["mu_product"] = product_of_momenta(group["betas"][0], group["momentum_decay"], steps)
    if kind == "ASGD":
        state["eta"] = group["lr"] / (1 + group["lambd"] * group["lr"] * steps) ** group["alpha"]
        state["mu"] = 1 / max(1, steps - group["t0"])
    return {name: torch.tensor(value, dtype=torch.float32) for name, value in state.items()}


def to_torch(checkpoint, model, optimizer):
    """Loads a checkpoint of Etude into `model` and `optimizer`, one of those in CONVERTED, and returns its trainer_state.json.

    The optimizer must have as many groups as the checkpoint; parameter_groups makes Etude's. Raises ValueError if the
    checkpoint belongs to another model or optimizer.
    """
    checkpoint = pathlib.Path(checkpoint)
    options = json.loads((checkpoint / "optimizer.json").read_text())
    kind = options["type"]
    if kind not in CONVERTED:
        raise ValueError(f"the optimizer of {checkpoint} is {kind}: must be one of {', '.join(CONVERTED)}")
    if type(optimizer).__name__.lower() != kind.lower():
        raise ValueError(f"the optimizer is {type(optimizer).__name__}: must be {kind}, as in {checkpoint}")
    saved = [{**given, **changed} for given, changed in zip(options["given"], options["changed"])]
    if len(optimizer.param_groups) != len(saved):
        raise ValueError(f"the optimizer has {len(optimizer.param_groups)} groups: must have {len(saved)}, as in {checkpoint}")
    load_weights(model, read_weights(checkpoint))

    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    moments = {}
    for key, tensor in safetensors.torch.load_file(checkpoint / "optimizer.safetensors").items():
        name, _, moment = key.rpartition(".")
        moments.setdefault(name, {})[moment] = tensor

    state_dict = optimizer.state_dict()
    state = {}
    for group, packed, group_saved in zip(optimizer.param_groups, state_dict["param_groups"], saved):
        packed |= group_options(packed, group_saved)
        for parameter, index in zip(group["params"], packed["params"]):
            name = next((name for name in names[id(parameter)] if name in moments), None)
            if name is None:
                continue  # it never had a gradient
            of_parameter = moments.pop(name)
            steps = int(of_parameter.pop("step"))
            state[index] = of_parameter | derived_state(kind, packed, steps)
            if kind == "LAMB":  # counts the steps of a group
                packed["step"] = torch.tensor(float(max(steps, packed.get("step", 0))))
    if moments:
        raise ValueError(f"the optimizer doesn't train {', '.join(sorted(moments))}, which {checkpoint} has the state of")
    optimizer.load_state_dict({"state": state, "param_groups": state_dict["param_groups"]})
    return json.loads((checkpoint / "trainer_state.json").read_text())


def optimizer_tensors(model, optimizer, global_step):
    """Etude's optimizer.safetensors for a torch optimizer."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    steps_of_group = {id(parameter): group.get("step", global_step) for group in optimizer.param_groups for parameter in group["params"]}
    tensors = {}
    for parameter, state in optimizer.state.items():
        name = names[id(parameter)]
        moments = {moment: value for moment, value in state.items() if moment in MOMENTS and value is not None}
        unknown = state.keys() - moments.keys() - DERIVED - {key for key, value in state.items() if value is None}
        if unknown:
            raise ValueError(f"the optimizer is {type(optimizer).__name__}, whose {', '.join(sorted(unknown))} Etude's optimizers don't have")
        tensors |= {f"{name}.{moment}": value.detach().cpu().contiguous() for moment, value in moments.items()}
        tensors[f"{name}.step"] = torch.tensor(int(state.get("step", steps_of_group[id(parameter)])), dtype=torch.int64)
    return tensors


def write_manifest(folder, others, global_step):
    """Makes a manifest for the files of a checkpoint, which follows the newest of `others`, the manifests in its output folder."""
    import xxhash

    newest = max(others, key=lambda manifest: manifest["serial"], default={"serial": 0, "run": secrets.token_hex(8), "etude": "0.1.0"})
    manifest = {
        "format": 1,
        "etude": newest["etude"],
        "libtorch": torch.__version__.partition("+")[0],
        "run": newest["run"],
        "serial": newest["serial"] + 1,
        "global_step": global_step,
        "reason": "periodic",
        "files": {
            path.name: {"size": path.stat().st_size, "xxh3_128": xxhash.xxh3_128_hexdigest(path.read_bytes())} for path in sorted(folder.iterdir())
        },
    }
    text = json.dumps(manifest, indent=2).removesuffix("\n}")
    checksum = xxhash.xxh3_128_hexdigest(text.encode())
    (folder / MANIFEST).write_text(f'{text},\n  "checksum": "{checksum}"\n}}\n')


def from_torch(output_dir, model, optimizer, state):
    """Writes the checkpoint `output_dir`/checkpoint-STEP, from which Etude resumes, and returns its path.

    `state` is the content of a trainer_state.json, Etude's or Hugging Face's, with the current global_step. The arguments
    come from the newest checkpoint there, if there is one. Raises FileExistsError if STEP was saved before, and ValueError
    for an optimizer without an equivalent in Etude.
    """
    output_dir, step = pathlib.Path(output_dir), state["global_step"]
    target, part = output_dir / f"checkpoint-{step}", output_dir / f".checkpoint-{step}.python.partial"
    if target.exists():
        raise FileExistsError(f"{target} exists: global_step must be a step that isn't saved yet")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    safetensors.torch.save_model(model, part / "model.safetensors", metadata={"format": "pt"})
    safetensors.torch.save_file(optimizer_tensors(model, optimizer, step), part / "optimizer.safetensors")
    (part / "trainer_state.json").write_text(json.dumps(state, indent=2) + "\n")
    others = {path.parent: json.loads(path.read_text()) for path in output_dir.glob(f"checkpoint-*/{MANIFEST}")}
    if others:
        arguments = max(others, key=lambda folder: others[folder]["serial"]) / "training_args.json"
        if arguments.exists():
            shutil.copy(arguments, part)
    write_manifest(part, others.values(), step)
    part.rename(target)
    link = output_dir / "latest.python"
    link.symlink_to(target.name)
    os.replace(link, output_dir / "latest")
    return target


# The rest of the file converts checkpoints of Hugging Face's Trainer.


def trainer_model(source):
    """A model of transformers, and an optimizer with the groups of the Trainer."""
    import export
    import transformers

    options = argparse.Namespace(model=source, config={}, batch=1, length=8)
    model, _, _ = export.load(options)
    decaying = set(transformers.Trainer.get_decay_parameter_names(None, model))
    return model, parameter_groups(model, 0.0, decaying)


def to_trainer(checkpoint, source, folder):
    """Writes a checkpoint's files for Trainer.train(resume_from_checkpoint=folder)."""
    checkpoint, folder = pathlib.Path(checkpoint), pathlib.Path(folder)
    kind = json.loads((checkpoint / "optimizer.json").read_text())["type"]
    if kind not in OPTIMIZERS:
        raise ValueError(f"the optimizer is {kind}: must be one of {', '.join(OPTIMIZERS)}")
    model, groups = trainer_model(source)
    optimizer = OPTIMIZERS[kind](groups, lr=0.0)
    state = to_torch(checkpoint, model, optimizer)
    model.save_pretrained(folder)
    schedule = json.loads((checkpoint / "scheduler.json").read_text())
    step = state["global_step"]
    scheduler = {"base_lrs": schedule["initial_lr"], "last_epoch": step, "_step_count": step + 1, "_last_lr": schedule["lr"], "lr_lambdas": [None] * len(groups)}
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    torch.save(scheduler, folder / "scheduler.pt")
    (folder / "trainer_state.json").write_text(json.dumps(state, indent=2) + "\n")
    return folder


def from_trainer(checkpoint, output_dir):
    """Converts a checkpoint of Hugging Face's Trainer to Etude's."""
    checkpoint = pathlib.Path(checkpoint)
    model, groups = trainer_model(f"transformers:{checkpoint}")
    optimizer = torch.optim.Optimizer(groups, {})  # any kind will do: the file doesn't name it
    optimizer.load_state_dict(torch.load(checkpoint / "optimizer.pt", map_location="cpu", weights_only=True))
    return from_torch(output_dir, model, optimizer, json.loads((checkpoint / "trainer_state.json").read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    to = commands.add_parser("to-trainer", help="writes what Hugging Face's Trainer resumes from")
    to.add_argument("checkpoint", help="a checkpoint of Etude")
    to.add_argument("model", help="transformers: and a class, or a name or folder that from_pretrained takes")
    to.add_argument("folder", help="the folder to write, such as theirs/checkpoint-100")
    back = commands.add_parser("from-trainer", help="writes a checkpoint from which Etude resumes")
    back.add_argument("checkpoint", help="a checkpoint of Hugging Face's Trainer")
    back.add_argument("output_dir", help="the output_dir of the training in C++")
    options = parser.parse_args()
    if options.command == "to-trainer":
        print(to_trainer(options.checkpoint, options.model, options.folder))
    else:
        print(from_trainer(options.checkpoint, options.output_dir))


if __name__ == "__main__":
    main()
