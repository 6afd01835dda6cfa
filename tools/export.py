#!/usr/bin/env python3
"""Exports a PyTorch model for training in C++ with etude::load_exported.

    export.py transformers:GPT2LMHeadModel --config '{"n_layer": 4}'     a class of transformers, with random weights
    export.py transformers:./my-gpt2                                     a folder or name that from_pretrained takes
    export.py torchvision:resnet18 --classes 10
    export.py timm:vit_tiny_patch16_224 --classes 10
    export.py my_model.py:make                                           make() returns (model, inputs)

The file has the graph of the training mode and that of the evaluation mode over the same weights. Modules that make() sets
to evaluation mode inside a model in training mode, and parameters without requires_grad, stay frozen. The size of the batch
varies, and the length of texts too where the model allows it. `inputs` is a dict of tensors by the names of forward's
parameters, labels included if forward computes the loss. Random numbers that Python draws outside of torch are drawn once,
by the export. Needs torch 2.8 or later and the model's own library.

From Python: `import export; export.export_model(model, inputs, "model.pt2")`.
"""

import argparse
import contextlib
import copy
import importlib.util
import inspect
import io
import json
import logging
import math
import pathlib
import random
import sys
import tempfile
import zipfile

import torch

LENGTH_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "decoder_input_ids", "decoder_attention_mask", "labels")
LABELS = ("labels", "start_positions", "end_positions")


def note(text):
    print(f"export.py: {text}", file=sys.stderr)


def reason(error):
    """The first line of an error of torch.export, and the line of the model that it names."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    places = [f"{place}: {code}" for place, code in zip(lines, lines[1:]) if place.startswith("File ")]
    return "; ".join([*lines[:1], *places[-1:]]) or type(error).__name__


def dynamic_shapes(inputs, batch=True, length=True):
    """Which sizes vary: the first of each input, and the second of those that are texts."""

    def sizes(name, value):
        if not isinstance(value, torch.Tensor):
            return None
        dims = {}
        if batch and value.dim() > 0:
            dims[0] = torch.export.Dim.DYNAMIC
        if length and name in LENGTH_INPUTS and value.dim() == 2:
            dims[1] = torch.export.Dim.DYNAMIC
        return dims or None

    return {name: sizes(name, value) for name, value in inputs.items()}


@contextlib.contextmanager
def modes_kept(model):
    """Restores the mode of every module, without a call of `train`, which sets those below it too."""
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextlib.contextmanager
def training_mode(model):
    """A model in training mode stays as it is, frozen modules included; one in evaluation mode is set to training."""
    with modes_kept(model):
        if not model.training:
            model.train()
        yield


@contextlib.contextmanager
def evaluation_mode(model):
    with modes_kept(model):
        model.eval()
        yield


@contextlib.contextmanager
def random_state_kept():
    """Restores the generators from which a model may draw: those of torch, Python and NumPy."""
    numpy = sys.modules.get("numpy")
    python_state, numpy_state = random.getstate(), numpy.random.get_state() if numpy else None
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy:
                numpy.random.set_state(numpy_state)


def trace(model, inputs):
    """The graphs of both modes with the widest choice of sizes that the model allows, and which vary."""
    attempts = [("batch and length", True, True), ("batch", True, False), ("nothing", False, False)]
    if dynamic_shapes(inputs) == dynamic_shapes(inputs, length=False):
        attempts = attempts[1:]
    logged = logging.root.manager.disable
    logging.disable(logging.ERROR)  # pages about attempts that fail
    try:
        for varying, batch, length in attempts:
            try:
                graphs = []
                for mode in (training_mode, evaluation_mode):
                    shapes = dynamic_shapes(inputs, batch, length)
                    with mode(model), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                        graphs.append(torch.export.export(model, (), dict(inputs), dynamic_shapes=shapes, strict=False))
                return graphs, varying
            except Exception as error:
                if varying == "nothing":
                    raise
                note(f"with a varying {varying}: {reason(error)}")
    finally:
        logging.disable(logged)


def saved(graph):
    """The entries of a file of torch.export.save, by name."""
    buffer = io.BytesIO()
    torch.export.save(graph, buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def add_evaluation(entries, evaluation):
    """Adds a second graph that shares the weights of the first."""
    entries["models/eval.json"] = evaluation["models/model.json"]
    entries["data/sample_inputs/eval.pt"] = evaluation["data/sample_inputs/model.pt"]  # Python's loader wants it
    for kind, prefix in (("weights", "weight_"), ("constants", "tensor_")):
        folder = f"data/{kind}/"
        config = f"{folder}model_{kind}_config.json"
        if config not in evaluation:  # torch 2.8 writes one file for all, and these have the same names in both modes
            if kind == "constants":
                entries[f"{folder}eval.pt"] = evaluation[f"{folder}model.pt"]
            continue
        by_content = {data: name for name, data in entries.items() if name.startswith(folder + prefix)}
        listed = json.loads(evaluation[config])
        for payload in listed["config"].values():
            data = evaluation[folder + payload["path_name"]]
            if data not in by_content:
                by_content[data] = f"{folder}{prefix}{sum(name.startswith(folder + prefix) for name in entries)}"
                entries[by_content[data]] = data
            payload["path_name"] = by_content[data].removeprefix(folder)
        entries[f"{folder}eval_{kind}_config.json"] = json.dumps(listed).encode()


def configuration(model):
    """The files from which from_pretrained of transformers makes the model; none for other models."""
    if not hasattr(getattr(model, "config", None), "to_json_string"):
        return {}
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    files = {"config.json": config.to_json_string()}
    if getattr(model, "generation_config", None) is not None:
        files["generation_config.json"] = model.generation_config.to_json_string()
    return files


def loss_items(model, inputs):
    """The labels that the model's loss is a mean over, found out by asking for their sum: Etude weights accumulated batches
    by their number, as Hugging Face's Trainer does. None if the model can't say."""
    parameters = forward_parameters(model)
    takes_number = "num_items_in_batch" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    labels = inputs.get("labels")
    if not takes_number or labels is None or labels.is_floating_point():
        return None
    labels = labels.where(labels != -100, 0)  # so that the two counts differ
    try:
        with evaluation_mode(model), torch.no_grad():
            mean, total = (first_loss(model(**(inputs | {"labels": labels}), **extra)) for extra in ({}, {"num_items_in_batch": torch.tensor(1)}))
    except Exception:
        return None
    counts = {"shifted_labels": labels[..., 1:], "labels": labels} if labels.dim() > 1 else {"labels": labels}
    fits = [name for name, counted in counts.items() if math.isclose(total, mean * counted.numel(), rel_tol=1e-4)]
    return fits[0] if fits and not math.isclose(mean, total, rel_tol=1e-4) else None


def first_loss(outputs):
    return float(outputs["loss"] if isinstance(outputs, dict) else outputs[0])


def register_named_tuple(cls):
    """Gives a named tuple that forward returns a name in files."""
    if isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        torch.utils._pytree._register_namedtuple(cls, serialized_type_name=f"{cls.__module__}.{cls.__qualname__}")


@contextlib.contextmanager
def without_cache(model):
    """A cache of keys and values is for generation, and would be an output of the graph."""
    config = getattr(model, "config", None)
    if not hasattr(config, "use_cache"):
        yield
        return
    before, config.use_cache = config.use_cache, False
    try:
        yield
    finally:
        config.use_cache = before


def export_model(model, inputs, output, extra_files=None):
    """Writes `model` to the file `output` and returns (training graph, the sizes that vary in words).

    `extra_files`, texts or bytes by name, are saved beside the weights of every checkpoint, and so is config.json.
    If the model is in training mode, its modules in evaluation mode, such as frozen batch norms, stay in that mode in the
    training graph. The model itself is left as it was.
    """
    register_named_tuple(inspect.signature(model.forward).return_annotation)
    files = configuration(model) | (extra_files or {})
    with without_cache(model), random_state_kept():
        items = loss_items(model, inputs)
        (training, evaluation), varying = trace(model, inputs)
    entries = saved(training)
    if items:
        files["etude.json"] = json.dumps({"loss_items": items})
    entries |= {f"extra/{name}": content for name, content in files.items()}
    add_evaluation(entries, saved(evaluation))
    output = pathlib.Path(output)
    part = output.with_name(output.name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(f"{output.stem}/{name}", data)
    part.replace(output)
    return training, varying


# Models of the usual libraries, with example inputs.


def text_inputs(config, *shape):
    vocabulary = getattr(config, "vocab_size", None) or config.get_text_config().vocab_size
    ids = torch.randint(0, vocabulary, shape)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def transformers_inputs(model, batch, length):
    """Example inputs by the name of the model's class and of its main input."""
    config, kind = model.config, type(model).__name__
    vision = getattr(config, "vision_config", config)
    pixels = lambda: torch.rand(batch, getattr(vision, "num_channels", 3), *pair(getattr(vision, "image_size", 224)))
    main = model.main_input_name
    if main == "input_features":
        inputs = {"input_features": torch.rand(batch, config.num_mel_bins, 2 * config.max_source_positions)}
    elif main == "input_values":  # a spectrogram, or a second of sound
        spectrogram = hasattr(config, "num_mel_bins") and hasattr(config, "max_length")
        inputs = {"input_values": torch.randn(batch, *((config.max_length, config.num_mel_bins) if spectrogram else (16000,)))}
    elif main == "pixel_values":
        inputs = {"pixel_values": pixels()}
    elif main == "input_ids":
        inputs = text_inputs(config, batch, *((2, length) if "MultipleChoice" in kind else (length,)))
        if hasattr(config, "vision_config"):
            inputs["pixel_values"] = pixels()
    else:
        raise SystemExit(f"export.py: no example inputs are known for the input {main} of {kind}: pass FILE.py:FUNCTION")
    if "return_loss" in forward_parameters(model):
        inputs["return_loss"] = True
    return inputs | transformers_labels(config, kind, inputs, batch, length)


def transformers_labels(config, kind, inputs, batch, length):
    """Example labels, by the task in the name of the model's class."""
    ids = inputs.get("input_ids")
    if "QuestionAnswering" in kind:
        return {name: torch.randint(0, length, (batch,)) for name in ("start_positions", "end_positions")}
    if "MultipleChoice" in kind:
        return {"labels": torch.randint(0, 2, (batch,))}
    if "TokenClassification" in kind:
        return {"labels": torch.randint(0, config.num_labels, ids.shape)}
    if ids is not None and ("LM" in kind or "ForConditionalGeneration" in kind):
        return {"labels": torch.randint(0, int(ids.max()) + 1, ids.shape)}
    if ("input_features" in inputs and "ForConditionalGeneration" in kind) or "CTC" in kind:
        return {"labels": torch.randint(1, config.vocab_size, (batch, length))}
    if "SemanticSegmentation" in kind:
        return {"labels": torch.randint(0, config.num_labels, (batch, *inputs["pixel_values"].shape[2:]))}
    if "Classification" in kind:
        return {"labels": torch.rand(batch) if config.num_labels == 1 else torch.randint(0, config.num_labels, (batch,))}
    return {}


def pair(size):
    return tuple(size) if isinstance(size, (list, tuple)) else (size, size)


def from_transformers(name, options):
    import transformers

    config = json.loads(options.config)
    cls = getattr(transformers, name, None)
    files = {}
    if isinstance(cls, type):
        model = cls(without_python_randomness(cls.config_class(**config)))
    else:
        pretrained = transformers.AutoConfig.from_pretrained(name, **config)
        cls = getattr(transformers, (pretrained.architectures or ["AutoModel"])[0])
        # Weights in half precision, as many are published, would be trained in it.
        model = cls.from_pretrained(name, config=without_python_randomness(pretrained), dtype=torch.float32)
        files = processing_files(name)
    try:
        model.set_experts_implementation("batched_mm")  # the others are operators of Python, or depend on the data
    except (AttributeError, ValueError):
        pass
    return model, transformers_inputs(model, options.batch, options.length), files


def without_python_randomness(config):
    """Turns off what Python draws outside of torch, since the graph would repeat one draw."""
    for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop", "apply_spec_augment"):
        value = getattr(config, name, False)
        if value:
            note(f"{name} is {value}: it is off in the graph")
            setattr(config, name, type(value)(0))
    return config


def processing_files(name):
    """The files of a tokenizer or the like, if the model has one."""
    from transformers import AutoProcessor

    with tempfile.TemporaryDirectory() as folder:
        try:
            AutoProcessor.from_pretrained(name).save_pretrained(folder)
        except Exception:
            return {}
        return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir() if path.is_file()}


def from_torchvision(name, options):
    import torchvision

    extra = {"num_classes": options.classes} if options.classes and not options.pretrained else {}
    model = torchvision.models.get_model(name, weights="DEFAULT" if options.pretrained else None, **extra)
    transforms = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    size = options.image or getattr(transforms, "crop_size", [224])[0]
    return model, {next(iter(forward_parameters(model))): torch.rand(options.batch, 3, size, size)}, {}


def from_timm(name, options):
    import timm

    extra = {"num_classes": options.classes} if options.classes else {}
    model = timm.create_model(name, pretrained=options.pretrained, **extra)
    size = (3, options.image, options.image) if options.image else model.pretrained_cfg["input_size"]
    return model, {next(iter(forward_parameters(model))): torch.rand(options.batch, *size)}, {}


def from_file(path, function):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    model, inputs = getattr(module, function)()
    if not isinstance(inputs, dict):
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        names = [name for name, parameter in forward_parameters(model).items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        if len(inputs) > len(names):
            raise SystemExit(f"export.py: {function} gives {len(inputs)} inputs, but forward takes {', '.join(names)}: must give a dict by these names")
        inputs = dict(zip(names, inputs))
    return model, inputs, {}


def forward_parameters(model):
    return inspect.signature(model.forward).parameters


def load(options):
    source, _, name = options.model.partition(":")
    if not name:
        raise SystemExit(f"export.py: the model is '{options.model}': must be transformers:, torchvision: or timm: and a name, or FILE.py:FUNCTION")
    if source == "transformers":
        return from_transformers(name, options)
    if source == "torchvision":
        return from_torchvision(name, options)
    if source == "timm":
        return from_timm(name, options)
    if source.endswith(".py"):
        return from_file(source, name)
    raise SystemExit(f"export.py: '{source}' is unknown: must be transformers, torchvision, timm, or a file that ends in .py")


def export_any(model, inputs, output, files):
    """Exports with labels, or without them if the model's way to compute the loss can't be exported."""
    try:
        return inputs, export_model(model, inputs, output, files)[1]
    except Exception as error:
        without = {name: value for name, value in inputs.items() if name not in LABELS}
        if len(without) == len(inputs):
            raise
        note(f"without labels, since with them: {reason(error)}")
        return without, export_model(model, without, output, files)[1]


def describe(name, value):
    sizes = ", ".join(str(size) for size in value.shape)
    return f"{name} {str(value.dtype).removeprefix('torch.')} [{sizes}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="what to export, as above")
    parser.add_argument("--output", help="the file to write; default: NAME.pt2")
    parser.add_argument("--config", default="{}", help="values of a configuration of transformers, as a JSON object")
    parser.add_argument("--pretrained", action="store_true", help="weights of torchvision or timm, downloaded")
    parser.add_argument("--classes", type=int, help="classes of torchvision's and timm's models")
    parser.add_argument("--batch", type=int, default=4, help="examples in the example batch; at least 2 if it varies")
    parser.add_argument("--length", type=int, default=32, help="tokens in its texts")
    parser.add_argument("--image", type=int, help="width and height of its pictures for torchvision and timm; default: those of the pretrained weights")
    parser.add_argument("--seed", type=int, default=0, help="seed of random weights")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    model, inputs, files = load(options)
    name = pathlib.Path(options.model.partition(":")[2]).stem
    output = options.output or f"{name}.pt2"
    try:
        inputs, varying = export_any(model, inputs, output, files)
    except Exception as error:
        raise SystemExit(f"export.py: torch.export can't export {type(model).__name__}: {reason(error)}") from None
    inputs = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    parameters = sum(p.numel() for p in model.parameters())
    with_loss = any(name in inputs for name in LABELS) or "return_loss" in forward_parameters(model)
    print(f"""{output}: {type(model).__name__}, {parameters:,} parameters, graphs of training and evaluation
takes {'; '.join(describe(*item) for item in inputs.items())}
varies: {varying}

In C++ (link etude::torch_file):

  #include <etude/etude.hpp>
  #include <etude/model/load_exported.hpp>

  etude::Trainer<> trainer({{.model = etude::load_exported("{output}"),
                            .args = args,{'' if with_loss else chr(10) + ' ' * 28 + '.loss = torch::nn::CrossEntropyLoss(),'}
                            .train_dataset = train_set}});  // examples with {'the fields ' + ', '.join(inputs) if len(inputs) > 1 else 'one input'}""")


if __name__ == "__main__":
    main()
