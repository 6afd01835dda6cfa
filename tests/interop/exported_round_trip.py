"""A GPT-2 training moves from C++ to Python and back, in a loop and with Hugging Face's Trainer, and ends as if it had stayed: with AdamW,
and for fewer steps with the other optimizers that can be converted.
"""

import pathlib
import subprocess
import sys
import tempfile

from checks import check, same
from exported_tools import ROOT, batch_at, exported_models, run, safetensors, torch, transformers
from exported_folders import set_dropout
from export import export_model
import timm.optim
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


OTHERS = {  # each optimizer with its options, and the class in Python, which takes the options from the checkpoint
    "sgd": ("momentum=0.9,nesterov=true", torch.optim.SGD),
    "adam": ("amsgrad=true", torch.optim.Adam),
    "adagrad": ("", torch.optim.Adagrad),
    "rmsprop": ("momentum=0.9,centered=true", torch.optim.RMSprop),
    "adafactor": ("eps1=1e-20", lambda groups, lr: transformers.optimization.Adafactor(groups, lr, scale_parameter=False, relative_step=False)),
    "nadam": ("momentum_decay=0.1", torch.optim.NAdam),
    "radam": ("decoupled_weight_decay=true", torch.optim.RAdam),
    "adamax": ("", torch.optim.Adamax),
    "adadelta": ("rho=0.8", torch.optim.Adadelta),
    "asgd": ("lambd=0.01,alpha=0.6,t0=5", torch.optim.ASGD),
    "rprop": ("etaminus=0.6,etaplus=1.1,step_size_min=1e-6,step_size_max=1e-3", torch.optim.Rprop),
    "lion": ("beta1=0.8", timm.optim.Lion),
    "lamb": ("trust_clip=true", lambda groups, lr: timm.optim.Lamb(groups, lr, max_grad_norm=None)),
    "lars": ("momentum=0.9,trust_coeff=0.01", timm.optim.Lars),
}


def check_other(optim, options, make):
    leg = 8
    arguments = ["--optim", optim, *(["--optim_args", options] if options else []), "--save_steps", leg]
    if optim == "rprop":  # has no weight decay
        arguments += ["--weight_decay", 0]
    unbroken = cpp(f"{optim}_unbroken", 3 * leg, *arguments)
    losses = cpp(f"{optim}_mixed", leg, *arguments)
    model, _ = made()
    optimizer = make(optimizer_state.parameter_groups(model, 0.0), lr=0.5)
    state = optimizer_state.to_torch(folder / f"{optim}_mixed" / f"checkpoint-{leg}", model, optimizer)
    losses |= python(model, optimizer, range(leg + 1, 2 * leg + 1))
    state["global_step"] = 2 * leg
    optimizer_state.from_torch(folder / f"{optim}_mixed", model, optimizer, state)
    losses |= cpp(f"{optim}_mixed", 3 * leg, *arguments)
    compare(losses, unbroken, 1e-5, optim)
    moments, expected = (safetensors.torch.load_file(folder / f"{optim}_{kind}" / f"checkpoint-{3 * leg}" / "optimizer.safetensors") for kind in ("mixed", "unbroken"))
    same(sorted(moments), sorted(expected), f"{optim}: the state")
    for name, tensor in expected.items():
        if optim == "rprop" and name.endswith("c_attn.bias.step_size"):
            continue  # the gradient of a key's bias is zero but for rounding errors, whose signs Rprop uses
        difference, size = (moments[name] - tensor).double().norm().item(), tensor.double().norm().item()
        check(difference <= 1e-3 * size, f"{optim}: {name} differs by {difference:.1e}, where the norm is {size:.1e}")


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

for optim, (options, make) in OTHERS.items():
    check_other(optim, options, make)
for kind, words in (("AdamWScheduleFree", "must be one of AdamW, Adam, SGD"), ("Adam", "must be Adam, as in")):
    file = folder / "mixed" / f"checkpoint-{LEG}" / "optimizer.json"
    file.write_text(file.read_text().replace('"AdamW"', f'"{kind}"'))
    try:
        optimizer_state.to_torch(file.parent, model, adamw(model))
    except ValueError as error:
        check(words in str(error), f"{kind} as AdamW: {error}")
    else:
        check(False, f"{kind} is taken for AdamW")
    file.write_text(file.read_text().replace(f'"{kind}"', '"AdamW"'))
