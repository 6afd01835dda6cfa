#!/usr/bin/env python3
"""Measures the cost of compiling a trainer: the compiler's seconds and peak memory, and the size of the program, for 0 to 50
callbacks, with etude::etude and also with the precompiled header of etude::pch. Compares it with a file that only includes
torch/torch.h and with a handwritten loop. Also measures what a command line adds, and what the libraries themselves cost.

The compiler and its flags come from a build folder's compile_commands.json, or from --compiler and the words after "--".
Writes compile.md and compile.json. Seconds are the compiler's user seconds, the least of several rounds in which all files
take turns, without ccache.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

TORCH = "#include <torch/torch.h>\n"
BY_HAND = """#include <torch/torch.h>

namespace {
struct NetImpl : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 2));
  torch::Tensor forward(torch::Tensor x) { return layer(x); }
};
TORCH_MODULE(Net);
}  // namespace

int main() {
  const auto inputs = torch::randn({64, 4});
  auto batches = torch::data::make_data_loader(
      torch::data::datasets::TensorDataset(inputs).map(torch::data::transforms::Stack<torch::data::TensorExample>()), 8);
  Net net;
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
  for (auto& batch : *batches) {
    optimizer.zero_grad();
    auto loss = torch::nn::functional::mse_loss(net(batch.data), batch.data.narrow(1, 0, 2));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
  }
}
"""
HANDLER = """#include <etude/dispatch/callback_handler.hpp>

struct Step { int loss; int& request; };
struct Begin { int most; };
struct End {};

struct Sum {
  void on(const Step& e) { total += e.loss; }
  int total = 0;
};
struct Count {
  void on(const Begin&) { steps = 0; }
  void on(const Step&) { ++steps; }
  int steps = 0;
};
struct Largest {
  void on(const Step& e) { if (e.loss > largest) largest = e.loss; }
  int largest = 0;
};
struct Ask {
  void on(const Step& e) { if (e.loss > 3) e.request = 1; }
  void on(const End&) { asked = true; }
  bool asked = false;
};

int main() {
  etude::CallbackHandler<Sum, Count, Largest, Ask> callbacks{{}, {}, {}, {}};
  int request = 0;
  callbacks.call_event(Begin{10});
  for (int i = 0; i < 10; ++i) callbacks.call_event(Step{i, request});
  callbacks.call_event(End{});
  return request;
}
"""
# Five typical callbacks; each copy in the list gets a different name.
CALLBACKS = [
    """  void on(const etude::TrainBegin& e) { most = e.state.max_steps; }
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 100) e.control.should_evaluate = true;
  }
  std::int64_t most = 0;""",
    """  void on(const etude::Log& e) {
    if (const auto found = e.logs.find("loss"); found != e.logs.end()) last = found->second;
  }
  void on(const etude::StepEnd&) { ++steps; }
  void on(const etude::TrainEnd& e) {
    if (steps > e.state.max_steps) e.control.request_stop("too many steps");
  }
  double last = 0;
  std::int64_t steps = 0;""",
    """  void on(const etude::EpochBegin& e) { begun = e.state.epoch; }
  void on(const etude::EpochEnd& e) {
    if (e.state.epoch - begun > 0.5) e.control.should_save = true;
  }
  double begun = 0;""",
    """  void on(const etude::Evaluate& e) {
    if (e.metrics.contains("eval_loss") && e.metrics.at("eval_loss") < best) best = e.metrics.at("eval_loss");
  }
  void on(const etude::StepEnd& e) {
    if (e.state.global_step % 7 == 0) e.log("best", best);
  }
  double best = 1e9;""",
    """  void on(const etude::BackwardEnd& e) { e.log("inputs", static_cast<double>(e.batch.inputs.size())); }
  void on(const etude::Save&) { ++saved; }
  void on(const etude::PredictionStep&) { ++predicted; }
  int saved = 0, predicted = 0;""",
]


COMMAND_LINE = """#include <etude/etude.hpp>

int main(int argc, char** argv) {
  const auto args = etude::parse_arguments<etude::TrainingArguments>(argc, argv);
  return static_cast<int>(args.seed);
}
"""


def trainer(count):
    structs = "".join(f"struct Callback{i} {{\n{CALLBACKS[i % len(CALLBACKS)]}\n}};\n" for i in range(count))
    names = ", ".join(f"Callback{i}" for i in range(count))
    return f"""#include <cstdint>
#include <etude/etude.hpp>

namespace {{
{structs}struct NetImpl : torch::nn::Module {{
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 2));
  torch::Tensor forward(torch::Tensor x) {{ return layer(x); }}
}};
TORCH_MODULE(Net);
}}  // namespace

int main() {{
  const auto inputs = torch::randn({{64, 4}}), labels = torch::randint(0, 2, {{64}});
  etude::Trainer<{names}> trainer({{.model = Net(),
                                    .args = {{.max_steps = 2}},
                                    .loss = torch::nn::CrossEntropyLoss(),
                                    .train_dataset = {{inputs, labels}},
                                    .eval_dataset = {{inputs, labels}}}});
  trainer.train();
  trainer.evaluate();
  trainer.predict({{inputs, labels}});
}}
"""


def command_of(build, file):
    """The compiler and flags for the file whose path ends with `file`."""
    entries = json.loads((build / "compile_commands.json").read_text())
    for entry in entries:
        if entry["file"].endswith(file):
            words = entry.get("arguments") or shlex.split(entry["command"])
            break
    else:
        sys.exit(f"{build}/compile_commands.json has no {file}: configure with -DETUDE_BUILD_BENCH=ON")
    # Launchers precede the compiler: "cmake -E env NAME=value ccache".
    first = next(i for i, word in enumerate(words) if word.startswith("-D") or word.startswith("-I")) - 1
    flags, skip = [], False
    for word in words[first + 1:]:
        if skip or word in ("-c", "-Werror", entry["file"]):
            skip = False
        elif word == "-o":
            skip = True
        else:
            flags.append(word)
    return words[first], flags


def run(command):
    """User seconds and peak resident MB of a command and its children."""
    process = subprocess.Popen(command, env={**os.environ, "CCACHE_DISABLE": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"failed: {shlex.join(command)}")
    per_mb = 2**20 if sys.platform == "darwin" else 2**10
    return usage.ru_utime, usage.ru_maxrss / per_mb


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build/release"), help="a build folder with the benchmarks")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="the folder for the results")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--callbacks", type=int, nargs="+", default=[0, 1, 10, 50])
    parser.add_argument("--compiler", help="instead of the build folder's; its flags follow --")
    parser.add_argument("flags", nargs="*")
    options = parser.parse_args()
    if options.compiler:
        compiler, flags = options.compiler, options.flags
    else:
        # The libraries' units may be older than the list of their sources.
        subprocess.run(["cmake", str(options.build), "--log-level=WARNING"], check=True, stdout=sys.stderr)
        compiler, flags = command_of(options.build, "bench/checkpoint.cpp")
    work = options.output / "compile"
    work.mkdir(parents=True, exist_ok=True)

    pch = work / "pch.hpp"
    pch.write_text("#include <torch/torch.h>\n\n#include \"etude/etude.hpp\"\n")
    is_clang = "clang" in subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    compiled_pch = pch.with_suffix(".hpp.pch" if is_clang else ".hpp.gch")
    use_pch = ["-include-pch", str(compiled_pch)] if is_clang else ["-include", str(pch)]

    cases = []  # name, key, source, more flags

    def add(name, key, text, more=()):
        source = work / f"{key}.cpp"
        source.write_text(text)
        cases.append((name, key, [compiler, *flags, *more, "-c", str(source), "-o", str(source.with_suffix(".o"))]))

    add("`#include <torch/torch.h>`", "torch", TORCH)
    add("a loop by hand", "by_hand", BY_HAND)
    add("`#include <etude/etude.hpp>`", "etude", "#include <etude/etude.hpp>\n")
    for count in options.callbacks:
        add(f"a Trainer, {count} callbacks", f"trainer_{count}", trainer(count))
    add("a command line of TrainingArguments", "command_line", COMMAND_LINE)
    for library in "etude_core", "etude", "etude_kernels":
        for unit in sorted(options.build.glob(f"CMakeFiles/{library}.dir/Unity/*.cxx")):
            key = f"{library}_{unit.stem}"
            own = flags if options.compiler else command_of(options.build, str(unit.relative_to(options.build)))[1]
            cases.append((f"the libraries: {key}", key, [compiler, *own, "-c", str(unit), "-o", str(work / f"{key}.o")]))
    cases.append(("the precompiled header itself", "pch",
                  [compiler, *flags, "-x", "c++-header", str(pch), "-o", str(compiled_pch)]))
    for count in options.callbacks:
        add(f"a Trainer, {count} callbacks, with etude::pch", f"trainer_{count}_pch", trainer(count), use_pch)
    add("the handler alone, 4 callbacks", "handler", HANDLER)

    seconds = {key: [] for _, key, _ in cases}
    memory = {key: 0.0 for _, key, _ in cases}
    for turn in range(options.rounds):
        for name, key, command in cases:
            took, most = run(command)
            seconds[key].append(took)
            memory[key] = max(memory[key], most)
            print(f"round {turn + 1}: {name}: {took:.2f} s, {most:.0f} MB", file=sys.stderr)

    results = []
    lines = ["| | seconds | of torch/torch.h | compiler's memory | program without libraries |", "|---|---|---|---|---|"]
    for name, key, _ in cases:
        least = min(seconds[key])
        ratio = least / min(seconds["torch"])
        size = None
        if key == "handler" or key.startswith("trainer"):
            program = work / key
            # Leaves out the contents of LibTorch's and Etude's libraries.
            subprocess.run([compiler, str(work / f"{key}.o"), "-s", "-Wl,--unresolved-symbols=ignore-all", "-o",
                            str(program)], check=True)
            size = program.stat().st_size
        results.append({"bench": "compile", "case": key, "seconds": least, "ratio": ratio,
                        "memory_mb": round(memory[key]), "program_bytes": size})
        lines.append(f"| {name} | {least:.1f} | {ratio:.2f} "
                     f"| {memory[key]:.0f} MB | {f'{size / 1e6:.2f} MB' if size else ''} |")
    lines.append(f"\n{Path(compiler).name}, {' '.join(flag for flag in flags if flag[:2] in ('-O', '-g', '-s'))}, "
                 f"{options.rounds} rounds.")
    (options.output / "compile.md").write_text("\n".join(lines) + "\n")
    (options.output / "compile.json").write_text(json.dumps(results, indent=2) + "\n")
    print("\n".join(lines))


main()
