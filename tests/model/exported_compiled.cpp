#include "etude/model/exported_compiled.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/mount.h>
#include <torch/torch.h>
#include <torch/version.h>
#include <zip.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/exported_model.hpp"
#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/variables.hpp"
#include "common/zip_bytes.hpp"
#include "etude/formats/pt2_archive.hpp"
#include "etude/formats/zip_archive.hpp"
#include "etude/model/load_exported.hpp"

namespace model_exported_compiled_test {

using etude::detail::CompiledInput;
using etude::detail::CompiledOutput;
using etude::detail::CompiledSpec;
using etude::detail::ExportedJson;
using etude::detail::Processor;
using toy::contains;
using toy::fault_of;
namespace x = toy::exported;
using Entries = std::vector<toy::ZipEntry>;
using Change = std::function<void(ExportedJson&)>;

/// A change that sets the value at a JSON pointer, or removes it if the value is empty.
Change set(const std::string& place, const std::string& value) {
  return [=](ExportedJson& json) {
    const ExportedJson::json_pointer pointer(place);
    auto& parent = json[pointer.parent_pointer()];
    if (!value.empty())
      json[pointer] = ExportedJson::parse(value);
    else if (parent.is_array())
      parent.erase(std::stoul(pointer.back()));
    else
      parent.erase(pointer.back());
  };
}

std::string changed(ExportedJson json, const Change& change) {
  if (change) change(json);
  return json.dump();
}

std::string here() { return etude::detail::this_processor().machine; }

/// A manifest with a graph that can run here if LibTorch is new enough.
std::string manifest(const Change& change = {}) {
  auto json = ExportedJson::parse(R"({"format": 1, "graphs": [{"library": "0.so", "operators": null,
      "device": "cpu", "autocast": null, "processor": {"machine": "", "features": []}}]})");
  json["graphs"][0]["torch"] = TORCH_VERSION;
  json["graphs"][0]["processor"]["machine"] = here();
  return changed(json, change);
}

TEST_CASE("a manifest lists graphs and their requirements") {
  const auto entries = etude::detail::read_compiled_manifest(R"({"format": 1, "graphs": [
      {"library": "0.so", "operators": null, "torch": "2.13.0", "device": "cpu", "autocast": null,
       "processor": {"machine": "x86_64", "features": ["avx2", "fma"]}},
      {"library": "1.so", "operators": "1.json", "torch": "2.13.1", "device": "cuda", "autocast": "bfloat16",
       "processor": {"machine": "aarch64", "features": [], "capability": "9.0"}}]})",
                                                             "m.pt2");
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].library == "0.so");
  CHECK(entries[0].operators.empty());
  CHECK(entries[0].torch == "2.13.0");
  CHECK((entries[0].device == torch::kCPU));
  CHECK_FALSE(entries[0].autocast.has_value());
  CHECK(entries[0].processor.machine == "x86_64");
  CHECK(entries[0].processor.features == std::set<std::string, std::less<>>{"avx2", "fma"});
  CHECK(entries[1].operators == "1.json");
  CHECK((entries[1].device == torch::kCUDA));
  CHECK((entries[1].autocast == torch::kBFloat16));
  CHECK(entries[1].capability == "9.0");
}

TEST_CASE("an error in a manifest names the place") {
  const auto fault = [](const std::string& place, const std::string& value) {
    return fault_of([&] { etude::detail::read_compiled_manifest(manifest(set(place, value)), "m.pt2"); });
  };
  CHECK(fault_of([] {
          etude::detail::read_compiled_manifest("[", "m.pt2");
        }).starts_with("m.pt2: it isn't JSON"));
  CHECK(fault("/format", "2") == "m.pt2: format is 2: only 1 can be read");
  CHECK(fault("/format", "\"1\"") == "m.pt2: it isn't an integer of 64 bits");
  CHECK(fault("/graphs", "{}") == "m.pt2: it isn't a list");
  CHECK(fault("/graphs/0", "3") == "m.pt2: graph 0: it isn't an object with library");
  for (const std::string name : {"library", "operators", "torch", "device", "autocast", "processor"})
    CHECK(fault("/graphs/0/" + name, "") == "m.pt2: graph 0: it has no " + name);
  for (const std::string name : {"library", "torch", "device", "autocast", "operators"})
    CHECK(fault("/graphs/0/" + name, "1") == "m.pt2: graph 0: it isn't a string");
  for (const std::string name : {"/etc/x.so", "../0.so", "a/0.so", "", "..", "x\\u0000"})
    for (const std::string member : {"library", "operators"})
      CHECK(
          contains(fault("/graphs/0/" + member, '"' + name + '"'), "isn't the name of a file in compiled/"));
  CHECK(fault("/graphs/0/device", "\"xpu\"") == "m.pt2: graph 0: device is 'xpu': must be cpu or cuda");
  CHECK(fault("/graphs/0/device", "\"cuda\"") == "m.pt2: graph 0: it has no capability");
  for (const std::string dtype : {"int64", "float16"})
    CHECK(fault("/graphs/0/autocast", '"' + dtype + '"') ==
          "m.pt2: graph 0: autocast is " + dtype + ": must be null or bfloat16");
  CHECK(fault("/graphs/0/autocast", "\"half\"") == "m.pt2: graph 0: 'half' isn't a dtype");
  CHECK(fault("/graphs/0/processor/machine", "null") == "m.pt2: graph 0: it isn't a string");
  CHECK(fault("/graphs/0/processor/features", "\"avx\"") == "m.pt2: graph 0: it isn't a list");
  CHECK(fault("/graphs/0/processor/features", "[1]") == "m.pt2: graph 0: it isn't a string");
}

TEST_CASE("the features of a processor are read from /proc/cpuinfo") {
  using Features = std::set<std::string, std::less<>>;
  CHECK(etude::detail::processor_features("processor\t: 0\nflags\t\t: fpu avx2  fma\nbugs\t\t: x\n\n"
                                          "processor\t: 1\nflags\t\t: fpu other\n") ==
        Features{"fpu", "avx2", "fma"});
  CHECK(etude::detail::processor_features("Features\t: fp asimd sve") == Features{"fp", "asimd", "sve"});
  CHECK(etude::detail::processor_features("flags").empty());
  CHECK(etude::detail::processor_features("flags\t:\nflags: late").empty());
  CHECK(etude::detail::processor_features("").empty());
  CHECK_FALSE(here().empty());
#ifdef __x86_64__
  CHECK(here() == "x86_64");
  CHECK(etude::detail::this_processor().features.contains("sse2"));  // every x86_64 has it
#endif
}

TEST_CASE(
    "a graph that needs another LibTorch, machine, processor or GPU isn't run, and the reason is given") {
  const Processor processor{"x86_64", {"sse2", "avx2"}};
  const auto unmet = [&](etude::detail::CompiledEntry entry, const std::string& capability = "") {
    return etude::detail::unmet_requirement(entry, "2.13.0", processor, capability);
  };
  const etude::detail::CompiledEntry entry{
      .library = "0.so", .torch = "2.13.0", .processor = {"x86_64", {"avx2"}}, .capability = "9.0"};
  CHECK(unmet(entry).empty());
  for (const std::string version : {"2.13.1", "2.13.0+cpu", "2.13"}) {
    auto other = entry;
    other.torch = version;
    CHECK(unmet(other).empty());
  }
  for (const std::string version : {"2.12.0", "2.14.0", "2.1", "2.131.0", "3.13.0", "13", "2.", "", "x\n"}) {
    auto other = entry;
    other.torch = version;
    CHECK(contains(unmet(other), "the graph was compiled for LibTorch "));
    CHECK(contains(unmet(other), ", but this is 2.13.0"));
  }
  auto other = entry;
  other.processor.machine = "aarch64";
  CHECK(unmet(other) == "the graph was compiled for aarch64, but this machine is x86_64");
  other = entry;
  other.processor.features = {"amx_tile", "avx2", "avx512f"};
  CHECK(unmet(other) ==
        "the graph was compiled for a processor with amx_tile, avx512f, which this one lacks");
  CHECK(unmet(entry, "9.0").empty());
  CHECK(unmet(entry, "8.0") ==
        "the graph was compiled for GPUs of compute capability 9.0, but this one has 8.0");
}

/// A graph with a parameter, a frozen one, a buffer, a constant and two inputs.
ExportedJson spec_json() {
  return ExportedJson::parse(R"({
      "inputs": [{"kind": "parameter", "name": "w", "dtype": "float32", "sizes": [2, 3]},
                 {"kind": "parameter", "name": "frozen", "dtype": "float32", "sizes": [3]},
                 {"kind": "buffer", "name": "count", "dtype": "int64", "sizes": []},
                 {"kind": "constant", "name": "c", "dtype": "float64", "sizes": [1]},
                 {"kind": "input", "name": "x", "dtype": "float32", "sizes": ["s0", 3]},
                 {"kind": "input", "name": "labels", "dtype": "int64", "sizes": ["s0", "s1"]},
                 {"kind": "scale", "name": "scale", "dtype": "float32", "sizes": []}],
      "outputs": [{"kind": "loss", "index": 1}, {"kind": "output", "index": 0}, {"kind": "buffer", "name": "count"},
                  {"kind": "gradient", "name": "w"}],
      "sizes": {"s0": [2, 8], "s1": [1, null]}, "unused": []})");
}

CompiledSpec spec(const Change& change = {}) {
  return etude::detail::read_compiled_spec(changed(spec_json(), change), "0.so");
}

TEST_CASE("a spec says which tensors a graph takes and returns") {
  const auto read = spec();
  REQUIRE(read.inputs.size() == 7);
  CHECK((read.inputs[0].kind == CompiledInput::Kind::parameter));
  CHECK(read.inputs[0].name == "w");
  CHECK(read.inputs[0].trains);
  CHECK_FALSE(read.inputs[1].trains);
  CHECK((read.inputs[2].dtype == torch::kLong));
  CHECK(read.inputs[2].sizes.empty());
  CHECK((read.inputs[3].kind == CompiledInput::Kind::constant));
  CHECK(read.inputs[4].sizes[0].fixed == -1);
  CHECK(read.symbols[read.inputs[4].sizes[0].symbol].name == "s0");
  CHECK(read.inputs[4].sizes[1].fixed == 3);
  CHECK(read.scale == 6);
  REQUIRE(read.symbols.size() == 2);
  CHECK(read.symbols[0].least == 2);
  CHECK(read.symbols[0].most == 8);
  CHECK_FALSE(read.symbols[1].most.has_value());
  REQUIRE(read.outputs.size() == 4);
  CHECK((read.outputs[0].kind == CompiledOutput::Kind::loss));
  CHECK(read.outputs[0].index == 1);
  CHECK((read.outputs[2].kind == CompiledOutput::Kind::buffer));
  CHECK(read.outputs[2].name == "count");
  CHECK((read.outputs[3].kind == CompiledOutput::Kind::gradient));
  CHECK(read.outputs[3].source == 0);
  CHECK(spec(set("/unused", R"(["frozen"])")).inputs[1].trains);
  const auto with_spare = spec(set("/unused", R"(["spare", "frozen"])"));  // the graph doesn't take spare
  CHECK(with_spare.inputs.size() == 7);
  CHECK(with_spare.inputs[1].trains);
}

TEST_CASE("an error in a spec names the place") {
  const auto fault = [](const std::string& place, const std::string& value) {
    return fault_of([&] { spec(set(place, value)); });
  };
  CHECK(fault_of([] { etude::detail::read_compiled_spec("", "0.so"); }).starts_with("0.so: it isn't JSON"));
  for (const std::string name : {"inputs", "outputs", "sizes", "unused"})
    CHECK(fault("/" + name, "") == "0.so: it has no " + name);
  CHECK(fault("/inputs", "{}") == "0.so: it isn't a list");
  CHECK(fault("/inputs/0/kind", "\"weight\"") ==
        "0.so: input 0: kind is 'weight': must be one of parameter, buffer, constant, input, scale");
  CHECK(fault("/inputs/0/kind", "1") == "0.so: input 0: it isn't a string");
  CHECK(fault("/inputs/0/name", "") == "0.so: input 0: it has no name");
  CHECK(fault("/inputs/0/dtype", "\"float\"") == "0.so: input 0: 'float' isn't a dtype");
  CHECK(fault("/inputs/0/sizes/0", "-1") == "0.so: input 0: a size is -1");
  CHECK(fault("/inputs/0/sizes/0", "1.5") == "0.so: input 0: it isn't an integer of 64 bits");
  CHECK(fault("/inputs/0/sizes/0", "\"s9\"") == "0.so: input 0: sizes has no 's9'");
  CHECK(fault("/inputs/1/name", "\"w\"") == "0.so: input 1: it takes parameter 'w' twice");
  CHECK(fault("/inputs/6", "") == "0.so: it takes 0 scales of the loss: must be one");
  CHECK(fault("/inputs/6/dtype", "\"float64\"") ==
        "0.so: input 6: the scale of the loss must be a single float32");
  CHECK(fault("/inputs/6/sizes", "[1]") == "0.so: input 6: the scale of the loss must be a single float32");
  CHECK(fault("/inputs/7", R"({"kind": "scale", "name": "more", "dtype": "float32", "sizes": []})") ==
        "0.so: it takes 2 scales of the loss: must be one");
  CHECK(fault("/outputs/0/kind", "\"x\"") ==
        "0.so: output 0: kind is 'x': must be one of loss, output, buffer, gradient");
  CHECK(fault("/outputs/0", "") == "0.so: it returns 0 losses: must be one");
  CHECK(fault("/outputs/1/kind", "\"loss\"") == "0.so: it returns 2 losses: must be one");
  CHECK(fault("/outputs/1/index", "1") == "0.so: output 1: it returns the same as another output");
  CHECK(fault("/outputs/1/index", "-1") == "0.so: output 1: index is -1");
  CHECK(fault("/outputs/1/index", "") == "0.so: output 1: it has no index");
  CHECK(fault("/outputs/3/name", "\"other\"") == "0.so: output 3: it takes no parameter 'other'");
  CHECK(fault("/outputs/3/name", "\"count\"") == "0.so: output 3: it takes no parameter 'count'");
  CHECK(fault("/outputs/4", R"({"kind": "gradient", "name": "w"})") ==
        "0.so: output 4: parameter 'w' is listed twice");
  CHECK(fault("/outputs/4", R"({"kind": "buffer", "name": "count"})") ==
        "0.so: output 4: it returns the same as another output");
  CHECK(fault("/unused", R"(["w"])") == "0.so: parameter 'w' is listed twice");
  CHECK(fault("/unused", "[1]") == "0.so: it isn't a string");
  CHECK(fault("/sizes", "[]") == "0.so: sizes isn't an object");
  CHECK(fault("/sizes/s0", "[1]") == "0.so: size 's0': it isn't a pair of limits");
  CHECK(fault("/sizes/s0", "[null, 1]") == "0.so: size 's0': it isn't an integer of 64 bits");
  CHECK(fault("/sizes/s0", "[3, 2]") == "0.so: size 's0': its limits are [3,2]");
  CHECK(fault("/sizes/s0", "[-1, 2]") == "0.so: size 's0': its limits are [-1,2]");
}

/// Tensors that the graph of `spec` takes.
std::vector<torch::Tensor> tensors() {
  return {torch::zeros({2, 3}, torch::requires_grad()),
          torch::zeros({3}),
          torch::zeros({}, torch::kLong),
          torch::zeros({1}, torch::kDouble),
          torch::zeros({4, 3}),
          torch::zeros({4, 5}, torch::kLong),
          {}};
}

TEST_CASE("without a batch, only the model's tensors are checked") {
  auto all = tensors();
  all[4] = all[5] = torch::Tensor();
  CHECK(spec().why_not(all, torch::kCPU, /*with_batch=*/false).empty());
  all[0] = torch::zeros({2, 3});
  CHECK(contains(spec().why_not(all, torch::kCPU, /*with_batch=*/false),
                 "parameter 'w' was trained when the graph was compiled, but is frozen now"));
}

TEST_CASE("a batch or a model that differs from the compiled one is refused, and the reason is given") {
  const auto why_not = [](std::size_t index, const torch::Tensor& tensor) {
    auto all = tensors();
    all[index] = tensor;
    return spec().why_not(all, torch::kCPU);
  };
  CHECK(spec().why_not(tensors(), torch::kCPU).empty());
  CHECK(why_not(0, torch::zeros({2, 3})) ==
        "parameter 'w' was trained when the graph was compiled, but is frozen now: export fixes which "
        "parameters are frozen");
  CHECK(contains(why_not(1, torch::zeros({3}, torch::requires_grad())),
                 "parameter 'frozen' was frozen when the graph was compiled, but is trained now"));
  CHECK(why_not(0, torch::zeros({2, 3}, torch::kDouble)) ==
        "parameter 'w' is float64, but was float32 when the graph was compiled");
  CHECK(why_not(0, torch::zeros({3, 3})) ==
        "parameter 'w' has size 3 in dimension 0: the graph was compiled for 2");
  CHECK(why_not(0, torch::zeros({2, 3, 1})) ==
        "parameter 'w' has 3 dimensions: the graph was compiled for 2");
  CHECK(why_not(0, torch::zeros({3, 2}).t().requires_grad_()) == "parameter 'w' isn't contiguous");
  CHECK(why_not(0, torch::zeros({2, 3}).to_sparse()) == "parameter 'w' isn't a dense tensor");
  CHECK(contains(why_not(2, torch::zeros({}, torch::kInt)), "buffer 'count' is int32"));
  CHECK(contains(why_not(3, torch::zeros({1})), "constant 'c' is float32"));
  CHECK(why_not(4, {}) == "the batch has no x");
  CHECK(why_not(4, torch::zeros({3, 4}).t()).empty());  // made contiguous by the caller
  CHECK(why_not(4, torch::zeros({9, 3})) ==
        "input 'x' has size 9 in dimension 0: the graph was compiled for 2 to 8");
  CHECK(why_not(4, torch::zeros({1, 3})) ==
        "input 'x' has size 1 in dimension 0: the graph was compiled for 2 to 8");
  CHECK(why_not(5, torch::zeros({3, 5}, torch::kLong)) ==
        "input 'labels' has size 3 in dimension 0: the graph was compiled for equal sizes, but another is 4");
  CHECK(why_not(5, torch::zeros({4, 0}, torch::kLong)) ==
        "input 'labels' has size 0 in dimension 1: the graph was compiled for at least 1");
  CHECK(why_not(5, torch::zeros({4, 500}, torch::kLong)).empty());
  CHECK(why_not(4, torch::zeros({4, 3}, torch::requires_grad())) ==
        "input 'x' requires a gradient, which the graph doesn't compute");
  CHECK(why_not(4, torch::zeros({4, 3}, torch::kMeta)) == "input 'x' is on meta, but the model is on cpu");
}

/// The program of `spec`: its outputs are y, in Python the second leaf, and the loss, the third.
x::Model model() {
  return {.inputs = {x::parameter("w"), x::parameter("frozen", false), x::buffer("count"), x::constant("c"),
                     x::batch("x", {"s0", "3"}), x::batch("labels", {"s0", "s1"}, x::int64)},
          .nodes = {x::call("aten.mul.Tensor", {{"self", x::tensor("x")}, {"other", x::tensor("p_frozen")}},
                            {x::tensor("y")}),
                    x::call("aten.sum.default", {{"self", x::tensor("y")}}, {x::tensor("loss")})},
          .outputs = {{"y", "y"}, {"loss", "loss"}}};
}

TEST_CASE("a spec that names tensors that the model lacks is refused") {
  const auto program = etude::detail::read_program(model().json(), "m.pt2");
  const auto fault = [&](const Change& change) {
    return fault_of([&] { etude::detail::check_compiled_spec(spec(change), program, "0.so"); });
  };
  etude::detail::check_compiled_spec(spec(), program, "0.so");
  CHECK(fault(set("/inputs/1/name", "\"other\"")) == "0.so: the model has no parameter 'other'");
  CHECK(fault(set("/inputs/2/kind", "\"constant\"")) == "0.so: the model has no constant 'count'");
  CHECK(fault(set("/inputs/3/kind", "\"buffer\"")) == "0.so: the model has no buffer 'c'");
  CHECK(fault(set("/inputs/4/name", "\"pixels\"")) == "0.so: the model has no input 'pixels'");
  CHECK(fault(set("/outputs/0/index", "2")) == "0.so: the model has no tensor as its output 2");
  CHECK(fault(set("/outputs/2/name", "\"w\"")) == "0.so: the model has no buffer 'w'");
}

TEST_CASE("a spec that lacks an output or a changed buffer of the model is refused") {
  auto given = model();
  const auto fault = [&](const Change& change) {
    const auto program = etude::detail::read_program(given.json(), "m.pt2");
    return fault_of([&] { etude::detail::check_compiled_spec(spec(change), program, "0.so"); });
  };
  CHECK(fault(set("/outputs/1", "")) == "0.so: it doesn't return output 0 of the model");
  const auto no_count = set("/outputs/2", "");
  const std::string is_complete = "nothing was thrown",
                    lacks_count = "0.so: it doesn't return buffer 'count', which the model changes";
  SUBCASE("by an operator in place") {
    given.nodes.push_back(x::call("aten.add_.Tensor",
                                  {{"self", x::tensor("b_count")}, {"other", x::integer(1)}},
                                  {x::tensor("one_more")}));
  }
  SUBCASE("through a view") {
    given.nodes.push_back(x::call("aten.view.default",
                                  {{"self", x::tensor("b_count")}, {"size", x::integers({1})}},
                                  {x::tensor("flat")}));
    given.nodes.push_back(x::call("aten.zero_.default", {{"self", x::tensor("flat")}}, {x::tensor("none")}));
  }
  SUBCASE("by an output of the graph") {
    given.nodes.push_back(x::call("aten.add.Tensor",
                                  {{"self", x::tensor("b_count")}, {"other", x::integer(1)}},
                                  {x::tensor("one_more")}));
    given.mutations = {{"count", "one_more"}};
  }
  CHECK(fault({}) == is_complete);
  CHECK(fault(no_count) == (given.nodes.size() == model().nodes.size() ? is_complete : lacks_count));
}

TEST_CASE("a truncated library, or a file of another kind, is refused before it is loaded") {
  const auto fault = [](const std::string& bytes) {
    return fault_of([&] { etude::detail::check_library(bytes, "0.so"); });
  };
  Dl_info info{};
  REQUIRE(::dladdr(reinterpret_cast<void*>(&zip_close), &info) != 0);
  const auto library = toy::read_text(info.dli_fname);
  REQUIRE(library.size() > 4096);
  etude::detail::check_library(library, "0.so");
  CHECK(fault("") == "0.so: it isn't a shared library");
  CHECK(fault("#!/bin/sh") == "0.so: it isn't a shared library");
  CHECK(fault(library.substr(0, 60)) == "0.so: it is truncated: it has 60 bytes");
  CHECK(fault(library.substr(0, 70)) == "0.so: it is truncated: it has 70 bytes");
  CHECK(fault(library.substr(0, 4096)) == "0.so: it is truncated: it has 4096 bytes");
  auto small = library;
  small[4] = 1;  // EI_CLASS: 32 bits
  CHECK(fault(small) == "0.so: it isn't a 64-bit shared library");
  auto far = library;
  far.replace(32, 8, 8, '\xff');  // e_phoff
  CHECK(contains(fault(far), "it is truncated"));
}

/// A file with the graph of `model` and these entries in compiled/.
Entries file(const Entries& compiled) {
  const auto config = [](const std::string& name, const std::string& path, int dtype,
                         const std::string& sizes, const std::string& strides) {
    return fmt::format(
        R"("{}": {{"path_name": "{}", "is_param": true, "use_pickle": false, "tensor_meta": {{"dtype": {}, "sizes": [{}], "strides": [{}], "storage_offset": {{"as_int": 0}}}}}})",
        name, path, dtype, sizes, strides);
  };
  const auto one = [](int size) { return fmt::format(R"({{"as_int": {}}})", size); };
  Entries entries{
      {"m/archive_format", "pt2"},
      {"m/archive_version", "0"},
      {"m/data/weights/weight_0", std::string(24, '\0')},
      {"m/data/constants/tensor_0", std::string(8, '\0')},
      {"m/models/model.json", model().json()},
      {"m/data/weights/model_weights_config.json",
       R"({"config": {)" + config("w", "weight_0", 7, one(2) + ", " + one(3), one(3) + ", " + one(1)) + ", " +
           config("frozen", "weight_0", 7, one(3), one(1)) + ", " + config("count", "weight_0", 5, "", "") +
           "}}"},
      {"m/data/constants/model_constants_config.json",
       R"({"config": {)" + config("c", "tensor_0", 8, one(1), one(1)) + "}}"}};
  for (const auto& each : compiled) entries.push_back({"m/compiled/" + each.name, each.data});
  return entries;
}

struct Loaded {
  toy::Folder folder;
  std::filesystem::path path = folder / "m.pt2";
  etude::ExportedModule load(const Entries& compiled, bool run_compiled_code = true) {
    toy::write_text(path, toy::zip_bytes(file(compiled)));
    return etude::load_exported(path, {.run_compiled_code = run_compiled_code});
  }
  std::string why_not(const Entries& compiled, bool run_compiled_code = true) {
    auto module = load(compiled, run_compiled_code);
    const auto result = module->forward_compiled(batch());
    CHECK(module->why_no_graph({}) == result.why_not);
    CHECK(result.outputs.empty());
    CHECK(module->forward(batch()).at("loss").item<float>() == 0);
    return result.why_not;
  }
  static etude::Tensors batch() {
    return {{"x", torch::ones({4, 3})}, {"labels", torch::zeros({4, 5}, torch::kLong)}};
  }
};

TEST_CASE("without run_compiled_code, nothing in compiled/ is read") {
  Loaded loaded;
  CHECK(loaded.why_not({}, false) == "load_exported was called without run_compiled_code");
  CHECK(loaded.why_not({{"manifest.json", "broken"}, {"0.so", "x"}}, false) ==
        "load_exported was called without run_compiled_code");
}

TEST_CASE("if a file's compiled graph can't be used, the reason is given, and the model runs without it") {
  Loaded loaded;
  CHECK(contains(loaded.why_not({}), "the file has no compiled graph"));
  CHECK(contains(loaded.why_not({{"manifest.json", R"({"format": 1, "graphs": []})"}}),
                 "the file has no compiled graph"));
  const auto unmet = [&](const std::string& place, const std::string& value) {
    return loaded.why_not({{"manifest.json", manifest(set("/graphs/0/" + place, value))}});
  };
  if (!etude::libtorch::runs_compiled_graphs()) {
    CHECK(contains(loaded.why_not({{"manifest.json", manifest()}}),
                   "can't run compiled graphs: it must be 2.13"));
    return;
  }
  CHECK(unmet("torch", "\"1.0.0\"") ==
        "the graph was compiled for LibTorch 1.0.0, but this is " TORCH_VERSION);
  CHECK(unmet("processor/machine", "\"vax\"") ==
        "the graph was compiled for vax, but this machine is " + here());
  CHECK(unmet("processor/features", R"(["warp"])") ==
        "the graph was compiled for a processor with warp, which this one lacks");
  const auto for_gpus = manifest([](ExportedJson& json) {
    json["graphs"][0]["device"] = "cuda";
    json["graphs"][0]["processor"]["capability"] = "9.0";
  });
  CHECK(loaded.why_not({{"manifest.json", for_gpus}}) ==
        "the file has no compiled graph for cpu without autocast");
}

TEST_CASE("a module in evaluation mode, or without gradients, doesn't use its compiled graph") {
  Loaded loaded;
  auto module = loaded.load({});
  module->eval();
  CHECK(module->forward_compiled(Loaded::batch()).why_not == "the model is in evaluation mode");
  module->train();
  const torch::NoGradGuard no_grad;
  CHECK(module->forward_compiled(Loaded::batch()).why_not == "gradients are disabled");
}

TEST_CASE("a library that can't be loaded is an error that names the file, and leaves no folder behind") {
  if (!etude::libtorch::runs_compiled_graphs()) return;
  Loaded loaded;
  const toy::Folder temporary;
  const toy::Variable used("TMPDIR", std::string(temporary));
  const auto fault = [&](const Entries& compiled) {
    const auto text = fault_of([&] { loaded.load(compiled)->why_no_graph({}); });
    CHECK(text.starts_with(loaded.path.string() + ": compiled/"));
    CHECK(toy::names_in(temporary / ".").empty());
    return text;
  };
  Dl_info info{};
  REQUIRE(::dladdr(reinterpret_cast<void*>(&zip_close), &info) != 0);
  const auto library = toy::read_text(info.dli_fname);
  CHECK(contains(fault({{"manifest.json", "[]"}}), "manifest.json: it isn't an object with format"));
  CHECK(contains(fault({{"manifest.json", manifest()}}),
                 "manifest.json: it lists '0.so', which the file doesn't contain"));
  CHECK(
      contains(fault({{"manifest.json", manifest()}, {"0.so", "text"}}), "0.so: it isn't a shared library"));
  CHECK(contains(fault({{"manifest.json", manifest()}, {"0.so", library.substr(0, 8192)}}),
                 "0.so: it is truncated: it has 8192 bytes"));
  CHECK(contains(fault({{"manifest.json", manifest()}, {"0.so", library}}), "0.so: it can't be loaded: "));
  CHECK(contains(
      fault({{"manifest.json", manifest(set("/graphs/0/operators", "\"0.json\""))}, {"0.so", library}}),
      "manifest.json: it lists '0.json', which the file doesn't contain"));
}

TEST_CASE("a library is read only when a training asks whether its graph can be used") {
  if (!etude::libtorch::runs_compiled_graphs()) return;
  Loaded loaded;
  auto module = loaded.load({{"manifest.json", manifest()}, {"0.so", "text"}});
  CHECK(module->forward(Loaded::batch()).at("loss").item<float>() == 0);
  CHECK(contains(module->why_no_graph(torch::kBFloat16),
                 "no compiled graph for cpu with autocast to bfloat16"));
  CHECK(contains(fault_of([&] { module->why_no_graph({}); }), "0.so: it isn't a shared library"));
}

/// A folder on a file system that doesn't allow execution, if this user may mount one.
class NoExecution {
 public:
  NoExecution() : is_mounted_(::mount("none", path().c_str(), "tmpfs", MS_NOEXEC, nullptr) == 0) {}
  NoExecution(const NoExecution&) = delete;
  NoExecution& operator=(const NoExecution&) = delete;
  ~NoExecution() {
    if (is_mounted_) ::umount2(path().c_str(), MNT_DETACH);  // dlopen keeps a part of the library mapped
  }
  std::string path() const { return std::string(folder_); }
  bool is_mounted() const { return is_mounted_; }

 private:
  toy::Folder folder_;
  bool is_mounted_;
};

TEST_CASE("a temporary folder that doesn't allow execution is an error that says what to do") {
  const NoExecution mounted;
  if (!etude::libtorch::runs_compiled_graphs() || !mounted.is_mounted()) return;
  Dl_info info{};
  REQUIRE(::dladdr(reinterpret_cast<void*>(&zip_close), &info) != 0);
  Loaded loaded;
  const toy::Variable used("TMPDIR", mounted.path());
  auto module = loaded.load({{"manifest.json", manifest()}, {"0.so", toy::read_text(info.dli_fname)}});
  const auto fault = fault_of([&] { module->why_no_graph({}); });
  CHECK(contains(fault, "0.so: it can't be loaded: "));
  CHECK(fault.ends_with(
      fmt::format(" ({} is mounted noexec: set TMPDIR to a folder that allows execution)", mounted.path())));
}

TEST_CASE("save_exported keeps the contents of compiled/") {
  Loaded loaded;
  const Entries compiled{{"manifest.json", manifest(set("/graphs/0/torch", "\"1.0\""))}, {"0.so", "native"}};
  loaded.load(compiled, false)->save_exported(loaded.folder / "saved.pt2");
  const etude::Pt2Archive saved(loaded.folder / "saved.pt2");
  CHECK(saved.compiled_file("manifest.json") == compiled[0].data);
  CHECK(saved.compiled_file("0.so") == "native");
  CHECK_FALSE(saved.compiled_file("1.so").has_value());
}

}  // namespace model_exported_compiled_test
