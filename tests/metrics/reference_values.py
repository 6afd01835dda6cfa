"""Writes reference_values.hpp: the results of scikit-learn and torchmetrics for a few small sets of data.

    pip install scikit-learn torch torchmetrics && python reference_values.py

If both libraries have a metric they must agree, or the script stops; where their definitions differ, a comment
says which value is kept.
"""

import pathlib
import warnings

import numpy as np
import sklearn
import sklearn.metrics as sk
import torch
import torchmetrics
import torchmetrics.functional as tm

warnings.simplefilter("ignore")
random = np.random.default_rng(7)
data, values = {}, {}


def agreed(name, *results):
    """Keeps the first of several results that must be the same."""
    results = [np.asarray(r, dtype=np.float64) for r in results]
    for other in results[1:]:
        assert np.allclose(results[0], other, rtol=2e-6, atol=2e-6, equal_nan=True), (name, results)
    for i, value in enumerate(results[0].ravel()):
        values[name if results[0].ndim == 0 else f"{name} {i}"] = float(value)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def classification(case, y, predicted, classes, of=None):
    """Computes metrics that are based on counts. `of` lists the labels to average over; by default, the labels that occur."""
    t = dict(task="multiclass", num_classes=classes)
    p_, y_ = torch.tensor(predicted), torch.tensor(y)
    agreed(f"{case} accuracy", sk.accuracy_score(y, predicted), tm.accuracy(p_, y_, average="micro", **t))
    for average in ("micro", "macro", "weighted", None):
        a = dict(average=average, zero_division=0)
        labels = list(range(classes)) if average is None else None
        key = f"{case} {{}} {average or 'none'}"
        agreed(key.format("precision"), sk.precision_score(y, predicted, labels=labels, **a), tm.precision(p_, y_, average=average, **t))
        agreed(key.format("recall"), sk.recall_score(y, predicted, labels=labels, **a), tm.recall(p_, y_, average=average, **t))
        agreed(key.format("f1"), sk.f1_score(y, predicted, labels=labels, **a), tm.f1_score(p_, y_, average=average, **t))
        agreed(key.format("f0.5"), sk.fbeta_score(y, predicted, beta=0.5, labels=labels, **a), tm.fbeta_score(p_, y_, beta=0.5, average=average, **t))
    for name, theirs, other in (("none", None, None), ("labels", "true", "true"), ("predictions", "pred", "pred"), ("all", "all", "all")):
        agreed(f"{case} confusion {name}", sk.confusion_matrix(y, predicted, labels=range(classes), normalize=theirs),
               tm.confusion_matrix(p_, y_, normalize=other, **t))


def calibration(case, p, y, **task):
    for norm in ("l1", "l2", "max"):
        agreed(f"{case} calibration {norm}", tm.calibration_error(torch.tensor(p), torch.tensor(y), n_bins=10, norm=norm, **task))


# Several classes; the last is rare. Labels of -100 are removed before either library sees them.
logits = np.round(random.normal(size=(60, 4)) * 2, 2)
labels = random.choice(4, size=60, p=[0.4, 0.3, 0.25, 0.05])
logits[np.arange(60), labels] = np.round(logits[np.arange(60), labels] + 1.5, 2)
assert all(len(set(row)) == 4 for row in logits), "no ties within a row, which each system breaks in its own way"
labels[[3, 17, 18, 40, 59]] = -100
data["multi_logits"], data["multi_labels"] = logits, labels
kept = labels != -100
x, y = logits[kept], labels[kept]
p, t = softmax(x), dict(task="multiclass", num_classes=4)
p_, y_ = torch.tensor(p), torch.tensor(y)
classification("multi", y, x.argmax(1), 4)
for k in (2, 3):
    agreed(f"multi top {k}", sk.top_k_accuracy_score(y, x, k=k), tm.accuracy(p_, y_, average="micro", top_k=k, **t))
each = [sk.roc_auc_score(y == c, p[:, c]) for c in range(4)]
agreed("multi auroc none", each, tm.auroc(p_, y_, average="none", **t))
for average in ("macro", "weighted"):
    agreed(f"multi auroc {average}", sk.roc_auc_score(y, p, multi_class="ovr", average=average), tm.auroc(p_, y_, average=average, **t))
    agreed(f"multi average_precision {average}", sk.average_precision_score(np.eye(4)[y], p, average=average),
           tm.average_precision(p_, y_, average=average, **t))
agreed("multi average_precision none", [sk.average_precision_score(y == c, p[:, c]) for c in range(4)],
       tm.average_precision(p_, y_, average="none", **t))
calibration("multi", p, y, **t)
agreed("multi perplexity", np.exp(sk.log_loss(y, p, labels=range(4))),
       tm.text.perplexity(torch.tensor(logits)[None], torch.tensor(labels)[None], ignore_index=-100))

# Class 2 of four is only predicted, 1 has only labels, and 3 doesn't occur.
y, predicted = np.array([0, 0, 1, 0, 1, 0]), np.array([0, 2, 0, 0, 2, 0])
data["gaps_labels"], data["gaps_predicted"] = y, predicted
classification("gaps", y, predicted, 4)
classification("one_class", np.ones(5, dtype=int), np.ones(5, dtype=int), 3)
classification("all_wrong", np.zeros(5, dtype=int), np.ones(5, dtype=int), 3)

# Two classes by one logit, with many ties.
x = np.round(random.normal(size=50), 1) + 0.05
y = (x + random.normal(size=50) > 0.3).astype(int)
data["binary_logits"], data["binary_labels"] = x, y
p = 1 / (1 + np.exp(-x))
p_, y_ = torch.tensor(p), torch.tensor(y)
classification("binary", y, (x > 0).astype(int), 2)
for name, f, g in (("precision", sk.precision_score, tm.precision), ("recall", sk.recall_score, tm.recall), ("f1", sk.f1_score, tm.f1_score)):
    agreed(f"binary {name}", f(y, p > 0.5), g(p_, y_, task="binary"))
    agreed(f"binary {name} above 0.7", f(y, p > 0.7), g(p_, y_, task="binary", threshold=0.7))
agreed("binary auroc", sk.roc_auc_score(y, p), tm.auroc(p_, y_, task="binary"))
agreed("binary average_precision", sk.average_precision_score(y, p), tm.average_precision(p_, y_, task="binary"))
calibration("binary", p, y, task="binary")
agreed("certain calibration", tm.calibration_error(torch.tensor([1.0, 1, 0, 0.95, 0.05]), torch.tensor([1, 0, 0, 1, 1]), n_bins=10, task="binary"))

# One class only: torchmetrics returns 0 for the area, and scikit-learn reports that it is undefined.
for name, y in (("positive", [1, 1, 1]), ("negative", [0, 0, 0])):
    s = [0.1, 0.6, 0.6]
    agreed(f"{name} auroc", sk.roc_auc_score(y, s))
    agreed(f"{name} average_precision", sk.average_precision_score(y, s), tm.average_precision(torch.tensor(s), torch.tensor(y), task="binary"))
agreed("tied auroc", sk.roc_auc_score([0, 1, 0, 1], [0.5] * 4), tm.auroc(torch.full((4,), 0.5), torch.tensor([0, 1, 0, 1]), task="binary"))
agreed("tied average_precision", sk.average_precision_score([0, 1, 0, 1, 0], [0.5] * 5),
       tm.average_precision(torch.full((5,), 0.5), torch.tensor([0, 1, 0, 1, 0]), task="binary"))

# A class without labels: scikit-learn refuses, and torchmetrics' average precision leaves it out.
p, y = [[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.5, 0.2, 0.3], [0.6, 0.3, 0.1]], [0, 1, 1, 1]
for average in ("macro", "weighted", "none"):
    agreed(f"absent average_precision {average}", tm.average_precision(torch.tensor(p), torch.tensor(y), task="multiclass", num_classes=3, average=average))

# Numbers: one output, three outputs, labels far from 0, constant labels.
targets = np.round(random.normal(size=(30, 3)) * [1, 5, 0.2], 2)
outputs = np.round(targets + random.normal(size=(30, 3)) * [0.5, 1, 0.3], 2)
data["targets"], data["outputs"] = targets, outputs
for name, y, p in (("three", targets, outputs), ("one", targets[:, 0], outputs[:, 0]), ("far", targets[:, 0] + 1e6, outputs[:, 0] + 1e6)):
    y_, p_ = torch.tensor(y), torch.tensor(p)
    agreed(f"{name} mse", sk.mean_squared_error(y, p), tm.mean_squared_error(p_, y_))
    agreed(f"{name} mae", sk.mean_absolute_error(y, p), tm.mean_absolute_error(p_, y_))
    # torchmetrics loses the digits of labels that are far from 0.
    agreed(f"{name} r2", sk.r2_score(y, p), *([] if name == "far" else [tm.r2_score(p_, y_)]))
agreed("constant right r2", sk.r2_score([2.0, 2.0, 2.0], [2.0, 2.0, 2.0]))
agreed("constant wrong r2", sk.r2_score([2.0, 2.0, 2.0], [2.0, 3.0, 2.0]))
agreed("single r2", sk.r2_score([2.0], [2.0]))


def spelled(value):
    return "nan" if np.isnan(value) else repr(value)


lines = [
    "#pragma once",
    "",
    f"// scikit-learn {sklearn.__version__}, torchmetrics {torchmetrics.__version__}, torch {torch.__version__.split('+')[0]}.",
    "// Written by reference_values.py.",
    "",
    "#include <cstdint>",
    "#include <limits>",
    "#include <map>",
    "#include <string>",
    "#include <vector>",
    "",
    "// clang-format off",
    "namespace reference {",
    "",
    "inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();",
]
for name, array in data.items():
    kind = "std::int64_t" if array.dtype.kind == "i" else "double"
    # Two decimals, so that both languages read the same number in either precision.
    text = ", ".join(str(v) if kind != "double" else f"{v:.2f}" for v in array.ravel().tolist())
    lines.append(f"inline const std::vector<{kind}> {name}{{{text}}};")
lines += ["", "inline const std::map<std::string, double> values{"]
entries = [f'{{"{name}", {spelled(value)}}},' for name, value in values.items()]
lines += ["    " + " ".join(entries[i : i + 3]) for i in range(0, len(entries), 3)]
lines += ["};", "", "}  // namespace reference", ""]
pathlib.Path(__file__).with_suffix(".hpp").write_text("\n".join(lines))
