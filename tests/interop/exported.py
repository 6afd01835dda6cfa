"""Models that tools/export.py exported train in C++ as they do in Python: losses, evaluation, resume, weights back."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from checks import check, same

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# torchvision lies apart, since its operators aren't compiled for this torch, and transformers would import it.
sys.path += [str(ROOT / ".venv" / "vision"), str(ROOT / "tools")]
try:
    import safetensors.torch
    import torch

    import exported_models
    import timm
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
from export import export_model

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
PROGRAM, STEPS, ROWS = sys.argv[1], 100, 24
only = sys.argv[2:]


def close(a, b, relative):
    return abs(a - b) <= relative * max(abs(a), abs(b), 1e-6)


def without_dropout(model):
    """Dropout of every kind off, with batch norms and the rest in training mode."""
    for module in model.modules():
        for name in ("p", "dropout", "attention_dropout", "attn_pdrop", "drop_prob", "activation_dropout", "attention_probs_dropout_prob", "dropout_prob", "dropout_rate"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
        if isinstance(module, torch.nn.LSTM):
            module.dropout = 0.0
    if hasattr(model, "config"):
        for name in vars(model.config):
            if "dropout" in name or "pdrop" in name or "layerdrop" in name:
                if isinstance(getattr(model.config, name), float):
                    setattr(model.config, name, 0.0)


def loss_of(model, batch, kind):
    batch = dict(batch)
    if kind == "own":
        return model(**batch)["loss"]
    labels = batch.pop("labels")
    return torch.nn.functional.cross_entropy(model(**batch), labels)


def run(folder, model, data, kind, *arguments, kill_at=None):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if kill_at:
        environment["ETUDE_KILL_AT"] = str(kill_at)
    ran = subprocess.run(
        [PROGRAM, str(model), str(data), kind, "--output_dir", str(folder), "--optim", "sgd", "--optim_args", "fused=false", "--lr_scheduler_type", "constant", "--max_grad_norm", "0",
         "--train_sampling_strategy", "sequential", "--disable_tqdm", "true", "--logging_strategy", "no", *arguments],
        capture_output=True, text=True, env=environment)
    check(ran.returncode == (-signal.SIGKILL if kill_at else 0), f"{model.name}: the program ended with {ran.returncode}:\n{ran.stderr}")
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"')]
    return {line["step"]: line["loss"] for line in lines if "step" in line}, lines[-1] if lines else {}


def check_model(make, folder):
    name = make.__name__
    torch.manual_seed(1)
    model, data, kind = make(ROWS)
    without_dropout(model)
    # Smaller, so that nothing saturates in a hundred steps.
    rate = 0.01
    example = {key: value[: exported_models.BATCH] for key, value in data.items() if kind == "own" or key != "labels"}
    export_model(model, example, folder / f"{name}.pt2")
    safetensors.torch.save_file(data, folder / "data.safetensors")
    start = {key: value.clone() for key, value in model.state_dict().items()}

    size = 6  # not the size of the batch that was exported
    common = ["--learning_rate", str(rate), "--per_device_train_batch_size", str(size), "--per_device_eval_batch_size", str(size)]
    ours, metrics = run(folder / "run", folder / f"{name}.pt2", folder / "data.safetensors", kind, *common, "--max_steps", str(STEPS))
    same(sorted(ours), list(range(1, STEPS + 1)), f"{name}: the steps")

    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    model.train()
    worst = 0.0
    for step in range(STEPS):
        begin = step * size % ROWS
        loss = loss_of(model, {key: value[begin : begin + size] for key, value in data.items()}, kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worst = max(worst, abs(ours[step + 1] - loss.item()) / max(abs(loss.item()), 1e-6))
        check(close(ours[step + 1], loss.item(), 1e-5), f"{name}: the loss of step {step + 1} is {ours[step + 1]}, expected {loss.item()}")

    model.eval()
    with torch.no_grad():
        batches = [{key: value[i : i + size] for key, value in data.items()} for i in range(0, ROWS, size)]
        expected = sum(loss_of(model, batch, kind).item() for batch in batches) / len(batches)
    check(close(metrics["eval_loss"], expected, 1e-5), f"{name}: eval_loss is {metrics['eval_loss']}, expected {expected}")

    # The weights back in Python give the same outputs.
    back, _, _ = make(ROWS)
    without_dropout(back)
    safetensors.torch.load_model(back, folder / "run" / "final" / "model.safetensors", strict=True)
    back.eval()
    with torch.no_grad():
        for batch in batches:
            check(close(loss_of(back, batch, kind).item(), loss_of(model, batch, kind).item(), 1e-5), f"{name}: the saved weights give another loss")
    changed = [key for key, value in back.state_dict().items() if not torch.equal(value, start[key])]
    check(changed, f"{name}: training has changed nothing")

    # Killed, and resumed to the bit.
    saving = [*common, "--max_steps", str(STEPS), "--save_steps", "40"]
    run(folder / "killed", folder / f"{name}.pt2", folder / "data.safetensors", kind, *saving, kill_at=60)
    resumed, _ = run(folder / "killed", folder / f"{name}.pt2", folder / "data.safetensors", kind, *saving)
    same(min(resumed), 41, f"{name}: the first step after the kill")
    unbroken = safetensors.torch.load_file(folder / "run" / "final" / "model.safetensors")
    for key, value in safetensors.torch.load_file(folder / "killed" / "final" / "model.safetensors").items():
        check(torch.equal(value, unbroken[key]), f"{name}: {key} differs after a kill and a resume")
    print(f"{name}: {STEPS} losses within {worst:.1e}, {len(changed)} tensors changed")


for make in exported_models.MODELS:
    if only and make.__name__ not in only:
        continue
    with tempfile.TemporaryDirectory() as folder:
        check_model(make, pathlib.Path(folder))
