"""Models without dropout, and the classes of transformers that read a folder that C++ saved."""

import torch
from checks import check


def classes_that_take(config):
    """Every transformers class that an Auto class's from_pretrained makes from a configuration."""
    from transformers.models.auto import modeling_auto

    found = []
    for mapping in vars(modeling_auto).values():
        if isinstance(mapping, modeling_auto._LazyAutoMapping) and type(config) in mapping:
            classes = mapping[type(config)]
            found += classes if isinstance(classes, tuple) else [classes]
    return sorted(set(found), key=lambda cls: cls.__name__)


def check_classes(folder, model, reference):
    """Checks that every class reads the same from a folder that C++ saved as from `reference`, where `model.save_pretrained` saves the same weights."""
    model.save_pretrained(reference)
    classes = []
    for cls in classes_that_take(model.config):
        load = lambda place: cls.from_pretrained(place, output_loading_info=True, ignore_mismatched_sizes=True)
        try:
            theirs, expected = load(reference)
        except ValueError:  # it needs other values in the configuration
            continue
        ours, seen = load(folder)
        classes.append(cls.__name__)
        for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            check(set(seen[what]) == set(expected[what]), f"{cls.__name__}: {what} are {seen[what]}, expected {expected[what]}")
        new = expected["missing_keys"] | {name for name, *_ in expected["mismatched_keys"]}
        for name, value in theirs.state_dict().items():
            check(name in new or torch.equal(ours.state_dict()[name], value), f"{cls.__name__}: {name} isn't what was saved")
    return classes


def set_dropout(model, probability):
    """Sets dropout of every kind, without changing the mode of batch norms and the rest."""
    for module in model.modules():
        for name in ("p", "dropout", "attention_dropout", "attn_pdrop", "drop_prob", "activation_dropout", "attention_probs_dropout_prob", "dropout_prob", "dropout_rate"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, probability)
        if isinstance(module, torch.nn.LSTM):
            module.dropout = probability
    if hasattr(model, "config"):
        for name in vars(model.config):
            if "dropout" in name or "pdrop" in name or "layerdrop" in name:
                if isinstance(getattr(model.config, name), float):
                    setattr(model.config, name, probability)
