"""Python's safetensors reads what we write bit for bit, and we read what it writes."""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy  # noqa: F401  safetensors.torch needs it
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, load_model, save_file, save_model
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight


def expected_bytes(name, count):
    if name == "BOOL":
        return bytes(i % 2 for i in range(count))
    return bytes((17 * i + 3 * len(name.encode())) % 256 for i in range(count))


def bytes_of(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def check_dtypes(path):
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"key": "välue\n"}, file.metadata()
        names = {name: file.get_slice(name).get_dtype() for name in file.keys()}
    assert len(tensors) >= 14, sorted(tensors)
    for name, tensor in tensors.items():
        if name not in ("scalar", "empty", 'naïve "name"'):
            assert names[name] == name
            assert tuple(tensor.shape) == (2, 3)
        assert bytes_of(tensor) == expected_bytes(name, tensor.numel() * tensor.element_size()), name
    assert tuple(tensors["scalar"].shape) == () and tensors["scalar"].dtype == torch.float64
    assert tuple(tensors["empty"].shape) == (2, 0) and tensors["empty"].dtype == torch.float32
    assert tuple(tensors['naïve "name"'].shape) == (1, 1, 4)
    return tensors


def weights():
    weight = torch.arange(20).to(torch.float32).reshape(5, 4) / 7
    return {"embed.weight": weight, "norm.weight": torch.full((4,), 2.5), "norm.bias": torch.full((4,), -1.0)}


def check_model(model):
    for name, tensor in weights().items():
        assert bytes_of(model.state_dict()[name]) == bytes_of(tensor), name
    assert model.head.weight is model.embed.weight


def check_ours(folder):
    tensors = check_dtypes(folder / "dtypes.safetensors")
    for path in (folder / "tied/model.safetensors", folder / "checkpoint-1/model.safetensors"):
        model = Tied()
        missing, unexpected = load_model(model, path, strict=True)
        assert not missing and not unexpected, (missing, unexpected)
        check_model(model)

    index = json.loads((folder / "sharded/model.safetensors.index.json").read_text())
    expected = {"embed.weight": "model-00001-of-00002.safetensors",
                "norm.weight": "model-00002-of-00002.safetensors",
                "norm.bias": "model-00002-of-00002.safetensors"}
    assert index == {"metadata": {"total_size": 112}, "weight_map": expected}, index
    for name, file in index["weight_map"].items():
        assert bytes_of(load_file(folder / "sharded" / file)[name]) == bytes_of(weights()[name]), name
    return tensors


def write_theirs(folder, tensors):
    for name in ("tied", "sharded"):
        (folder / name).mkdir(parents=True)
    save_file(tensors, folder / "dtypes.safetensors", metadata={"key": "välue\n"})
    model = Tied()
    model.load_state_dict(weights(), strict=False)
    save_model(model, folder / "tied/model.safetensors")

    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    ours = weights()
    save_file({"norm.weight": ours["norm.weight"], "norm.bias": ours["norm.bias"]}, folder / "sharded" / first)
    save_file({"embed.weight": ours["embed.weight"]}, folder / "sharded" / second,
              metadata={"format": "pt", "head.weight": "embed.weight"})
    index = {"metadata": {"total_parameters": 28, "total_size": 112},
             "weight_map": {"norm.weight": first, "norm.bias": first, "embed.weight": second}}
    (folder / "sharded/model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


with tempfile.TemporaryDirectory() as directory:
    program, folder = sys.argv[1], pathlib.Path(directory)
    subprocess.run([program, "write", folder], check=True)
    tensors = check_ours(folder)
    write_theirs(folder / "theirs", tensors)
    subprocess.run([program, "read", folder / "theirs"], check=True)
