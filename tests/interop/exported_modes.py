"""Dropout and batch norm follow the mode of the module: trained with dropout, and evaluated out of a graph of one mode."""

import os
import pathlib
import statistics
import sys
import tempfile

from checks import check, same
from exported_tools import batch_at, close, exported_models, loss_of, run, safetensors, torch
from exported_folders import set_dropout
from export import dynamic_shapes, export_model, register_named_tuple

ROWS, SIZE, STEPS, SEEDS, RATE = 24, 6, 30, 6, 0.05
MANY = int(os.environ.get("ETUDE_STEPS", "100")) >= 100  # .ci/run checks fewer models
SGD = ["--optim", "sgd", "--optim_args", "fused=false", "--learning_rate", RATE, "--lr_scheduler_type", "constant", "--max_grad_norm", 0,
       "--save_strategy", "no", "--logging_strategy", "no", "--per_device_train_batch_size", SIZE, "--per_device_eval_batch_size", SIZE]  # fmt: skip
# In models with stochastic depth: operators that draw numbers and don't say whether they also do so in evaluation.
NOT_SWITCHED = {"convnext": "aten::bernoulli_"}


def evaluated(model, data, kind, batch_size=ROWS):
    model.eval()
    with torch.no_grad():
        return statistics.fmean(loss_of(model, batch_at(data, step, batch_size), kind).item() for step in range(ROWS // batch_size))


def trained(model, data, kind, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    model.train()
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, batch_at(data, step, SIZE), kind)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_dropout(make, folder):
    """The mean loss over seeds is within 4 standard errors of Python's; without dropout it is farther away."""
    name, probability = make.__name__, 0.3
    torch.manual_seed(1)
    model, data, kind = make(ROWS)
    start = {key: value.clone() for key, value in model.state_dict().items()}
    set_dropout(model, probability)
    export_model(model, {key: value[: exported_models.BATCH] for key, value in data.items()}, folder / "model.pt2")
    safetensors.torch.save_file(data, folder / "data.safetensors")

    ours, theirs = [], []
    for seed in range(SEEDS):
        losses, metrics = run(folder / f"run-{seed}", folder / "model.pt2", folder / "data.safetensors", kind, *SGD, "--max_steps", STEPS, "--seed", seed)
        ours.append(statistics.fmean(losses.values()))
        torch.manual_seed(SEEDS + seed)  # the same seeds would draw the same numbers
        model.load_state_dict(start)
        theirs.append(statistics.fmean(trained(model, data, kind, STEPS)))
    check(len(set(ours)) == SEEDS, f"{name}: dropout doesn't depend on the seed: {ours}")
    error = (statistics.variance(ours) / SEEDS + statistics.variance(theirs) / SEEDS) ** 0.5
    distance = abs(statistics.fmean(ours) - statistics.fmean(theirs))
    check(distance <= 4 * error, f"{name}: the mean loss is {statistics.fmean(ours)}, expected {statistics.fmean(theirs)} to {4 * error:.1e}")

    safetensors.torch.load_model(model, folder / f"run-{SEEDS - 1}" / "final" / "model.safetensors")
    expected = evaluated(model, data, kind)
    check(close(metrics["eval_loss"], expected, 1e-5), f"{name}: eval_loss is {metrics['eval_loss']}, expected {expected}")

    model.load_state_dict(start)
    set_dropout(model, 0.0)
    without = abs(statistics.fmean(trained(model, data, kind, STEPS)) - statistics.fmean(ours))
    check(without > 4 * error, f"{name}: training without dropout can't be told from it: {without:.1e} of {4 * error:.1e}")
    print(f"{name}: the mean loss with dropout is Python's to {distance:.1e} (4 standard errors are {4 * error:.1e}; without dropout, it is {without:.1e} away)")


def save_one_graph(model, data, kind, path):
    example = {key: value[: exported_models.BATCH] for key, value in data.items() if kind == "own" or key != "labels"}
    register_named_tuple(type(model).forward.__annotations__.get("return"))
    for length in (True, False):
        try:
            torch.export.save(torch.export.export(model, (), example, dynamic_shapes=dynamic_shapes(example, length=length), strict=False), path)
            return
        except Exception:
            if not length:
                raise


def check_one_graph(make, folder):
    """A graph that was exported in training mode evaluates as eval() does in Python, and changes no buffer."""
    name = make.__name__
    torch.manual_seed(1)
    model, data, kind = make(ROWS)
    trained(model, data, kind, 5)  # so that the statistics aren't the initial ones
    model.train()
    save_one_graph(model, data, kind, folder / "model.pt2")
    safetensors.torch.save_file(data, folder / "data.safetensors")
    arguments = (folder / "run", folder / "model.pt2", folder / "data.safetensors", kind, *SGD, "--max_steps", -1)
    if name in NOT_SWITCHED:
        try:
            run(*arguments)
        except AssertionError as error:
            words = f"its {NOT_SWITCHED[name]} can't be switched to evaluation mode"
            check(words in str(error), f"{name}: the error is {error}, expected '{words}'")
            print(f"{name}: {words}")
            return
        check(False, f"{name}: it was evaluated, though its {NOT_SWITCHED[name]} can't be switched")
    _, metrics = run(*arguments)
    expected = evaluated(model, data, kind, SIZE)  # the file doesn't say what its loss is divided by
    check(close(metrics["eval_loss"], expected, 1e-5), f"{name}: eval_loss of the training graph is {metrics['eval_loss']}, expected {expected}")
    after = safetensors.torch.load_file(folder / "run" / "final" / "model.safetensors")
    for key, value in model.state_dict().items():
        check(key not in after or torch.equal(after[key], value), f"{name}: evaluation has changed {key}")
    differs = abs(loss_of(model.train(), batch_at(data, 0, SIZE), kind).item() - loss_of(model.eval(), batch_at(data, 0, SIZE), kind).item()) > 1e-6
    print(f"{name}: evaluated out of the graph of training{'' if differs else ', which is the same'}")


def check_evaluation_graph(make, folder):
    """A graph that was exported in evaluation mode trains, where its operators can be switched."""
    name = make.__name__
    torch.manual_seed(1)
    model, data, kind = make(ROWS)
    set_dropout(model, 0.0)
    save_one_graph(model.eval(), data, kind, folder / "model.pt2")
    safetensors.torch.save_file(data, folder / "data.safetensors")
    losses, _ = run(folder / "run", folder / "model.pt2", folder / "data.safetensors", kind, *SGD, "--max_steps", 10)
    for step, expected in enumerate(trained(model, data, kind, 10), 1):
        check(close(losses[step], expected, 1e-5), f"{name}: the loss of step {step} of the evaluation graph is {losses[step]}, expected {expected}")
    print(f"{name}: trained out of the graph of evaluation")


def each(check_model, makes):
    for make in makes:
        if len(sys.argv) <= 2 or make.__name__ in sys.argv[2:]:
            with tempfile.TemporaryDirectory() as folder:
                check_model(make, pathlib.Path(folder))


each(check_dropout, [exported_models.gpt2, exported_models.bert])
each(check_one_graph, exported_models.MODELS[:: 1 if MANY else 3])
each(check_evaluation_graph, [exported_models.resnet, exported_models.mobilenet, exported_models.unet])
