"""docs/optimizers.md: every optimizer of ETUDE_OPTIMIZERS, what it supports and when to use it, and the options of its class."""

import re

from headers import ALL, HEADERS, balanced, cell, declared, parts

NAMES = HEADERS / "optimizer_names.hpp"

# For each optimizer: the bytes of state per element of a float32 matrix of 512x512 with the default options, which
# tests/optim/optimizers_page.cpp measures; what changes them; and when to use it.
ABOUT = {
    "adamw_torch_fused": ("8", "12 with `amsgrad`",
                          "The default. Most published settings for transformers are AdamW's, so begin with it and compare others with it."),
    "adamw_torch": ("8", "12 with `amsgrad`",
                    "To match [LibTorch's AdamW bit for bit](precision-and-memory.md#bit-identical-to-torchoptim). Otherwise `adamw_torch_fused` does the same in less time."),
    "adamw_8bit": ("2.03", "8 for parameters with fewer elements than `min_8bit_size`",
                   "When AdamW's moments don't fit into memory. Losses are [within 1 % of AdamW's](precision-and-memory.md#moments-of-8-bits) in our tests; an update takes longer."),
    "adam": ("8", "12 with `amsgrad`",
             "To reproduce a result that was obtained with it. Its weight decay is an L2 penalty; without weight decay it is AdamW."),
    "sgd": ("0", "4 with `momentum`",
            "For convolutional networks for images, with `momentum=0.9`, a learning rate of about 0.1 and a schedule. It often generalizes as well as AdamW there, with less memory. Transformers train better with AdamW."),
    "adagrad": ("4", "",
                "For rare features, such as the rows of large embedding tables: the learning rate of each falls with its own updates. It never rises again, so a long training of a deep network stalls."),
    "rmsprop": ("4", "4 more with `momentum`, and 4 more with `centered`",
                "To reuse published settings for reinforcement learning and recurrent networks. For a new network, AdamW is the safer choice."),
    "lbfgs": ("808", "up to 8 + 8 * `history_size`",
              "For small, smooth problems whose batch is the whole data set, such as fits and physics-informed networks, [often after Adam](phases.md). The noise of small batches misleads it."),
    "adafactor": ("0.0156", "in general 4 * (1 / rows + 1 / columns) for a matrix, 4 for a vector; 4 more with `beta1`",
                  "When there is hardly any memory for state. Its authors' translation models do as well as with Adam; other tasks often need more tuning than with AdamW."),
    "lion": ("4", "",
             "For half of AdamW's state, and large batches. Its authors report better vision transformers and diffusion models than with AdamW. They use learning rates 3 to 10 times smaller and weight decays 3 to 10 times larger."),
    "sparse_adam": ("8", "",
                    "For embedding tables with [sparse gradients](precision-and-memory.md#sparse-gradients), next to another optimizer for the rest of the model. A row's moments change only in steps that read it."),
    "nadam": ("8", "",
              "To try Nesterov's momentum in Adam. It sometimes needs fewer steps; with a tuned learning rate, the difference is usually small."),
    "radam": ("8", "",
              "For trainings without a warmup: while the mean of squares has seen few gradients, updates ignore it or are smaller. With a warmup, AdamW does as well."),
    "adamax": ("8", "",
               "For gradients with rare large elements: it divides by the largest recent one in place of the root mean square. It is seldom better than AdamW."),
    "adadelta": ("8", "",
                 "To reproduce older results. It finds the size of its steps by itself, so set `learning_rate` to 1."),
    "asgd": ("4", "",
             "For convex problems, where the average of all weights converges faster than the last ones. The average is in the state only. To evaluate an average, use `schedule_free_sgd` or ModelEmaCallback."),
    "rprop": ("8", "",
              "For small networks whose batch is the whole data set. It uses only the signs of gradients, which the noise of small batches changes."),
    "ademamix": ("12", "",
                 "For long pretraining: a second mean remembers the gradients of thousands of steps. Its authors' language model of 1.3 billion parameters reaches AdamW's loss with half of the tokens. Set `t_alpha` and `t_beta3` to the number of steps, and `beta3` lower for a short training."),
    "stable_adamw": ("8", "",
                     "When AdamW's loss has spikes: updates become smaller when the mean of squares lags behind the gradients. Its authors use it in place of gradient clipping."),
    "lamb": ("8", "",
             "For very large batches: AdamW's update of each parameter is scaled by the norm of its weights. Its authors train BERT in 76 minutes, with batches of up to 65,536. It has no advantage with ordinary batches."),
    "lars": ("0", "4 with `momentum`",
             "For very large batches, like `lamb`, but for SGD with `momentum=0.9` and convolutional networks. Its authors train ResNet-50 with batches of 32,768 without losing accuracy."),
    "muon": ("4", "8 for parameters that AdamW updates",
             "For pretraining transformers: hidden matrices get orthogonal updates, all other parameters AdamW's. Liu et al. (2025) report AdamW's loss with half of the computation. Models that AdamW has pretrained gain less from it in fine-tuning."),
    "soap": ("24", "in general 8 + 8 * (rows / columns + columns / rows) for a matrix; less for sides longer than `max_precond_dim`",
             "For pretraining with large batches, when fewer steps are worth more memory and time for each. Its authors save 40 % of AdamW's steps and 35 % of the time with language models of 360 and 660 million parameters."),
    "galore_adamw": ("3", "in general 8 * rank / the shorter side + 4 * rank / the longer side",
                     "For training all weights when AdamW's moments don't fit into memory: gradients of matrices are projected to a low rank. Its authors save up to 65 % of the state and keep LLaMA's quality. It computes singular vectors every `update_proj_gap` steps, which takes long for large matrices."),
    "lion_8bit": ("1.02", "4 for parameters with fewer elements than `min_8bit_size`",
                  "When Lion's momentum doesn't fit into memory. An update takes longer."),
    "schedule_free_adamw": ("8", "",
                            "When the length of the training is unknown: averaged weights replace the decay of the learning rate. Use `lr_scheduler_type=constant`, `warmup_steps` in `optim_args`, and learning rates of 1 to 10 times AdamW's. It won the self-tuning track of AlgoPerf in 2024."),
    "schedule_free_sgd": ("4", "",
                          "Like `schedule_free_adamw`, but for SGD, with learning rates of 10 to 50 times SGD's."),
}

BEGINNING = """# Optimizers

`args.optim` names the optimizer, and `args.optim_args` has its further options:

```sh
./train --optim lion --learning_rate 1e-4 --weight_decay 0.1 --optim_args rounding=stochastic
```

This page is generated from `etude/optimizer_names.hpp` and the headers in `etude/optim/rules` by `docs/tables.py`. You can also pass
[one of LibTorch's optimizers](coming-from-a-loop.md), or [write your own](#writing-an-optimizer). A model can have [several](several-optimizers.md), one after the
other in [phases](phases.md), and different rates for [groups of its parameters](fine-tuning.md#parameter-groups).

`learning_rate`, `weight_decay`, `adam_beta1`, `adam_beta2` and `adam_epsilon` are the options `lr`, `weight_decay`, `beta1`, `beta2`
and `eps` of every optimizer that has them, so [the arguments' defaults](arguments.md#optimizer-and-gradients) replace those in the
tables of this page, unless `optim_args` sets the option. They suit fine-tuning with AdamW: the learning rate is 5e-5. Training from
scratch needs a higher one, with AdamW 1e-4 to 1e-3, and other optimizers need rates of other sizes.

"""

TABLE = """## Which one

| `optim` | State | `pure_bf16` | Element-wise | Sparse | When to use it |
|---|---|---|---|---|---|
"""

LEGEND = """
- State: bytes per parameter of a float32 matrix of 512x512, besides 4 for the weight and 4 for the gradient
  (`tests/optim/optimizers_page.cpp` compares this column with each optimizer's `state_bytes()`). An asterisk means that it depends on the
  shape or on options: see the section of the optimizer. [`etude::estimate_memory`](precision-and-memory.md#memory-before-training) tells
  how much memory a training takes.
- [`pure_bf16`](precision-and-memory.md#pure-bfloat16): bfloat16 parameters are updated in float32, and rounded so that small updates
  aren't lost.
- Element-wise: updates each element by itself. So [`ShardedDataParallel`](several-processes.md) can divide the state among processes,
  [`offload_optimizer`](precision-and-memory.md#moments-on-the-cpu) can keep it in the CPU's memory, and
  [`cuda_graph`](precision-and-memory.md#on-a-gpu) can capture the update.
- Sparse: takes [sparse gradients](precision-and-memory.md#sparse-gradients).

"""

WRITING = """## Writing an optimizer

An optimizer that updates each element by itself is a rule: its options, the moments that it keeps for each element, the numbers that change
from step to step, and the formula. The formula is written once. Etude runs it in one pass over short vectors on the CPU, with LibTorch's
operators on other devices, over shards, and on moments that are offloaded:

<!-- snippet: examples/docs/optimizer.cpp#rule -->

- All values in `update` have one type `V`, and local variables must have it too. It has `+ - * /`, also with numbers, `sqrt`, `abs`, `sign`,
  `min`, `max` and `if_positive(a, yes, no)`.
- The options need `lr`. The rule applies the weight decay, which is in `RuleStep`, and 0 for groups without decay. With options `rounding` and `seed`
  (like those of [Lion](#lion)), bfloat16 parameters are rounded so that small updates aren't lost.
- `OptionalMoment{"name", options.amsgrad}` is a moment that only some options need, and `Moment{"name", 1.0}` one that begins with 1.
- The base class handles saving, resuming, clipping, groups and parameters without a gradient.

A [custom trainer](own-trainer.md) trains with it:

<!-- snippet: examples/docs/optimizer.cpp#trainer -->

An optimizer that needs a parameter as a whole, its rows and columns or its norm, is a rule for `etude::ParameterRuleOptimizer`
(`etude/optim/parameter_optimizer.hpp`): `moments(parameter)` returns named tensors of any shape, and `update(values, gradient, moments, step)`
changes them with LibTorch's operators. [Adafactor](#adafactor) is an example.

"""


def rows():
    """(name, class, its options whose defaults differ here, traits) of each optimizer."""
    text = NAMES.read_text()
    table = text[text.index("#define ETUDE_OPTIMIZERS(") :]
    table = table[: re.search(r"[^\\]\n", table).end()].replace("\\\n", "\n")
    for match in re.finditer(r"\boptimizer\((?=\w+,)", table):
        name, kind, defaults, *traits = parts(balanced(table, match.end() - 1))
        defaults = dict(re.findall(r"\.(\w+) = ([^,)]+)", defaults))
        yield name, kind, defaults, {trait.split()[0].lstrip(".") for trait in traits if trait.endswith("true")}


def header_of(kind):
    """The header of a class, its docstring, and the rule that describes it, if any."""
    pattern = rf"((?:^///.*\n)*)^using {kind} = (\w*Optimizer)<(?:\w+::)*(\w+)>;"
    for path in sorted((HEADERS / "optim").rglob("*.hpp")):
        if found := re.search(pattern, path.read_text(), re.M):
            doc, template, rule = found[1] or ALL[found[3]][0], found[2], found[3]
            if f": see {template}" in doc:
                doc = doc.replace(f": see {template}", "") + "///\n" + ALL[template][0].partition("///\n")[0]
            return path, doc, rule
    if kind not in ALL or not ALL[kind][0]:
        raise SystemExit(f"optimizer_names.hpp: no header has a class {kind} with a docstring")
    return ALL[kind][4], ALL[kind][0], None


def values():
    """The values of each enum in etude/optim and their docstrings, as text, by the enum's name."""
    text = "".join(path.read_text() for path in sorted((HEADERS / "optim").rglob("*.hpp")))
    found = {kind: [(name.strip(), "") for name in names.split(",")] for kind, names in re.findall(r"ETUDE_ENUM\((\w+),([^)]*)\)", text)}
    for kind, body in re.findall(r"^enum class (\w+) \{(.*?)\};", text, re.M | re.S):
        found[kind] = re.findall(r"(\w+),?\s*(?:///< (.*))?$", body, re.M)
    return {kind: ", ".join(f"`{name}`" + (f" ({words})" if words else "") for name, words in each) for kind, each in found.items()}


VALUES = values()


def options_of(kind, rule):
    """(name, default, help) of the options of a class."""
    struct = f"{kind}Options"
    path = header_of(kind)[0]
    alias = re.search(rf"^using {struct} = (?:\w+::)*(\w+)<(true|false)>;", path.read_text(), re.M)
    body = ALL[alias[1] if alias else struct if struct in ALL else rule][3]
    if alias:
        chosen = 1 if alias[2] == "true" else 2
        either = r'("[^"]*"|[\w.+-]+)'
        body = re.sub(rf"\w+\s\?\s*{either}\s*:\s*{either}", lambda match: match[chosen], body)
    for (name, default, words), of in zip(*declared(body)):
        yield name, default, f"{words}; one of {VALUES[of]}" if of in VALUES else words


def section(kind, names):
    """The part of the page about one class, which several names may make."""
    path, doc, rule = header_of(kind)
    called = ", ".join(f"`{name}`" for name, _ in names)
    text = f"## {kind}\n\n{called}: `etude::{kind}`, in `etude/{path.relative_to(HEADERS)}`\n\n"
    text += "\n\n".join(" ".join(part.replace("///", "").split()) for part in doc.split("///\n")) + "\n\n"
    state = {f"{ABOUT[name][0]} bytes of state per parameter{'; ' + ABOUT[name][1] if ABOUT[name][1] else ''}." for name, _ in names}
    text += " ".join(sorted(state)) + "\n\n"
    text += "| Option | Default | Meaning |\n|---|---|---|\n"
    for option, default, words in options_of(kind, rule):
        default = default.split("::")[-1] if re.fullmatch(r"(\w+::)+\w+", default) else default
        shown = [f"`{default}`" if default else "unset"]
        shown += [f"`{own[option]}` for `{name}`" for name, own in names if option in own]
        text += f"| `{option}` | {', '.join(shown)} | {cell(words)} |\n"
    return text + "\n"


def page():
    classes, lines = {}, ""
    for name, kind, defaults, traits in rows():
        if name not in ABOUT:
            raise SystemExit(f"{name} is new: say in docs/optimizer_table.py what its state takes and when to use it")
        classes.setdefault(kind, []).append((name, defaults))
        size, depends, when = ABOUT[name]
        can = ["yes" if trait in traits else "" for trait in ("rounds_bfloat16", "is_elementwise", "takes_sparse_gradients")]
        lines += f"| [`{name}`](#{kind.lower()}) | {size}{'*' if depends else ''} | {' | '.join(can)} | {when} |\n"
    text = BEGINNING + TABLE + lines + LEGEND + WRITING
    return text + "".join(section(kind, classes[kind]) for kind in sorted(classes, key=str.lower)).rstrip() + "\n"
