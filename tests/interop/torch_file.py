"""Files that PyTorch wrote, converted by `etude convert`, hold bit-identical tensors.

Usage: torch_file.py PATH_OF_etude
"""
import io
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

try:
    import numpy  # noqa: F401  safetensors.torch needs it
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_model
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

program = os.path.abspath(sys.argv.pop(1))


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 5)
        self.norm = torch.nn.BatchNorm1d(5)
        self.head = torch.nn.Linear(5, 7, bias=False)
        self.head.weight = self.embedding.weight


def bytes_of(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


class TorchFile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.pt = os.path.join(self.folder.name, "model.pt")
        self.safetensors = os.path.join(self.folder.name, "model.safetensors")

    def run_program(self, *options):
        return subprocess.run([program, "convert", self.pt, self.safetensors, "--force", *options], capture_output=True, text=True)

    def converted(self, *options):
        """The tensors by name, including second names, and the messages about other values."""
        done = self.run_program(*options)
        self.assertEqual(done.returncode, 0, done.stderr)
        with safe_open(self.safetensors, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            for name, kept in (file.metadata() or {}).items():
                if kept in tensors:
                    tensors[name] = tensors[kept]
        return tensors, done.stderr

    def refused(self, *options):
        done = self.run_program(*options)
        self.assertEqual(done.returncode, 3)
        self.assertFalse(os.path.exists(self.safetensors))
        self.assertIn(self.pt, done.stderr)
        return done.stderr

    def assert_same(self, ours, theirs):
        self.assertEqual(sorted(ours), sorted(theirs))
        for name, tensor in theirs.items():
            tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
            self.assertEqual(ours[name].dtype, tensor.dtype, name)
            self.assertEqual(ours[name].shape, tensor.shape, name)
            self.assertEqual(bytes_of(ours[name]), bytes_of(tensor), name)

    def test_a_state_dict_of_every_protocol(self):
        model = Tied()
        for protocol in (2, 3, 4, 5):
            torch.save(model.state_dict(), self.pt, pickle_protocol=protocol)
            tensors, said = self.converted()
            self.assert_same(tensors, model.state_dict())
            self.assertEqual(said, "")

    def test_tied_weights_are_written_once_and_load_into_the_model(self):
        model = Tied()
        torch.save(model.state_dict(), self.pt)
        self.converted()
        with safe_open(self.safetensors, "pt") as file:
            self.assertEqual(file.metadata()["head.weight"], "embedding.weight")
            self.assertNotIn("head.weight", file.keys())
        other = Tied()
        load_model(other, self.safetensors)
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, other.state_dict()[name]), name)

    def test_every_dtype(self):
        names = ("bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 "
                 "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu").split()
        generator = torch.Generator().manual_seed(0)
        tensors = {}
        for name in names:
            dtype = getattr(torch, name)
            bits = torch.randint(0, 2 if dtype is torch.bool else 256, (6 * dtype.itemsize,), dtype=torch.uint8,
                                 generator=generator)
            tensors[name] = bits.view(dtype).reshape(2, 3)
        torch.save(tensors, self.pt)
        self.assert_same(self.converted()[0], tensors)

    def test_every_layout(self):
        base = torch.arange(60.0)
        noted = torch.ones(2)
        noted.note = "n"
        parameter = torch.nn.Parameter(torch.ones(3))
        parameter.note = "n"
        tensors = {
            "scalar": torch.tensor(3.5),
            "empty": torch.zeros(0, 3),
            "transposed": base.reshape(5, 12).t(),
            "every other": base[1:50:2],
            "window": base.as_strided((4, 3), (2, 1), 7),
            "expanded": torch.ones(3, 1).expand(3, 4),
            "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
            "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
            "negative": torch.randn(3, dtype=torch.complex64).conj().imag,
            "parameter": torch.nn.Parameter(torch.randn(2)),
            "with attributes": noted,
            "parameter with attributes": parameter,
        }
        torch.save(tensors, self.pt)
        self.assert_same(self.converted()[0], tensors)

    def test_a_checkpoint_with_an_optimizer(self):
        model = Tied()
        optimizer = torch.optim.AdamW(model.parameters())
        model.head(model.norm(model.embedding(torch.arange(7)))).sum().backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "size": torch.Size([1]),
                    "dtype": torch.float32, "device": torch.device("cpu"), "names": {"a", "b"}, "bytes": b"x"}, self.pt)
        self.assertIn("several of its entries contain tensors: 'model', 'optimizer'", self.refused())
        self.assertIn("'modle' doesn't exist; entries with tensors are: 'model', 'optimizer'", self.refused("--key", "modle"))
        self.assert_same(self.converted("--key", "model")[0], model.state_dict())
        tensors, said = self.converted("--key", "optimizer")
        self.assert_same(tensors, {f"state.{i}.{name}": value for i, state in optimizer.state_dict()["state"].items()
                                   for name, value in state.items()})
        self.assertIn("skipped, not a tensor: param_groups\n", said)

    def test_the_only_dict_of_tensors(self):
        model = Tied()
        torch.save({"epoch": 3, "state_dict": model.state_dict()}, self.pt)
        tensors, said = self.converted()
        self.assert_same(tensors, model.state_dict())
        self.assertEqual(said, "")

    def test_an_archive_that_was_compressed_since(self):
        tensors = {"w": torch.randn(100)}
        buffer = io.BytesIO()
        torch.save(tensors, buffer)
        with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(self.pt, "w", zipfile.ZIP_DEFLATED) as target:
            for name in source.namelist():
                target.writestr(name, source.read(name))
        self.assert_same(self.converted()[0], tensors)

    def test_more_entries_than_old_archives_can_have(self):
        tensors = {str(i): torch.tensor([i]) for i in range(66_000)}
        torch.save(tensors, self.pt)
        ours = self.converted()[0]
        self.assertEqual(len(ours), len(tensors))
        self.assertTrue(all(torch.equal(ours[name], tensor) for name, tensor in tensors.items()))

    def test_what_is_not_dense_is_refused_by_name(self):
        for what, tensor in {"quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
                             "sparse": torch.eye(2).to_sparse(),
                             "on the meta device": torch.ones(2, device="meta"),
                             "nested": torch.nested.nested_tensor([torch.ones(2)])}.items():
            torch.save({"w": torch.ones(2), "odd": tensor}, self.pt)
            self.assertIn(f"tensor 'odd': it is {what}", self.refused())

    def test_files_of_other_kinds_are_told_by_what_they_are(self):
        torch.save(Tied().state_dict(), self.pt, _use_new_zipfile_serialization=False)
        self.assertIn("it has the format used before PyTorch 1.6", self.refused())
        torch.jit.script(torch.nn.Linear(2, 3)).save(self.pt)
        self.assertIn("it is a TorchScript archive", self.refused())
        torch.save(Tied(), self.pt)
        self.assertIn("only tensors and plain values can be read", self.refused())
        torch.save(torch.ones(2), self.pt)
        self.assertIn("isn't a dict of tensors", self.refused())

    def test_nothing_is_executed(self):
        target = os.path.join(self.folder.name, "owned")

        class Harm:
            def __reduce__(self):
                return os.system, (f"touch {target}",)

        torch.save({"w": torch.ones(2), "harm": Harm()}, self.pt)
        self.assertIn("it refers to 'system' of 'posix'", self.refused())
        self.assertFalse(os.path.exists(target))


if __name__ == "__main__":
    unittest.main(warnings="ignore")
