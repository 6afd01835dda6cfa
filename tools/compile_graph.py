"""Compiles the training step of an exported model: outputs, loss, changed buffers and gradients in one call of native code.

tools/export.py uses it for --compile. TorchInductor compiles ahead of time the graph of forward and backward that AOTAutograd
traces from the exported one, so neither Python nor a compiler is needed where the step runs.
"""

import contextlib
import copy
import functools
import io
import json
import logging
import operator
import os
import pathlib
import platform
import re
import tempfile
import time
import warnings
from unittest import mock

import torch

VERSION = "2.13"
if not torch.__version__.startswith(f"{VERSION}."):
    raise ImportError(f"compiling needs torch {VERSION}, but this is {torch.__version__}")

import sympy
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._inductor.utils import fresh_cache
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

KINDS = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer", InputKind.CONSTANT_TENSOR: "constant", InputKind.USER_INPUT: "input"}
# Flags of x86 instruction sets that a compiler may use unasked.
INSTRUCTIONS = re.compile(r"(sse|ssse|avx|amx|fma|bmi|vaes|vpclmulqdq|sha)\w*|sm[34]|f16c|popcnt|abm|movbe|adx|aes|pclmulqdq|gfni|movdiri|movdir64b|clwb|serialize")
UNLIMITED = 2**48  # no tensor has a size above it


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


class Interpreter(torch.fx.Interpreter):
    """Runs an exported graph without its checks of dtypes, which autocast changes."""

    def call_function(self, target, arguments, named):
        if target is torch.ops.aten._assert_tensor_metadata.default:
            return None
        return super().call_function(target, arguments, named)


class Step:
    """The tensors that the training step takes and returns, read from an exported program.

    `takes` has (kind, name, example, exported sizes) of each distinct tensor: tied parameters count once. `places` has, for each
    placeholder of the program, an index of `takes` or a constant's value.
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
                raise CannotCompile(f"{spec.arg.name} isn't a tensor")
            if spec.kind is InputKind.USER_INPUT and spec.arg.name not in spelled:
                raise CannotCompile(f"the graph takes {spec.arg.name}, which isn't among the inputs {', '.join(inputs)}")
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
        self.results = list(zip(signature.output_specs, pytree.tree_leaves(node.args)))  # some may be None
        loss = outputs[self.loss].arg
        value = next(result.meta["val"] for spec, result in self.results if spec.arg is loss) if hasattr(loss, "name") else None
        if not isinstance(value, torch.Tensor) or value.dim() != 0:
            raise CannotCompile("its loss isn't a single number")
        if not self.trained():
            raise CannotCompile("it has no parameter that is trained")

    def trained(self):
        """The indices in `takes` of the parameters that are trained."""
        return [index for index, (kind, _, tensor, _) in enumerate(self.takes) if kind == "parameter" and tensor.requires_grad]

    def forward(self, given, autocast):
        """The outputs of the program for tensors in the order of `takes`: (loss, {position: other tensor}, values of buffers)."""
        # A graph may write into its buffers and inputs.
        given = [value if kind == "parameter" else value.clone() for value, (kind, *_) in zip(given, self.takes)]
        device = given[0].device.type
        with torch.autocast(device, dtype=getattr(torch, autocast)) if autocast else contextlib.nullcontext():
            arguments = [given[place] if kind == "index" else place for kind, place in self.places]
            values = Interpreter(self.program.graph_module).run(*arguments, enable_io_processing=False)
        written = {spec.target: value for (spec, _), value in zip(self.results, values) if spec.kind is OutputKind.BUFFER_MUTATION}
        user = [value for (spec, _), value in zip(self.results, values) if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)]
        others = {place: value for place, value in enumerate(user) if isinstance(value, torch.Tensor) and place != self.loss}
        buffers = {index: written.get(name, given[index]) for index, (kind, name, *_) in enumerate(self.takes) if kind == "buffer"}
        return user[self.loss], others, buffers


def symbols_of(step):
    """Where each symbol of the exported sizes occurs: {symbol: [(index in `takes`, dimension)]}."""
    places = {}
    for index, (*_, sizes) in enumerate(step.takes):
        for dimension, size in enumerate(sizes):
            if isinstance(size, torch.SymInt):
                expression = size.node.shape_env.replace(size.node.expr)
                if not expression.is_Integer:
                    places.setdefault(expression, []).append((index, dimension))
    return places


def equal_sizes(step):
    """Maps each symbol to a key, the same for sizes that must be equal. The export gives different symbols to sizes that no operator
    compares before it runs, such as those of a mask and its text, so this runs the graph with one size changed at a time."""
    places, groups, keys = symbols_of(step), {}, {}
    for symbol, ((index, dimension), *_) in places.items():
        groups.setdefault((dimension == 0, step.takes[index][2].shape[dimension]), []).append(symbol)
    for key, symbols in groups.items():
        are_free = len(symbols) > 1 and all(runs_with_other_size(step, places[symbol]) for symbol in symbols)
        keys |= {symbol: symbol if are_free else key for symbol in symbols}
    return keys


def runs_with_other_size(step, places):
    tensors = [tensor.detach() for _, _, tensor, _ in step.takes]
    for index, dimension in places:
        size = tensors[index].shape[dimension]
        rows = torch.arange(size - 1 if size > 2 else size + 1, device=tensors[index].device) % size
        tensors[index] = tensors[index].index_select(dimension, rows)
    try:
        with torch.no_grad():
            step.forward(tensors, None)
    except Exception:
        return False
    return True


class Sizes:
    """Symbols for the sizes that vary, one for each key of `equal_sizes`, none if `keys` is None, and what tracing assumes about them.

    The exported program has an environment for its symbols, too, but it no longer records assumptions.
    """

    def __init__(self, step, keys, learned=()):
        self.env = ShapeEnv()
        self.mode = torch._subclasses.FakeTensorMode(shape_env=self.env)
        self.sizes = [list(tensor.shape) for _, _, tensor, _ in step.takes]
        self.hints, symbols, exported = {}, {}, {}
        for expression, places in symbols_of(step).items() if keys else ():
            if not expression.is_Symbol:
                raise CannotCompile(f"a size depends on others: {expression}")
            index, dimension = places[0]
            key = keys[expression]
            if key not in symbols:
                symbols[key] = self.symbol(len(symbols), self.sizes[index][dimension])
            exported[expression] = symbols[key].node.expr
            for index, dimension in places:
                self.sizes[index][dimension] = symbols[key]
        if not exported:
            return
        env = next(size.node.shape_env for *_, sizes in step.takes for size in sizes if isinstance(size, torch.SymInt))
        for expression, symbol in exported.items():
            limits = env.var_to_range[expression]
            self.assume(sympy.Ge(symbol, limits.lower))
            if limits.upper < int_oo:
                self.assume(sympy.Le(symbol, limits.upper))
        for guard in env.guards:
            guard = env.replace(guard.expr).xreplace(exported)
            if not guard.free_symbols <= set(self.hints):
                raise CannotCompile(f"the graph requires {guard}")
            self.assume(guard)
        for expression in learned:
            self.assume(expression)

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
        """Fake tensors of those sizes, for tracing."""
        result = []
        with self.mode:
            for (kind, _, tensor, _), sizes in zip(step.takes, self.sizes):
                fake = torch.empty(sizes, dtype=tensor.dtype, device=tensor.device)
                result.append(fake.requires_grad_(kind == "parameter" and tensor.requires_grad))
        return result

    def described(self):
        """The sizes of each tensor, and the range of each symbol, as the file has them. Raises CannotCompile if ranges can't express every assumption."""
        names, described = {}, []
        for sizes in self.sizes:
            described.append([])
            for size in sizes:
                expression = self.env.replace(size.node.expr) if isinstance(size, torch.SymInt) else sympy.Integer(size)
                if not expression.is_Integer and not expression.is_Symbol:
                    raise CannotCompile(f"a size depends on others: {expression}")
                described[-1].append(int(expression) if expression.is_Integer else names.setdefault(expression, f"s{len(names)}"))
        guards = [self.env.simplify(guard.expr) for guard in self.env.guards]
        for multiple in (None, 1024, 64, 8, 1):  # some assumptions, such as 32-bit indices, hold only up to a size
            limits = {}
            for symbol in names:
                limits[symbol] = self.env.var_to_range[symbol] & ValueRanges(0, self.hints[symbol] * multiple if multiple else UNLIMITED)
            open_ones = [guard for guard in guards if not self.holds(guard, limits)]
            if not open_ones:
                return described, {names[symbol]: [int(limit.lower), int(limit.upper) if limit.upper < UNLIMITED else None] for symbol, limit in limits.items()}
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

    traced = aot_export_joint_simple(forward, tuple(sizes.fakes(step)), trace_joint=True)
    graph = traced.graph
    *taken, scale = (node for node in graph.nodes if node.op == "placeholder")
    for node in taken:
        for user in list(node.users):  # the traced graph writes to nothing, so copies aren't needed
            if user.target is torch.ops.aten.clone.default and user.kwargs.get("memory_format") in (None, torch.contiguous_format, torch.preserve_format):
                user.replace_all_uses_with(node)
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
    return torch.fx.GraphModule(traced, graph), indices, gives


def without_copy(value):
    while isinstance(value, torch.fx.Node) and value.target in (torch.ops.aten.clone.default, torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        value = value.args[0]
    return value


def root(node):
    """The node whose memory `node` uses: itself unless it is a view."""
    while True:
        source = node.args[0] if node.target is operator.getitem else node
        if not getattr(source.target, "is_view", False):
            return node
        node = source.args[0]


def convert_scale(graph, scale):
    """Makes the loss's gradient a float32, whatever the loss's dtype."""
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
    """Settings of TorchInductor."""
    return {
        "aot_inductor.output_path": str(path),
        "aot_inductor.serialized_in_spec": spec,
        "aot_inductor.enable_line_tables": False,
        "aot_inductor.enable_frame_pointer": False,
        "aot_inductor.embed_kernel_binary": device == "cuda" or None,
        "aot_inductor.precompile_headers": False,
        "compile_threads": 1,
        "layout_optimization": device != "cpu",  # which more than doubles the time of ResNet-18's step on a processor
        "fallback_random": True,  # eager's numbers, from LibTorch's generator
        "cpp.dynamic_threads": True,
        "cpp.threads": max(2, os.cpu_count() or 0),  # with 1, it would generate code that is unsafe for several threads
    }


def sums_in_chunks(kernel, reduction, dtype, _):
    """Whether long sums are computed in chunks for accuracy. TorchInductor decides by the example's size, and assumes that others are as long."""
    from torch._inductor.virtualized import V

    if reduction == "welford_reduce":
        return True
    size = sympy.prod(kernel.call_ranges[kernel.reduction_depth :])
    return reduction == "sum" and dtype == torch.float32 and not V.graph.sizevars.statically_known_leq(size, 4096)


def recurrent_layers(one, tensor, hidden, parameters, has_biases, layers, dropout, training, bidirectional, batch_first, layer):
    """Does what torch._decomp.decompositions._rnn_helper, which is `one`, is to do: in torch 2.13 that leaves out the dropout between layers."""
    directions, last_hidden = 2 if bidirectional else 1, []
    tensor = tensor.transpose(0, 1) if batch_first else tensor
    for number in range(layers):
        these = slice(number * directions, (number + 1) * directions)
        tensor, these_hidden = one(tensor, hidden[these], parameters[these], has_biases, 1, 0.0, training, bidirectional, False, layer)
        last_hidden += these_hidden
        if dropout and training and number < layers - 1:
            tensor = torch.dropout(tensor, dropout, train=True)
    return tensor.transpose(0, 1) if batch_first else tensor, last_hidden


CATCH = """
#include <atomic>
#include <exception>

namespace {
// The first exception in a parallel region: none may leave it.
class Caught {
 public:
  bool any() const { return any_.load(std::memory_order_relaxed); }
  void add() noexcept { if (!any_.exchange(true)) error_ = std::current_exception(); }
  void rethrow() const { if (error_) std::rethrow_exception(error_); }
 private:
  std::atomic<bool> any_{false};
  std::exception_ptr error_;
};
}  // namespace
"""


def with_errors_caught(code):
    """Rethrows the errors of index checks after a parallel region, since leaving it by an exception ends the program: a token beyond
    the vocabulary is then an error of its batch."""
    lines, result, ends, regions, region_end, loops = code.splitlines(), [], {}, 0, 0, 0
    margin = lambda line: line[: len(line) - len(line.lstrip())]
    end_of = lambda begin: next(place for place in range(begin, len(lines)) if lines[place] == margin(lines[begin]) + "}")
    for place, line in enumerate(lines):
        text = line.strip()
        if text.startswith("#pragma omp parallel") and any("_CHECK(" in each for each in lines[place : end_of(place + 1)]):
            regions, region_end = regions + 1, end_of(place + 1)
            result.append(f"{margin(line)}Caught caught{regions};")
            ends[region_end] = f"}} caught{regions}.rethrow();"
        elif text.startswith("#pragma omp for") and place < region_end:
            loops = int((re.search(r"collapse\((\d+)\)", text) or [0, 1])[1])
        elif loops and text.startswith("for("):
            loops -= 1
            if not loops:  # later loops mustn't use what an earlier one found invalid
                ends[end_of(place + 1)] = f"}} catch (...) {{ caught{regions}.add(); }} }}"
                lines[place + 1] += f" if (!caught{regions}.any()) try {{"
        result.append(margin(line) + ends[place] if place in ends else lines[place])
    return CATCH + "\n".join(result) + "\n" if regions else code


@contextlib.contextmanager
def adapted_compiler(path):
    """Adapts TorchInductor: no paths of this machine and no symbols in the library, sizes that stay free where it would only choose a
    way to sum or to convolve, errors that can be caught, gradients that are the same in each run, and dropout in recurrent layers."""
    from torch._inductor import cpp_builder
    from torch._inductor.codecache import AotCodeCompiler
    from torch._inductor.codegen.cpp import CppKernel
    from torch._inductor.decomposition import decompositions
    from torch._inductor.lowering import lowerings, make_fallback

    flags, finish, convolution = cpp_builder._get_optimization_cflags, AotCodeCompiler.compile, torch._C._select_conv_backend

    def convolution_of_example(tensor, weight, **named):
        hints = lambda sizes: [size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes]
        example = torch.empty_strided(hints(tensor.shape), hints(tensor.stride()), dtype=tensor.dtype, device=tensor.device)
        return convolution(example, weight, **named)

    def with_caught(graph, wrapper_code, kernel_code, operators, **named):
        if operators:
            path.with_suffix(".json").write_text(operators)  # where the runner looks for it
        return finish(graph, wrapper_code, with_errors_caught(kernel_code), operators, **named)

    def with_flags(*arguments, **named):
        compiling, linking = flags(*arguments, **named)
        paths = [(pathlib.Path(torch.__file__).parent, "torch"), (path.parent.parent.resolve(), ".")]
        return [*compiling, *(f"ffile-prefix-map={path}={name}" for path, name in paths)], [*linking, "Wl,-s"]

    with (
        mock.patch.object(cpp_builder, "_get_optimization_cflags", with_flags),
        mock.patch.object(AotCodeCompiler, "compile", with_caught),
        mock.patch.object(torch._C, "_select_conv_backend", convolution_of_example),
        mock.patch.object(CppKernel, "need_use_acc_helper", sums_in_chunks),
        mock.patch.object(torch._decomp.decompositions, "_rnn_helper", functools.partial(recurrent_layers, torch._decomp.decompositions._rnn_helper)),
        mock.patch.dict(decompositions),
        mock.patch.dict(lowerings),
    ):
        # If decomposed, threads would sum an embedding's gradient in an order that changes from run to run.
        del decompositions[torch.ops.aten.embedding_dense_backward.default]
        make_fallback(torch.ops.aten.embedding_dense_backward, warn=False)  # where CI is set, an implicit fallback is an error
        yield


def native_code(step, device, autocast, keys, folder):
    """Compiles the step. Returns (its library, the JSON of its operators or None, its description)."""
    from torch._export.utils import _compiling_state_context
    from torch._inductor.compile_fx import compile_fx_aot

    learned = []
    for attempt in range(3):
        sizes = Sizes(step, keys, learned)
        path = folder / f"{'any' if keys else 'fixed'}{attempt}" / "step.so"
        path.parent.mkdir()
        with adapted_compiler(path):
            module, indices, gives = joint_graph(step, sizes, autocast)
            spec = described(step, sizes, indices, gives)
            examples = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
            with torch.no_grad(), _compiling_state_context():
                compile_fx_aot(module, examples, config_patches=options(device, path, json.dumps(spec)))
        if described(step, sizes, indices, gives) == spec:
            operators = path.with_suffix(".json")
            return path, operators if operators.exists() else None, spec
        learned = [guard.expr for guard in sizes.env.guards]  # the compiler assumed more about the sizes than tracing did
    raise CannotCompile("the compiler's assumptions about the sizes didn't settle after 3 attempts")


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
    """Compares the compiled step with the exported graph on the example batch, and on one with more rows if their number varies.
    Raises CannotCompile if they differ."""
    runners = torch._C._aoti
    runner = runners.AOTIModelContainerRunnerCuda(str(library), 1, device) if device == "cuda" else runners.AOTIModelContainerRunnerCpu(str(library), 1)
    tensors = [tensor.detach() for _, _, tensor, _ in step.takes]
    verify_batch(step, autocast, runner, spec, tensors)
    sizes = {each["name"]: each["sizes"] for each in spec["inputs"] if each["kind"] == "input"}
    symbols = {names[0] for names in sizes.values() if names} & set(spec["sizes"])
    for index, (kind, name, *_) in enumerate(step.takes):
        for dimension, symbol in enumerate(sizes[name] if kind == "input" else ()):
            if symbol in symbols:
                most = spec["sizes"][symbol][1]
                size = tensors[index].shape[dimension]
                rows = torch.arange(min(size + 16, most or size + 16), device=device) % size
                tensors[index] = tensors[index].index_select(dimension, rows)
    if symbols:
        verify_batch(step, autocast, runner, spec, tensors)


def results_of_graph(step, autocast, given):
    torch.manual_seed(0)
    loss, others, buffers = step.forward(given, autocast)
    names = [name for _, name, *_ in step.takes]
    parameters = [index for index, tensor in enumerate(given) if tensor.requires_grad]
    gradients = torch.autograd.grad(loss, [given[index] for index in parameters], allow_unused=True)
    results = {("loss", step.loss): loss, **{("output", place): value for place, value in others.items()}}
    results |= {("buffer", names[index]): value for index, value in buffers.items()}
    return results | {("gradient", names[index]): value for index, value in zip(parameters, gradients) if value is not None}


def changes_by_rounding(step, autocast, given, expected):
    """The largest change of each of the graph's results if its inputs change by about a millionth, as by rounding: that is enough to flip
    the choices of ReLU and max pooling."""
    generator = torch.Generator().manual_seed(0)
    changed = lambda tensor: tensor.detach() * (1 + 1e-6 * torch.randn(tensor.shape, generator=generator).to(tensor))
    changes = dict.fromkeys(expected, 0.0)
    for _ in range(3):
        near = [changed(tensor).requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor for tensor in given]
        for what, value in results_of_graph(step, autocast, near).items():
            changes[what] = max(changes[what], distance(value, expected[what]))
    return changes


def verify_batch(step, autocast, runner, spec, tensors):
    given = [tensor.requires_grad_(original.requires_grad) if kind == "parameter" else tensor for tensor, (kind, _, original, _) in zip(tensors, step.takes)]
    index_of = {(kind, name): index for index, (kind, name, *_) in enumerate(step.takes)}
    scale = torch.ones((), device=tensors[0].device)
    torch.manual_seed(0)
    results = runner.run([scale if each["kind"] == "scale" else given[index_of[each["kind"], each["name"]]].detach() for each in spec["inputs"]])
    expected = results_of_graph(step, autocast, given)
    missing, changes = set(expected), None
    largest = max((norm(value) for (kind, _), value in expected.items() if kind == "gradient"), default=0)
    is_coarse = autocast or any(tensor.dtype in (torch.bfloat16, torch.float16) for tensor in given)
    for what, result in zip(spec["outputs"], results, strict=True):
        kind, name = what["kind"], what.get("name", what.get("index"))
        right = expected.get((kind, name))
        missing.discard((kind, name))
        if right is None or result.shape != right.shape or result.dtype != right.dtype or not result.is_contiguous():
            raise CannotCompile(f"the compiled {kind} {name} differs from the graph's in shape, dtype or layout")
        allowed = (0.1 if is_coarse else 1e-3) * max(norm(right), 0.01 * largest if kind == "gradient" else 1e-3)
        difference = distance(result, right)
        if difference <= allowed or not right.isfinite().all():
            continue
        changes = changes or changes_by_rounding(step, autocast, given, expected)
        if not difference <= 10 * changes[kind, name]:
            raise CannotCompile(f"the compiled {kind} {name} differs by {difference:.2g} from the graph's, whose norm is {norm(right):.2g}")
    for kind, name in expected:
        if (kind, name) in missing and kind != "buffer":
            raise CannotCompile(f"the compiled step lacks {name}")


def distance(one, other):
    return norm(one.detach().double() - other.detach().double())


def norm(tensor):
    return float(tensor.detach().double().norm())


def processor(device):
    """The machine type, instruction sets and compute capability that the code needs."""
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
    if device == "cuda" and not torch.cuda.is_available():
        raise CannotCompile("this torch finds no GPU")
    if device == "cuda":
        program = torch.export.passes.move_to_device_pass(copy.deepcopy(program), device)
        inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
    step = Step(program, inputs)
    entries, graphs = {}, []
    for kind in (None, autocast) if autocast else (None,):
        begin, number = time.monotonic(), len(graphs)
        try:
            with tempfile.TemporaryDirectory() as folder, quiet(), fresh_cache(dir=folder):
                library, operators, spec, failure = any_sizes(step, device, kind, fixed_sizes, pathlib.Path(folder))
                verify(step, device, kind, library, spec)
                entries[f"compiled/{number}.so"] = library.read_bytes()
                if operators:
                    entries[f"compiled/{number}.json"] = operators.read_bytes()
        except Exception as error:
            if not graphs:
                raise
            note(f"the training step can't be compiled under autocast: {first_line(error)}")
            continue
        graphs.append(
            {
                "library": f"{number}.so",
                "operators": f"{number}.json" if operators else None,
                "torch": torch.__version__.partition("+")[0],
                "device": device,
                "autocast": kind,
                "processor": processor(device),
            }
        )
        note(f"compiled the training step{' under autocast' if kind else ''} in {time.monotonic() - begin:.0f} s: {in_words(spec)}")
        if failure:
            note(f"its sizes are fixed, since varying ones failed: {failure}")
    entries["compiled/manifest.json"] = json.dumps({"format": 1, "graphs": graphs}).encode()
    return entries


def first_line(error):
    return str(error).strip().partition("\n")[0] or type(error).__name__


def any_sizes(step, device, autocast, fixed_sizes, folder):
    """The native code, with varying sizes if possible, and otherwise why they are fixed."""
    failure = None
    if not fixed_sizes and symbols_of(step):
        try:
            return *native_code(step, device, autocast, equal_sizes(step), folder), None
        except Exception as error:
            failure = first_line(error)
    return *native_code(step, device, autocast, None, folder), failure


def in_words(spec):
    """The inputs of a compiled step and their sizes."""
    inputs = (f"{each['name']} [{', '.join(map(str, each['sizes']))}]" for each in spec["inputs"] if each["kind"] == "input")
    ranges = (f"{name} at least {least}" if most is None else f"{name} from {least} to {most}" for name, (least, most) in spec["sizes"].items())
    return ", ".join([*inputs, *ranges])
