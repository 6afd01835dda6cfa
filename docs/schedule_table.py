"""docs/schedules.md: every learning rate schedule, with its options."""

import re

from headers import ALL, HEADERS, cell, declared, plain

BEGINNING = """# Learning rate schedules

`lr_scheduler_type` names a schedule, and `lr_scheduler_kwargs` sets its options. Those of Hugging Face's Trainer have its names, those of
`torch.optim.lr_scheduler` the names of their classes in lower case. Each gives the learning rates of its namesake in Python, except as
[listed below](#differences-from-python). The tables of this page are generated from the headers by `docs/tables.py`.

<!-- snippet: examples/docs/training.cpp#step_lr -->

```sh
train --lr_scheduler_type step_lr --lr_scheduler_kwargs step_size=1000,gamma=0.5
```

A schedule advances by one with each update, so **all its steps are update steps**, whereas a loop in Python often calls `scheduler.step()`
once per epoch. To count epochs, give `lr_scheduler` a function that gets the [run's configuration](options.md). `StepLR(optimizer, 30)`, stepped
once per epoch, is this (with `#include <etude/optim/torch_schedules.hpp>`):

<!-- snippet: examples/docs/training.cpp#step_lr_of_epochs -->

| `lr_scheduler_type` | In Python | What it does |
|---|---|---|
"""

MIDDLE = """
`LambdaLR` is [a function of the step](options.md) as `lr_scheduler`. So is `MultiplicativeLR`, whose function returns the factor from each step to
the next: return the product of its factors up to the step.

## Warmup

`warmup_steps` is the length of the warmup of transformers' schedules, which rises linearly from 0; `constant`, `reduce_lr_on_plateau` and `greedy`
have none and ignore it. In Python, torch's schedulers have no warmup. Here `warmup_steps` puts a linear rise before them, from 0 to their first
rate: they begin after it, at their step 0. So `step_lr` with `step_size` 1000 and 200 steps of warmup first changes the rate at step 1200, and the
cycle of `one_cycle_lr` is 200 steps shorter.

## Groups

`learning_rate`, [rules of parameter groups](fine-tuning.md#parameter-groups) and `layerwise_learning_rate_decay` set the initial rate of each group,
from which its schedule starts. As in Python, `eta_min`, `base_lr` and `max_lr` are learning rates that apply to all groups, whatever their initial
rates are. To keep the ratios between groups, leave `max_lr` out: each group's initial rate is then its highest. Lists with one value for each group
are unsupported.

## Momentum

`cyclic_lr` and `one_cycle_lr` also change the momentum, or the first beta of optimizers like Adam, unless `cycle_momentum` is false. With an
optimizer that has neither, such as Adagrad, it must be false.

## One after another, or at once

`sequential_lr` and `chained_scheduler` have a list of schedules, each a JSON object with its `type` and options:

<!-- snippet: examples/docs/training.cpp#sequential_lr -->

A part may be of any type that doesn't follow a metric, including another list. Schedules that depend on the length of the training, such as `cosine`,
get the length of their part: here `cosine` falls to 0 at the end of the training. `warmup_steps` in a part is the warmup of that part.

## Differences from Python

- `constant_lr` with `total_iters` 0 leaves the rate unchanged; in torch the factor then applies to all steps. A `factor` of 0 is allowed; torch then
  divides by zero.
- `linear_lr` and `polynomial_lr` with `total_iters` 0, which torch ignores or divides by, are refused.
- `one_cycle_lr` keeps its last rate after the last step, `total_steps - 1`. In torch, the rate of the next step lies beyond the end of the curve, even
  below zero with `anneal_strategy` `linear`, and later steps are an error. Without `max_lr`, each group's initial rate is its highest, and
  `total_steps` is the number of steps of the training. If `pct_start * total_steps` is 1, it starts at `max_lr / div_factor`; torch divides
  by zero.
- `scale_fn` and `scale_mode` of `CyclicLR` are unsupported: write a function of the step.
- `chained_scheduler` hands the rate of each schedule to the next one as its initial rate. In torch this is the same for schedules that multiply the
  rate by a factor of the step, but others can't be combined: `LambdaLR`, `CyclicLR`, `OneCycleLR` and `CosineAnnealingWarmRestarts` discard the effect
  of those before them, and `CosineAnnealingLR` computes each rate from the previous one. If another schedule also lowers the rate, it goes below
  `eta_min`, even below zero, and doesn't return to the rate of the other schedule.
- In `sequential_lr` every part starts from the initial rates. In torch, `OneCycleLR` and `CyclicLR` change the initial rates of the other parts too,
  and a `SequentialLR` or `ChainedScheduler` within a `SequentialLR` skips its step 0 if it is the first part, and is an error otherwise.
- `polynomial` with `warmup_steps` equal to the steps of the training divides by zero in transformers.
- Some cycles of `cosine_with_restarts` begin one step later in transformers, after [a step at 0](coming-from-hugging-face.md#steps-and-schedules).

"""

ROW = re.compile(r"(?m)^  schedule\((\w+), (\w+),")


def schedules():
    """The name of each schedule, and the struct of its options."""
    return ROW.findall((HEADERS / "training_arguments.hpp").read_text())


def doc_of(options):
    """The docstring of a schedule, which may be that of the class with these options."""
    return plain((ALL[options][0] or ALL[options.removesuffix("Options")][0]).replace("///", ""))


def in_python(name, options):
    function = re.search(r"`(get_\w+)` in transformers", doc_of(options))
    if function:
        return f"`{function[1]}`"
    return "`GreedyLR`" if name == "greedy" else f"`{options.removesuffix('Options')}`"


def words_of(options):
    return re.sub(r"`get_\w+` in transformers\. ?", "", doc_of(options)).strip()


def table(options):
    rows = declared(ALL[options][3])[0]
    if not rows:
        return ""
    text = "| Option | Default | Meaning |\n|---|---|---|\n"
    for field, default, words in rows:
        default = default.split("::")[-1].strip('"').replace("1.0 / 3", "1/3")
        required = "required" in words or not default
        shown = "" if required else f"`{default}`"
        text += f"| `{field}` | {shown} | {cell(words)} |\n"
    return text + "\n"


def page():
    text = BEGINNING
    for name, options in schedules():
        first = re.split(r"(?<=[.])(?= [A-Z`])", words_of(options))[0].rstrip(".")
        first = first if re.match(r"[A-Z]\w*[A-Z]", first) else first[0].lower() + first[1:]
        text += f"| [`{name}`](#{name}) | {in_python(name, options)} | {cell(first)} |\n"
    text += MIDDLE
    for name, options in schedules():
        text += f"## {name}\n\n{words_of(options)}\n\n{table(options)}"
    return text.rstrip() + "\n"
