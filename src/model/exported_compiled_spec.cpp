#include "etude/model/exported_compiled_spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/formats/exported_json.hpp"
#include "etude/io/entry_name.hpp"

namespace etude::inline v0::detail {

namespace {

constexpr std::array input_kinds{"parameter", "buffer", "constant", "input", "scale"};
constexpr std::array output_kinds{"loss", "output", "buffer", "gradient"};

/// The value of `kind`: an enum whose values have these names, in order.
template <class Kind, std::size_t count>
Kind kind_of(const ExportedJson& item, const std::array<const char*, count>& names, std::string_view where) {
  const auto& text = exported_text(exported_member(item, "kind", where), where);
  const auto* const found = std::ranges::find(names, text);
  if (found == names.end())
    throw exported_fault(where, "kind is {}: must be one of {}", in_quotes(text), fmt::join(names, ", "));
  return static_cast<Kind>(found - names.begin());
}

torch::ScalarType dtype_named(const std::string& name, std::string_view where) {
  for (int i = 0; i < static_cast<int>(torch::ScalarType::NumOptions); ++i)
    if (const auto dtype = static_cast<torch::ScalarType>(i);
        dtype != torch::ScalarType::Undefined && dtype_name(dtype) == name)
      return dtype;
  throw exported_fault(where, "{} isn't a dtype", in_quotes(name));
}

/// The name of an entry in compiled/.
std::string entry_name(const ExportedJson& text, std::string_view where) {
  const auto& name = exported_text(text, where);
  if (name.find('/') != name.npos || !fault_of_entry_name(name).empty())
    throw exported_fault(where, "{} isn't the name of a file in compiled/", in_quotes(name));
  return name;
}

/// "2.13" for "2.13.0+cpu".
std::string_view series(std::string_view version) {
  const auto minor = std::min(version.find('.'), version.size() - 1) + 1;
  return version.substr(0, version.find_first_not_of("0123456789", minor));
}

CompiledEntry read_entry(const ExportedJson& json, std::string_view where) {
  const auto text = [&](std::string_view name) {
    return exported_text(exported_member(json, name, where), where);
  };
  CompiledEntry entry{.library = entry_name(exported_member(json, "library", where), where),
                      .torch = text("torch")};
  if (const auto& operators = exported_member(json, "operators", where); !operators.is_null())
    entry.operators = entry_name(operators, where);
  const auto device = text("device");
  if (device != "cpu" && device != "cuda")
    throw exported_fault(where, "device is {}: must be cpu or cuda", in_quotes(device));
  if (const auto& autocast = exported_member(json, "autocast", where); !autocast.is_null()) {
    entry.autocast = dtype_named(exported_text(autocast, where), where);
    if (entry.autocast != torch::kBFloat16)  // float16 would need the loss to be scaled before its gradient
      throw exported_fault(where, "autocast is {}: must be null or bfloat16", dtype_name(*entry.autocast));
  }
  const auto& processor = exported_member(json, "processor", where);
  entry.processor.machine = exported_text(exported_member(processor, "machine", where), where);
  for (const auto& feature : exported_list(exported_member(processor, "features", where), where))
    entry.processor.features.insert(exported_text(feature, where));
  if (device == "cuda") {
    entry.device = torch::kCUDA;
    entry.capability = exported_text(exported_member(processor, "capability", where), where);
  }
  return entry;
}

}  // namespace

std::set<std::string, std::less<>> processor_features(std::string_view cpuinfo) {
  std::set<std::string, std::less<>> features;
  while (!cpuinfo.empty()) {
    auto line = cpuinfo.substr(0, cpuinfo.find('\n'));
    cpuinfo.remove_prefix(std::min(line.size() + 1, cpuinfo.size()));
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;  // x86_64, aarch64
    line.remove_prefix(std::min(line.find(':'), line.size()));
    for (auto begin = line.find_first_not_of(": \t"); begin != line.npos;
         begin = line.find_first_not_of(" \t", begin)) {
      const auto end = std::min(line.find_first_of(" \t", begin), line.size());
      features.emplace(line.substr(begin, end - begin));
      begin = end;
    }
    break;
  }
  return features;
}

const Processor& this_processor() {
  static const Processor processor = [] {
    struct utsname system {};
    std::ifstream file("/proc/cpuinfo");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return Processor{::uname(&system) == 0 ? system.machine : "", processor_features(text)};
  }();
  return processor;
}

std::vector<CompiledEntry> read_compiled_manifest(std::string_view text, std::string_view where) {
  const auto json = exported_json(text, where);
  if (const auto format = exported_integer(exported_member(json, "format", where), where); format != 1)
    throw exported_fault(where, "format is {}: only 1 can be read", format);
  std::vector<CompiledEntry> entries;
  for (const auto& graph : exported_list(exported_member(json, "graphs", where), where))
    entries.push_back(read_entry(graph, fmt::format("{}: graph {}", where, entries.size())));
  return entries;
}

std::string unmet_requirement(const CompiledEntry& entry, std::string_view torch, const Processor& processor,
                              std::string_view capability) {
  if (series(entry.torch) != series(torch))
    return fmt::format("the graph was compiled for LibTorch {}, but this is {}", printable(entry.torch),
                       torch);
  if (entry.processor.machine != processor.machine)
    return fmt::format("the graph was compiled for {}, but this machine is {}",
                       printable(entry.processor.machine), processor.machine);
  std::vector<std::string> missing;
  for (const auto& feature : entry.processor.features)
    if (!processor.features.contains(feature)) missing.push_back(printable(feature));
  if (!missing.empty())
    return fmt::format("the graph was compiled for a processor with {}, which this one lacks",
                       fmt::join(missing, ", "));
  if (!capability.empty() && entry.capability != capability)
    return fmt::format("the graph was compiled for GPUs of compute capability {}, but this one has {}",
                       printable(entry.capability), capability);
  return "";
}

std::string CompiledInput::title() const {
  return fmt::format("{} {}", input_kinds[static_cast<std::size_t>(kind)], in_quotes(name));
}

std::string CompiledSpec::why_not(const std::vector<torch::Tensor>& given, torch::Device device,
                                  bool with_batch) const {
  std::vector<std::int64_t> values(symbols.size(), -1);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& input = inputs[i];
    const auto& tensor = given[i];
    if (input.kind == CompiledInput::Kind::scale) continue;
    if (input.kind == CompiledInput::Kind::input && !with_batch) continue;
    if (!tensor.defined()) return fmt::format("the batch has no {}", printable(input.name));
    if (tensor.device() != device)
      return fmt::format("{} is on {}, but the model is on {}", input.title(), tensor.device().str(),
                         device.str());
    if (tensor.layout() != torch::kStrided) return fmt::format("{} isn't a dense tensor", input.title());
    if (tensor.scalar_type() != input.dtype)
      return fmt::format("{} is {}, but was {} when the graph was compiled", input.title(),
                         dtype_name(tensor.scalar_type()), dtype_name(input.dtype));
    const auto sizes = tensor.sizes();
    if (sizes.size() != input.sizes.size())
      return fmt::format("{} has {} dimensions: the graph was compiled for {}", input.title(), sizes.size(),
                         input.sizes.size());
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const auto& size = input.sizes[k];
      if (size.fixed == sizes[k]) continue;
      const auto refused = [&](const std::string& must) {
        return fmt::format("{} has size {} in dimension {}: the graph was compiled for {}", input.title(),
                           sizes[k], k, must);
      };
      if (size.fixed >= 0) return refused(std::to_string(size.fixed));
      const auto& symbol = symbols[size.symbol];
      auto& value = values[size.symbol];
      if (value >= 0 && value != sizes[k])
        return refused(fmt::format("equal sizes, but another is {}", value));
      value = sizes[k];
      if (value < symbol.least || value > symbol.most.value_or(std::numeric_limits<std::int64_t>::max()))
        return refused(symbol.most ? fmt::format("{} to {}", symbol.least, *symbol.most)
                                   : fmt::format("at least {}", symbol.least));
    }
    if (input.kind == CompiledInput::Kind::input) {
      if (!tensor.requires_grad()) continue;
      return fmt::format("{} requires a gradient, which the graph doesn't compute", input.title());
    }
    if (!tensor.is_contiguous()) return fmt::format("{} isn't contiguous", input.title());
    if (input.kind == CompiledInput::Kind::parameter && tensor.requires_grad() != input.trains)
      return fmt::format(
          "{} was {} when the graph was compiled, but is {} now: export fixes which parameters are frozen",
          input.title(), input.trains ? "trained" : "frozen", input.trains ? "frozen" : "trained");
  }
  return "";
}

namespace {

/// Reads a spec, and checks that its parts are consistent.
class SpecReader {
 public:
  SpecReader(const ExportedJson& json, std::string_view where) : json_(json), where_(where) {}

  CompiledSpec read() {
    read_symbols();
    for (const auto& input : exported_list(exported_member(json_, "inputs", where_), where_))
      add_input(input);
    if (scales_ != 1) throw exported_fault(where_, "it takes {} scales of the loss: must be one", scales_);
    for (const auto& output : exported_list(exported_member(json_, "outputs", where_), where_))
      add_output(output);
    if (losses_ != 1) throw exported_fault(where_, "it returns {} losses: must be one", losses_);
    for (const auto& unused : exported_list(exported_member(json_, "unused", where_), where_))
      if (const auto& name = exported_text(unused, where_); parameter(name) != spec_.inputs.end())
        train(name, where_);  // else the graph doesn't even take it
    return std::move(spec_);
  }

 private:
  void read_symbols() {
    const auto& sizes = exported_member(json_, "sizes", where_);
    if (!sizes.is_object()) throw exported_fault(where_, "sizes isn't an object");
    for (const auto& [name, limits] : sizes.items()) {
      const auto where = fmt::format("{}: size {}", where_, in_quotes(name));
      if (exported_list(limits, where).size() != 2) throw exported_fault(where, "it isn't a pair of limits");
      CompiledSymbol symbol{name, exported_integer(limits[0], where)};
      if (!limits[1].is_null()) symbol.most = exported_integer(limits[1], where);
      if (symbol.least < 0 || symbol.most.value_or(symbol.least) < symbol.least)
        throw exported_fault(where, "its limits are {}", limits.dump());
      spec_.symbols.push_back(std::move(symbol));
    }
  }

  void add_input(const ExportedJson& json) {
    using Kind = CompiledInput::Kind;
    const auto where = fmt::format("{}: input {}", where_, spec_.inputs.size());
    CompiledInput input{kind_of<Kind>(json, input_kinds, where),
                        exported_text(exported_member(json, "name", where), where),
                        dtype_named(exported_text(exported_member(json, "dtype", where), where), where),
                        {}};
    for (const auto& size : exported_list(exported_member(json, "sizes", where), where)) {
      if (!size.is_string()) {
        const auto fixed = exported_integer(size, where);
        if (fixed < 0) throw exported_fault(where, "a size is {}", fixed);
        input.sizes.push_back({fixed});
        continue;
      }
      const auto& name = size.get_ref<const std::string&>();
      const auto symbol = std::ranges::find(spec_.symbols, name, &CompiledSymbol::name);
      if (symbol == spec_.symbols.end()) throw exported_fault(where, "sizes has no {}", in_quotes(name));
      input.sizes.push_back({-1, static_cast<std::size_t>(symbol - spec_.symbols.begin())});
    }
    if (input.kind == Kind::scale && (input.dtype != torch::kFloat || !input.sizes.empty()))
      throw exported_fault(where, "the scale of the loss must be a single float32");
    if (input.kind == Kind::scale) {
      spec_.scale = spec_.inputs.size();
      ++scales_;
    }
    const auto is_same = [&](const auto& other) {
      return other.kind == input.kind && other.name == input.name;
    };
    if (std::ranges::any_of(spec_.inputs, is_same))
      throw exported_fault(where, "it takes {} twice", input.title());
    spec_.inputs.push_back(std::move(input));
  }

  void add_output(const ExportedJson& json) {
    using Kind = CompiledOutput::Kind;
    const auto where = fmt::format("{}: output {}", where_, spec_.outputs.size());
    CompiledOutput output{kind_of<Kind>(json, output_kinds, where)};
    if (output.kind == Kind::loss || output.kind == Kind::output) {
      const auto index = exported_integer(exported_member(json, "index", where), where);
      if (index < 0) throw exported_fault(where, "index is {}", index);
      output.index = static_cast<std::size_t>(index);
    } else {
      output.name = exported_text(exported_member(json, "name", where), where);
    }
    losses_ += output.kind == Kind::loss;
    if (output.kind == Kind::gradient) output.source = train(output.name, where);
    const bool is_positional = output.kind == Kind::loss || output.kind == Kind::output;
    const auto is_same = [&](const auto& other) {
      const bool is_other_positional = other.kind == Kind::loss || other.kind == Kind::output;
      return is_positional ? is_other_positional && other.index == output.index
                           : other.kind == output.kind && other.name == output.name;
    };
    if (std::ranges::any_of(spec_.outputs, is_same))
      throw exported_fault(where, "it returns the same as another output");
    spec_.outputs.push_back(std::move(output));
  }

  std::vector<CompiledInput>::iterator parameter(const std::string& name) {
    return std::ranges::find_if(spec_.inputs, [&](const auto& input) {
      return input.kind == CompiledInput::Kind::parameter && input.name == name;
    });
  }

  /// Notes that a parameter is trained. Returns its index.
  std::size_t train(const std::string& name, std::string_view where) {
    const auto found = parameter(name);
    if (found == spec_.inputs.end()) throw exported_fault(where, "it takes no parameter {}", in_quotes(name));
    if (std::exchange(found->trains, true))
      throw exported_fault(where, "parameter {} is listed twice", in_quotes(name));
    return static_cast<std::size_t>(found - spec_.inputs.begin());
  }

  const ExportedJson& json_;
  std::string_view where_;
  CompiledSpec spec_;
  int scales_ = 0, losses_ = 0;
};

}  // namespace

CompiledSpec read_compiled_spec(std::string_view text, std::string_view where) {
  const auto json = exported_json(text, where);
  return SpecReader(json, where).read();
}

}  // namespace etude::inline v0::detail
