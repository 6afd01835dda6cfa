"""Trains one of the contestants written in Python, each as its documentation recommends.

`peers.py NAME DIR` does what `train_bench NAME DIR` does (main.cpp); the work is the same too (contestants.hpp). `peers.py export DIR
WORKLOAD...` exports networks for etude_exported.
"""

import json
import math
import os
import resource
import sys
import time
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset

LEARNING_RATE, WEIGHT_DECAY, MAX_GRAD_NORM = 1e-3, 0.01, 1.0


class Clock:
    """Same as in workloads.hpp."""

    def __init__(self, warmup, steps):
        self.first, self.last, self.calls = warmup, warmup + steps, 0
        self.started = time.perf_counter()

    def tick(self):
        if self.calls == 0:
            self.first_call = time.perf_counter()
        if self.calls == self.first:
            self.begin, self.cpu_begin = time.perf_counter(), time.process_time()
        if self.calls == self.last:
            self.end, self.cpu_end = time.perf_counter(), time.process_time()
        self.calls += 1


class SlicedClock(Clock):
    """Before each slice and after the last, reports the time since it was last resumed and waits for a line."""

    def __init__(self, warmup, steps, slices, answers):
        super().__init__(warmup, steps * slices)
        self.slice, self.answers = steps, answers
        self.resumed, self.cpu_resumed = 0, 0

    def tick(self):
        if self.first <= self.calls <= self.last and (self.calls - self.first) % self.slice == 0:
            self.pause()
        super().tick()

    def pause(self):
        now, cpu_now = time.perf_counter(), time.process_time()
        print(json.dumps({"seconds": now - self.resumed, "cpu_seconds": cpu_now - self.cpu_resumed}), file=self.answers, flush=True)
        if not sys.stdin.readline():
            raise EOFError("standard input has ended")
        self.resumed, self.cpu_resumed = time.perf_counter(), time.process_time()


class Network(nn.Module):
    clock = None

    def forward(self, inputs):
        if self.training and self.clock:
            self.clock.tick()
        return self.logits(inputs)


class Perceptron(Network):
    def __init__(self, *sizes):
        super().__init__()
        self.depth = len(sizes) - 1
        for i in range(self.depth):
            setattr(self, f"layer{i}", nn.Linear(sizes[i], sizes[i + 1]))

    def logits(self, x):
        for i in range(self.depth - 1):
            x = torch.relu(getattr(self, f"layer{i}")(x))
        return getattr(self, f"layer{self.depth - 1}")(x)


class ConvNet(Network):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 24, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(24)
        self.second = nn.Conv2d(24, 48, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(48)
        self.head = nn.Linear(48 * 4 * 4, 10)

    def logits(self, pixels):
        x = torch.relu(self.first_norm(self.first(pixels)))
        return self.head(F.max_pool2d(torch.relu(self.second_norm(self.second(x))), 2).flatten(1))


CONTEXT, CHARACTERS, WIDTH, HEADS, LAYERS = 16, 64, 32, 4, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = q.matmul(k.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS)
        mixed = scores.masked_fill(mask, -1e9).softmax(-1).matmul(v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(Network):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, WIDTH)
        self.position = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        for i in range(LAYERS):
            setattr(self, f"block{i}", Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CHARACTERS)

    def logits(self, text):
        mask = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
        x = self.embedding(text) + self.position
        for i in range(LAYERS):
            x = getattr(self, f"block{i}")(x, mask)
        return self.head(self.norm(x)).flatten(0, 1)


class Conv1D(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.flatten(0, 1), self.weight).view(x.shape[0], x.shape[1], -1)


class GPT2Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.c_attn(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind()
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).reshape(batch, length, width))


class GPT2MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width)
        self.c_proj = Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class GPT2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = GPT2Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = GPT2MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(Network):
    def __init__(self, vocabulary=512, context=64, width=128, layers=4, heads=4):
        super().__init__()
        self.model = nn.Module()
        self.model.transformer = transformer = nn.Module()
        transformer.wte = nn.Embedding(vocabulary, width)
        transformer.wpe = nn.Embedding(context, width)
        transformer.h = nn.ModuleList(GPT2Block(width, heads) for _ in range(layers))
        transformer.ln_f = nn.LayerNorm(width)

    def logits(self, ids):
        transformer = self.model.transformer
        x = transformer.wte(ids) + transformer.wpe.weight[: ids.shape[1]]
        for block in transformer.h:
            x = block(x)
        return F.linear(transformer.ln_f(x), transformer.wte.weight).flatten(0, 1)


NETWORKS = {
    "tiny": lambda: Perceptron(4, 16, 2),
    "perceptron": lambda: Perceptron(64, 64, 64, 10),
    "wide": lambda: Perceptron(784, 1024, 10),
    "convnet": ConvNet,
    "transformer": Transformer,
    "gpt2": GPT2,
}


def loss_of(logits, targets):
    return F.cross_entropy(logits, targets.flatten())


class Order(Sampler):
    """The order that all contestants use, epoch after epoch."""

    def __init__(self, order):
        self.order = order.tolist()

    def __iter__(self):
        return iter(self.order)

    def __len__(self):
        return len(self.order)


class Task:
    def __init__(self, folder, name, steps, warmup, processes=1):
        data = load_file(folder / f"{name}.data.safetensors")
        self.inputs, self.targets = data["inputs"].clone(), data["targets"].clone()
        self.batch_size = int(data["batch_size"])
        self.steps = warmup + steps + 1
        self.order = data["order"][: self.steps * self.batch_size * processes]
        self.name, self.network = name, NETWORKS[name]()
        self.network.load_state_dict(load_file(folder / f"{name}.weights.safetensors"))
        self.network.train()
        self.dataset = TensorDataset(self.inputs, self.targets)

    def loader(self):
        return DataLoader(self.dataset, batch_size=self.batch_size, sampler=Order(self.order))

    def optimizer(self, **options):
        decays = {
            name: not name.endswith("bias") and "norm" not in name and "ln_" not in name
            for name, _ in self.network.named_parameters()
        }
        named = dict(self.network.named_parameters())
        groups = [
            {"params": [named[name] for name in named if decays[name]], "weight_decay": WEIGHT_DECAY},
            {"params": [named[name] for name in named if not decays[name]], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=LEARNING_RATE, **options)


def plain_loop(task, optimizer, bf16=False):
    total_loss = 0.0
    for inputs, targets in task.loader():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            outputs = task.network(inputs)
        loss = loss_of(outputs.float(), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(task.network.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        total_loss += loss.item()


def pytorch(task):
    plain_loop(task, task.optimizer(fused=True))


def pytorch_default(task):
    plain_loop(task, task.optimizer())


def pytorch_bf16(task):
    plain_loop(task, task.optimizer(fused=True), bf16=True)


compiled = {}  # by workload: the network, its compiled loss, and the seconds of compiling


def pytorch_compile(task):
    """Compiles the forward pass and the loss together, once for all trainings of a workload, before the first step."""
    if task.name not in compiled:
        network = task.network
        function = torch.compile(lambda inputs, targets: loss_of(network.logits(inputs), targets))
        buffers = {name: value.clone() for name, value in network.named_buffers()}
        began = time.perf_counter()
        for _ in range(2):
            function(task.inputs[: task.batch_size], task.targets[: task.batch_size]).backward()
        compiled[task.name] = network, function, time.perf_counter() - began
        network.zero_grad()
        network.load_state_dict(buffers, strict=False)
    network, function, task.compiling = compiled[task.name]
    network.load_state_dict(task.network.state_dict())
    network.clock, task.network = task.network.clock, network.train()
    optimizer = task.optimizer(fused=True)
    total_loss = 0.0
    for inputs, targets in task.loader():
        network.clock.tick()
        optimizer.zero_grad()
        loss = function(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        total_loss += loss.item()


def transformers(task):
    from transformers import Trainer, TrainingArguments

    class Rows(Dataset):
        def __len__(self):
            return len(task.inputs)

        def __getitem__(self, row):
            return {"inputs": task.inputs[row], "labels": task.targets[row]}

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = task.network

        def forward(self, inputs, labels):
            logits = self.network(inputs)
            return {"loss": loss_of(logits, labels), "logits": logits}

    class OrderedTrainer(Trainer):
        def _get_train_sampler(self, *_):
            return Order(task.order)

    arguments = TrainingArguments(
        output_dir="train_bench_output",
        per_device_train_batch_size=task.batch_size,
        max_steps=task.steps,
        learning_rate=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        lr_scheduler_type="constant",
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    OrderedTrainer(Model(), arguments, train_dataset=Rows()).train()


def pytorch_accelerated(task):
    from pytorch_accelerated import Trainer

    class NormClippingTrainer(Trainer):
        def _clip_gradients(self):  # by value, unless overridden
            self._accelerator.clip_grad_norm_(self.model.parameters(), self.run_config.gradient_clip_value)

    NormClippingTrainer(task.network, loss_func=loss_of, optimizer=task.optimizer(fused=True)).train(
        task.dataset,
        num_epochs=1,
        per_device_batch_size=task.batch_size,
        gradient_clip_value=MAX_GRAD_NORM,
        train_dataloader_kwargs={"sampler": Order(task.order), "num_workers": 0},
    )


def lightning(task):
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = task.network

        def training_step(self, batch, batch_idx):
            inputs, targets = batch
            return loss_of(self.network(inputs), targets)

        def configure_optimizers(self):
            return task.optimizer(fused=True)

    trainer = L.Trainer(
        max_epochs=1, gradient_clip_val=MAX_GRAD_NORM, accelerator="cpu", logger=False, enable_checkpointing=False
    )
    trainer.fit(Module(), task.loader())


def ignite(task):
    from ignite.engine import Engine

    optimizer = task.optimizer(fused=True)

    def update(engine, batch):
        task.network.train()
        optimizer.zero_grad()
        inputs, targets = batch
        loss = loss_of(task.network(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(task.network.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        return loss.item()

    Engine(update).run(task.loader(), max_epochs=1)


CONTESTANTS = {
    f.__name__: f
    for f in (pytorch, pytorch_default, pytorch_compile, pytorch_bf16, transformers, pytorch_accelerated, lightning, ignite)
}
PACKAGES = {"pytorch_accelerated": "pytorch-accelerated", "ignite": "pytorch-ignite"}


@torch.no_grad()
def mean_loss(task):
    task.network.eval()
    parts = zip(task.inputs.split(256), task.targets.split(256))
    return sum(loss_of(task.network(x), y).item() * len(x) for x, y in parts) / len(task.inputs)


def answer(train, folder, request, answers):
    name, *numbers = request.split()
    warmup, steps, slices, with_loss = map(int, numbers)
    task = Task(folder, name, steps * slices, warmup)
    task.network.clock = clock = SlicedClock(warmup, steps, slices, answers)
    train(task)
    return {
        "loss": mean_loss(task) if with_loss else None,
        "startup": clock.first_call - clock.started,
        "compiling": getattr(task, "compiling", 0),
        "calls": clock.calls,
        "threads": torch.get_num_threads(),
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }


def export(folder, names):
    """Writes NAME.pt2 of each workload, for etude_exported."""
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "tools"))
    from export import export_model

    for name in names:
        task = Task(folder, name, 1, 0)
        export_model(task.network, {"inputs": task.inputs[: task.batch_size]}, folder / f"{name}.pt2")


def main():
    name, folder = sys.argv[1:3]
    warnings.filterwarnings("ignore")
    if name == "export":
        return export(Path(folder), sys.argv[3:])
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for request in iter(sys.stdin.readline, ""):
        try:
            reply = answer(CONTESTANTS[name], Path(folder), request, answers)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()
