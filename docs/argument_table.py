"""docs/arguments.md: every field of TrainingArguments, with its default and the allowed values."""

import re

from headers import ALL, HEADERS, ROOT, balanced, cell, help_of, parts
from schedule_table import schedules

BEGINNING = """# Arguments

Every setting of a training, as a field of `etude::TrainingArguments`, an option of the command line and a key of a configuration file:

| In C++ | On the command line | In the file of `--config file.json` |
|---|---|---|
| `args.learning_rate = 1e-3` | `--learning_rate 1e-3` | `"learning_rate": 1e-3` |

`etude::run` and `etude::parse_arguments` read the last two, and `--help` lists them all. All errors are reported at once, each with its
field, its value and what is allowed; an unknown name is an error that suggests the nearest one. Numbers are read as
Python's `int` and `float` read them (`1_000`, `+1`, `inf`), whole ones in the form `1e3` or `3.0` too; one that its type can't hold is an
error. Names and defaults are those of Hugging
Face's `TrainingArguments` (version 5), as far as they exist there. This page is generated from `etude/training_arguments.hpp` by
`docs/tables.py`.

In C++, the fields of `etude::TrainingArguments{.learning_rate = 1e-3, .eval_strategy = ...}` stand in the order of these tables, in which they
are declared: [the compiler refuses another one](mistakes.md#designator-order).

**Intervals** (`logging_steps`, `eval_steps`, `save_steps`) are a number of update steps (`500`), a fraction of all steps (`0.1`), or a
text: `1ep` (epochs), `1000sp` (examples), `0.25dur` (the whole training), `30s`, `1h30m`.

"""

# The groups of the header, which separates them by blank lines.
GROUPS = ["Output", "Batches and length", "Optimizer and gradients", "Label smoothing", "Learning rate schedule", "Evaluation", "Checkpoints and the best model",
          "Logs and trackers", "Random numbers, precision, memory and devices", "Data", "Several processes"]

TYPES = {"std::string": "text", "bool": "`true`, `false`", "double": "number", "std::int64_t": "integer", "Interval": "interval", "nlohmann::json": "JSON",
         "std::vector<std::string>": "texts", "std::vector<double>": "numbers"}


# Pages that say more about an argument.
PAGES = {"optim": "optimizers.md"}

TOOL = ROOT / "tools" / "commands"

# For the structs in tools/commands/arguments.hpp.
TOOL_BEGINNING = """## The program etude

`etude train`, `etude evaluate` and `etude predict` ([Train without C++](train-without-cpp.md)) take all of these and the following.

"""
TOOL_HEADINGS = {"ModelArguments": "The model: all three", "DataArguments": "How files are read: all three", "TrainFiles": "etude train",
                 "EvaluateFiles": "etude evaluate", "PredictFiles": "etude predict"}


def definitions():
    """The headers that define the enums of arguments, as one text."""
    return "".join((HEADERS / name).read_text() for name in ("training_arguments.hpp", "formats/token_windows.hpp", "model/named_loss.hpp"))


def renamed():
    """The texts of the enums that ETUDE_ENUM doesn't define: {enum: {enumerator in C++: its text}}."""
    found = {}
    for name, texts in re.findall(r"etude_enum_names\((\w+)\) \{\s*return std::to_array<std::string_view>\(\{(\"[^}]*)\}", definitions()):
        enumerators = re.search(rf"enum class {name} \{{ (.*?) \}}", definitions())[1].split(", ")
        found[name] = dict(zip(enumerators, re.findall(r'"(\w+)"', texts)))
    return found


def enums():
    """The values of each enum, by its name."""
    text = definitions()
    found = {name: [value.strip() for value in values.split(",")] for name, values in re.findall(r"ETUDE_ENUM\((\w+),([^)]*)\)", text)}
    optimizers = re.findall(r"^  optimizer\((\w+),", (HEADERS / "optimizer_names.hpp").read_text(), re.M)
    found |= {name: list(texts.values()) for name, texts in renamed().items()}
    return found | {"OptimizerNames": optimizers, "SchedulerType": [name for name, _ in schedules()]}


# What stands below a heading.
BELOW = {"Learning rate schedule": "[Learning rate schedules](schedules.md) has them all, with their options.\n\n"}


def allowed(kind, values):
    inner = re.fullmatch(r"std::optional<(.*)>", kind)
    kind = (inner[1] if inner else kind).removeprefix("etude::")
    if kind in values:
        return ", ".join(f"`{value}`" for value in values[kind])
    return TYPES[kind]


def shown(kind, default):
    default = renamed().get(kind, {}).get(default.split("::")[-1], default)
    default = default.split("::")[-1] if re.fullmatch(r"(\w+::)+\w+(\(\))?", default) else default
    if not default or default in ("{}", "no_options()"):
        return "unset" if kind.startswith("std::optional") else ""
    return f"`{default}`" if default != '""' else ""


def page():
    body = ALL["TrainingArguments"][3]
    macro = balanced(body, body.index("(", body.index("ETUDE_STRUCT(")))
    groups = [group for group in re.split(r"\n\s*\n", macro.split(",", 1)[1]) if group.strip()]
    if len(groups) != len(GROUPS):
        raise SystemExit(f"training_arguments.hpp has {len(groups)} groups of arguments, docs/argument_table.py {len(GROUPS)}")
    values = enums()
    text = BEGINNING
    for heading, group in zip(GROUPS, groups):
        text += table(f"## {heading}\n\n{BELOW.get(heading, '')}".rstrip(), group, values)
    return (text + tool_tables(values)).rstrip() + "\n"


def table(heading, group, values):
    text = f"{heading}\n\n| Argument | Default | Values | Meaning |\n|---|---|---|---|\n"
    for entry in (parts(each[1:-1]) for each in parts(group.strip().rstrip(","))):
        kind, name, words, default = entry[0], entry[1], help_of(entry[2]), ", ".join(entry[3:])
        words = f"[{words}]({PAGES[name]})" if name in PAGES else cell(words)
        text += f"| `{name}` | {shown(kind, default)} | {cell(allowed(kind, values))} | {words} |\n"
    return text + "\n"


def tool_tables(values):
    header = (TOOL / "arguments.hpp").read_text()
    text = TOOL_BEGINNING
    for name, heading in TOOL_HEADINGS.items():
        macro = balanced(header, header.index("(", header.index(f"ETUDE_STRUCT(", header.index(f"struct {name} "))))
        text += table(f"### {heading}", macro.split(",", 1)[1], values)
    return text
