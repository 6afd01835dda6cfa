"""tools/export.py --compile adds a training step whose losses, gradients and buffers are eager PyTorch's, and says what it can't compile."""

import contextlib
import functools
import io
import json
import logging
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import zipfile

from checks import check, same

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path += [str(ROOT / ".venv" / "vision"), str(ROOT / "tools")]
try:
    import torch

    if not torch.__version__.startswith("2.13."):
        raise ImportError(f"this is torch {torch.__version__}")
    import exported_models
    import transformers
    import timm
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import export

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
MANY = int(os.environ.get("ETUDE_STEPS", "100")) >= 100  # CI compiles one model only
VOCABULARY, WIDTH = 12, 16
temporary = tempfile.TemporaryDirectory()
TOP, SCRATCH, WORK = (pathlib.Path(temporary.name) / name for name in ("files", "scratch", "work"))
for folder in (TOP, SCRATCH, WORK):
    folder.mkdir()
os.environ["CI"] = "true"  # TorchInductor is stricter where it is set
os.environ["TMPDIR"] = tempfile.tempdir = str(SCRATCH)
os.chdir(WORK)


class Mixed(torch.nn.Module):
    """Tied, frozen and unused parameters, a batch norm, dropout, a counter, and a loss behind another output."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        self.frozen = torch.nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.dropout = torch.nn.Dropout(0.3)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)
        self.head.weight = self.embedding.weight
        self.spare = torch.nn.Linear(2, 2, bias=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)

    def forward(self, input_ids, options, labels):
        self.calls += 1
        hidden = self.dropout(self.embedding(input_ids)) + options["shift"][:, None]
        hidden = self.norm(hidden.flatten(0, 1)).view_as(hidden)
        hidden = self.dropout(torch.tanh(self.frozen(hidden))) * self.scale
        logits = self.head(hidden * options["factors"][0] + options["factors"][1])
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return {"logits": logits, "loss": losses.mean(), "shift": options["shift"]}


def batch_of(rows, length):
    ids = torch.randint(0, VOCABULARY, (rows, length))
    factors = [torch.rand(rows, 1, WIDTH), torch.rand(rows, 1, WIDTH)]
    return {"input_ids": ids, "options": {"shift": torch.randn(rows, WIDTH), "factors": factors}, "labels": torch.randint(0, VOCABULARY, (rows, length))}


def exported(model, inputs, name="model", **options):
    """Exports and returns (the file, what was printed to standard error)."""
    path, said = TOP / f"{name}.pt2", io.StringIO()
    with contextlib.redirect_stderr(said):
        export.export_model(model, inputs, path, **options)
    return path, said.getvalue()


class Library:
    """A compiled step of a file, which LibTorch's runner loads."""

    def __init__(self, path, number):
        with zipfile.ZipFile(path) as archive:
            read = lambda name: archive.read(f"{path.stem}/compiled/{name}")
            self.graph = json.loads(read("manifest.json"))["graphs"][number]
            library = path.with_name(f"{path.stem}-{number}.so")
            library.write_bytes(read(self.graph["library"]))
            if self.graph["operators"]:
                library.with_suffix(".json").write_bytes(read(self.graph["operators"]))
        self.code = library.read_bytes()
        self.runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1)
        self.spec = json.loads(self.runner.get_call_spec()[0])

    def fits(self, inputs):
        """Whether the sizes of inputs are those of the description."""
        sizes = {}
        for each in self.spec["inputs"]:
            for size, real in zip(each["sizes"], inputs[each["name"]].shape if each["kind"] == "input" else ()):
                least, most = self.spec["sizes"].get(size, [size, size])
                if sizes.setdefault(size, real) != real or real < least or (most is not None and real > most):
                    return False
        return True

    def run(self, model, constants, inputs, scale=1.0):
        """Returns the outputs by (kind, name or position)."""
        state = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False)), **constants, **inputs}
        given = [torch.tensor(scale) if each["kind"] == "scale" else state[each["name"]].detach() for each in self.spec["inputs"]]
        for each, tensor in zip(self.spec["inputs"], given):
            same(str(tensor.dtype), f"torch.{each['dtype']}", f"the type of {each['name']}")
        results = self.runner.run(given)
        check(all(result.is_contiguous() for result in results), "an output isn't contiguous")
        memory = {tensor.untyped_storage().data_ptr() for tensor in (*given, *results)}
        same(len(memory), len({id(tensor) for tensor in given}) + len(results), "the memory of inputs and outputs")
        return {(each["kind"], each.get("name", each.get("index"))): result for each, result in zip(self.spec["outputs"], results, strict=True)}


library_of = functools.cache(Library)  # a loaded file must not be written again


def compare(model, path, inputs, what, number=0, tolerance=1e-5, scale=1.0):
    """Compares a compiled step with eager PyTorch on a batch, from the same weights and random numbers."""
    library, program = library_of(path, number), torch.export.load(path)
    flat = export.flat_inputs(inputs)
    check(library.fits(flat), f"{what}: the sizes are {library.spec['sizes']}")
    torch.manual_seed(5)
    seen = library.run(model, program.constants, flat, scale)
    state_of_generator = torch.get_rng_state()
    model.zero_grad()
    torch.manual_seed(5)
    with torch.autocast("cpu", dtype=torch.bfloat16) if library.graph["autocast"] else contextlib.nullcontext():
        outputs = model(**inputs)
    (outputs["loss"] * scale).backward()
    check(torch.equal(state_of_generator, torch.get_rng_state()), f"{what}: other random numbers were drawn")

    def near(kind, name, expected, size):
        result = seen.pop((kind, name))
        same((result.dtype, result.shape), (expected.dtype, expected.shape), f"{what}: {kind} {name}")
        difference = (result - expected.detach()).abs().max().item()
        check(difference <= tolerance * size, f"{what}: {kind} {name} differs by {difference:.2g}, where numbers are up to {size:.2g}")

    largest = max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            near("gradient", name, parameter.grad, largest)
    for place, (name, value) in enumerate(outputs.items()):
        kind = "loss" if name == "loss" else "output"
        near(kind, place, value, max(1.0, value.abs().max().item()))
    for name, value in model.named_buffers():
        if ("buffer", name) in seen:
            near("buffer", name, value, max(1.0, value.abs().max().item()))
    same(list(seen), [], f"{what}: more outputs")
    return library


def state(model):
    return {
        "values": {name: (value.tolist(), value.requires_grad) for name, value in (*model.named_parameters(), *model.named_buffers())},
        "modes": [module.training for module in model.modules()],
        "gradients": [parameter.grad for parameter in model.parameters()],
        "generators": (torch.get_rng_state().tolist()[:64], random.getstate()[1][-1]),
        "logging": logging.root.manager.disable,
        "environment": dict(os.environ),
        "files": (sorted(os.listdir(SCRATCH)), sorted(os.listdir())),
    }


def mixed():
    torch.manual_seed(1)
    model = Mixed().train()
    inputs = batch_of(4, 6)
    before = state(model)
    path, said = exported(model, inputs, compile="cpu")
    after = state(model)
    for part in before:
        same(after[part], before[part], f"{part} after the export")
    check(re.fullmatch(r"(.*weigh the same.*\n)?export.py: compiled the training step in \d+ s: input_ids \[s0, s1\].*\n", said), f"it says:\n{said}")

    library = compare(model, path, batch_of(4, 6), "the example's sizes")
    spec = library.spec
    for inputs in (batch_of(2, 9), batch_of(40, 130)):  # the second has sums of more numbers than TorchInductor expects
        compare(model, path, inputs, f"{len(inputs['labels'])} rows", scale=0.5)
    same(spec["unused"], ["spare.weight"], "parameters without a gradient")
    same(spec["sizes"], {"s0": [2, None], "s1": [2, None]}, "the ranges of sizes")
    names = {kind: [each["name"] for each in spec["inputs"] if each["kind"] == kind] for kind in ("parameter", "buffer", "constant", "scale")}
    same(names["parameter"], ["embedding.weight", "norm.weight", "norm.bias", "frozen.weight", "frozen.bias", "head.bias"], "parameters")
    same(sorted(names["buffer"]), ["calls", "norm.num_batches_tracked", "norm.running_mean", "norm.running_var", "scale"], "buffers")
    sizes = {each["name"]: each["sizes"] for each in spec["inputs"] if each["kind"] == "input"}
    expected = {"input_ids": ["s0", "s1"], "options_shift": ["s0", WIDTH], "options_factors_0": ["s0", 1, WIDTH], "options_factors_1": ["s0", 1, WIDTH], "labels": ["s0", "s1"]}
    same(sizes, expected, "the sizes of inputs")
    given = {kind: sorted(each.get("name", each.get("index")) for each in spec["outputs"] if each["kind"] == kind) for kind in ("loss", "output", "buffer", "gradient")}
    same(given["loss"] + given["output"], [1, 0, 2], "the positions of outputs")
    same(given["buffer"], ["calls", "norm.num_batches_tracked", "norm.running_mean", "norm.running_var"], "the buffers that change")
    same(given["gradient"], ["embedding.weight", "head.bias", "norm.bias", "norm.weight"], "gradients")

    graph = library.graph
    same((graph["library"], graph["operators"], graph["device"], graph["autocast"]), ("0.so", "0.json", "cpu", None), "the manifest")
    check(graph["torch"].startswith("2.13.") and "+" not in graph["torch"], f"the version is {graph['torch']}")
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    check(graph["processor"]["features"] and set(graph["processor"]["features"]) <= set(flags), f"the processor's features are {graph['processor']['features']}")
    for place in (tempfile.gettempdir(), str(pathlib.Path(torch.__file__).parent), str(pathlib.Path.home())):
        check(place.encode() not in library.code, f"the library has the path {place}")
    check(b".debug_" not in library.code and b".symtab" not in library.code, "the library has symbols")
    check_threads(model, path)
    check_wrong_index(path)


def check_threads(model, path):
    """The running program's threads compute, and each run gives the same numbers."""
    torch.set_num_threads(2)
    inputs, constants, runs = batch_of(40, 40), torch.export.load(path).constants, []
    compare(model, path, inputs, "two threads", tolerance=1e-4)
    for _ in range(20):
        torch.manual_seed(7)
        runs.append(library_of(path, 0).run(model, constants, export.flat_inputs(inputs)))
    torch.set_num_threads(1)
    for key, value in runs[0].items():
        check(all(torch.equal(value, run[key]) for run in runs), f"{key} differs from run to run in two threads")


def check_wrong_index(path):
    """A token beyond the vocabulary is an error of that batch, also in several threads, in which an exception would end the program."""
    for threads in (1, 2):
        program = (
            "import sys; sys.argv.append('no program')\n"
            f"import torch; torch.set_num_threads({threads})\n"
            f"runner = torch._C._aoti.AOTIModelContainerRunnerCpu({str(path.with_name('model-0.so'))!r}, 1)\n"
            "import json; spec = json.loads(runner.get_call_spec()[0])\n"
            "given = [torch.ones([{'s0': 4, 's1': 500}.get(n, n) for n in each['sizes']], dtype=getattr(torch, each['dtype'])) for each in spec['inputs']]\n"
            "wrong = [given[i] for i, each in enumerate(spec['inputs']) if each['name'] in ('input_ids', 'labels')]\n"
            "for tensor in wrong:\n"
            "    tensor[2, 3] = 5000\n"
            "    try: runner.run(given); print('no error')\n"
            "    except RuntimeError: print('an error')\n"
            "    tensor.fill_(1)\n"
            "loss = runner.run(given)[0]; print('a loss' if loss.isfinite() else loss)\n"
        )
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        same((ran.returncode, ran.stdout.split("\n")), (0, ["an error", "an error", "a loss", ""]), f"a wrong index in {threads} threads: {ran.stderr[-600:]}")


class Lossy(torch.nn.Module):
    """Has one of several losses, most of which can't be compiled."""

    def __init__(self, case):
        super().__init__()
        self.case = case
        self.layer = torch.nn.Linear(3, 2)
        if case == "strides":
            self.layer.weight = torch.nn.Parameter(torch.rand(3, 2).T)
        if case == "frozen":
            self.requires_grad_(False)

    def forward(self, x):
        y = self.layer(x)
        if self.case == "none":
            return y
        if self.case == "detached":
            return {"loss": y.detach().mean()}
        return {"loss": y.mean(1) if self.case == "rows" else y.mean()}


def not_compiled():
    for case, words in (
        ("none", "it has no output 'loss'"),
        ("rows", "its loss isn't a single number"),
        ("frozen", "it has no parameter that is trained"),
        ("detached", "its loss depends on no trained parameter"),
        ("strides", "layer.weight has the strides [1, 2], but must be contiguous"),
    ):
        path, said = exported(Lossy(case), {"x": torch.rand(4, 3)}, case, compile="cpu")
        same(said, f"export.py: the training step can't be compiled: {words}\n", case)
        with zipfile.ZipFile(path) as archive:
            check(not any("/compiled/" in name for name in archive.namelist()), f"{case}: something was compiled")
        check(torch.export.load(path).module()(x=torch.rand(5, 3)) is not None, f"{case}: the file can't be used")
    if not torch.cuda.is_available():
        _, said = exported(Lossy("mean"), {"x": torch.rand(4, 3)}, compile="cuda")
        same(said, "export.py: the training step can't be compiled: this torch finds no GPU\n", "without a GPU")
    version, torch.__version__ = torch.__version__, "2.12.1"
    del sys.modules["compile_graph"]
    _, said = exported(Lossy("mean"), {"x": torch.rand(4, 3)}, compile="cpu")
    torch.__version__ = version
    same(said, "export.py: the training step can't be compiled: compiling needs torch 2.13, but this is 2.12.1\n", "another version")


class EvenRows(torch.nn.Module):
    """A graph whose number of rows is even, which no range can express."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x):
        return {"loss": self.layer(x.view(-1, 2, 3)).square().mean()}


def types_and_sizes():
    path, said = exported(EvenRows(), {"x": torch.rand(4, 3)}, "even", compile="cpu")
    check("its sizes are fixed, since varying ones failed: sizes must satisfy" in said, f"a condition that no range says: it says\n{said}")
    torch.manual_seed(2)
    model = Lossy("mean").double()
    path, _ = exported(model, {"x": torch.rand(4, 3, dtype=torch.double)}, "double", compile="cpu", fixed_sizes=True)
    library = compare(model, path, {"x": torch.rand(4, 3, dtype=torch.double)}, "float64", tolerance=1e-12, scale=0.5)
    same(library.spec["sizes"], {}, "--fixed_sizes")
    check(not library.fits({"x": torch.rand(5, 3)}), "other sizes fit")
    torch.manual_seed(3)
    model = Mixed().train()
    path, said = exported(model, batch_of(4, 6), "autocast", compile="cpu", autocast="bfloat16")
    check("compiled the training step under autocast in" in said, f"it says\n{said}")
    for number in (0, 1):
        library = compare(model, path, batch_of(5, 7), "autocast", number, tolerance=1e-5 if number == 0 else 0.05)
        same(library.graph["autocast"], [None, "bfloat16"][number], "the manifest")
    model = Lossy("mean").bfloat16()
    path, _ = exported(model, {"x": torch.rand(4, 3).bfloat16()}, "bfloat16", compile="cpu")
    compare(model, path, {"x": torch.rand(7, 3).bfloat16()}, "bfloat16", tolerance=0.02)


class WithLoss(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class AsDict(torch.nn.Module):
    """The outputs of a named tuple by name."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, labels):
        return self.model(x, labels)._asdict()


def architectures():
    for make in exported_models.MODELS:
        torch.manual_seed(4)
        model, inputs, kind = make(4)
        model = WithLoss(model) if kind != "own" else AsDict(model) if isinstance(model, exported_models.UNet) else model
        name, model = make.__name__, model.train()
        path, said = exported(model, inputs, name, compile="cpu")
        check("can't be compiled" not in said, f"{name}: {said}")
        for rows in (4, 6):
            torch.manual_seed(6)
            compare(model, path, make(rows)[1], f"{name} with {rows} rows", tolerance=1e-4)
        print(f"{name}: {said.strip()}")


class Threshold:
    """A step whose gradient is 1 where the weight is above 1, and 0 elsewhere. A few weights are next to 1, so rounding flips theirs."""

    loss = 0
    weight = torch.cat([torch.linspace(0, 2, 1000), 1 + 1e-7 * torch.linspace(-4, 4, 9)]).requires_grad_()
    takes = [("parameter", "weight", weight, None)]
    spec = {"inputs": [{"kind": "parameter", "name": "weight"}], "outputs": [{"kind": "loss", "index": 0}, {"kind": "gradient", "name": "weight"}]}

    def forward(self, given, autocast):
        return torch.relu(given[0] - 1).sum(), {}, {}

    def compiled(self, shift, scale):
        """A library that rounds the weight differently, and multiplies its gradient by `scale`."""
        def run(inputs):
            weight = (inputs[0] + shift).requires_grad_()
            loss = torch.relu(weight - 1).sum()
            return [loss.detach(), scale * torch.autograd.grad(loss, weight)[0]]

        return type("Library", (), {"run": staticmethod(run)})


def rounding():
    import compile_graph

    step = Threshold()
    verify = lambda shift, scale: compile_graph.verify_batch(step, None, step.compiled(shift, scale), step.spec, [step.weight.detach().clone()])
    verify(0, 1)
    verify(6e-7, 1)
    for shift, scale in ((0, 0.0), (6e-7, -1.0), (0.1, 1)):
        try:
            verify(shift, scale)
        except compile_graph.CannotCompile as error:
            check("differs by" in str(error), f"it says {error}")
        else:
            check(False, f"a gradient that is {scale} times the right one, or of a weight changed by {shift}, is taken")


for each in (rounding, mixed, not_compiled, *((types_and_sizes, architectures) if MANY else ())):
    each()
    print(f"{each.__name__.replace('_', ' ')}: as expected")
