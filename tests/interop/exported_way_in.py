"""Checks how tools/export.py handles inputs, tied weights, experts and adapters, and its messages; Python loads what C++ saves."""

import argparse
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import zipfile

from checks import check, same
from exported_tools import batch_at, close, exported_models, run, safetensors, torch, transformers
from exported_folders import check_classes, set_dropout
import export

try:
    import peft
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROWS, SIZE, STEPS, RATE = 12, 6, 4, 0.05
SGD = ["--optim", "sgd", "--optim_args", "fused=false", "--learning_rate", RATE, "--lr_scheduler_type", "constant", "--max_grad_norm", 0, "--logging_strategy", "no",
       "--save_strategy", "steps", "--save_steps", STEPS, "--per_device_train_batch_size", SIZE, "--per_device_eval_batch_size", SIZE, "--max_steps", STEPS]  # fmt: skip
SMALL = {"vocab_size": exported_models.VOCABULARY, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
temporary = tempfile.TemporaryDirectory()
TOP = pathlib.Path(temporary.name)


def place(name):
    folder = TOP / name
    folder.mkdir()
    return folder


def notes_of(path):
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("/extra/etude.json")]
        return json.loads(archive.read(names[0])) if names else {}


def trained_beside(folder, model, data, inputs=None, names=None):
    """Trains `model`, whose forward gives the loss, in Python and in C++; the losses must agree. `names` makes forward's inputs from the data's fields."""
    set_dropout(model, 0.0)
    nested = names or (lambda batch: batch)
    export.export_model(model, inputs or nested({name: value[:4] for name, value in data.items()}), folder / "model.pt2")
    safetensors.torch.save_file(data, folder / "data.safetensors")
    losses, metrics = run(folder / "run", folder / "model.pt2", folder / "data.safetensors", "own", *SGD)
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=RATE)
    model.train()
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(**nested(batch_at(data, step, SIZE)))["loss"]
        loss.backward()
        optimizer.step()
        check(close(losses[step + 1], loss.item(), 1e-5), f"{folder.name}: the loss of step {step + 1} is {losses[step + 1]}, expected {loss.item()}")
    return folder / "run" / "final"


class Nested(torch.nn.Module):
    """Takes a list, a dict, and keywords, under names with capital letters."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, X, pair, Options=None, **more):
        y = self.linear(X) - 2 * pair[0] + 3 * pair[1] * Options["Scale"]
        return {"loss": (y - more["Labels"]).square().mean(), "y": y}


def check_nested_inputs():
    data = {name: torch.randn(ROWS, 3) for name in ("X", "pair_0", "pair_1", "Options_Scale", "Labels")}
    nested = lambda batch: {"X": batch["X"], "pair": [batch["pair_0"], batch["pair_1"]], "Options": {"Scale": batch["Options_Scale"]}, "Labels": batch["Labels"]}
    model, same_tensor = Nested(), torch.randn(4, 3)
    inputs = nested(dict.fromkeys(data, same_tensor))  # one tensor given five times
    same(list(export.flat_inputs(inputs)), list(data), "the names of the tensors")
    trained_beside(place("nested"), model, data, inputs, nested)
    check("forward" not in vars(model), "the export has changed forward")


def check_same_tensor_twice():
    """Labels that differ from the ids in the training, though the example has one tensor for both, and one for two masks."""
    torch.manual_seed(1)
    model, data, _ = exported_models.gpt2(ROWS)
    ids = data["input_ids"][:4]
    data["labels"] = torch.where(torch.rand(ROWS, exported_models.LENGTH) < 0.3, -100, data["input_ids"].flip(1))
    folder = place("twice")
    final = trained_beside(folder, model, data, {"input_ids": ids, "attention_mask": ids.view(4, -1), "labels": ids})
    notes = notes_of(folder / "model.pt2")
    same(notes, {"loss_items": "shifted_labels", "tied": {"lm_head.weight": "transformer.wte.weight"}}, "the notes about GPT-2")
    own = transformers.GPT2LMHeadModel.from_pretrained(final)
    print("gpt2: loaded by", ", ".join(check_classes(final, own, folder / "reference")))


def check_tied_of_bert():
    """The bias of the scores has two names too."""
    torch.manual_seed(2)
    config = transformers.BertConfig(**{name: value for name, value in SMALL.items() if name != "num_key_value_heads"})
    model = transformers.BertForMaskedLM(config)
    folder = place("bert")
    final = trained_beside(folder, model, exported_models.text(ROWS))
    tied = {"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.bias": "cls.predictions.bias"}
    same(notes_of(folder / "model.pt2")["tied"], tied, "the tied weights of BERT")
    print("bert: loaded by", ", ".join(check_classes(final, transformers.BertForMaskedLM.from_pretrained(final), folder / "reference")))


def check_experts():
    """Experts export from a function as from the command line, with a router's loss."""
    torch.manual_seed(3)
    config = transformers.MixtralConfig(**SMALL, num_local_experts=4, output_router_logits=True, tie_word_embeddings=True)
    model = transformers.MixtralForCausalLM(config)
    before = (model.config._experts_implementation, model.config.use_cache)
    folder = place("mixtral")
    final = trained_beside(folder, model, exported_models.text(ROWS))
    same((model.config._experts_implementation, model.config.use_cache), before, "the configuration of Mixtral")
    same(notes_of(folder / "model.pt2")["loss_items"], "shifted_labels", "what the loss with that of a router is a mean over")
    print("mixtral: loaded by", ", ".join(check_classes(final, transformers.MixtralForCausalLM.from_pretrained(final), folder / "reference")))


def check_adapter():
    torch.manual_seed(4)
    base_folder, folder = place("base"), place("peft")
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))
    base.save_pretrained(base_folder)
    loaded = lambda: transformers.AutoModelForCausalLM.from_pretrained(base_folder)
    lora = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], modules_to_save=["norm"], task_type="CAUSAL_LM", lora_dropout=0.0, init_lora_weights=False)
    model = peft.get_peft_model(loaded(), lora)
    data = exported_models.text(ROWS)
    final = trained_beside(folder, model, data)
    same({path.name for path in final.iterdir()}, {"adapter_config.json", "adapter_model.safetensors", "model.safetensors"}, "the files")
    model.save_pretrained(folder / "reference")
    ours, theirs = (safetensors.torch.load_file(at / "adapter_model.safetensors") for at in (final, folder / "reference"))
    same(sorted(ours), sorted(theirs), "the names in adapter_model.safetensors")
    checkpoint = folder / "run" / f"checkpoint-{STEPS}"
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        same((checkpoint / file).read_bytes(), (final / file).read_bytes(), f"{file} of the checkpoint")
    model.eval()
    batch = batch_at(data, 0, SIZE)
    with torch.no_grad():
        expected = model(**batch).loss.item()
        for back in (peft.PeftModel.from_pretrained(loaded(), final), transformers.AutoModelForCausalLM.from_pretrained(final)):
            loss = back.eval()(**batch).loss.item()
            check(close(loss, expected, 1e-5), f"{type(back).__name__}: the adapter gives a loss of {loss}, expected {expected}")
        check(not close(base.eval()(**batch).loss.item(), expected, 1e-3), "the adapter changes nothing")


    prompts = peft.get_peft_model(loaded(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
    same(export.adapter(prompts)[1], {"prompt_embeddings": "prompt_encoder.default.embedding.weight"}, "the tensors of prompts")


def check_configuration_in_another():
    vision = transformers.CLIPVisionConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=16)
    model = transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(text_config=transformers.LlamaConfig(**SMALL), vision_config=vision, image_token_index=95))
    ids = torch.randint(3, 90, (2, 8))
    graph, _ = export.export_model(model, {"input_ids": ids, "labels": ids}, TOP / "llava.pt2")
    same(len(graph.graph_signature.user_outputs), 2, "the outputs of a model with a text_config: its loss and logits")
    same(model.config.text_config.use_cache, True, "use_cache after the export")


def says(*arguments):
    """The script's message when it exits."""
    sys.argv = ["export.py", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            export.main()
    except SystemExit as end:
        return str(end)
    return ""


def check_messages():
    folder = place("scripts")
    (folder / "of_my_own.py").write_text("import torch\n\ndef layer():\n    return torch.nn.Linear(3, 2)\n")
    (folder / "mine.py").write_text(
        "import torch\nfrom of_my_own import layer\n\n"
        "class Stars(torch.nn.Module):\n    def forward(self, *given): return given[0]\n\n"
        "def make(): return layer(), torch.rand(4, 3)\n"
        "def several(): return layer(), [torch.rand(4, 3), torch.rand(4, 3)]\n"
        "def other(): return layer(), {'x': torch.rand(4, 3)}\n"
        "def stars(): return Stars(), torch.rand(4, 3)\n"
        "def none(): return layer(), {}\n"
        "def alone(): return layer()\n"
    )
    script = f"{folder}/mine.py"
    same(says(f"{script}:make", "--output", folder / "mine.pt2"), "", "a function that imports from its folder")
    check((folder / "mine.pt2").is_file(), "nothing was exported")
    for what, *words in [
        (f"{script}:several", "Linear.forward takes (input", "but there are 2 inputs", '{"input": [...]}'),
        (f"{script}:other", "Linear.forward takes (input", "but the inputs are x", '{"input": ...}'),
        (f"{script}:stars", "Stars.forward takes (*given)", "there are 1 inputs"),
        (f"{script}:none", "the inputs have no input"),
        (f"{script}:alone", "alone must return (model, inputs), not Linear"),
        (f"{script}:mak", "has no function mak: did you mean make?"),
        (f"{folder}/none.py:make", "there is no file"),
        ("transformers:GPT2LMHeadmodel", "can't make GPT2LMHeadmodel of transformers", "did you mean GPT2LMHeadModel"),
        ("transformers:AutoModel", "it isn't the class of a model"),
        ("transformers:GPT2LMHeadModel --config {\"n_embd\":30,\"n_head\":4}", "can't make GPT2LMHeadModel of transformers: `embed_dim` must be divisible"),
        ("torchvision:resnet81", "can't make resnet81 of torchvision", "did you mean", "resnet18"),
        ("torchvision:fasterrcnn_resnet50_fpn", "chooses boxes by their values"),
        ("timm:resnet81", "can't make resnet81 of timm", "did you mean"),
        ("keras:x", "'keras' is unknown"),
    ]:
        said = says(*what.split(), "--output", folder / "never.pt2")
        check(all(word in said for word in words) and "\n" not in said.strip(), f"{what}: it says '{said}', expected {words}")


    for text, words in (("{n_embd: 30}", "it isn't JSON"), ("[30]", "must be a JSON object")):
        try:
            export.json_object(text)
        except argparse.ArgumentTypeError as error:
            check(words in str(error), f"--config {text}: it says '{error}', expected '{words}'")
        else:
            check(False, f"--config {text} is taken")


def check_vision():
    """Inputs of the right rank, and nothing downloaded: the network isn't touched."""
    def refuse(*_, **__):
        raise AssertionError("a download")

    torch.hub.load_state_dict_from_url = refuse
    torch.hub.download_url_to_file = refuse
    options = type("Options", (), {"classes": None, "pretrained": False, "image": 64, "batch": 2})
    shapes = lambda name: {key: tuple(value.shape) for key, value in export.from_torchvision(name, options)[1].items()}
    same(shapes("r3d_18"), {"x": (2, 3, 16, 64, 64)}, "the inputs of a model of videos")
    same(shapes("raft_small"), {"image1": (2, 3, 64, 64), "image2": (2, 3, 64, 64)}, "the inputs of a model of pairs")
    same(shapes("lraspp_mobilenet_v3_large"), {"input": (2, 3, 64, 64)}, "the inputs of a model of segmentation")


for each in (check_nested_inputs, check_same_tensor_twice, check_tied_of_bert, check_experts, check_configuration_in_another, check_adapter, check_vision, check_messages):
    each()
    print(f"{each.__name__.removeprefix('check_').replace('_', ' ')}: as expected")
