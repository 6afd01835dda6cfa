"""A model with frozen parts trains in C++ as in Python: batch norms and dropout in evaluation mode, parameters without requires_grad.

The export leaves the model as it was: modes, configuration, random numbers, logging.
"""

import logging
import pathlib
import random
import tempfile

from checks import check, same
from exported_tools import batch_at, close, loss_of, run, safetensors, torch
from export import export_model

STEPS, ROWS, SIZE, RATE = 6, 24, 6, 0.1
SGD = ["--optim", "sgd", "--optim_args", "fused=false", "--lr_scheduler_type", "constant", "--max_grad_norm", 0, "--logging_strategy", "no"]


def block(channels):
    # Without a bias: before a batch norm, its gradient is zero or nearly zero, depending on how the machine rounds.
    return torch.nn.Sequential(torch.nn.Linear(channels, 8, bias=False), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))


class Model(torch.nn.Module):
    """The dropouts of the head are off, so that C++ needs no random numbers from Python."""

    def __init__(self):
        super().__init__()
        self.frozen, self.body = block(4), block(8)
        self.body[2].p = 0.0
        self.head = torch.nn.Linear(8, 3)

    def forward(self, inputs):
        return self.head(self.body(self.frozen(inputs).tanh()).tanh())


class KeepsItsNormsFrozen(Model):
    """Keeps its norms in evaluation mode, as many detection models do."""

    def train(self, mode=True):
        super().train(mode)
        self.frozen.eval()
        return self


def make(case):
    torch.manual_seed(3)
    model = KeepsItsNormsFrozen() if case == "train overridden" else Model()
    for norm in (model.frozen[1], model.body[1]):
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    model.train()
    if case in ("norm and dropout", "all of a block"):
        model.frozen[1].eval()
        model.frozen[2].eval()
    if case == "all of a block":
        model.frozen.requires_grad_(False)
        model.frozen.eval()
    if case == "only parameters":
        model.frozen[2].p = 0.0
        model.frozen[0].weight.requires_grad_(False)
        model.frozen[1].requires_grad_(False)
    return model


def state(model):
    return {
        "modes": [module.training for module in model.modules()],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
        "gradients": [parameter.grad is None for parameter in model.parameters()],
        "values": {name: value.clone() for name, value in model.state_dict().items()},
        "generators": (torch.get_rng_state(), random.getstate()),
        "logging": logging.root.manager.disable,
    }


def same_state(seen, expected, what):
    for part in ("modes", "requires_grad", "gradients", "logging"):
        same(seen[part], expected[part], f"{what}: {part}")
    same(list(seen["values"]), list(expected["values"]), f"{what}: names")
    check(all(torch.equal(value, expected["values"][name]) for name, value in seen["values"].items()), f"{what}: other values")
    check(torch.equal(seen["generators"][0], expected["generators"][0]) and seen["generators"][1] == expected["generators"][1], f"{what}: random numbers were drawn")


def check_training(case, folder):
    model = make(case)
    torch.manual_seed(4)
    data = {"inputs": torch.randn(ROWS, 4), "labels": torch.randint(0, 3, (ROWS,))}
    logging.disable(logging.WARNING)
    before = state(model)
    export_model(model, {"inputs": data["inputs"][:4]}, folder / "model.pt2")
    same_state(state(model), before, case)
    logging.disable(logging.NOTSET)

    safetensors.torch.save_file(data, folder / "data.safetensors")
    arguments = [*SGD, "--learning_rate", RATE, "--per_device_train_batch_size", SIZE, "--per_device_eval_batch_size", SIZE, "--max_steps", STEPS]
    losses, metrics = run(folder / "run", folder / "model.pt2", folder / "data.safetensors", "cross_entropy", *arguments)

    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=RATE)
    for step in range(STEPS):
        loss = loss_of(model, batch_at(data, step, SIZE), "cross_entropy")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        check(close(losses[step + 1], loss.item(), 1e-5), f"{case}: the loss of step {step + 1} is {losses[step + 1]}, expected {loss.item()}")
    trained = safetensors.torch.load_file(folder / "run" / "final" / "model.safetensors")
    for name, value in model.state_dict().items():
        check(torch.allclose(trained[name].to(value.dtype), value, rtol=1e-5, atol=1e-6), f"{case}: {name} is {trained[name]}, expected {value}")
    changed = [name for name, value in model.state_dict().items() if not torch.equal(value, before["values"][name])]
    frozen = [name for name in before["values"] if name not in changed]
    model.eval()
    with torch.no_grad():
        expected = sum(loss_of(model, batch_at(data, step, SIZE), "cross_entropy").item() for step in range(ROWS // SIZE)) / (ROWS // SIZE)
    check(close(metrics["eval_loss"], expected, 1e-5), f"{case}: eval_loss is {metrics['eval_loss']}, expected {expected}")
    print(f"{case}: {STEPS} losses agree; frozen: {', '.join(frozen) or 'nothing'}")
    return frozen


def check_failure():
    class Refuses(Model):
        def forward(self, inputs):
            return super().forward(inputs) if inputs.sum().item() > 1e9 else None

    model = Refuses().train()
    model.frozen.eval()
    inputs = {"inputs": torch.randn(4, 4)}
    before = state(model)
    try:
        export_model(model, inputs, "never.pt2")
    except Exception:
        pass
    else:
        check(False, "a model whose graph depends on its data was exported")
    same_state(state(model), before, "after a failure")


def check_evaluation_mode(folder):
    """A model in evaluation mode, as from_pretrained returns it, is exported for training as a whole, and returned in that mode."""
    model = make("plain").eval()
    training, _ = export_model(model, {"inputs": torch.randn(4, 4)}, folder / "evaluated.pt2")
    same({module.training for module in model.modules()}, {False}, "the modes of a model in evaluation mode")
    modes = [node.args[5] for node in training.graph.nodes if node.target is torch.ops.aten.batch_norm.default]
    same(modes, [True, True], "the batch norms of the training graph")


def check_configuration(folder):
    import transformers

    config = transformers.GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).train()
    model.transformer.h[0].eval()
    before, modes = model.config.to_dict(), [module.training for module in model.modules()]
    ids = torch.randint(0, 20, (2, 6))
    export_model(model, {"input_ids": ids, "labels": ids}, folder / "gpt2.pt2")
    same(model.config.to_dict(), before, "the configuration")
    same([module.training for module in model.modules()], modes, "the modes of GPT-2")


CASES = {
    "norm and dropout": {"frozen.1.running_mean", "frozen.1.running_var", "frozen.1.num_batches_tracked"},
    "all of a block": {f"frozen.{name}" for name in ("0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked")},
    "train overridden": {"frozen.1.running_mean", "frozen.1.running_var", "frozen.1.num_batches_tracked"},
    "only parameters": {"frozen.0.weight", "frozen.1.weight", "frozen.1.bias"},
}
with tempfile.TemporaryDirectory() as folder:
    check_failure()
    check_evaluation_mode(pathlib.Path(folder))
    check_configuration(pathlib.Path(folder))
    for number, (case, expected) in enumerate(CASES.items()):
        place = pathlib.Path(folder) / str(number)
        place.mkdir()
        same(set(check_training(case, place)), expected, f"{case}: what is frozen")
