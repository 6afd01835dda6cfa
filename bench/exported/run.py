"""Measures the training steps/s of models that Python exported, compared with ways to train them in Python. Writes exported.md
and exported.json.

    .venv/bin/python bench/exported/run.py --program build/bench/bench/exported_bench --output build
    python bench/exported/run.py --device cuda --bf16 --program ... --output ...     tokens/s of GPT-2 on a GPU

The contestants: etude runs the exported graph operator by operator, etude_compiled its compiled training step; eager and compile
are a loop in PyTorch, without and with torch.compile; transformers is Hugging Face's Trainer. Every run is a separate process.
In each round every contestant trains each model from the same weights on the same batches, in a random order of contestants.
Python's torch must be of the version that exported_bench is linked with, and support the same device.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "train"))  # first, since this folder has a run.py too
sys.path += [str(HERE.parent.parent / "tools"), str(HERE.parent.parent / ".venv" / "vision")]
from run import PeerFailed, left_out_table, say, table  # noqa: E402

RATE, DECAY, NORM = 1e-4, 0.01, 1.0
CONTESTANTS = ["etude", "etude_compiled", "eager", "compile", "transformers"]
# The allowed relative differences of the last loss. Batch norms of a few values amplify rounding: changing weights by 1e-7 changes
# eager PyTorch's loss by 5e-2.
TOLERANCES = {"resnet18 at 32x32": 5e-2}
TOLERANCE, TOLERANCE_BF16 = 5e-3, 5e-2
ON_GPU = ["gpt2 small"]  # what is measured on a GPU by default; on the CPU, the others are
OPERATORS = []
PASSES = 64  # batches of data, which repeat


def models():
    """By name: functions that make the model and its inputs for a number of rows, then batch, steps and warmup."""
    import torch

    if not OPERATORS:  # torchvision's Python code works without its compiled operators, if these are declared
        OPERATORS.append(torch.library.Library("torchvision", "FRAGMENT"))
        for name in ("nms", "qnms"):
            OPERATORS[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, ViTConfig, ViTForImageClassification

    def text(rows, length, vocabulary, classes=None):
        ids = torch.randint(0, vocabulary, (rows, length))
        # Nothing predicts the first token, but Hugging Face's Trainer divides GPT-2's loss by the number of all labels.
        labels = torch.randint(0, classes, (rows,)) if classes else ids.index_fill(1, torch.tensor([0]), -100)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

    def gpt2(width, layers, heads, vocabulary, length):
        config = GPT2Config(vocab_size=vocabulary, n_positions=length, n_embd=width, n_layer=layers, n_head=heads, use_cache=False,
                            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)
        return lambda: GPT2LMHeadModel(config), lambda rows: text(rows, length, vocabulary)

    bert = BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, max_position_embeddings=64,
                      hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    vit = ViTConfig(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=256, image_size=32, patch_size=8, num_labels=10,
                    hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    llama = LlamaConfig(vocab_size=256, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=176, max_position_embeddings=64,
                        bos_token_id=0, eos_token_id=0, use_cache=False)
    pixels = lambda rows: {"pixel_values": torch.rand(rows, 3, 32, 32), "labels": torch.randint(0, 10, (rows,))}
    segments = lambda rows: {"pixel_values": torch.rand(rows, 3, 32, 32), "labels": torch.randint(0, 4, (rows, 32, 32))}
    return {
        "gpt2 of width 64": (*gpt2(64, 2, 4, 256, 32), 8, 200, 20),
        "gpt2 of width 768 and 2 layers": (*gpt2(768, 2, 12, 5000, 64), 4, 20, 5),
        "bert of width 64": (lambda: BertForSequenceClassification(bert), lambda rows: text(rows, 32, 1000, 2), 8, 200, 20),
        "vit of width 64": (lambda: ViTForImageClassification(vit), pixels, 8, 150, 20),
        "llama of width 64": (lambda: LlamaForCausalLM(llama), lambda rows: text(rows, 32, 256), 8, 200, 20),
        "lstm of width 64": (lstm, lambda rows: {name: value for name, value in text(rows, 16, 256).items() if name != "attention_mask"}, 8, 100, 20),
        "resnet18 at 32x32": (resnet, pixels, 8, 20, 5),
        "unet at 32x32": (unet, segments, 8, 40, 5),
        "gpt2 small": (*gpt2(768, 12, 12, 50257, 1024), 8, 20, 5),
    }


def resnet():
    import torch
    import torchvision

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = torchvision.models.resnet18(num_classes=10)

        def forward(self, pixel_values, labels=None):
            logits = self.network(pixel_values)
            loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
            return {"loss": loss, "logits": logits}

    return Classifier()


def lstm():
    import torch

    class LanguageModel(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(256, 64)
            self.lstm = torch.nn.LSTM(64, 64, num_layers=2, batch_first=True)
            self.head = torch.nn.Linear(64, 256)

        def forward(self, input_ids, labels=None):
            logits = self.head(self.lstm(self.embedding(input_ids))[0])
            loss = None if labels is None else torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
            return {"loss": loss, "logits": logits}

    return LanguageModel()


def unet():
    import torch

    def block(inputs, outputs):
        layers = [layer for n in (inputs, outputs) for layer in (torch.nn.Conv2d(n, outputs, 3, padding=1, bias=False), torch.nn.BatchNorm2d(outputs), torch.nn.ReLU())]
        return torch.nn.Sequential(*layers)

    class UNet(torch.nn.Module):
        """Classifies each pixel; three levels of 16 to 64 channels."""

        def __init__(self):
            super().__init__()
            self.down1, self.down2, self.middle = block(3, 16), block(16, 32), block(32, 64)
            self.up2, self.join2 = torch.nn.ConvTranspose2d(64, 32, 2, stride=2), block(64, 32)
            self.up1, self.join1 = torch.nn.ConvTranspose2d(32, 16, 2, stride=2), block(32, 16)
            self.head = torch.nn.Conv2d(16, 4, 1)

        def forward(self, pixel_values, labels=None):
            half = torch.nn.functional.max_pool2d
            level1 = self.down1(pixel_values)
            level2 = self.down2(half(level1, 2))
            x = self.up2(self.middle(half(level2, 2)))
            x = self.up1(self.join2(torch.cat([level2, x], 1)))
            logits = self.head(self.join1(torch.cat([level1, x], 1)))
            loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
            return {"loss": loss, "logits": logits}

    return UNet()


class Clock:
    def __init__(self, warmup, steps, device):
        self.warmup, self.steps, self.device, self.calls = warmup, steps, device, 0

    def tick(self):
        """Called at the beginning of each step."""
        if self.calls == 1:
            self.first = self.now()  # the first step has ended
        if self.calls == self.warmup:
            self.begin = self.now()
        if self.calls == self.warmup + self.steps:
            self.end = self.now()
        self.calls += 1

    def now(self):
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()
        return time.time()


def make(name, folder):
    import torch
    from safetensors.torch import load_file

    build, _, batch, _, _ = models()[name]
    model = build()
    model.load_state_dict(torch.load(folder / "weights.pt"))
    return model.train(), load_file(folder / "data.safetensors"), batch


def groups(model):
    decays = lambda name: "bias" not in name and "norm" not in name.lower() and "ln_" not in name and "bn" not in name
    named = dict(model.named_parameters())
    return [{"params": [p for n, p in named.items() if decays(n)], "weight_decay": DECAY}, {"params": [p for n, p in named.items() if not decays(n)], "weight_decay": 0.0}]


def loop(name, folder, clock, steps, bf16, compiled=False):
    import torch

    device = clock.device
    model, data, batch = make(name, folder)
    model.to(device)
    optimizer = torch.optim.AdamW(groups(model), lr=RATE, fused=True)
    call = torch.compile(model) if compiled else model
    dataset = torch.utils.data.TensorDataset(*data.values())
    loader = torch.utils.data.DataLoader(dataset, batch_size=batch)
    batches = iter(loader)
    for step in range(steps):
        try:
            values = next(batches)
        except StopIteration:
            batches = iter(loader)
            values = next(batches)
        clock.tick()
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = call(**{key: value.to(device) for key, value in zip(data, values)})["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
    return loss.item()


def trainer(name, folder, clock, steps, bf16):
    import torch
    import transformers

    model, data, batch = make(name, folder)

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return len(next(iter(data.values())))

        def __getitem__(self, row):
            return {key: value[row] for key, value in data.items()}

    class Ordered(transformers.Trainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(Rows())

        def training_step(self, *given, **named):
            loss = super().training_step(*given, **named)
            self.last = loss
            return loss

    class Ticks(transformers.TrainerCallback):
        def on_step_begin(self, *_, **__):
            clock.tick()

    arguments = transformers.TrainingArguments(output_dir=str(folder / "trainer"), per_device_train_batch_size=batch, max_steps=steps, learning_rate=RATE,
                                               weight_decay=DECAY, lr_scheduler_type="constant", save_strategy="no", report_to="none", use_cpu=clock.device == "cpu", bf16=bf16,
                                               disable_tqdm=True)
    ours = Ordered(model, arguments, train_dataset=Rows(), callbacks=[Ticks()])
    ours.train()
    return ours.last.item()


def contest(contestant, name, folder, started, device, bf16):
    """Runs a Python contestant once; prints the same line as exported_bench."""
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    _, _, _, steps, warmup = models()[name]
    clock = Clock(warmup, steps, device)
    total = warmup + steps + 1
    loss = trainer(name, folder, clock, total, bf16) if contestant == "transformers" else loop(name, folder, clock, total, bf16, contestant == "compile")
    # Unlike ru_maxrss, this leaves out the memory of the process that started it.
    peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    answer = {"seconds": clock.end - clock.begin, "startup": clock.first - started, "loss": loss, "peak_memory": peak}
    if device == "cuda":
        answer["peak_device_memory"] = torch.cuda.max_memory_allocated()
    print(json.dumps(answer), file=answers)


def prepare(name, folder, options):
    """Writes the weights, the data and the exported models for all contestants. Returns the cost of each export."""
    import torch
    from export import export_model
    from safetensors.torch import save_file

    torch.manual_seed(0)
    build, inputs, batch, _, _ = models()[name]
    model = build()
    data = inputs(batch * PASSES)
    torch.save(model.state_dict(), folder / "weights.pt")
    save_file(data, folder / "data.safetensors")
    costs = {}

    def export(contestant, **compiled):
        """Exports the model; records the seconds that it takes and the bytes of native code."""
        file = folder / f"{contestant}.pt2"
        begin = time.perf_counter()
        export_model(model, {key: value[:batch] for key, value in data.items()}, file, **compiled)
        seconds = time.perf_counter() - begin
        with zipfile.ZipFile(file) as archive:
            code = sum(entry.file_size for entry in archive.infolist() if entry.filename.endswith(".so"))
        costs[contestant] = {"seconds": seconds, "code": code}

    export("etude")
    if "etude_compiled" in options.contestants:
        export("etude_compiled", compile=options.device, **({"autocast": "bfloat16"} if options.bf16 else {}))
        torch.cuda.empty_cache()
    return costs


def run(contestant, name, folder, options):
    _, _, batch, steps, warmup = models()[name]
    started = time.time()
    if contestant.startswith("etude"):
        command = [options.program.resolve(), folder / f"{contestant}.pt2", folder / "data.safetensors", "own", batch, warmup, steps, started, "-"]
        command += ["--use_cpu", options.device == "cpu", "--bf16", options.bf16]
        command += ["--compiled_graph", "required" if contestant == "etude_compiled" else "off"]
    else:
        command = [sys.executable, __file__, "--contest", contestant, "--model", name, "--folder", folder, "--started", started, "--device", options.device]
        command += ["--bf16"] * options.bf16
    # From the second round on, torch.compile finds its code in this cache.
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads), "MKL_NUM_THREADS": str(options.threads), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, cwd=folder)
    if ran.returncode != 0:
        if contestant in ("etude", "eager"):
            sys.exit(f"{contestant}, {name}: {ran.stderr[-2000:]}")
        raise PeerFailed(f"{name}: {ran.stderr.strip().splitlines()[-1][:400]}" if ran.stderr.strip() else name)
    return json.loads(ran.stdout.splitlines()[-1])


def report(results, contestants):
    """The tables. `results` has each model's results by its name."""

    def of_each(head, cell, names=contestants):
        """A table with a row for each model and a column for each contestant. `cell` formats a contestant's runs; it also gets the model's
        result."""
        names = [name for name in names if any(name in result["runs"] for result in results.values())]
        rows = [[model, *head(result).values(), *(cell(result["runs"][name], result) if name in result["runs"] else "—" for name in names)] for model, result in results.items()]
        return table(["model", *head(next(iter(results.values()))), *names], rows)

    none = lambda result: {}
    median = lambda runs, key: statistics.median(run[key] for run in runs)
    ratio = lambda one, other: statistics.median(a["seconds"] / b["seconds"] for a, b in zip(one, other))
    megabytes = lambda key: lambda runs, _: f"{median(runs, key) / 1e6:.0f}"

    def startup(runs, result):
        compiles = runs is result["runs"].get("compile")
        return f"{median(runs, 'startup'):.1f}" + (f" ({runs[0]['startup']:.0f} without its cache)" if compiles else "")

    def speed(result):
        runs = result["runs"]
        both = {"etude_compiled", "compile"} <= runs.keys()
        return {"eager, steps/s": f"{result['steps'] / median(runs['eager'], 'seconds'):.1f}",
                "etude_compiled as a multiple of compile": f"{ratio(runs['compile'], runs['etude_compiled']):.2f}" if both else "—"}  # fmt: skip

    text = "Steps/s as multiples of eager PyTorch's:\n\n" + of_each(speed, lambda runs, result: f"{ratio(result['runs']['eager'], runs):.2f}", [name for name in contestants if name != "eager"])
    if any(result["tokens"] for result in results.values()):
        tokens = lambda runs, result: f"{result['tokens'] * result['steps'] / median(runs, 'seconds'):,.0f}" if result["tokens"] else "—"
        text += "\nTokens/s:\n\n" + of_each(none, tokens)
    text += "\nSeconds until the end of the first step:\n\n" + of_each(none, startup)
    text += "\nPeak memory of the process, MB:\n\n" + of_each(none, megabytes("peak_memory"))
    if all("peak_device_memory" in run for result in results.values() for runs in result["runs"].values() for run in runs):
        text += "\nPeak memory of tensors on the GPU, MB:\n\n" + of_each(none, megabytes("peak_device_memory"))
    rows = [[model, *(f"{cost['seconds']:.0f}" for cost in result["export"].values()), f"{list(result['export'].values())[-1]['code'] / 1e6:.1f}"] for model, result in results.items()]
    return text + "\nSeconds of each export, and MB of native code:\n\n" + table(["model", *next(iter(results.values()))["export"], "code"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, help="exported_bench")
    parser.add_argument("--output", type=Path, help="folder for exported.md and exported.json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--bf16", action="store_true", help="train under bf16 autocast")
    parser.add_argument("--models", type=lambda s: s.split(","), help=f"default: {', '.join(ON_GPU)} on a GPU, all others on the CPU")
    parser.add_argument("--contestants", type=lambda s: s.split(","), default=CONTESTANTS)
    parser.add_argument("--quick", action="store_true", help="one round of etude and eager PyTorch, as a smoke test")
    for name, kind in (("contest", str), ("model", str), ("folder", Path), ("started", float)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contest:
        return contest(options.contest, options.model, options.folder, options.started, options.device, options.bf16)
    if options.quick:
        options.rounds, options.contestants = 1, ["etude", "eager"]
    warnings.filterwarnings("ignore")
    options.output.mkdir(parents=True, exist_ok=True)
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            (options.output / "exported.md").write_text("Python's torch finds no GPU.\n")
            return
    chosen = options.models or (ON_GPU if options.device == "cuda" else [name for name in models() if name not in ON_GPU])
    results, wrong, left_out = {}, [], {}
    with tempfile.TemporaryDirectory() as top:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{top}/cache"  # so that each export compiles
        for number, name in enumerate(chosen):
            folder = Path(top) / str(number)
            folder.mkdir()
            costs = prepare(name, folder, options)
            _, inputs, batch, steps, _ = models()[name]
            tokens = inputs(batch).get("input_ids")
            contestants, runs = list(options.contestants), {contestant: [] for contestant in options.contestants}
            for turn in range(options.rounds):
                for contestant in random.sample(contestants, len(contestants)):
                    try:
                        runs[contestant].append(run(contestant, name, folder, options))
                    except PeerFailed as failure:
                        say(f"left out: {contestant}, {failure}")
                        left_out[f"{contestant}, {name}"] = str(failure)
                        contestants.remove(contestant)
                        del runs[contestant]
                say(f"{name}, round {turn + 1} of {options.rounds}")
            expected = runs["eager"][0]["loss"]
            tolerance = TOLERANCE_BF16 if options.bf16 else TOLERANCES.get(name, TOLERANCE)
            wrong += [f"{contestant}, {name}: {answers[0]['loss']} instead of {expected}" for contestant, answers in runs.items() if abs(answers[0]["loss"] - expected) > tolerance * abs(expected)]
            results[name] = {"batch": batch, "steps": steps, "tokens": None if tokens is None else tokens.numel(), "export": costs, "runs": runs}
    precision = "bf16 autocast" if options.bf16 else "float32"
    text = f"Medians of {options.rounds} round{'s' * (options.rounds > 1)}, {options.device}, {precision}, {options.threads} thread{'s' * (options.threads > 1)}.\n\n" + report(results, options.contestants)
    if left_out:
        text += "\n" + left_out_table(left_out)
    (options.output / "exported.md").write_text(text)
    (options.output / "exported.json").write_text(json.dumps({"device": options.device, "precision": precision, "threads": options.threads, "models": results}, indent=1) + "\n")
    print("\n" + text)
    if wrong:
        sys.exit("not the same work, for the losses differ:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
