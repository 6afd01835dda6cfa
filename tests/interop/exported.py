"""Models that tools/export.py exported train in C++ as they do in Python: losses, evaluation, resume, weights back."""

import os
import pathlib
import sys
import tempfile

from checks import check, same
from exported_tools import batch_at, close, exported_models, loss_of, run, safetensors, torch, transformers
from exported_folders import check_classes, set_dropout
from export import export_model

# .ci/run runs fewer steps, and kills every third model.
STEPS, ROWS = int(os.environ.get("ETUDE_STEPS", "100")), 24
SAVED, KILLED = STEPS * 2 // 5, STEPS * 3 // 5
SGD = ["--optim", "sgd", "--optim_args", "fused=false", "--lr_scheduler_type", "constant", "--max_grad_norm", 0, "--logging_strategy", "no"]
only = sys.argv[2:]


def loaded(make, model, folder):
    """The saved model as Python's own library loads it."""
    if isinstance(model, transformers.PreTrainedModel):
        config = transformers.AutoConfig.from_pretrained(folder)
        return getattr(transformers, config.architectures[0]).from_pretrained(folder)
    back, _, _ = make(ROWS)
    back.load_state_dict(safetensors.torch.load_file(folder / "model.safetensors"), strict=True)
    return back


def check_model(make, folder):
    name = make.__name__
    torch.manual_seed(1)
    model, data, kind = make(ROWS)
    set_dropout(model, 0.0)
    # Smaller, so that nothing saturates in a hundred steps.
    rate = 0.01
    example = {key: value[: exported_models.BATCH] for key, value in data.items() if kind == "own" or key != "labels"}
    export_model(model, example, folder / f"{name}.pt2")
    safetensors.torch.save_file(data, folder / "data.safetensors")
    start = {key: value.clone() for key, value in model.state_dict().items()}

    size = 6  # not the size of the batch that was exported
    common = [*SGD, "--learning_rate", rate, "--per_device_train_batch_size", size, "--per_device_eval_batch_size", size]
    ours, metrics = run(folder / "run", folder / f"{name}.pt2", folder / "data.safetensors", kind, *common, "--max_steps", STEPS)
    same(sorted(ours), list(range(1, STEPS + 1)), f"{name}: the steps")

    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    model.train()
    worst = 0.0
    for step in range(STEPS):
        loss = loss_of(model, batch_at(data, step, size), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worst = max(worst, abs(ours[step + 1] - loss.item()) / max(abs(loss.item()), 1e-6))
        check(close(ours[step + 1], loss.item(), 1e-5), f"{name}: the loss of step {step + 1} is {ours[step + 1]}, expected {loss.item()}")

    model.eval()
    with torch.no_grad():
        batches = [batch_at(data, step, size) for step in range(ROWS // size)]
        expected = sum(loss_of(model, batch, kind).item() for batch in batches) / len(batches)
    check(close(metrics["eval_loss"], expected, 1e-5), f"{name}: eval_loss is {metrics['eval_loss']}, expected {expected}")

    # Loaded back in Python, the weights give the same outputs.
    back = loaded(make, model, folder / "run" / "final").eval()
    with torch.no_grad():
        for batch in batches:
            check(close(loss_of(back, batch, kind).item(), loss_of(model, batch, kind).item(), 1e-5), f"{name}: the saved weights give another loss")
    classes = check_classes(folder / "run" / "final", back, folder / "reference") if isinstance(model, transformers.PreTrainedModel) else []
    changed = [key for key, value in back.state_dict().items() if not torch.equal(value, start[key])]
    check(changed, f"{name}: training has changed nothing")

    print(f"{name}: {STEPS} losses within {worst:.1e}, {len(changed)} tensors changed" + (f", loaded by {', '.join(classes)}" if classes else ""))
    if STEPS < 100 and exported_models.MODELS.index(make) % 3:
        return

    # A run that is killed and resumed ends bit-identical.
    saving = [*common, "--max_steps", STEPS, "--save_steps", SAVED]
    run(folder / "killed", folder / f"{name}.pt2", folder / "data.safetensors", kind, *saving, kill_at=KILLED)
    resumed, _ = run(folder / "killed", folder / f"{name}.pt2", folder / "data.safetensors", kind, *saving)
    same(min(resumed), SAVED + 1, f"{name}: the first step after the kill")
    unbroken = safetensors.torch.load_file(folder / "run" / "final" / "model.safetensors")
    for key, value in safetensors.torch.load_file(folder / "killed" / "final" / "model.safetensors").items():
        check(torch.equal(value, unbroken[key]), f"{name}: {key} differs after a kill and a resume")


for make in exported_models.MODELS:
    if only and make.__name__ not in only:
        continue
    with tempfile.TemporaryDirectory() as folder:
        check_model(make, pathlib.Path(folder))
