"""Compiles the training step of an exported model: outputs, loss, changed buffers and gradients in one call of native code.

tools/export.py uses it for --compile. TorchInductor compiles ahead of time the graph of forward and backward that AOTAutograd
traces from the exported one, so neither Python nor a compiler is needed where the step runs.
"""

import contextlib
import copy
import io
import json
import logging
import os
import pathlib
import platform
import re
import sys
import tempfile
import time
import warnings
from unittest import mock

import sympy
import torch
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._guards import detect_fake_mode
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

VERSION = "2.13"
KINDS = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer", InputKind.CONSTANT_TENSOR: "constant", InputKind.USER_INPUT: "input"}
# Instruction sets that compilers use by themselves, among the flags of an x86 processor.
INSTRUCTIONS = re.compile(r"(sse|ssse|avx|amx|fma|bmi|vaes|vpclmulqdq|sha)\w*|sm[34]|f16c|popcnt|abm|movbe|adx|aes|pclmulqdq|gfni|movdiri|movdir64b|clwb|serialize")


class CannotCompile(Exception):
    """Why a training step can't be compiled, in one line."""


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def loss_position(program):
    """The position of the output `loss` among the program's outputs."""
    spec, position = program.call_spec.out_spec, 0
    keys = getattr(spec.context, "_fields", spec.context)
    if isinstance(keys, (list, tuple)) and len(keys) == spec.num_children:
        for key, child in zip(keys, spec.children()):
            if key == "loss" and child.is_leaf():
                return position
            position += child.num_leaves
    raise CannotCompile("it has no output 'loss'")


class Step:
    """The tensors that the training step takes and gives, read from an exported program.

    `takes` has (kind, name, example, exported sizes) of each distinct tensor: tied parameters count once. `places` has, for each
    placeholder of the program, an index of `takes` or the constant.
    """

    def __init__(self, program, inputs):
        self.program, signature = program, program.graph_signature
        state = {**program.state_dict, **program.constants}
        spelled = {re.sub(r"[^a-z0-9]", "_", name.lower()): (name, tensor) for name, tensor in inputs.items()}
        nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
        self.takes, self.places, found = [], [], {}
        for node, spec in zip(nodes, signature.input_specs):
            if isinstance(spec.arg, ConstantArgument):
                self.places.append(("value", spec.arg.value))
                continue
            if spec.kind not in KINDS:
                raise CannotCompile(f"it takes {spec.arg.name}, which isn't a tensor")
            name, tensor = spelled[spec.arg.name] if spec.kind is InputKind.USER_INPUT else (spec.target, state[spec.target])
            if id(tensor) not in found:
                found[id(tensor)] = len(self.takes)
                self.takes.append((KINDS[spec.kind], name, tensor, node.meta["val"].shape))
                if not tensor.is_contiguous():
                    raise CannotCompile(f"{name} has the strides {list(tensor.stride())}, but must be contiguous")
            self.places.append(("index", found[id(tensor)]))
        outputs = [spec for spec in signature.output_specs if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)]
        node = next(node for node in program.graph.nodes if node.op == "output")
        self.loss = loss_position(program)
        self.results = list(zip(signature.output_specs, pytree.tree_leaves(node.args)))  # of which some may be None
        loss = outputs[self.loss].arg
        value = next(result.meta["val"] for spec, result in self.results if spec.arg is loss) if hasattr(loss, "name") else None
        if not isinstance(value, torch.Tensor) or value.dim() != 0:
            raise CannotCompile("its loss isn't a single number")

    def trained(self):
        return [index for index, (kind, _, tensor, _) in enumerate(self.takes) if kind == "parameter" and tensor.requires_grad]

    def forward(self, given, autocast):
        """The outputs of the program for tensors in the order of `takes`: (loss, {position: other tensor}, values of buffers)."""
        # A graph may write into its buffers and inputs.
        given = [value if kind == "parameter" else value.clone() for value, (kind, *_) in zip(given, self.takes)]
        device = given[0].device.type
        with torch.autocast(device, dtype=getattr(torch, autocast)) if autocast else contextlib.nullcontext():
            arguments = [given[place] if kind == "index" else place for kind, place in self.places]
            values = torch.fx.Interpreter(self.program.graph_module).run(*arguments, enable_io_processing=False)
        written = {spec.target: value for (spec, _), value in zip(self.results, values) if spec.kind is OutputKind.BUFFER_MUTATION}
        user = [value for (spec, _), value in zip(self.results, values) if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)]
        others = {place: value for place, value in enumerate(user) if isinstance(value, torch.Tensor) and place != self.loss}
        buffers = {index: written.get(name, given[index]) for index, (kind, name, *_) in enumerate(self.takes) if kind == "buffer"}
        return user[self.loss], others, buffers


class Sizes:
    """Symbols for the sizes that vary, and what tracing assumes about them.

    `joined` gives one symbol to all first sizes that are equal in the example, and one to all others that are: a batch's texts and
    labels have the same length, which the export leaves open.
    """

    def __init__(self, step, way, learned):
        self.env = ShapeEnv()
        self.mode = torch._subclasses.FakeTensorMode(shape_env=self.env)
        self.hints, symbols, exported = {}, {}, {}
        env = next((size.node.shape_env for *_, sizes in step.takes for size in sizes if isinstance(size, torch.SymInt)), None)
        self.sizes = []
        for _, _, tensor, sizes in step.takes:
            self.sizes.append([])
            for place, (size, example) in enumerate(zip(sizes, tensor.shape)):
                expression = env.replace(size.node.expr) if isinstance(size, torch.SymInt) else None
                if way == "fixed" or expression is None or expression.is_Integer:
                    self.sizes[-1].append(example)
                    continue
                if not expression.is_Symbol:
                    raise CannotCompile(f"a size is {expression}")
                key = (place == 0, example) if way == "joined" else expression
                if key not in symbols:
                    symbols[key] = self.symbol(len(symbols), example)
                exported[expression] = symbols[key].node.expr
                self.sizes[-1].append(symbols[key])
        if not exported:
            return
        for expression, symbol in exported.items():
            limits = env.var_to_range[expression]
            self.assume(sympy.Ge(symbol, limits.lower))
            if limits.upper < int_oo:
                self.assume(sympy.Le(symbol, limits.upper))
        for guard in env.guards:
            guard = env.replace(guard.expr).xreplace(exported)
            if not guard.free_symbols <= set(self.hints):
                raise CannotCompile(f"the graph has the condition {guard}")
            self.assume(guard)
        for expression in learned:
            self.assume(expression)
        self.described()  # what can't be described needs no tracing

    def symbol(self, index, example):
        source = torch._dynamo.source.ConstantSource(f"size_{index}")
        symbol = self.env.create_symbol(example, source, DimDynamic.DYNAMIC)
        self.hints[symbol] = example
        return self.env.create_symintnode(symbol, hint=example, source=source)

    def assume(self, expression):
        expression = self.env.simplify(expression)
        if expression not in (True, False, sympy.true):
            self.env.evaluate_expr(expression)

    def fakes(self, step):
        """Tensors without memory of those sizes, which tracing takes."""
        result = []
        with self.mode:
            for (kind, _, tensor, _), sizes in zip(step.takes, self.sizes):
                fake = torch.empty(sizes, dtype=tensor.dtype, device=tensor.device)
                result.append(fake.requires_grad_(kind == "parameter" and tensor.requires_grad))
        return result

    def described(self):
        """The sizes of each tensor, and the range of each symbol, as the file has them. Raises CannotCompile if that isn't all that was assumed."""
        names, described = {}, []
        for sizes in self.sizes:
            described.append([])
            for size in sizes:
                expression = self.env.replace(size.node.expr) if isinstance(size, torch.SymInt) else sympy.Integer(size)
                if not expression.is_Integer and not expression.is_Symbol:
                    raise CannotCompile(f"a size must be {expression}")
                described[-1].append(int(expression) if expression.is_Integer else names.setdefault(expression, f"s{len(names)}"))
        guards = [self.env.simplify(guard.expr) for guard in self.env.guards]
        for multiple in (None, 1024, 64, 8, 1):  # an assumption such as that of indices in 32 bits holds up to some size
            limits = {}
            for symbol in names:
                limits[symbol] = self.env.var_to_range[symbol]
                if multiple:
                    limits[symbol] &= ValueRanges(0, self.hints[symbol] * multiple)
            open_ones = [guard for guard in guards if not self.holds(guard, limits)]
            if not open_ones:
                return described, {names[symbol]: [int(limit.lower), int(limit.upper) if limit.upper < int_oo else None] for symbol, limit in limits.items()}
        raise CannotCompile(f"sizes must satisfy {open_ones[0]}")

    def holds(self, guard, limits):
        if guard in (True, sympy.true):
            return True
        known = {symbol: limits.get(symbol, self.env.var_to_range.get(symbol)) for symbol in guard.free_symbols}
        return self.env._maybe_evaluate_static(guard, axioms=(), var_to_range=tuple(known.items())) == sympy.true


def joint_graph(step, sizes, autocast):
    """Traces forward and backward. Returns (graph of tensors to a tuple of tensors, indices of `takes` that it takes, what it gives)."""
    gives = []

    def forward(*given):
        loss, others, buffers = step.forward(given, autocast)
        if not loss.requires_grad:
            raise CannotCompile("its loss depends on no trained parameter")
        gives[:] = [{"kind": "loss", "index": step.loss}, *({"kind": "output", "index": place} for place in others)]
        gives.extend({"kind": "buffer", "name": step.takes[index][1]} for index in buffers)
        return (loss, *(value.detach().clone() for value in (*others.values(), *buffers.values())))

    graph = aot_export_joint_simple(forward, tuple(sizes.fakes(step)), trace_joint=True).graph
    *taken, scale = (node for node in graph.nodes if node.op == "placeholder")
    for node in taken:
        for copy in [user for user in node.users if user.target is torch.ops.aten.clone.default]:  # nothing is written to any more
            copy.replace_all_uses_with(node)
    output = next(node for node in graph.nodes if node.op == "output")
    gives.extend({"kind": "gradient", "name": name} for _, name, *_ in step.takes)
    results, roots = [], set(taken)
    with graph.inserting_before(output):
        for value, what in zip(pytree.tree_leaves(output.args[0]), list(gives), strict=True):
            value = without_copy(value)
            if value is None or (what["kind"] == "buffer" and value.op == "placeholder"):
                gives.remove(what)
                continue
            if root(value) in roots or not value.meta["val"].is_contiguous():
                copied = graph.call_function(torch.ops.aten.clone.default, (value,), {"memory_format": torch.contiguous_format})
                copied.meta["val"] = value.meta["val"].clone(memory_format=torch.contiguous_format)
                value = copied
            roots.add(root(value))
            results.append(value)
    output.args = (tuple(results),)
    convert_scale(graph, scale)
    graph.eliminate_dead_code()
    indices = [index for index, (node, (kind, *_)) in enumerate(zip(taken, step.takes)) if node.users or kind == "input"]
    for index in set(range(len(taken))) - set(indices):
        graph.erase_node(taken[index])
    graph.set_codegen(torch.fx.graph.CodeGen())
    return torch.fx.GraphModule(torch.nn.Module(), graph), indices, gives


def without_copy(value):
    while isinstance(value, torch.fx.Node) and value.target in (torch.ops.aten.clone.default, torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        value = value.args[0]
    return value


def root(node):
    """The node that owns the memory of `node`, if that is a view."""
    while isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
        node = node.args[0]
    return node


def convert_scale(graph, scale):
    """Makes the loss's gradient a float32, whatever the loss is."""
    value = scale.meta["val"]
    if value.dtype == torch.float32:
        return
    users = list(scale.users)
    with graph.inserting_after(scale):
        converted = graph.call_function(torch.ops.aten._to_copy.default, (scale,), {"dtype": value.dtype})
    converted.meta["val"], scale.meta["val"] = value, value.to(torch.float32)
    for user in users:
        user.replace_input_with(scale, converted)


def options(device, path, spec):
    return {
        "aot_inductor.output_path": str(path),
        "aot_inductor.serialized_in_spec": spec,
        "aot_inductor.enable_line_tables": False,
        "aot_inductor.embed_kernel_binary": device == "cuda" or None,
        "aot_inductor.precompile_headers": False,
        "compile_threads": 1,
        "fallback_random": True,  # eager's numbers, from LibTorch's generator
        "cpp.dynamic_threads": True,
    }


def sums_in_chunks(kernel, reduction, dtype, _):
    """Whether long sums are computed in chunks for accuracy. TorchInductor decides by the example's size, and assumes that others are as long."""
    from torch._inductor.virtualized import V

    if reduction == "welford_reduce":
        return True
    size = sympy.prod(kernel.call_ranges[kernel.reduction_depth :])
    return reduction == "sum" and dtype == torch.float32 and not V.graph.sizevars.statically_known_leq(size, 4096)


def native_code(step, device, autocast, way, folder):
    """Compiles the step. Returns (its library, the JSON of its operators or None, its description)."""
    from torch._export.utils import _compiling_state_context
    from torch._inductor.codegen.cpp import CppKernel
    from torch._inductor.compile_fx import compile_fx_aot

    learned = []
    for attempt in range(3):
        sizes = Sizes(step, way, learned)
        module, indices, gives = joint_graph(step, sizes, autocast)
        spec = described(step, sizes, indices, gives)
        path = folder / f"{way}{attempt}" / "step.so"
        path.parent.mkdir()
        examples = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
        with torch.no_grad(), _compiling_state_context(), mock.patch.object(CppKernel, "need_use_acc_helper", sums_in_chunks):
            compile_fx_aot(module, examples, config_patches=options(device, path, json.dumps(spec)))
        if described(step, sizes, indices, gives) == spec:
            operators = path.with_suffix(".json")
            return path, operators if operators.exists() else None, spec
        learned = [guard.expr for guard in sizes.env.guards]  # the compiler assumed more about the sizes than tracing
    raise CannotCompile("what the compiler assumes about the sizes differs in each attempt")


def described(step, sizes, indices, gives):
    tensors, symbols = sizes.described()
    takes = [{"kind": step.takes[index][0], "name": step.takes[index][1], "dtype": dtype_name(step.takes[index][2].dtype), "sizes": tensors[index]} for index in indices]
    given = {what["name"] for what in gives if what["kind"] == "gradient"}
    return {
        "inputs": [*takes, {"kind": "scale", "name": "scale", "dtype": "float32", "sizes": []}],
        "outputs": gives,
        "sizes": symbols,
        "unused": [step.takes[index][1] for index in step.trained() if step.takes[index][1] not in given],
    }


def verify(step, device, autocast, library, spec):
    """Compares the compiled step with the exported graph on the example batch. Raises CannotCompile if they differ."""
    runner = torch._C._aoti.AOTIModelContainerRunnerCuda(str(library), 1, device) if device == "cuda" else torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1)
    tensors = {(kind, name): tensor.detach() for kind, name, tensor, _ in step.takes}
    tensors["scale", "scale"] = torch.ones((), device=device)
    torch.manual_seed(0)
    results = runner.run([tensors[each["kind"], each["name"]] for each in spec["inputs"]])
    given = [tensor.detach().requires_grad_(tensor.requires_grad) if kind == "parameter" else tensor for kind, _, tensor, _ in step.takes]
    torch.manual_seed(0)
    loss, others, buffers = step.forward(given, autocast)
    loss.backward()
    index_of = {(kind, name): index for index, (kind, name, *_) in enumerate(step.takes)}
    gradients = [tensor.grad for tensor in given]
    scale = max(float(gradient.norm()) for gradient in gradients if gradient is not None)
    low = autocast or any(tensor.dtype in (torch.bfloat16, torch.float16) for tensor in given)
    for what, result in zip(spec["outputs"], results, strict=True):
        name = what.get("name") or what["kind"]
        if what["kind"] == "gradient":
            expected, floor = gradients[index_of["parameter", what["name"]]], 1e-2 * scale
        else:
            expected = {"loss": lambda: loss, "output": lambda: others[what["index"]], "buffer": lambda: buffers[index_of["buffer", what["name"]]]}[what["kind"]]()
            floor = 1e-3
        if result.shape != expected.shape or result.dtype != expected.dtype or not result.is_contiguous():
            raise CannotCompile(f"the compiled {what['kind']} {name} is {result.dtype} {list(result.shape)} with strides {list(result.stride())}, not {expected.dtype} {list(expected.shape)}")
        difference = float((result.double() - expected.detach().double()).norm())
        allowed = (0.1 if low else 1e-3) * max(float(expected.detach().double().norm()), floor)
        if difference > allowed:
            raise CannotCompile(f"the compiled {what['kind']} of {name} differs by {difference:.2g} from the graph's, of norm {float(expected.detach().double().norm()):.2g}")


def processor(device):
    """What the machine must have that runs the code."""
    result = {"machine": platform.machine(), "features": []}
    with contextlib.suppress(OSError):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line.partition(":")[2].split() for line in lines if re.match(r"(flags|Features)\s*:", line)), [])
        result["features"] = sorted(flag for flag in flags if platform.machine() != "x86_64" or INSTRUCTIONS.fullmatch(flag))
    if device == "cuda":
        result["capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
    return result


@contextlib.contextmanager
def quiet():
    """Keeps notes and warnings of the compiler off the screen."""
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logged)


def compile_step(program, inputs, note, device="cpu", autocast=None, fixed_sizes=False):
    """The entries of the file for a training graph of export.py, by name.

    `inputs` are the example tensors by their names in C++. Gives one graph in float32, and one more for `autocast`. Raises an
    error that says why the step can't be compiled. `note` prints a line.
    """
    if not torch.__version__.startswith(VERSION):
        raise CannotCompile(f"it needs torch {VERSION}, but this is {torch.__version__}")
    if device == "cuda" and not torch.cuda.is_available():
        raise CannotCompile("this torch finds no GPU")
    if device == "cuda":
        program = torch.export.passes.move_to_device_pass(copy.deepcopy(program), device)
        inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
    step = Step(program, inputs)
    entries, graphs = {}, []
    for kind in [None, autocast] if autocast else [None]:
        begin = time.monotonic()
        number = len(graphs)
        with tempfile.TemporaryDirectory() as folder, quiet():
            from torch._inductor.utils import fresh_cache
            with fresh_cache(dir=folder):
                library, operators, spec = any_sizes(step, device, kind, ["fixed"] if fixed_sizes else ["own", "joined", "fixed"], pathlib.Path(folder), note)
                verify(step, device, kind, library, spec)
            entries[f"compiled/{number}.so"] = library.read_bytes()
            if operators:
                entries[f"compiled/{number}.json"] = operators.read_bytes()
        graphs.append({"library": f"{number}.so", "operators": f"{number}.json" if operators else None, "torch": torch.__version__.partition("+")[0], "device": device, "autocast": kind, "processor": processor(device)})
        note(f"compiled the training step{' with ' + kind if kind else ''} in {time.monotonic() - begin:.0f} s")
    entries["compiled/manifest.json"] = json.dumps({"format": 1, "graphs": graphs}).encode()
    return entries


def any_sizes(step, device, autocast, ways, folder, note):
    for way in ways:
        try:
            return native_code(step, device, autocast, way, folder)
        except Exception as error:
            if os.environ.get("DBG"):
                import traceback; traceback.print_exc(file=sys.__stderr__)
            if way == ways[-1]:
                raise
            failure = error
