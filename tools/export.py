#!/usr/bin/env python3
"""Exports a PyTorch model for training in C++ with etude::load_exported.

    export.py transformers:GPT2LMHeadModel --config '{"n_layer": 4}'     a class of transformers, with random weights
    export.py transformers:./my-gpt2                                     a folder or name that from_pretrained takes
    export.py torchvision:resnet18 --classes 10 --loss cross_entropy     with a loss in the graph, which takes `labels`
    export.py timm:vit_tiny_patch16_224 --classes 10
    export.py my_model.py:make                                           make() returns (model, inputs)

The file has one graph for training mode and one for evaluation mode, which share the weights. Modules that make() sets
to evaluation mode inside a model in training mode, and parameters without requires_grad, stay frozen. The size of the batch
varies, and the length of texts too where the model allows it. `inputs` is a dict of tensors by the names of forward's
parameters, labels included if forward computes the loss, or a list of them in order; lists, tuples and dicts of tensors
may be inputs. Random numbers that Python draws outside of torch are drawn once, by the export. Needs torch 2.8 or later and
the model's library.

--compile adds the compiled training step of a model that computes its loss: native code for this machine's processor, which a
program loads only if it asks for it. Compiling needs torch 2.13 and g++, and takes about a minute.

From Python: `import export; export.export_model(model, inputs, "model.pt2")`.
"""

import argparse
import contextlib
import copy
import difflib
import functools
import importlib
import importlib.util
import inspect
import io
import json
import logging
import math
import pathlib
import random
import re
import sys
import tempfile
import zipfile

import torch
from torch.utils import _pytree as pytree

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
    """Which sizes vary: the first of each input, and the second of each text."""

    def sizes(name, value):
        if isinstance(value, dict):
            return {key: sizes(None, each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [sizes(None, each) for each in value]
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
    """Restores the mode of every module, without calling `train`, which would also set its submodules."""
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


def named_inputs(model, inputs):
    """The inputs by the names of forward's parameters. Raises ValueError, which says how to pass them, if they don't fit."""
    parameters = forward_parameters(model)
    names = [name for name, parameter in parameters.items() if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)]
    takes = f"{type(model).__name__}.forward takes {inspect.signature(model.forward)}"
    if isinstance(inputs, dict):
        other = [name for name in inputs if name not in names]
        if other and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            raise ValueError(f"{takes}, but the inputs are {', '.join(map(str, inputs))}: give a dict by the names of its parameters" + (f', such as {{"{names[0]}": ...}}' if names else ""))
    else:
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        if len(inputs) > len(names):
            raise ValueError(f"{takes}, but there are {len(inputs)} inputs: give a dict by the names of its parameters" + (f', such as {{"{names[0]}": [...]}}' if names else ""))
        inputs = dict(zip(names, inputs))
    without_name = [str(parameter) for parameter in parameters.values() if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY)]
    missing = [name for name in names if parameters[name].default is inspect.Parameter.empty and name not in inputs]
    if missing or (without_name and not inputs):
        raise ValueError(f"{takes}, but the inputs have no {', '.join(missing or without_name)}" + (": wrap the model in a module whose forward names its inputs" if without_name else ""))
    return inputs


def separated(model, inputs):
    """Copies tensors that share memory with the model or an earlier one, since the graph would treat them as the same, and
    tensors with gaps, such as slices, since batches have none."""
    seen = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}

    def separate(value):
        if not isinstance(value, torch.Tensor):
            return value
        memory = value.untyped_storage().data_ptr()
        if memory in seen:
            return value.detach().clone(memory_format=torch.contiguous_format)
        seen.add(memory)
        return value.contiguous()

    return pytree.tree_map(separate, inputs)


def flat_inputs(inputs):
    """The tensors among the inputs by their names in C++: {"images": [a, b]} has images_0 and images_1."""

    def named(prefix, value):
        if isinstance(value, torch.Tensor):
            return {prefix: value}
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
        return {name: tensor for key, each in items for name, tensor in named(f"{prefix}_{key}" if prefix else key, each).items()}

    return named("", inputs)


@contextlib.contextmanager
def forward_replaced(model, forward, names):
    """Replaces the model's forward, within a `with` block, with one that also takes these keywords."""
    given = forward_parameters(model).values()
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    forward.__signature__ = inspect.Signature([*(parameter for parameter in given if parameter.kind is not parameter.VAR_KEYWORD), *more])
    before = model.__dict__.get("forward")
    model.forward = forward
    try:
        yield
    finally:
        if before is None:
            del model.forward
        else:
            model.forward = before


def keywords_named(model, inputs):
    """Gives a forward with **kwargs a signature with their names, without which torch.export can't vary their sizes."""
    forward, parameters = model.forward, forward_parameters(model)
    more = [name for name in inputs if name not in parameters]

    @functools.wraps(forward)
    def named(*given, **by_name):
        return forward(*given, **by_name)

    return forward_replaced(model, named, more) if more else contextlib.nullcontext()


def loss_added(model, loss):
    """Makes forward also take labels, and return `loss(output, labels)` along with its output."""
    forward = model.forward
    if "labels" in forward_parameters(model):
        raise ValueError(f"{type(model).__name__} takes labels, so it computes its loss itself")

    @functools.wraps(forward)
    def with_loss(*given, labels, **by_name):
        output = forward(*given, **by_name)
        if not isinstance(output, torch.Tensor):
            raise ValueError(f"{type(model).__name__} returns a {type(output).__name__}, so no loss can be added: compute it in forward")
        return {"loss": loss(output, labels), "logits": output}

    with_loss.loss_items = "labels" if loss is torch.nn.functional.cross_entropy else None
    return forward_replaced(model, with_loss, ["labels"])


def trace(model, inputs):
    """The graphs of both modes, with as many varying sizes as the model allows, and a description of those sizes."""
    attempts = [("batch and length", True, True), ("batch", True, False), ("nothing", False, False)]
    if dynamic_shapes(inputs) == dynamic_shapes(inputs, length=False):
        attempts = attempts[1:]
    logged = logging.root.manager.disable
    logging.disable(logging.ERROR)  # failed attempts log pages of text
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
    entries["data/sample_inputs/eval.pt"] = evaluation["data/sample_inputs/model.pt"]  # Python's loader requires it
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


def adapter(model):
    """For a model of PEFT: the adapter's adapter_config.json, and a map from the adapter's tensor names to the model's."""
    peft = sys.modules.get("peft")
    if not peft or not isinstance(model, peft.PeftModel):
        return {}, {}
    place = lambda tensor: (tensor.data_ptr(), tensor.shape, tensor.stride())
    own = {place(tensor): name for name, tensor in model.state_dict().items()}
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}

    def name_of(tensor):
        if place(tensor) in own:
            return own[place(tensor)]
        same = [name for name, parameter in trained.items() if torch.equal(parameter, tensor)]  # a copy, such as a prompt's
        return same[0] if len(same) == 1 else None

    names = {name: name_of(tensor) for name, tensor in peft.get_peft_model_state_dict(model, adapter_name=model.active_adapter).items()}
    strange = [name for name, found in names.items() if found is None]
    if strange:
        note(f"PEFT computes {', '.join(strange)} from the weights: no adapter_model.safetensors will be saved, only model.safetensors")
        return {}, {}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, selected_adapters=[model.active_adapter])
        config = next(pathlib.Path(folder).rglob("adapter_config.json")).read_text()
    return {"adapter_config.json": config}, names


def tied_names(model):
    """Maps names of tied tensors to the name that transformers' save_pretrained keeps; empty for other models."""
    patterns = [f"{re.escape(name + '.' if name else '')}{key}" for name, module in model.named_modules() for key in getattr(module, "_tied_weights_keys", None) or ()]
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    tied = {}
    for group in names.values():
        stay = [name for name in group if not any(re.search(pattern, name) for pattern in patterns)]
        if len(stay) < len(group):
            kept = stay[0] if stay else max(group)
            tied |= {name: kept for name in group if name != kept}
    return tied


def configuration(model):
    """The files from which transformers' from_pretrained makes the model; empty for other models."""
    if not hasattr(getattr(model, "config", None), "to_json_string") or hasattr(model, "peft_config"):
        return {}
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    files = {"config.json": config.to_json_string()}
    if getattr(model, "generation_config", None) is not None:
        files["generation_config.json"] = model.generation_config.to_json_string()
    return files


def loss_items(model, inputs):
    """Which labels the model's loss is averaged over, determined by asking for the sum over them: Etude weights accumulated batches
    by their number, as Hugging Face's Trainer does. A part that isn't divided by a number of labels, such as a router's loss,
    is the same in both. None if the model doesn't take the number, or divides by something else."""
    if hasattr(model.forward, "loss_items"):
        return model.forward.loss_items
    parameters = forward_parameters(model)
    takes_number = "num_items_in_batch" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    labels = inputs.get("labels")
    if not takes_number or labels is None or labels.is_floating_point():
        return None
    labels = labels.where(labels != -100, 0)  # so that the counts of shifted and of all labels differ
    try:
        with evaluation_mode(model), torch.no_grad():
            mean, whole, half = (first_loss(model(**(inputs | {"labels": labels}), **extra)) for extra in ({}, *({"num_items_in_batch": torch.tensor(n * labels.numel())} for n in (1, 2))))
    except Exception:
        return None
    divided = 2 * (whole - half)  # the part that is divided by the number of all labels
    if math.isclose(divided, 0, abs_tol=1e-4 * abs(mean)):  # it takes the number, but ignores it
        return None
    counts = {"shifted_labels": labels[..., 1:], "labels": labels} if labels.dim() > 1 else {"labels": labels}
    return next((name for name, counted in counts.items() if math.isclose(mean - (whole - divided), divided * labels.numel() / counted.numel(), rel_tol=1e-4)), None)


def are_of_tokens(labels):
    return isinstance(labels, torch.Tensor) and labels.dim() > 1 and not labels.is_floating_point()


def first_loss(outputs):
    return float(outputs["loss"] if isinstance(outputs, dict) else outputs[0])


def register_named_tuple(cls):
    """Registers a named tuple that forward returns under a name for files."""
    if isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        torch.utils._pytree._register_namedtuple(cls, serialized_type_name=f"{cls.__module__}.{cls.__qualname__}")


def configurations(model):
    """The transformers configurations in a model, including nested ones; the outer ones first."""
    waiting = [module.config for module in model.modules() if hasattr(module, "config")]
    found = []
    for config in waiting:
        if hasattr(config, "to_json_string") and not any(config is other for other in found):
            found.append(config)
            waiting += vars(config).values()
    return found


@contextlib.contextmanager
def exportable(model):
    """Configures parts of transformers for a graph. A cache of keys and values is for generation, and would be an output.
    Implementations of experts other than batched_mm are Python operators, or depend on the data."""
    changes = {"use_cache": False, "_experts_implementation": "batched_mm"}
    before = [(config, name, getattr(config, name)) for config in configurations(model) for name in changes if hasattr(config, name)]
    try:
        for config, name, _ in before:
            setattr(config, name, changes[name])
        yield
    finally:
        for config, name, value in before:
            setattr(config, name, value)


def note_operators(graph):
    """Prints which operators of a graph aren't LibTorch's."""
    names = {node.target._schema.name for node in graph.graph.nodes if hasattr(node.target, "_schema")}
    other = sorted(name for name in names if not name.startswith(("aten::", "higher_order::", "prim::")))
    if other:
        note(f"the program in C++ must have the operators {', '.join(other)}, from the library that has them or with TORCH_LIBRARY")


def compiled_step(program, inputs, **options):
    """The files of the compiled training step, by name. If it can't be compiled, there are none, and a note says why."""
    try:
        compile_graph = importlib.import_module(".compile_graph" if __package__ else "compile_graph", __package__)
        return compile_graph.compile_step(program, flat_inputs(inputs), note, **options)
    except Exception as error:
        note(f"the training step can't be compiled: {reason(error)}")
        return {}


def export_model(model, inputs, output, extra_files=None, processor=None, *, loss=None, compile=None, autocast=None, fixed_sizes=False):
    """Writes `model` to the file `output` and returns (training graph, the sizes that vary in words).

    `inputs` are examples by the names of forward's parameters, or in their order: tensors, and lists, tuples and dicts of
    them. Raises ValueError if they don't fit forward. `extra_files`, texts or bytes by name, are saved next to the weights of every checkpoint, and so are config.json and the files of
    `processor`, a tokenizer or anything else with `save_pretrained`.
    If the model is in training mode, its modules in evaluation mode, such as frozen batch norms, stay in that mode in the
    training graph. The model itself is left as it was.
    `loss`, such as torch.nn.functional.cross_entropy, adds a loss to a model that computes none: it gets the output and the input
    `labels`. `compile`, "cpu" or "cuda", adds the training step compiled for such a device. `autocast="bfloat16"` adds a second one
    under autocast. With `fixed_sizes`, both take only the sizes of the examples. If a step can't be compiled, a note says why.
    """
    if loss is not None:
        with loss_added(model, loss):
            return export_model(model, inputs, output, extra_files, processor, compile=compile, autocast=autocast, fixed_sizes=fixed_sizes)
    register_named_tuple(inspect.signature(model.forward).return_annotation)
    inputs = separated(model, named_inputs(model, inputs))
    adapter_files, adapter_names = adapter(model)
    files = configuration(model) | adapter_files | files_of(processor) | (extra_files or {})
    with exportable(model), random_state_kept(), keywords_named(model, inputs):
        items = loss_items(model, inputs)
        if not items and are_of_tokens(inputs.get("labels")):
            note("the loss isn't divided by a number of labels that can be given: accumulated batches weigh the same, whatever labels they have")
        (training, evaluation), varying = trace(model, inputs)
    note_operators(training)
    entries = saved(training)
    notes = {"loss_items": items, "tied": tied_names(model), "adapter": adapter_names}
    if any(notes.values()):
        files["etude.json"] = json.dumps({name: value for name, value in notes.items() if value})
    entries |= {f"extra/{name}": content for name, content in files.items()}
    add_evaluation(entries, saved(evaluation))
    if compile:
        with random_state_kept():
            entries |= compiled_step(training, inputs, device=compile, autocast=autocast, fixed_sizes=fixed_sizes)
    output = pathlib.Path(output)
    part = output.with_name(output.name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(f"{output.stem}/{name}", data)
    part.replace(output)
    return training, varying


# The following functions make models of well-known libraries, with example inputs.


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
        raise ValueError(f"no example inputs are known for the input {main} of {kind}: pass FILE.py:FUNCTION")
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

    config = options.config
    cls = getattr(transformers, name, None)
    files = {}
    if isinstance(cls, type):
        if not getattr(cls, "config_class", None):
            raise ValueError("it isn't the class of a model")
        model = cls(without_python_randomness(cls.config_class(**config)))
    elif name[0].isupper() and "/" not in name and not pathlib.Path(name).exists():
        raise ValueError("there is no such class")
    else:
        pretrained = transformers.AutoConfig.from_pretrained(name, **config)
        cls = getattr(transformers, (pretrained.architectures or ["AutoModel"])[0])
        # Many models are published in half precision, and would be trained in it.
        model = cls.from_pretrained(name, config=without_python_randomness(pretrained), dtype=torch.float32)
        files = processing_files(name)
    return model, transformers_inputs(model, options.batch, options.length), files


def without_python_randomness(config):
    """Turns off random numbers that Python draws outside torch, since the graph would repeat a single draw."""
    for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop", "apply_spec_augment"):
        value = getattr(config, name, False)
        if value:
            note(f"{name} is {value}: it is off in the graph")
            setattr(config, name, type(value)(0))
    return config


def processing_files(name):
    """The files of a tokenizer or the like, if the model has one."""
    from transformers import AutoProcessor

    try:
        return files_of(AutoProcessor.from_pretrained(name))
    except Exception:
        return {}


def files_of(processor):
    if processor is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        processor.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir() if path.is_file()}


def from_torchvision(name, options):
    import torchvision

    build = torchvision.models.get_model_builder(name)
    extra = {"num_classes": options.classes} if options.classes and not options.pretrained else {}
    if "weights_backbone" in inspect.signature(build).parameters and not options.pretrained:
        extra["weights_backbone"] = None  # otherwise they are downloaded
    kind = build.__module__.removeprefix("torchvision.models.").partition(".")[0]
    if kind == "detection":
        raise ValueError("a detector chooses boxes by their values, which no graph can: pass FILE.py:FUNCTION with the part that you train")
    model = build(weights="DEFAULT" if options.pretrained else None, **extra)
    weights = torchvision.models.get_model_weights(name).DEFAULT
    size = options.image or getattr(weights.transforms(), "crop_size", [224])[0]
    frames = [max(16, weights.meta.get("min_temporal_size", 0))] if kind == "video" else []
    needed = [name for name, parameter in forward_parameters(model).items() if parameter.default is parameter.empty]
    return model, {name: torch.rand(options.batch, 3, *frames, size, size) for name in needed}, {}


def from_timm(name, options):
    import timm

    extra = {"num_classes": options.classes} if options.classes else {}
    model = timm.create_model(name, pretrained=options.pretrained, **extra)
    size = (3, options.image, options.image) if options.image else model.pretrained_cfg["input_size"]
    return model, {next(iter(forward_parameters(model))): torch.rand(options.batch, *size)}, {}


def from_file(path, function):
    if not pathlib.Path(path).is_file():
        raise SystemExit(f"export.py: there is no file {path}")
    sys.path.insert(0, str(pathlib.Path(path).resolve().parent))  # as Python does for a script
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise SystemExit(f"export.py: {path} has no function {function}{near(function, vars(module))}")
    made = getattr(module, function)()
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], torch.nn.Module):
        raise SystemExit(f"export.py: {function} must return (model, inputs), not {type(made).__name__}")
    try:
        return made[0], named_inputs(*made), {}
    except ValueError as error:
        raise SystemExit(f"export.py: {error}") from None


def near(name, names):
    """A hint with names similar to a wrong one."""
    found = [] if name in names else difflib.get_close_matches(name, names)
    return f": did you mean {' or '.join(found)}?" if found else ""


def known_names(library):
    """The names of a library's models."""
    module = sys.modules.get(library)
    if module is None:
        return []
    if library == "timm":
        return module.list_models()
    return module.models.list_models() if library == "torchvision" else dir(module)


def forward_parameters(model):
    return inspect.signature(model.forward).parameters


def load(options):
    source, _, name = options.model.partition(":")
    if not name:
        raise SystemExit(f"export.py: the model is '{options.model}': must be transformers:, torchvision: or timm: and a name, or FILE.py:FUNCTION")
    if source.endswith(".py"):
        return from_file(source, name)
    libraries = {"transformers": from_transformers, "torchvision": from_torchvision, "timm": from_timm}
    if source not in libraries:
        raise SystemExit(f"export.py: '{source}' is unknown: must be transformers, torchvision, timm, or a file that ends in .py")
    try:
        return libraries[source](name, options)
    except Exception as error:
        raise SystemExit(f"export.py: can't make {name} of {source}: {reason(error)}{near(name, known_names(source))}") from None


def export_any(model, inputs, output, files, loss, **compiling):
    """Exports with labels, or without them if the model's loss can't be exported."""
    try:
        return inputs, export_model(model, inputs, output, files, loss=loss, **compiling)[1]
    except Exception as error:
        without = {name: value for name, value in inputs.items() if name not in LABELS}
        if loss or len(without) == len(inputs):
            raise
        note(f"without labels, since with them: {reason(error)}")
        return without, export_model(model, without, output, files, **compiling)[1]


LOSSES = {  # the names that `etude train --loss` takes
    "cross_entropy": torch.nn.functional.cross_entropy,
    "bce_with_logits": torch.nn.functional.binary_cross_entropy_with_logits,
    "mse": torch.nn.functional.mse_loss,
    "l1": torch.nn.functional.l1_loss,
    "huber": torch.nn.functional.huber_loss,
    "smooth_l1": torch.nn.functional.smooth_l1_loss,
}


def example_labels(model, inputs, loss):
    """Labels that fit the model's output: classes for cross_entropy, otherwise numbers in its shape."""
    with evaluation_mode(model), torch.no_grad():
        output = model(**named_inputs(model, inputs))
    if not isinstance(output, torch.Tensor):
        raise ValueError(f"{type(model).__name__} returns a {type(output).__name__}, so no loss can be added")
    return torch.randint(0, output.shape[1], (output.shape[0], *output.shape[2:])) if loss == "cross_entropy" else torch.rand_like(output)


def json_object(text):
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"it isn't JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("it must be a JSON object, such as '{\"n_layer\": 4}'")
    return value


def describe(name, value):
    sizes = ", ".join(str(size) for size in value.shape)
    return f"{name} {str(value.dtype).removeprefix('torch.')} [{sizes}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="what to export, as above")
    parser.add_argument("--output", help="the file to write; default: NAME.pt2")
    parser.add_argument("--config", type=json_object, default={}, help="values of a configuration of transformers, as a JSON object")
    parser.add_argument("--pretrained", action="store_true", help="weights of torchvision or timm, downloaded")
    parser.add_argument("--classes", type=int, help="classes of torchvision's and timm's models")
    parser.add_argument("--batch", type=int, default=4, help="examples in the example batch; at least 2 if it varies")
    parser.add_argument("--length", type=int, default=32, help="tokens in its texts")
    parser.add_argument("--image", type=int, help="width and height of its pictures for torchvision and timm; default: those of the pretrained weights")
    parser.add_argument("--seed", type=int, default=0, help="seed of random weights")
    parser.add_argument("--loss", choices=LOSSES, help="for a model that computes no loss: add this loss of its output and `labels` to the graph")
    parser.add_argument("--compile", choices=("cpu", "cuda"), nargs="?", const="cpu", help="add the compiled training step for a device; default: cpu")
    parser.add_argument("--autocast", choices=("bfloat16",), help="with --compile: also add a step under autocast")
    parser.add_argument("--fixed_sizes", action="store_true", help="with --compile: compile for the example batch's sizes only")
    options = parser.parse_args()
    if not options.compile and (options.autocast or options.fixed_sizes):
        parser.error("--autocast and --fixed_sizes need --compile")
    torch.manual_seed(options.seed)
    model, inputs, files = load(options)
    name = pathlib.Path(options.model.partition(":")[2]).stem
    output = options.output or f"{name}.pt2"
    try:
        loss = LOSSES.get(options.loss)
        if loss:
            inputs = inputs | {"labels": example_labels(model, inputs, options.loss)}
        inputs, varying = export_any(model, inputs, output, files, loss=loss, compile=options.compile, autocast=options.autocast, fixed_sizes=options.fixed_sizes)
    except Exception as error:
        raise SystemExit(f"export.py: torch.export can't export {type(model).__name__}: {reason(error)}") from None
    inputs = flat_inputs(inputs)
    parameters = sum(p.numel() for p in model.parameters())
    with_loss = any(name in inputs for name in LABELS) or "return_loss" in forward_parameters(model)
    print(f"""{output}: {type(model).__name__}, {parameters:,} parameters, graphs of training and evaluation
takes {'; '.join(describe(*item) for item in inputs.items())}
varies: {varying}

Train it with the program etude:

  etude train --model {output}{'' if with_loss else ' --loss cross_entropy'} --train_dataset FILE...

In C++ (link etude::exported):

  #include <etude/etude.hpp>
  #include <etude/model/load_exported.hpp>

  etude::Trainer<> trainer({{.model = etude::load_exported("{output}"),
                            .args = args,{'' if with_loss else chr(10) + ' ' * 28 + '.loss = torch::nn::CrossEntropyLoss(),'}
                            .train_dataset = train_set}});  // examples with {'the fields ' + ', '.join(inputs) if len(inputs) > 1 else 'one input'}""")


if __name__ == "__main__":
    main()
