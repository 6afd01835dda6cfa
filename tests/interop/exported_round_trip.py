"""A GPT-2 training moves from C++ to Python and back, in a loop and with Hugging Face's Trainer, and ends as if it had stayed."""

import pathlib
import subprocess
import sys
import tempfile

from checks import check, same
from exported_tools import ROOT, batch_at, exported_models, run, safetensors, torch, transformers
from exported_folders import set_dropout
from export import export_model
import optimizer_state

LEG, SIZE, RATE, DECAY = 100, 8, 1e-3, 0.1
ROWS = 404  # too many to be memorized, which would make rounding errors grow
STEPS = 3 * LEG
temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
ARGUMENTS = ["--optim", "adamw_torch", "--learning_rate", RATE, "--weight_decay", DECAY, "--lr_scheduler_type", "constant", "--max_grad_norm", 0,
             "--per_device_train_batch_size", SIZE, "--logging_steps", 1, "--save_strategy", "steps", "--save_steps", LEG]  # fmt: skip


def made():
    torch.manual_seed(1)
    model, data, _ = exported_models.gpt2(ROWS)
    set_dropout(model, 0.0)
    data["labels"][:, 0] = -100  # no token is predicted there, but the Trainer divides GPT-2's loss by the number of all labels
    return model, data


def cpp(name, steps, *arguments):
    return run(folder / name, folder / "model.pt2", folder / "data.safetensors", "own", *ARGUMENTS, "--max_steps", steps, *arguments)[0]


def python(model, optimizer, steps):
    """The losses of an ordinary loop, by step from 1; an epoch's last batch is shorter."""
    batches = -(-ROWS // SIZE)
    losses = {}
    model.train()
    for step in steps:
        optimizer.zero_grad()
        loss = model(**batch_at(data, (step - 1) % batches, SIZE)).loss
        loss.backward()
        optimizer.step()
        losses[step] = loss.item()
    return losses


def trainer(model, checkpoint):
    """The losses of a training by Hugging Face's Trainer that continues from a checkpoint."""
    arguments = transformers.TrainingArguments(
        folder / "theirs", max_steps=2 * LEG, per_device_train_batch_size=SIZE, optim="adamw_torch", learning_rate=RATE, weight_decay=DECAY,
        lr_scheduler_type="constant", max_grad_norm=0, train_sampling_strategy="sequential", logging_steps=1,
        save_strategy="steps", save_steps=LEG, use_cpu=True, report_to="none", disable_tqdm=True)  # fmt: skip
    dataset = [{name: value[i] for name, value in data.items()} for i in range(ROWS)]
    theirs = transformers.Trainer(model, arguments, train_dataset=dataset, data_collator=transformers.default_data_collator)
    theirs.remove_callback(transformers.PrinterCallback)
    theirs.train(resume_from_checkpoint=str(checkpoint))
    return {log["step"]: log["loss"] for log in theirs.state.log_history if "grad_norm" in log and log["step"] > LEG}


def convert(*arguments):
    ran = subprocess.run([sys.executable, ROOT / "tools" / "optimizer_state.py", *arguments], capture_output=True, text=True)
    check(ran.returncode == 0, f"optimizer_state.py {arguments[0]}: {ran.stderr}")
    return pathlib.Path(ran.stdout.splitlines()[-1])


def adamw(model, decay=DECAY):
    return torch.optim.AdamW(optimizer_state.parameter_groups(model, decay), lr=RATE)


def compare(seen, expected, bound, what):
    same(sorted(seen), sorted(expected), f"{what}: the steps")
    worst = max(abs(seen[step] - loss) / loss for step, loss in expected.items())
    check(worst <= bound, f"{what}: the losses differ by {worst:.1e}, expected at most {bound:.0e}")
    print(f"{what}: {len(seen)} losses within {worst:.1e}")


model, data = made()
export_model(model, {name: value[: exported_models.BATCH] for name, value in data.items()}, folder / "model.pt2")
safetensors.torch.save_file(data, folder / "data.safetensors")

only_python = python(model, adamw(model), range(1, STEPS + 1))
only_cpp = cpp("unbroken", STEPS)
compare(only_cpp, only_python, 1e-5, "in one language")

losses = cpp("mixed", LEG)
model, _ = made()
optimizer = adamw(model, decay=0.0)  # the checkpoint has the options
state = optimizer_state.to_torch(folder / "mixed" / f"checkpoint-{LEG}", model, optimizer)
same(state["global_step"], LEG, "the step that C++ has saved")
same([group["weight_decay"] for group in optimizer.param_groups], [DECAY, 0.0], "the options of the groups")
same({value["step"].item() for value in optimizer.state.values()}, {float(LEG)}, "the steps of the parameters")
losses |= python(model, optimizer, range(LEG + 1, 2 * LEG + 1))
state["global_step"] = 2 * LEG
optimizer_state.from_torch(folder / "mixed", model, optimizer, state)
losses |= cpp("mixed", STEPS)
compare(losses, only_cpp, 1e-5, "C++, Python, C++")

losses = cpp("with_trainer", LEG)
checkpoint = folder / "with_trainer" / f"checkpoint-{LEG}"
theirs = convert("to-trainer", checkpoint, f"transformers:{checkpoint}", folder / "theirs" / f"checkpoint-{LEG}")
losses |= trainer(made()[0], theirs)
same(convert("from-trainer", folder / "theirs" / f"checkpoint-{2 * LEG}", folder / "with_trainer"), folder / "with_trainer" / f"checkpoint-{2 * LEG}", "the checkpoint")
losses |= cpp("with_trainer", STEPS)
compare(losses, only_cpp, 1e-5, "C++, Hugging Face's Trainer, C++")
