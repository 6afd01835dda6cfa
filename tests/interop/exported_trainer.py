"""GPT-2 and BERT train in C++ as with Hugging Face's Trainer: losses, gradient norms, learning rates, logs, evaluation."""

import json
import pathlib
import tempfile

from checks import check, same
from exported_tools import close, exported_models, run, safetensors, set_dropout, torch, transformers
from export import export_model

STEPS, ROWS, ACCUMULATION = 50, 32, 2
ARGUMENTS = {
    "max_steps": STEPS,
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 6,
    "gradient_accumulation_steps": ACCUMULATION,
    "optim": "adamw_torch",
    "learning_rate": 2e-3,
    "weight_decay": 0.1,
    "adam_beta2": 0.99,
    "warmup_steps": 10,
    "lr_scheduler_type": "linear",
    "max_grad_norm": 0.5,
    "logging_steps": 1,
    "eval_strategy": "steps",
    "eval_steps": 20,
    "save_strategy": "steps",
    "save_steps": 25,
}


def theirs(model, data, folder):
    dataset = [{name: value[i] for name, value in data.items()} for i in range(ROWS)]
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(folder, train_sampling_strategy="sequential", use_cpu=True, report_to="none", disable_tqdm=True, **ARGUMENTS),
        train_dataset=dataset,
        eval_dataset=dataset,
        data_collator=transformers.default_data_collator,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    if not isinstance(model, transformers.GPT2LMHeadModel):
        trainer.loss_is_scaled_for_ga = False  # it takes BERT's loss for one that is divided by the items of the group
    trainer.train()
    return list(trainer.state.log_history), trainer.evaluate()


def check_model(make, data, folder):
    torch.manual_seed(1)
    model, _, kind = make(ROWS)
    set_dropout(model, 0.0)
    export_model(model, {key: value[: exported_models.BATCH] for key, value in data.items()}, folder / "model.pt2")
    safetensors.torch.save_file(data, folder / "data.safetensors")

    arguments = [text for name, value in ARGUMENTS.items() for text in (f"--{name}", str(value))]
    losses, metrics = run(folder / "ours", folder / "model.pt2", folder / "data.safetensors", kind, *arguments)
    ours = json.loads((folder / "ours" / "trainer_state.json").read_text())["log_history"]
    expected, expected_metrics = theirs(model, data, folder / "theirs")

    same(len(losses), STEPS, "the number of steps")
    same([sorted(log) for log in ours], [sorted(log) for log in expected], f"{make.__name__}: the keys of the logs")
    worst = {}
    for log, reference in zip(ours, expected):
        for name, value in reference.items():
            if "runtime" in name or "per_second" in name:
                continue
            bound = 2e-3 if name == "grad_norm" else 1e-4
            check(close(log[name], value, bound), f"{make.__name__}: {name} of step {log['step']} is {log[name]}, expected {value}")
            worst[name] = max(worst.get(name, 0), abs(log[name] - value) / max(abs(value), 1e-6))
    same(sorted(metrics), sorted(expected_metrics), f"{make.__name__}: the keys of the evaluation")
    check(close(metrics["eval_loss"], expected_metrics["eval_loss"], 1e-4), f"{make.__name__}: eval_loss is {metrics['eval_loss']}, expected {expected_metrics['eval_loss']}")
    clipped = sum(log.get("grad_norm", 0) > ARGUMENTS["max_grad_norm"] for log in expected)
    check(clipped > 0, f"{make.__name__}: no gradient was clipped")
    print(f"{make.__name__}: {len(expected)} logs agree, {clipped} of {STEPS} updates clipped; " + ", ".join(f"{name} within {value:.1e}" for name, value in worst.items() if value > 0))


torch.manual_seed(2)
text = exported_models.text(ROWS, masked=False)
text["labels"][:, 0] = -100  # no token is predicted there, but the Trainer divides GPT-2's loss by the number of all labels
classes = exported_models.text(ROWS, classes=exported_models.CLASSES)
with tempfile.TemporaryDirectory() as folder:
    for make, data in [(exported_models.gpt2, text), (exported_models.bert, classes)]:
        place = pathlib.Path(folder) / make.__name__
        place.mkdir()
        check_model(make, data, place)
