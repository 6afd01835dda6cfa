"""Compares `etude train` with Python's own training: images in folders, a text, a table; killed and resumed; and the commands of
docs/train-without-cpp.md.

The first argument is the program etude. The Python package is put together around it, as in the wheel."""

import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from checks import check, same

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path += [str(ROOT / ".venv" / "vision")]
try:
    import safetensors.torch
    import torch
    import exported_models  # declares operators for torchvision, whose own aren't compiled for this torch
    import torchvision
    import transformers
    from PIL import Image
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

torch.set_num_threads(1)
os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
# Does the same in any Python that a command starts, before it imports torchvision.
DECLARE_OPERATORS = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import exported_models
sys.meta_path.insert(0, Finder())
"""
SGD = ["--optim", "sgd", "--optim_args", "fused=false", "--learning_rate", "0.05", "--lr_scheduler_type", "constant", "--max_grad_norm", "0", "--report", "quiet",
       "--train_sampling_strategy", "sequential", "--logging_strategy", "steps", "--logging_steps", "1", "--per_device_train_batch_size", "6"]  # fmt: skip


def package(folder):
    """Etude's Python package around the program; its folder goes into PYTHONPATH, and `etude` into PATH."""
    target = folder / "package" / "etude"
    shutil.copytree(ROOT / "packaging" / "python" / "etude", target)
    for tool in ("export.py", "compile_graph.py", "prepare.py"):
        shutil.copy(ROOT / "tools" / tool, target)
    (target / "_build.py").write_text(f"VERSION = 'test'\nTORCH = '{torch.__version__.partition('+')[0]}'\n")
    (target / "bin").mkdir()
    (target / "bin" / "etude").symlink_to(pathlib.Path(sys.argv[1]).resolve())
    (target.parent / "sitecustomize.py").write_text(DECLARE_OPERATORS)
    script = folder / "bin" / "etude"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m etude "$@"\n')
    script.chmod(0o755)
    os.environ["PATH"] = f"{script.parent}:{os.environ['PATH']}"
    os.environ["PYTHONPATH"] = f"{target.parent}:{ROOT / '.venv' / 'vision'}:{pathlib.Path(__file__).parent}"
    sys.path.insert(0, str(target.parent))


def etude(*words, status=0):
    ran = subprocess.run(["etude", *map(str, words)], capture_output=True, text=True)
    check(ran.returncode == status, f"etude {' '.join(map(str, words))} ended with {ran.returncode}:\n{ran.stderr}")
    return ran


def losses_in(folder):
    history = json.loads(pathlib.Path(folder, "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


def same_losses(seen, expected, what):
    same(len(seen), len(expected), f"{what}: the number of losses")
    for step, (a, b) in enumerate(zip(seen, expected), 1):
        check(abs(a - b) <= 1e-5 * max(1, abs(b)), f"{what}: the loss of step {step} is {a}, in Python {b}")


def trained_in_python(model, batches, loss_of, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model.train()
    losses = []
    for step in range(steps):
        loss = loss_of(model, batches[step % len(batches)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def batches_of(*tensors):
    return list(zip(*(tensor.split(6) for tensor in tensors)))


def write_photos(folder, kinds, each, seed):
    """Pictures of several sizes, each class in shades of one colour."""
    generator = torch.Generator().manual_seed(seed)
    for number, kind in enumerate(kinds):
        (folder / kind).mkdir(parents=True)
        for i in range(each):
            height, width = (40 + 8 * (i % 3), 40 + 6 * (i % 4))
            color = torch.tensor([40.0, 40.0, 40.0]) + 150 * (torch.arange(3) == number)
            pixels = (color + 25 * torch.randn(height, width, 3, generator=generator)).clamp(0, 255).byte()
            Image.fromarray(pixels.numpy()).save(folder / kind / f"{i}.{'png' if i % 2 else 'jpg'}")


class SmallNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(32, 3))

    def forward(self, pixels):
        return self.layers(pixels)


def check_images(folder):
    from etude.export import export_model

    write_photos(folder / "photos", ("cat", "cow", "dog"), 8, seed=1)
    torch.manual_seed(0)
    model = SmallNet()
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    processor = {"preprocessor_config.json": json.dumps({"do_normalize": True, "image_mean": mean, "image_std": [1, 1, 1]})}
    export_model(model, [torch.rand(4, 3, 32, 32)], folder / "photos.pt2", extra_files=processor)
    etude("train", "--model", folder / "photos.pt2", "--loss", "cross_entropy", "--train_dataset", folder / "photos", "--image_std", *std, "--num_train_epochs", "3",
          "--output_dir", folder / "out", *SGD)  # fmt: skip

    pixels, labels = [], []
    for image, label in torchvision.datasets.ImageFolder(folder / "photos").samples:
        read = torchvision.transforms.functional.pil_to_tensor(Image.open(image).convert("RGB")).float()
        size = [int(32 * side / min(read.shape[1:])) for side in read.shape[1:]]  # as torchvision's Resize rounds
        read = torch.nn.functional.interpolate(read[None], size, mode="bilinear", antialias=True)[0] / 255
        read = torchvision.transforms.functional.center_crop(read, [32, 32])
        pixels.append((read - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None])
        labels.append(label)
    cross_entropy = lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    expected = trained_in_python(model, batches_of(torch.stack(pixels), torch.tensor(labels)), cross_entropy, 12)
    same_losses(losses_in(folder / "out"), expected, "images")
    same(json.loads((folder / "out" / "classes.json").read_text()), ["cat", "cow", "dog"], "the classes")


def small_gpt2(vocabulary):
    config = transformers.GPT2Config(vocab_size=vocabulary, n_positions=128, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0,
                                     eos_token_id=0)  # fmt: skip
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config)


def check_text(folder):
    """Bytes as tokens; then a kill in the middle, and the same command again."""
    from etude.export import export_model

    text = (ROOT / "CONTRIBUTING.md").read_bytes()[: 32 * 24]
    (folder / "text.txt").write_bytes(text + b"x")
    model = small_gpt2(256)
    ids = torch.tensor(list(text)).view(-1, 32)
    export_model(model, {"input_ids": ids[:4], "attention_mask": torch.ones_like(ids[:4]), "labels": ids[:4]}, folder / "gpt2.pt2")
    command = ["train", "--model", folder / "gpt2.pt2", "--train_dataset", folder / "text.txt", "--context", "32", *SGD]
    etude(*command, "--num_train_epochs", "3", "--output_dir", folder / "out", "--eval_dataset", folder / "text.txt", "--compute_metrics", "accuracy")
    expected = trained_in_python(model, batches_of(ids), lambda model, batch: model(input_ids=batch[0], labels=batch[0]).loss, 12)
    same_losses(losses_in(folder / "out"), expected, "text")
    model.eval()
    with torch.no_grad():
        right = (model(input_ids=ids).logits[:, :-1].argmax(-1) == ids[:, 1:]).double().mean().item()
    seen = json.loads((folder / "out" / "eval_results.json").read_text())["eval_accuracy"]
    check(abs(seen - right) < 1e-3, f"the accuracy of the next token is {seen}, in Python {right}")
    loaded = transformers.GPT2LMHeadModel.from_pretrained(folder / "out")
    for name, tensor in model.state_dict().items():
        check(torch.allclose(tensor, loaded.state_dict()[name], atol=1e-5), f"the weights {name} differ")

    long = [*command, "--num_train_epochs", "150", "--save_steps", "20", "--save_total_limit", "2"]
    etude(*long, "--output_dir", folder / "whole")
    process = subprocess.Popen(["etude", *map(str, long), "--output_dir", str(folder / "killed")], stdout=subprocess.DEVNULL)
    while not (folder / "killed" / "checkpoint-40").exists():
        check(process.poll() is None, "the training ended before it was killed")
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    etude(*long, "--output_dir", folder / "killed")
    whole, killed = (safetensors.torch.load_file(folder / name / "model.safetensors") for name in ("whole", "killed"))
    for name, tensor in whole.items():
        check(torch.equal(tensor, killed[name]), f"{name} differs after a kill and the same command again")


def write_table(path, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 4, generator=generator)
    kinds = ("setosa", "versicolor", "virginica")
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sepal_length", "sepal_width", "petal_length", "petal_width", "species"])
        for row in x:
            writer.writerow([*(repr(value.item()) for value in row), kinds[row[:3].argmax()]])
    return x, x[:, :3].argmax(1)


def check_table(folder):
    """Trains on a table with the program, with the Python package's Trainer and a module, and in Python."""
    from etude import Trainer, TrainingArguments
    from etude.export import export_model

    x, y = write_table(folder / "flowers.csv", 24, seed=2)
    torch.manual_seed(0)
    make = lambda: torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    model, beside = make(), make()
    beside.load_state_dict(model.state_dict())
    export_model(model, [x[:4]], folder / "flowers.pt2")
    etude("train", "--model", folder / "flowers.pt2", "--loss", "cross_entropy", "--train_dataset", folder / "flowers.csv", "--label_column", "species", "--output_dir",
          folder / "out", "--num_train_epochs", "3", *SGD)  # fmt: skip
    expected = trained_in_python(model, batches_of(x, y), lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1]), 12)
    same_losses(losses_in(folder / "out"), expected, "table")

    names = [word.removeprefix("--") for word in SGD[::2]]
    arguments = dict(zip(names, SGD[1::2])) | {"learning_rate": 0.05, "max_grad_norm": 0, "logging_steps": 1, "per_device_train_batch_size": 6}
    trainer = Trainer(model=beside, loss="cross_entropy", train_dataset={"input": x, "labels": y}, eval_dataset={"input": x, "labels": y}, compute_metrics=["accuracy"],
                      callbacks=["TimerCallback", ("EarlyStoppingCallback", {"early_stopping_patience": 9})],
                      args=TrainingArguments(output_dir=str(folder / "notebook"), num_train_epochs=3, eval_strategy="epoch", **arguments))  # fmt: skip
    output = trainer.train()
    same(output.global_step, 12, "the steps of the Trainer")
    same_losses([entry["loss"] for entry in trainer.state.log_history if "loss" in entry], expected, "the Trainer")
    for name, tensor in model.state_dict().items():
        check(torch.allclose(tensor, beside.state_dict()[name], atol=1e-6), f"the Trainer's weights {name} differ")
    with torch.no_grad():
        scores = beside(x)
    check(torch.allclose(trainer.predict({"input": x}).predictions, scores, atol=1e-6), "predictions differ")
    right = (scores.argmax(1) == y).double().mean().item()
    check(abs(trainer.evaluate()["eval_accuracy"] - right) < 1e-6, "the accuracy differs")
    first_loss = trainer.state.log_history[0]["loss"]
    trainer.args.output_dir = str(folder / "further")
    trainer.train()
    check(trainer.state.log_history[0]["loss"] < first_loss, "a second training doesn't begin with the module's weights")

    of_table = Trainer(model=folder / "flowers.pt2", loss="cross_entropy", train_dataset=folder / "flowers.csv", eval_dataset=folder / "flowers.csv",
                       label_column="species", compute_metrics="accuracy", args={"output_dir": str(folder / "of_table"), "max_steps": 2})  # fmt: skip
    of_table.train()
    last = json.loads((folder / "of_table" / "eval_results.json").read_text())["eval_loss"]
    check(abs(of_table.evaluate()["eval_loss"] - last) < 1e-6, "evaluate() reads the table otherwise than train()")
    same(of_table.predict(folder / "flowers.csv").label_ids.tolist(), y.tolist(), "the labels of predictions")
    for wrong, error, said in (({"args": {"lr": 3}}, ValueError, "did you mean 'learning_rate'?"), ({"train_dataset": "no.csv"}, RuntimeError, "no.csv: there is no such file")):
        try:
            Trainer(**({"model": folder / "flowers.pt2", "loss": "cross_entropy", "train_dataset": folder / "flowers.csv"} | wrong)).train()
            check(False, "nothing was raised")
        except error as raised:
            check(said in str(raised) and "\n" not in str(raised), f"the message is {raised}")


def check_refusals(folder):
    """A file of a later schema, and a folder without images."""
    import zipfile

    with zipfile.ZipFile(folder / "flowers.pt2") as archive, zipfile.ZipFile(folder / "later.pt2", "w") as later:
        for name in archive.namelist():
            data = archive.read(name)
            if "/models/" in name:
                graph = json.loads(data)
                graph["schema_version"]["major"] += 90
                data = json.dumps(graph).encode()
            later.writestr(name, data)
    said = etude("train", "--model", folder / "later.pt2", "--loss", "mse", "--train_dataset", folder / "flowers.csv", status=1).stderr
    check("later.pt2" in said and "98" in said and said.count("\n") == 1, f"the message is {said}")


def check_page(folder):
    """Runs the page's commands and Python in order. Small models with the same names, in folders, replace its downloads."""
    os.chdir(folder)
    write_photos(folder / "photos" / "train", ("cat", "cow", "dog"), 32, seed=3)
    write_photos(folder / "photos" / "test", ("cat", "cow", "dog"), 4, seed=4)
    write_table(folder / "flowers.csv", 120, seed=5)
    words = (ROOT / "CONTRIBUTING.md").read_text().split()
    (folder / "book.txt").write_text(" ".join(words[:3000]))
    with open("reviews.csv", "w", newline="") as train, open("reviews-test.csv", "w", newline="") as test:
        for file, count in ((train, 48), (test, 12)):
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            for i in range(count):
                writer.writerow([f"{words[i]} {('bad', 'good')[i % 2]} {words[i + 1]}", ("negative", "positive")[i % 2]])
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator([" ".join([*words, "good", "bad"])], trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"]))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", eos_token="[PAD]", model_input_names=["input_ids", "attention_mask"])
    small_gpt2(len(tokenizer)).save_pretrained("distilgpt2")
    config = transformers.DistilBertConfig(vocab_size=len(tokenizer), dim=32, hidden_dim=64, n_layers=1, n_heads=2, max_position_embeddings=128)
    transformers.DistilBertForSequenceClassification(config).save_pretrained("distilbert-base-uncased")
    for name in ("distilgpt2", "distilbert-base-uncased"):
        tokenizer.save_pretrained(name)

    page = (ROOT / "docs" / "train-without-cpp.md").read_text()
    blocks = re.findall(r"^( *)```(sh|python)\n(.*?)^ *```$", page, re.M | re.S)
    check(len(blocks) > 10, "the page has no blocks")
    for indent, kind, text in blocks:
        text = "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))
        command = ["bash", "-e", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
        ran = subprocess.run(command, capture_output=True, text=True)
        check(ran.returncode == 0, f"this block of the page ended with {ran.returncode}:\n{text}\n{ran.stdout[-2000:]}\n{ran.stderr[-3000:]}")
    accuracy = lambda run: json.loads((folder / run / "eval_results.json").read_text())["eval_accuracy"]
    check(accuracy("reviews-out") > 0.9, f"the accuracy of reviews is {accuracy('reviews-out')}")
    check(accuracy("photos-out") > 0.9, f"the accuracy of photos is {accuracy('photos-out')}")
    check((folder / "flowers-search" / "study.log").exists(), "the search left no study")
    print(f"page: {len(blocks)} blocks")


temporary = tempfile.TemporaryDirectory()
TOP = pathlib.Path(temporary.name)
package(TOP)
for part in (check_images, check_text, check_table, check_page):
    folder = TOP / part.__name__
    folder.mkdir()
    part(folder)
check_refusals(TOP / "check_table")
os.chdir("/")
