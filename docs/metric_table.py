"""docs/metrics.md: every metric that comes with Etude, with its options."""

import re

from headers import ALL, HEADERS, fields, plain, with_bases

BEGINNING = """# Metrics

How to measure a model in evaluations, and every metric that comes with Etude. A metric's name in logs has the evaluation's prefix:
`eval_accuracy`. The tables of this page are generated from `etude/metrics/` by `docs/tables.py`.

One metric of the whole evaluation, computed at its end:

<!-- snippet: examples/docs/data.cpp#metric -->

Several, computed batch by batch, so that predictions aren't kept:

<!-- snippet: examples/docs/data.cpp#streaming -->

A custom metric is a function of all predictions and labels, which isn't called if there are no labels:

<!-- snippet: examples/docs/data.cpp#own_metric -->

It gets an `etude::EvalPrediction`, all on the CPU, with examples along the first dimension:

| Field | Has |
|---|---|
| `predictions` | the model's outputs but for its loss and `ignore_keys`, or what `preprocess_logits_for_metrics` returned |
| `label_ids` | the labels |
| `inputs` | the inputs, if `include_for_metrics` has "inputs" |
| `losses` | the loss of each example's batch, if it has "loss" |
| `batches` | one such struct for each batch with `eval_do_concat_batches = false`; the others are empty then |

Where batches have different lengths in other dimensions, such as texts, **the shorter ones are padded with -100 at the end**, predictions as well as
labels. An output without dimensions, as a `squeeze()` leaves of a single example, is one row. [Batches](data.md#batches) says how labels with other
rows than examples are joined. `predict()` returns an `etude::PredictionOutput` with the same `predictions` and `label_ids` of the whole dataset, and
`metrics`.

A custom streaming metric computes batch by batch, and works over several processes:

<!-- snippet: examples/docs/data.cpp#own_streaming -->

It is copyable, and has `update(predictions, labels)`, `Metrics compute() const`, `reset()`, `merge(other)`, and `state()` and `load_state(state)`,
which hand its tensors (`etude::metrics::MetricState`) to other processes. `etude::metrics::Accumulator` has the last two and `reset()`, keeps what
`sum(name, value)` adds up and `keep(name, rows)` collects, and returns it by `value(name)`. Nothing is read from a device before `compute()`.

Labels of -100 are left out of classification metrics and perplexity. With several processes the metrics are those of all examples.
[Writing callbacks](writing-callbacks.md) logs numbers of a training.

"""


def readable(doc):
    """`{"f1"}: ...` as "`f1`: ..."."""
    return re.sub(r'\{"(\w+)"(, [^}]*)?\}', lambda match: f"`{match[1]}`" + (match[2] or "").replace('"', "`"), plain(doc.replace("///", "")))


def options_of(body):
    found = re.search(r"\((?:double \w+, )?(\w+Options) options", body)
    return found and found[1]


def enums():
    """The docstring of each enum of the metrics, by its name."""
    text = "".join(path.read_text() for path in sorted((HEADERS / "metrics").glob("*.hpp")))
    return {name: "\n".join(line[3:].strip() for line in doc.splitlines()) for doc, name in re.findall(r"((?:^///.*\n)+)ETUDE_ENUM\((\w+),", text, re.M)}


def table(name):
    text = "| Option | Default | Meaning |\n|---|---|---|\n"
    for kind, field, default, words in fields(ALL[name][3]):
        default = default.split("::")[-1] if kind in enums() or default.endswith("nullopt") else default
        if kind in enums():
            words = f"{words} One of [{kind}](#{kind.lower()}).".strip()
        elif field == "name" and not words:
            words = "The name in logs."
        text += f"| `{field}` | {f'`{default}`' if default not in ('', '{}', 'nullopt') else 'unset'} | {words} |\n"
    return text + "\n"


def page():
    text, used = BEGINNING, {}
    metrics = [name for name, (doc, _, _, _, path) in ALL.items()
               if path.parent == HEADERS / "metrics" and doc.startswith('/// {"') and not name.endswith("Options")]
    for name in sorted(metrics, key=str.lower):
        options = next(filter(None, (options_of(ALL[each][3]) for each in [name, *reversed(with_bases(name))])), None)
        text += f"## {name}\n\n`etude::metrics::{name}`, in `etude/{ALL[name][4].relative_to(HEADERS)}`\n\n{readable(ALL[name][0])}\n\n"
        if options in used:
            text += f"Its options are those of [{used[options]}](#{used[options].lower()}).\n\n"
        elif options:
            used[options] = name
            text += table(options)
    for name, doc in enums().items():
        if f"](#{name.lower()})" in text:
            text += f"## {name}\n\n{doc}\n\n"
    return text.rstrip() + "\n"
