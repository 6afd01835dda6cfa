"""GPT-2, Llama, ModernBERT and BERT train in C++ as with Hugging Face's Trainer: losses, gradient norms, learning rates, logs, evaluation."""

import json
import pathlib
import tempfile

from checks import check, same
from exported_tools import close, exported_models, run, safetensors, torch, transformers
from exported_folders import set_dropout
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


def theirs(model, data, folder, arguments):
    dataset = [{name: value[i] for name, value in data.items()} for i in range(ROWS)]
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(folder, train_sampling_strategy="sequential", use_cpu=True, report_to="none", disable_tqdm=True, **arguments),
        train_dataset=dataset,
        eval_dataset=dataset,
        data_collator=transformers.default_data_collator,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    if isinstance(model, transformers.BertForSequenceClassification):
        trainer.loss_is_scaled_for_ga = False  # the Trainer assumes that BERT's loss is divided by the items of the group
    trainer.train()
    return list(trainer.state.log_history), trainer.evaluate()


def check_model(name, make, data, folder, **more):
    given = ARGUMENTS | more
    torch.manual_seed(1)
    model, _, kind = make(ROWS)
    set_dropout(model, 0.0)
    export_model(model, {key: value[: exported_models.BATCH] for key, value in data.items()}, folder / "model.pt2")
    safetensors.torch.save_file(data, folder / "data.safetensors")

    arguments = [text for key, value in given.items() for text in (f"--{key}", str(value))]
    losses, metrics = run(folder / "ours", folder / "model.pt2", folder / "data.safetensors", kind, *arguments)
    ours = json.loads((folder / "ours" / "trainer_state.json").read_text())["log_history"]
    # The Trainer's eval_loss is the mean over its batches, however many labels each has, so this evaluates in a single batch.
    expected, expected_metrics = theirs(model, data, folder / "theirs", given | {"per_device_eval_batch_size": ROWS})

    same(len(losses), STEPS, "the number of steps")
    same([sorted(log) for log in ours], [sorted(log) for log in expected], f"{name}: the keys of the logs")
    worst = {}
    for log, reference in zip(ours, expected):
        for key, value in reference.items():
            if "runtime" in key or "per_second" in key:
                continue
            bound = 2e-3 if key == "grad_norm" else 1e-4
            check(close(log[key], value, bound), f"{name}: {key} of step {log['step']} is {log[key]}, expected {value}")
            worst[key] = max(worst.get(key, 0), abs(log[key] - value) / max(abs(value), 1e-6))
    same(sorted(metrics), sorted(expected_metrics), f"{name}: the keys of the evaluation")
    check(close(metrics["eval_loss"], expected_metrics["eval_loss"], 1e-4), f"{name}: eval_loss is {metrics['eval_loss']}, expected {expected_metrics['eval_loss']}")
    clipped = sum(log.get("grad_norm", 0) > ARGUMENTS["max_grad_norm"] for log in expected)
    check(clipped > 0, f"{name}: no gradient was clipped")
    print(f"{name}: {len(expected)} logs agree, {clipped} of {STEPS} updates clipped; " + ", ".join(f"{key} within {value:.1e}" for key, value in worst.items() if value > 0))


torch.manual_seed(2)
text = exported_models.text(ROWS, masked=False)
# Micro-batches have different numbers of labels, which are their weights.
text["labels"][torch.rand(text["labels"].shape) < torch.rand(ROWS, 1)] = -100
# No token is predicted there, but the Trainer divides GPT-2's loss by the number of all labels.
without_first = text | {"labels": text["labels"].index_fill(1, torch.tensor([0]), -100)}
classes = exported_models.text(ROWS, classes=exported_models.CLASSES)
RUNS = [
    ("gpt2", exported_models.gpt2, without_first, {}),
    ("llama", exported_models.llama, text, {}),
    ("llama with label smoothing", exported_models.llama, text, {"label_smoothing_factor": 0.1}),
    ("modern bert", exported_models.modern_bert, text, {}),
    ("bert", exported_models.bert, classes, {}),
]
with tempfile.TemporaryDirectory() as folder:
    for number, (name, make, data, more) in enumerate(RUNS):
        place = pathlib.Path(folder) / str(number)
        place.mkdir()
        check_model(name, make, data, place, **more)
