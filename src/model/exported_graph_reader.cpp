#include "etude/model/exported_graph_reader.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/formats/exported_json.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/model/exported_graph.hpp"
#include "etude/model/exported_numbers.hpp"

namespace etude::inline v0::detail {

namespace {

/// LibTorch's namespaces other than aten. Their operators are made for compilers and process groups, and
/// trust their arguments.
constexpr auto internal_namespaces = std::to_array<std::string_view>({"_c10d_functional",
                                                                      "_c10d_functional_autograd",
                                                                      "_native",
                                                                      "_quantized",
                                                                      "_test",
                                                                      "c10d",
                                                                      "cuda",
                                                                      "inductor",
                                                                      "mkl",
                                                                      "mkldnn",
                                                                      "mkldnn_prepacked",
                                                                      "onednn",
                                                                      "prepacked",
                                                                      "prim",
                                                                      "profiler",
                                                                      "quantization",
                                                                      "quantized",
                                                                      "sparse",
                                                                      "symm_mem",
                                                                      "static_runtime",
                                                                      "streams",
                                                                      "xnnpack"});

/// Parts of the names of aten's operators that open files, change the memory under a tensor, or continue a
/// computation without checking its state. No model's forward pass needs them.
constexpr auto unchecked_operators = std::to_array<std::string_view>(
    {"from_file", "::set_", "resize", "_backward", "_tensor_unsafe", "_reshape_alias", "_nested_",
     "quantized", "_cummax_helper", "_cummin_helper"});

/// True if an exported graph must not call the operator of this name, such as "aten::from_file".
bool is_refused(std::string_view name) {
  if (!name.starts_with("aten::"))
    return std::ranges::count(internal_namespaces, name.substr(0, name.find(':'))) > 0;
  return std::ranges::any_of(unchecked_operators,
                             [&](std::string_view part) { return name.find(part) != name.npos; });
}

std::int64_t exported_layout(const ExportedJson& number, std::string_view where) {
  if (exported_integer(number, where) != 7)
    throw exported_fault(where, "layout {}: only 7 (strided) is supported", number.dump());
  return static_cast<std::int64_t>(at::kStrided);
}

std::int64_t exported_memory_format(const ExportedJson& number, std::string_view where) {
  static constexpr std::array formats{at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast,
                                      at::MemoryFormat::ChannelsLast3d, at::MemoryFormat::Preserve};
  const auto value = exported_integer(number, where);
  if (value < 1 || value > 4) throw exported_fault(where, "memory format {}: must be 1 to 4", value);
  return static_cast<std::int64_t>(formats[static_cast<std::size_t>(value - 1)]);
}

double exported_real(const ExportedJson& number, std::string_view where) {
  if (number.is_number()) return number.get<double>();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (number == "Infinity" || number == "inf") return infinity;
  if (number == "-Infinity" || number == "-inf") return -infinity;
  if (number == "NaN" || number == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw exported_fault(where, "it isn't a number");
}

bool exported_flag(const ExportedJson& flag, std::string_view where) {
  if (!flag.is_boolean()) throw exported_fault(where, "it isn't true or false");
  return flag.get<bool>();
}

}  // namespace

std::string exported_name(const ExportedJson& argument, std::string_view where) {
  const auto [kind, value] = exported_union(argument, where);
  if (kind == "as_tensor") return exported_text(exported_member(value, "name", where), where);
  if (kind == "as_optional_tensor" || kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool")
    return exported_name(value, where);
  return kind == "as_name" ? exported_text(value, where) : std::string();
}

namespace {

/// The kind under which a file stores an argument of this type, which LibTorch passes as an integer; empty
/// for other types.
std::string_view enumeration_of(c10::TypeKind type) {
  switch (type) {
    case c10::TypeKind::ScalarTypeType:
      return "as_scalar_type";
    case c10::TypeKind::LayoutType:
      return "as_layout";
    case c10::TypeKind::MemoryFormatType:
      return "as_memory_format";
    default:
      return "";
  }
}

/// Reads one graph. Each nested graph in its nodes gets another reader.
class GraphReader {
 public:
  GraphReader(torch::Device device, std::string_view where) : device_(device), where_(where) {}

  ExportedGraph read(const ExportedJson& graph) {
    ExportedGraph result;
    for (const auto& input : exported_list(exported_member(graph, "inputs", where_), where_)) {
      result.inputs.push_back(defined(input, fmt::format("{}: an input", where_)));
      signature_.inputs.push_back(kind_of(result.inputs.back()));
    }
    for (const auto& node : exported_list(exported_member(graph, "nodes", where_), where_)) add(node, result);
    for (const auto& output : exported_list(exported_member(graph, "outputs", where_), where_))
      add_output(output, result);
    result.slots = kinds_.size();
    result.find_last_uses();
    return result;
  }

 private:
  using Argument = ExportedGraph::Argument;
  using Form = Argument::Form;
  using Node = ExportedGraph::Node;
  using Slot = ExportedGraph::Slot;
  enum class Kind { tensor, integer, real, boolean, none };
  /// The kinds of a graph's inputs and outputs. `Kind::none` matches every other kind.
  struct Signature {
    std::vector<Kind> inputs, outputs;
  };

  Kind kind_of(Slot slot) const { return slot == ExportedGraph::no_slot ? Kind::none : kinds_[slot]; }

  static Kind kind_of(const c10::IValue& constant) {
    return constant.isInt()      ? Kind::integer
           : constant.isDouble() ? Kind::real
           : constant.isBool()   ? Kind::boolean
                                 : Kind::none;
  }

  Kind kind_of(const Argument& argument) const {
    return argument.form == Form::value ? kind_of(argument.uses.front().slot) : kind_of(argument.constant);
  }

  bool is_number(const Argument& argument) const {
    return argument.form == Form::value ? kind_of(argument) != Kind::tensor : argument.constant.isScalar();
  }

  static bool differ(Kind a, Kind b) { return a != b && a != Kind::none && b != Kind::none; }

  Slot new_slot(Kind kind) {
    kinds_.push_back(kind);
    return kinds_.size() - 1;
  }

  /// The slot of a value that an input or output of a node defines; `no_slot` for a constant.
  Slot defined(const ExportedJson& argument, std::string_view where) {
    const auto name = exported_name(argument, where);
    if (name.empty()) return ExportedGraph::no_slot;
    const auto kind = exported_union(argument, where).kind;
    return define(name,
                  kind == "as_sym_int"     ? Kind::integer
                  : kind == "as_sym_float" ? Kind::real
                  : kind == "as_sym_bool"  ? Kind::boolean
                                           : Kind::tensor,
                  where);
  }

  Slot define(const std::string& name, Kind kind, std::string_view where) {
    const auto slot = new_slot(kind);
    if (!slots_.emplace(name, slot).second)
      throw exported_fault(where, "'{}' is defined twice", printable(name));
    return slot;
  }

  Slot used(const std::string& name, std::string_view where) const {
    const auto found = slots_.find(name);
    if (found == slots_.end())
      throw exported_fault(where, "'{}' is used before it is defined", printable(name));
    return found->second;
  }

  void add_output(const ExportedJson& output, ExportedGraph& graph) {
    const auto where = fmt::format("{}: an output", where_);
    const auto name = exported_name(output, where);
    graph.outputs.push_back(name.empty() ? ExportedGraph::no_slot : used(name, where));
    const auto [kind, value] = exported_union(output, where);
    if (name.empty() && kind != "as_none" && kind != "as_int" && kind != "as_float" && kind != "as_bool" &&
        kind != "as_string" && kind != "as_sym_int")
      throw exported_fault(where, "{} isn't supported", printable(kind));
    graph.constant_outputs.push_back(kind == "as_int"     ? c10::IValue(exported_integer(value, where))
                                     : kind == "as_float" ? c10::IValue(exported_real(value, where))
                                     : kind == "as_bool"  ? c10::IValue(exported_flag(value, where))
                                                          : c10::IValue());
    signature_.outputs.push_back(name.empty() ? kind_of(graph.constant_outputs.back())
                                              : kind_of(graph.outputs.back()));
  }

  void add(const ExportedJson& json, ExportedGraph& graph) {
    const auto& target = exported_text(exported_member(json, "target", where_), where_);
    Node node;
    if (const auto name = json.find("name"); name != json.end() && name->is_string())
      node.name = printable(name->get_ref<const std::string&>());
    else
      node.name = printable(target);
    const auto where = fmt::format("{}: node {}", where_, node.name);
    const auto& inputs = exported_list(exported_member(json, "inputs", where), where);
    const auto& outputs = exported_list(exported_member(json, "outputs", where), where);
    if (target.starts_with("torch.ops.higher_order."))
      read_graphs(node, std::string_view(target).substr(23), inputs, where);
    else if (target.starts_with("torch.ops."))
      read_operation(node, std::string_view(target).substr(10), inputs, where);
    else if (const auto* function = find_number_function(target))
      read_number(node, *function, inputs, where);
    else
      throw exported_fault(where, "the function '{}' isn't known", printable(target));
    if (node.kind == Node::Kind::operation && !node.operation) return;  // a node that only asserts
    read_outputs(node, outputs, where);
    graph.nodes.push_back(std::move(node));
  }

  void read_operation(Node& node, std::string_view target, const ExportedJson& inputs,
                      std::string_view where) {
    const auto dot = target.find('.'), last = target.rfind('.');
    if (dot == target.npos || dot == last)
      throw exported_fault(where, "'{}' isn't the name of an operator", printable(target));
    const auto name = fmt::format("{}::{}", target.substr(0, dot), target.substr(dot + 1, last - dot - 1));
    const auto overload = std::string(target.substr(last + 1) == "default" ? "" : target.substr(last + 1));
    // These only assert what was true when the model was exported.
    if (name == "aten::_assert_tensor_metadata" || name == "aten::sym_constrain_range" ||
        name == "aten::sym_constrain_range_for_size")
      return;
    if (const auto* function = find_number_function(name)) return read_number(node, *function, inputs, where);
    if (is_refused(name))
      throw exported_fault(where, "{} isn't allowed: it trusts its arguments, which nothing checks",
                           printable(name));
    if (const auto found = c10::Dispatcher::singleton().findSchema({name, overload})) node.operation = *found;
    const auto full_name = overload.empty() ? name : name + "." + overload;
    if (!node.operation)
      throw exported_fault(
          where, "{}",
          name.starts_with("aten::")
              ? fmt::format("LibTorch {} has no operator {}", TORCH_VERSION, printable(full_name))
          : name.starts_with("transformers::")
              ? fmt::format("the operator {} exists in Python only: export the model with tools/export.py, "
                            "which chooses another, or with config._experts_implementation = \"batched_mm\"",
                            printable(full_name))
              : fmt::format("the operator {} isn't known: register it in this program, with "
                            "TORCH_LIBRARY or the library that has it",
                            printable(full_name)));
    const auto& schema = node.operation->schema();
    node.has_out = !schema.arguments().empty() && schema.arguments().back().is_out();
    std::unordered_map<std::string_view, const ExportedJson*> given;
    for (const auto& input : inputs) {
      const auto& argument = exported_text(exported_member(input, "name", where), where);
      if (!given.emplace(argument, &exported_member(input, "arg", where)).second)
        throw exported_fault(where, "argument '{}' is given twice", printable(argument));
    }
    for (const auto& formal : schema.arguments()) {
      const auto found = given.find(formal.name());
      if (found == given.end()) {
        if (!formal.default_value() && formal.type()->kind() != c10::TypeKind::OptionalType)
          throw exported_fault(where, "{} needs its argument '{}'", full_name, formal.name());
        node.arguments.push_back({.constant = formal.default_value().value_or(c10::IValue())});
        continue;
      }
      node.arguments.push_back(argument(
          *found->second, formal, fmt::format("{}: argument '{}' of {}", where, formal.name(), full_name)));
      given.erase(found);
    }
    if (!given.empty())
      throw exported_fault(where, "{} has no argument '{}'", full_name, printable(given.begin()->first));
  }

  static c10::TypePtr element_of(c10::TypePtr type) {
    if (const auto optional = type->cast<c10::OptionalType>()) return optional->getElementType();
    return type;
  }

  Argument argument(const ExportedJson& json, const c10::Argument& formal, std::string_view where) {
    const auto type = element_of(formal.type());
    const bool is_optional = formal.type()->kind() == c10::TypeKind::OptionalType;
    const auto wrong = [&] { return exported_fault(where, "it must be {}", formal.real_type()->str()); };
    const auto kind = exported_union(json, where).kind;
    const auto enumeration = enumeration_of(element_of(formal.real_type())->kind());
    if (!enumeration.empty() && kind != enumeration && kind != "as_none") throw wrong();
    if (formal.is_out() && kind != "as_tensor")
      throw exported_fault(where, "it is an output's memory: must be one tensor");
    if (const auto list = type->cast<c10::ListType>()) {
      auto result =
          list_argument(json, element_of(list->getElementType()),
                        list->getElementType()->kind() == c10::TypeKind::OptionalType, formal, where);
      if (result.form == Form::constant && result.constant.isNone() && !is_optional) throw wrong();
      return result;
    }
    auto result = plain(json, where);
    const bool is_value = result.form == Form::value;
    if (!is_value && result.constant.isNone()) {
      if (!is_optional) throw wrong();
      return result;
    }
    const auto has = kind_of(result);
    bool fits = true;
    switch (type->kind()) {
      case c10::TypeKind::TensorType:
        if (has == Kind::tensor) break;
        fits = is_number(result) && (is_value || !(formal.alias_info() && formal.alias_info()->isWrite()));
        if (is_value)
          result.conversion = Argument::Conversion::to_tensor;
        else if (fits)
          result.constant = wrapped_number(result.constant.toScalar());
        break;
      case c10::TypeKind::FloatType:
        fits = has == Kind::real || has == Kind::integer;
        if (is_value)
          result.conversion = Argument::Conversion::to_real;
        else if (fits)
          result.constant = result.constant.toScalar().toDouble();
        break;
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        fits = has == Kind::integer;
        break;
      case c10::TypeKind::BoolType:
        fits = has == Kind::boolean;
        break;
      case c10::TypeKind::NumberType:
        fits = is_number(result);
        break;
      case c10::TypeKind::StringType:
        fits = result.constant.isString();
        break;
      case c10::TypeKind::DeviceObjType:
        fits = result.constant.isDevice();
        break;
      default:
        throw exported_fault(where, "{} isn't supported", formal.type()->str());
    }
    if (!fits) throw wrong();
    return result;
  }

  /// Reads an argument whose kind only the file states.
  Argument plain(const ExportedJson& json, std::string_view where) const {
    const auto name = exported_name(json, where);
    if (!name.empty()) return {.form = Form::value, .uses = {{used(name, where)}}};
    const auto [kind, value] = exported_union(json, where);
    if (kind == "as_none" || kind == "as_optional_tensor") return {};
    if (kind == "as_int") return {.constant = exported_integer(value, where)};
    if (kind == "as_float") return {.constant = exported_real(value, where)};
    if (kind == "as_bool") return {.constant = exported_flag(value, where)};
    if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") return plain(value, where);
    if (kind == "as_string") return {.constant = exported_text(value, where)};
    if (kind == "as_scalar_type")
      return {.constant = static_cast<std::int64_t>(exported_dtype(value, where))};
    if (kind == "as_layout") return {.constant = exported_layout(value, where)};
    if (kind == "as_memory_format") return {.constant = exported_memory_format(value, where)};
    if (kind == "as_complex")
      return {.constant = c10::complex<double>(exported_real(exported_member(value, "real", where), where),
                                               exported_real(exported_member(value, "imag", where), where))};
    if (kind == "as_device") {
      const auto device = exported_device(value, where);
      return {.constant = device, .is_device = device.type() == device_.type()};
    }
    throw exported_fault(where, "{} isn't supported there", printable(kind));
  }

  Argument list_argument(const ExportedJson& json, const c10::TypePtr& element, bool elements_are_optional,
                         const c10::Argument& formal, std::string_view where) const {
    const auto [kind, value] = exported_union(json, where);
    if (kind == "as_none") return {};
    const auto wrong = [&] { return exported_fault(where, "it must be {}", formal.type()->str()); };
    const bool is_empty = value.is_array() && value.empty();  // an empty list may be stored as any kind
    switch (element->kind()) {
      case c10::TypeKind::TensorType: {
        if (kind != "as_tensors" && (kind != "as_optional_tensors" || !elements_are_optional)) {
          if (is_empty) return {.form = elements_are_optional ? Form::optional_tensors : Form::tensors};
          throw wrong();
        }
        Argument result{.form = elements_are_optional ? Form::optional_tensors : Form::tensors};
        for (const auto& each : exported_list(value, where)) {
          const bool is_tensor = kind == "as_tensors";
          const auto name = is_tensor ? exported_text(exported_member(each, "name", where), where)
                                      : exported_name(each, where);
          if (!is_tensor && name.empty()) {
            result.uses.push_back({});
            continue;
          }
          result.uses.push_back({used(name, where)});
          if (kinds_[result.uses.back().slot] != Kind::tensor) throw wrong();
        }
        return result;
      }
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        return is_empty ? Argument{.constant = c10::List<std::int64_t>()}
                        : integers(kind, value, formal, where, wrong);
      case c10::TypeKind::FloatType:
        if (kind != "as_floats" && kind != "as_ints" && !is_empty) throw wrong();
        return {.constant = list_of<double>(value, exported_real, where)};
      case c10::TypeKind::BoolType:
        if (kind != "as_bools" && !is_empty) throw wrong();
        return {.constant = list_of<bool>(value, exported_flag, where)};
      default:
        throw exported_fault(where, "{} isn't supported", formal.type()->str());
    }
  }

  template <class T>
  static c10::List<T> list_of(const ExportedJson& json, T (*read)(const ExportedJson&, std::string_view),
                              std::string_view where) {
    c10::List<T> list;
    for (const auto& each : exported_list(json, where)) list.push_back(read(each, where));
    return list;
  }

  template <class Wrong>
  Argument integers(std::string_view kind, const ExportedJson& value, const c10::Argument& formal,
                    std::string_view where, Wrong wrong) const {
    c10::List<std::int64_t> list;
    if (kind == "as_int") {  // one integer may stand for a list of the length that the operator takes
      for (std::int32_t i = 0; i < formal.N().value_or(1); ++i)
        list.push_back(exported_integer(value, where));
      return {.constant = std::move(list)};
    }
    if (kind != "as_ints" && kind != "as_sym_ints") throw wrong();
    Argument result;
    for (const auto& each : exported_list(value, where)) {
      if (kind == "as_ints") {
        list.push_back(exported_integer(each, where));
        continue;
      }
      const auto name = exported_name(each, where);
      list.push_back(name.empty() ? exported_integer(exported_member(each, "as_int", where), where) : 0);
      result.uses.push_back({name.empty() ? ExportedGraph::no_slot : used(name, where)});
      if (name.empty()) continue;
      if (kinds_[result.uses.back().slot] != Kind::integer) throw wrong();
      result.form = Form::integers;
    }
    if (result.form == Form::constant) result.uses.clear();
    result.constant = std::move(list);
    return result;
  }

  void read_number(Node& node, const NumberFunction& function, const ExportedJson& inputs,
                   std::string_view where) {
    node.kind = Node::Kind::number;
    node.number = function.call;
    for (const auto& input : inputs)
      node.arguments.push_back(plain(exported_member(input, "arg", where), where));
    const auto given = node.arguments.size();
    if (given != function.arguments)
      throw exported_fault(where, "{} takes {} arguments, not {}", function.name, function.arguments, given);
    if (function.reads_tensor) {
      if (kind_of(node.arguments[0]) != Kind::tensor)
        throw exported_fault(where, "its first argument isn't a tensor");
      if (given > 1 && kind_of(node.arguments[1]) != Kind::integer)
        throw exported_fault(where, "its second argument isn't an integer");
    } else if (!std::ranges::all_of(node.arguments, [&](const auto& each) { return is_number(each); })) {
      throw exported_fault(where, "the arguments of {} must be numbers", function.name);
    }
  }

  /// Reads a region, a condition or a loop: first its settings, then its graphs, then its operands.
  void read_graphs(Node& node, std::string_view target, const ExportedJson& inputs, std::string_view where) {
    using K = Node::Kind;
    if (target == "wrap_with_set_grad_enabled")
      node.kind = K::grad_mode;
    else if (target == "wrap_with_autocast")
      node.kind = K::autocast;
    else if (target == "cond")
      node.kind = K::condition;
    else if (target == "while_loop")
      node.kind = K::loop;
    else
      throw exported_fault(where, "the higher-order operator '{}' isn't supported", printable(target));
    inner_.clear();
    for (const auto& input : inputs) {
      const auto& json = exported_member(input, "arg", where);
      const auto [kind, value] = exported_union(json, where);
      if (kind == "as_graph") {
        GraphReader reader(device_, where);
        node.graphs.push_back(reader.read(exported_member(value, "graph", where)));
        inner_.push_back(std::move(reader.signature_));
      } else if (kind == "as_tensors") {
        for (const auto& each : exported_list(value, where))
          node.arguments.push_back(
              {.form = Form::value,
               .uses = {{used(exported_text(exported_member(each, "name", where), where), where)}}});
        if (node.carried == 0) node.carried = node.arguments.size();
      } else {
        auto argument = plain(json, where);
        const bool is_setting =
            (node.kind == K::grad_mode || node.kind == K::autocast) && node.graphs.empty();
        if (is_setting && kind == "as_int") throw exported_fault(where, "a setting is an integer");
        if (is_setting && argument.form == Form::constant)
          node.settings.push_back(argument.constant);
        else
          node.arguments.push_back(std::move(argument));
      }
    }
    check_graphs(node, where);
  }

  void check_graphs(Node& node, std::string_view where) const {
    using K = Node::Kind;
    const bool has_two = node.kind == K::condition || node.kind == K::loop;
    if (node.graphs.size() != (has_two ? 2u : 1u))
      throw exported_fault(where, "it has {} graphs", node.graphs.size());
    const auto operands =
        node.arguments.size() - (node.kind == K::condition && !node.arguments.empty() ? 1 : 0);
    for (const auto& graph : node.graphs)
      if (graph.inputs.size() != operands)
        throw exported_fault(where, "its graph takes {} inputs, not {}", graph.inputs.size(), operands);
    if (node.kind == K::condition && node.arguments.empty())
      throw exported_fault(where, "it has no condition");
    for (const auto& inner : inner_)
      for (std::size_t i = 0; i < operands; ++i)
        if (differ(inner.inputs[i], kind_of(node.arguments[node.arguments.size() - operands + i])))
          throw exported_fault(where, "its graph expects a different kind of value");
    if (node.kind == K::loop &&
        (node.graphs[0].outputs.size() != 1 || node.graphs[1].outputs.size() != node.carried))
      throw exported_fault(where, "its graphs don't give what the loop needs");
    if (node.kind == K::grad_mode && (node.settings.size() != 1 || !node.settings[0].isBool()))
      throw exported_fault(where, "it doesn't say whether gradients are enabled");
    if (node.kind != K::autocast) return;
    if (node.settings.size() < 3 || !node.settings[0].isString() || !node.settings[2].isBool() ||
        !(node.settings[1].isNone() || node.settings[1].isInt()))
      throw exported_fault(where, "it doesn't say the device, the dtype and whether autocast is enabled");
    const auto device = exported_device({{"type", node.settings[0].toStringRef()}}, where);
    node.settings[0] = static_cast<std::int64_t>(device.type());
    node.follows_device = device.type() == device_.type();
  }

  void read_outputs(Node& node, const ExportedJson& outputs, std::string_view where) {
    if (node.operation) {
      const auto& returns = node.operation->schema().returns();
      node.gives_list = returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::ListType;
      if (outputs.size() != returns.size())
        throw exported_fault(where, "it has {} outputs, but {} gives {}", outputs.size(),
                             node.operation->schema().name(), returns.size());
    }
    if (node.gives_list) {
      const auto [kind, list] = exported_union(outputs[0], where);
      if (kind != "as_tensors") throw exported_fault(where, "its output isn't a list of tensors");
      for (const auto& each : exported_list(list, where))
        node.outputs.push_back(
            define(exported_text(exported_member(each, "name", where), where), Kind::tensor, where));
      return;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto slot = defined(outputs[i], where);
      node.outputs.push_back(slot == ExportedGraph::no_slot ? new_slot(Kind::none) : slot);
      if (node.operation && slot != ExportedGraph::no_slot)
        check_return(kinds_[slot], element_of(node.operation->schema().returns()[i].type())->kind(), where);
    }
    if (node.kind == Node::Kind::number && (outputs.size() != 1 || kinds_[node.outputs[0]] == Kind::tensor ||
                                            kinds_[node.outputs[0]] == Kind::none))
      throw exported_fault(where, "its output must be one number");
    for (const auto& graph : node.graphs)
      if (node.kind != Node::Kind::loop && graph.outputs.size() != node.outputs.size())
        throw exported_fault(where, "it has {} outputs, but its graph {}", node.outputs.size(),
                             graph.outputs.size());
    if (node.kind == Node::Kind::loop && node.outputs.size() != node.carried)
      throw exported_fault(where, "it has {} outputs, but carries {} values", node.outputs.size(),
                           node.carried);
    if (!node.graphs.empty())
      for (auto inner = inner_.begin() + (node.kind == Node::Kind::loop); inner != inner_.end(); ++inner)
        for (std::size_t i = 0; i < node.outputs.size(); ++i)
          if (differ(inner->outputs[i], kinds_[node.outputs[i]]))
            throw exported_fault(where, "its output is of a different kind than its graph's");
  }

  static void check_return(Kind kind, c10::TypeKind type, std::string_view where) {
    if ((kind == Kind::tensor) != (type == c10::TypeKind::TensorType))
      throw exported_fault(where, "its output is of a different kind than its operator's");
  }

  torch::Device device_;
  std::string where_;
  Signature signature_;
  std::vector<Signature> inner_;  // of the nested graphs of the current node
  std::unordered_map<std::string, Slot> slots_;
  std::vector<Kind> kinds_;  // one per slot
};

}  // namespace

ExportedGraph read_graph(const ExportedJson& graph, torch::Device device, std::string_view where) {
  return GraphReader(device, where).read(graph);
}

}  // namespace etude::inline v0::detail
