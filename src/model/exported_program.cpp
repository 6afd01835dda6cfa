#include "etude/model/exported_program.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/model/exported_graph_reader.hpp"
#include "etude/reflect/json_parser.hpp"

namespace etude::inline v0::detail {

namespace {

void check_version(const ExportedJson& program, std::string_view where) {
  const auto& version = exported_member(program, "schema_version", where);
  const auto major = exported_integer(exported_member(version, "major", where), where);
  const auto minor = exported_integer(exported_member(version, "minor", where), where);
  if (major != 8 || minor < 8)
    throw exported_fault(where, "schema_version is {}.{}: must be 8.8 (torch 2.8) or a later 8", major,
                         minor);
}

/// The names of the leaves of a nested Python structure.
class LeafNames {
 public:
  LeafNames(const ExportedJson& spec, ExportedJson named_tuples, std::string_view where)
      : named_tuples_(std::move(named_tuples)), where_(where) {
    add(spec, "", 0);
  }

  std::vector<std::string> names;
  bool are_named = false;  ///< true if the outermost structure has names

 private:
  void add(const ExportedJson& spec, const std::string& prefix, int depth) {
    if (depth > 32) throw exported_fault(where_, "its structure lies more than 32 deep");
    if (prefix.size() > 1000) throw exported_fault(where_, "an output's name has more than 1000 bytes");
    if (exported_member(spec, "type", where_).is_null()) return names.push_back(prefix);
    const auto& children = exported_list(exported_member(spec, "children_spec", where_), where_);
    const auto keys = keys_of(spec, children.size());
    if (depth == 0) are_named = !keys.empty();
    for (std::size_t i = 0; i < children.size(); ++i) {
      const auto name = keys.empty() ? std::to_string(i) : keys[i];
      add(children[i], prefix.empty() ? name : prefix + "." + name, depth + 1);
    }
  }

  std::vector<std::string> keys_of(const ExportedJson& spec, std::size_t count) const {
    const auto& context = exported_member(spec, "context", where_);
    if (!context.is_string()) return {};
    const auto& text = context.get_ref<const std::string&>();
    if (named_tuples_.is_object())  // the context of a named tuple is its name
      if (const auto found = named_tuples_.find(text); found != named_tuples_.end())
        return strings_of(exported_member(*found, "field_names", where_), count);
    try {
      return strings_of(parse_json(text), count);
    } catch (const ArgumentError&) {
      return {};  // a structure of another kind
    }
  }

  /// The strings of a list; empty if it isn't a list of `count` strings.
  static std::vector<std::string> strings_of(const ExportedJson& list, std::size_t count) {
    std::vector<std::string> result;
    if (!list.is_array() || list.size() != count) return {};
    for (const auto& each : list) {
      if (!each.is_string()) return {};
      result.push_back(each.get<std::string>());
    }
    return result;
  }

  ExportedJson named_tuples_;
  std::string_view where_;
};

/// Reads a program: its graph, and the parts around it.
class ProgramReader {
 public:
  ProgramReader(const ExportedJson& json, std::string_view where)
      : where_(where),
        json_(json),
        module_(exported_member(json, "graph_module", where)),
        graph_(exported_member(module_, "graph", where)) {
    const auto& values = exported_member(graph_, "tensor_values", where);
    if (!values.is_object()) throw exported_fault(where, "tensor_values isn't an object");
    for (const auto& [name, value] : values.items()) values_.emplace(name, &value);
  }

  ExportedProgram read() {
    const auto& signature = exported_member(module_, "signature", where_);
    const auto& inputs = exported_list(exported_member(signature, "input_specs", where_), where_);
    program_.graph = read_graph(graph_, device_of(inputs), where_);
    simplify(program_.graph);
    read_classes();
    if (inputs.size() != program_.graph.inputs.size())
      throw exported_fault(where_, "input_specs and the inputs of the graph differ in number");
    const auto& graph_inputs = exported_member(graph_, "inputs", where_);
    read_spellings();
    for (std::size_t i = 0; i < inputs.size(); ++i) add_input(inputs[i], graph_inputs[i], i);
    const auto& outputs = exported_list(exported_member(signature, "output_specs", where_), where_);
    if (outputs.size() != program_.graph.outputs.size())
      throw exported_fault(where_, "output_specs and the outputs of the graph differ in number");
    const auto names = output_names();
    bool are_named = names.are_named;
    std::size_t leaf = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto [kind, spec] = exported_union(outputs[i], where_);
      const auto& argument = exported_member(spec, "arg", where_);
      if (kind == "buffer_mutation") {
        program_.mutations.emplace_back(i,
                                        exported_text(exported_member(spec, "buffer_name", where_), where_));
      } else if (kind == "user_output" || kind == "loss_output") {
        const auto this_leaf = leaf++;
        if (!is_tensor(argument)) continue;
        program_.outputs.push_back(i);
        program_.output_places.push_back(this_leaf);
        if (this_leaf < names.names.size())
          program_.output_names.push_back(names.names[this_leaf]);
        else
          are_named = false;
      } else {
        throw exported_fault(where_, "an output is a {}, which isn't supported", printable(kind));
      }
    }
    if (!are_named) program_.output_names.clear();
    if (program_.outputs.empty()) throw exported_fault(where_, "the model has no output");
    find_norms();
    read_conditions();
    return std::move(program_);
  }

 private:
  static bool is_tensor(const ExportedJson& argument) {
    return argument.is_object() && argument.size() == 1 && argument.begin().key() == "as_tensor";
  }

  const ExportedJson& meta_of(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw exported_fault(where_, "tensor_values has no '{}'", printable(name));
    return *found->second;
  }

  /// The device that the model was exported on, taken from its first parameter or buffer.
  torch::Device device_of(const ExportedJson& inputs) const {
    for (const auto& input : inputs) {
      const auto [kind, spec] = exported_union(input, where_);
      if (kind != "parameter" && kind != "buffer") continue;
      const auto name =
          exported_text(exported_member(exported_member(spec, "arg", where_), "name", where_), where_);
      return exported_device(exported_member(meta_of(name), "device", where_), where_);
    }
    return torch::kCPU;
  }

  /// Each node lists the modules that it was called in, "key,path,package.Class;" and so on, outermost first.
  void read_classes() {
    for (const auto& node : exported_member(graph_, "nodes", where_)) {
      if (!node.contains("metadata") || !node["metadata"].is_object() ||
          !node["metadata"].contains("nn_module_stack"))
        continue;
      const auto& text = exported_text(node["metadata"]["nn_module_stack"], where_);
      std::string_view stack = text;
      while (!stack.empty()) {
        const auto module = stack.substr(0, stack.find(';'));
        stack.remove_prefix(std::min(module.size() + 1, stack.size()));
        const auto key_end = module.find(','), path_end = module.rfind(',');
        if (!module.starts_with("L__self__") || key_end == path_end) continue;
        program_.classes.emplace(module.substr(key_end + 1, path_end - key_end - 1),
                                 printable(module.substr(module.find_last_of(",.") + 1)));
      }
    }
  }

  void add_input(const ExportedJson& input, const ExportedJson& graph_input, std::size_t index) {
    using Kind = ExportedState::Kind;
    const auto [kind, spec] = exported_union(input, where_);
    const auto check_name = [&](const std::string& name) {
      if (name.empty() || !is_tensor(graph_input) || exported_name(graph_input, where_) != name)
        throw exported_fault(where_, "'{}' isn't the tensor in its place of the graph's inputs",
                             printable(name));
    };
    const auto add_state = [&, &given = spec](Kind which, std::string_view name_of, bool is_persistent) {
      const auto name = exported_text(exported_member(given, name_of, where_), where_);
      const auto value =
          exported_text(exported_member(exported_member(given, "arg", where_), "name", where_), where_);
      check_name(value);
      const auto& requires_grad = exported_member(meta_of(value), "requires_grad", where_);
      program_.states.push_back({which, name, index, requires_grad == true, is_persistent});
    };
    if (kind == "parameter") return add_state(Kind::parameter, "parameter_name", true);
    if (kind == "buffer")
      return add_state(Kind::buffer, "buffer_name", exported_member(spec, "persistent", where_) == true);
    if (kind == "tensor_constant") return add_state(Kind::constant, "tensor_constant_name", false);
    if (kind == "constant_input") return;
    if (kind != "user_input")
      throw exported_fault(where_, "an input is a {}, which isn't supported", printable(kind));
    const auto& argument = exported_member(spec, "arg", where_);
    if (is_tensor(argument)) {
      check_name(exported_name(argument, where_));
      return add_user_input(exported_name(argument, where_), index);
    }
    if (!exported_name(argument, where_).empty())
      throw exported_fault(where_, "its input '{}' is a number that varies: it must be a tensor",
                           printable(exported_name(argument, where_)));
  }

  void add_user_input(const std::string& name, std::size_t index) {
    const auto& meta = meta_of(name);
    const auto where = fmt::format("{}: input '{}'", where_, printable(name));
    const auto spelled = spellings_.find(name);
    ExportedInput input{spelled == spellings_.end() ? name : spelled->second, index,
                        exported_dtype(exported_member(meta, "dtype", where), where)};
    for (const auto& size : exported_list(exported_member(meta, "sizes", where), where)) {
      const auto [kind, value] = exported_union(size, where);
      input.sizes.push_back(
          kind == "as_int"
              ? ExportedSize{.fixed = exported_integer(value, where)}
              : symbolic(exported_text(exported_member(value, "expr_str", where), where), where));
    }
    program_.inputs.push_back(std::move(input));
  }

  ExportedSize symbolic(const std::string& text, std::string_view where) {
    SizeExpression expression(text, where);
    ExportedSize size;
    if (!expression.is_symbol()) {
      size.formula = std::move(expression);
      return size;
    }
    size.symbol = expression.variables().front().name;
    const auto& ranges = exported_member(json_, "range_constraints", where_);
    if (const auto range = ranges.find(size.symbol); range != ranges.end()) {
      const auto [least, most] = limits_of(*range, where);
      size.least = least.value_or(0);
      size.most = most;
    }
    return size;
  }

  using Limits = std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>;
  static Limits limits_of(const ExportedJson& range, std::string_view where) {
    const auto& least = exported_member(range, "min_val", where);
    const auto& most = exported_member(range, "max_val", where);
    Limits limits;
    // torch.export writes a minimum of 2 even for sizes that may also be 0 or 1.
    if (!least.is_null() && exported_integer(least, where) > 2) limits.first = exported_integer(least, where);
    if (!most.is_null()) limits.second = exported_integer(most, where);
    return limits;
  }

  void find_norms() {
    std::set<ExportedGraph::Slot> found;
    for (const auto& node : program_.graph.nodes) {
      if (!node.operation || node.operation->schema().name().find("norm") == std::string::npos) continue;
      const auto& formal = node.operation->schema().arguments();
      for (std::size_t i = 0; i < formal.size(); ++i)
        if ((formal[i].name() == "weight" || formal[i].name() == "bias") && !node.arguments[i].uses.empty())
          found.insert(node.arguments[i].uses[0].slot);
    }
    for (auto& state : program_.states) state.normalizes = found.contains(program_.graph.inputs[state.index]);
  }

  /// Reads the conditions that aren't part of a single input's sizes.
  void read_conditions() {
    for (const auto& [text, range] : exported_member(json_, "range_constraints", where_).items()) {
      const auto [least, most] = limits_of(range, where_);
      if (least || most) add_condition({SizeExpression(text, where_), {}, least, most});
    }
    const auto guards = json_.find("guards_code");
    if (guards == json_.end()) return;
    for (const auto& guard : exported_list(*guards, where_))
      add_condition({SizeExpression(exported_text(guard, where_), where_), {}});
  }

  void add_condition(ExportedCondition condition) {
    for (const auto& variable : condition.expression.variables()) {
      if (variable.kind == SizeVariable::Kind::other) return;  // about a constant, not a tensor
      if (variable.kind == SizeVariable::Kind::symbol) {
        condition.inputs.push_back(0);
        continue;
      }
      const auto found = std::ranges::find_if(program_.inputs, [&](const auto& input) {
        return placeholder_of(input.name) == placeholder_of(variable.name);
      });
      if (found == program_.inputs.end() ||
          (variable.kind != SizeVariable::Kind::storage_offset &&
           variable.dimension >= static_cast<std::int64_t>(found->sizes.size())))
        throw exported_fault(where_, "its condition '{}' is about a size that no input has",
                             condition.expression.text());
      condition.inputs.push_back(static_cast<std::size_t>(found - program_.inputs.begin()));
      program_.has_conditions_of_layout |= variable.kind != SizeVariable::Kind::size;
    }
    program_.conditions.push_back(std::move(condition));
  }

  /// Derives the name of a graph's input from its path as torch.export does.
  static std::string placeholder_of(std::string_view name) {
    auto result = lower_case(name);
    std::ranges::replace_if(
        result, [](unsigned char c) { return !std::isalnum(c); }, '_');
    return result;
  }

  /// The signature of the whole model; null if the file has none.
  const ExportedJson& signature_of_model() const {
    static const ExportedJson none;
    for (const auto& entry : exported_list(exported_member(module_, "module_call_graph", where_), where_))
      if (exported_member(entry, "fqn", where_) == "") return exported_member(entry, "signature", where_);
    return none;
  }

  /// Finds how input names are spelled in Python: the graph has them in lower case, but the structure of the
  /// inputs keeps the spelling.
  void read_spellings() {
    const auto& signature = signature_of_model();
    if (signature.is_null()) return;
    const auto& text = exported_text(exported_member(signature, "in_spec", where_), where_);
    if (text.empty()) return;
    const auto spec = exported_json(text, where_);
    if (!spec.is_array() || spec.size() != 2 || spec[0] != 1) return;
    for (const auto& leaf : LeafNames(spec[1], {}, where_).names) {
      if (!leaf.starts_with("1.")) continue;  // part 1 holds the keyword arguments
      auto name = leaf.substr(2);
      std::ranges::replace(name, '.', '_');
      spellings_.emplace(placeholder_of(name), name);
    }
  }

  LeafNames output_names() const {
    const auto& signature = signature_of_model();
    if (signature.is_null()) return LeafNames({{"type", nullptr}}, {}, where_);
    const auto spec =
        exported_json(exported_text(exported_member(signature, "out_spec", where_), where_), where_);
    if (!spec.is_array() || spec.size() != 2 || spec[0] != 1)
      throw exported_fault(where_, "out_spec isn't of version 1");
    return LeafNames(spec[1], module_.value("treespec_namedtuple_fields", ExportedJson()), where_);
  }

  std::string_view where_;
  const ExportedJson& json_;
  const ExportedJson& module_;
  const ExportedJson& graph_;
  std::unordered_map<std::string, const ExportedJson*> values_;
  std::unordered_map<std::string, std::string> spellings_;
  ExportedProgram program_;
};

}  // namespace

ExportedProgram read_program(std::string_view json, std::string_view where) {
  const auto program = exported_json(json, where);
  check_version(program, where);
  return ProgramReader(program, where).read();
}

namespace {

/// "at least 4 and at most 8"; empty without limits.
std::string size_limits(std::optional<std::int64_t> least, std::optional<std::int64_t> most) {
  std::vector<std::string> parts;
  if (least && *least > 0) parts.push_back(fmt::format("at least {}", *least));
  if (most) parts.push_back(fmt::format("at most {}", *most));
  return fmt::format("{}", fmt::join(parts, " and "));
}

/// "float32 [any, 16, 4 to 8]".
std::string expected_sizes(const ExportedInput& input) {
  std::vector<std::string> sizes;
  for (const auto& size : input.sizes) {
    if (size.fixed >= 0)
      sizes.push_back(std::to_string(size.fixed));
    else if (size.least > 0 && size.most)
      sizes.push_back(fmt::format("{} to {}", size.least, *size.most));
    else
      sizes.push_back(size.least > 0 || size.most ? size_limits(size.least, size.most) : "any");
  }
  return fmt::format("{} [{}]", dtype_name(input.dtype), fmt::join(sizes, ", "));
}

/// Checks the sizes of one batch.
class SizeCheck {
 public:
  SizeCheck(const ExportedProgram& program, const std::vector<torch::Tensor>& given)
      : program_(program), given_(given) {}

  void run() {
    for (std::size_t i = 0; i < given_.size(); ++i)
      if (given_[i].defined()) check_input(i);
    while (std::erase_if(dependent_, [&](const Dependent& each) { return check_dependent(each); }) > 0) {
    }
    for (const auto& condition : program_.conditions) check_condition(condition);
  }

 private:
  /// A symbol's value, and the size from which it was found.
  struct Known {
    std::int64_t value, size;
    std::string place;
  };
  struct Dependent {
    const SizeExpression* formula;
    std::int64_t size;
    std::string place;
  };

  void check_input(std::size_t i) {
    const auto& [name, index, dtype, sizes] = program_.inputs[i];
    const auto& tensor = given_[i];
    const auto wrong = [&](std::string_view advice) {
      return DataError(fmt::format("{}: must be {}, as when the model was exported{}", input_text(i),
                                   expected_sizes(program_.inputs[i]), advice));
    };
    if (tensor.is_floating_point() != c10::isFloatingType(dtype)) throw wrong("");
    if (static_cast<std::size_t>(tensor.dim()) != sizes.size()) throw wrong("");
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const auto size = tensor.size(static_cast<std::int64_t>(d));
      if (sizes[d].fixed >= 0 && size != sizes[d].fixed)
        throw wrong(fmt::format("; to take other sizes in dimension {}, export it with a dynamic one", d));
      if (size < sizes[d].least || size > sizes[d].most.value_or(size))
        throw DataError(fmt::format("{}: dimension {} must be {}, as when the model was exported",
                                    input_text(i), d, size_limits(sizes[d].least, sizes[d].most)));
      const auto place = fmt::format("dimension {} of {}", d, name);
      if (sizes[d].formula) dependent_.push_back({&*sizes[d].formula, size, place});
      if (sizes[d].symbol.empty()) continue;
      const auto [known, is_new] = symbols_.emplace(sizes[d].symbol, Known{size, size, place});
      if (!is_new && known->second.size != size)
        throw unequal(place, size, known->second.place, known->second.size);
    }
  }

  /// Checks a size given by a formula of symbols or, if one symbol isn't known yet, solves for it. Returns
  /// false if several aren't known yet.
  bool check_dependent(const Dependent& each) {
    const auto& variables = each.formula->variables();
    std::vector<std::int64_t> values(variables.size());
    std::optional<std::size_t> unknown;
    std::string others;
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const auto known = symbols_.find(variables[i].name);
      if (known == symbols_.end()) {
        if (unknown) return false;
        unknown = i;
      } else {
        values[i] = known->second.value;
        others +=
            fmt::format("{}{} is {}", others.empty() ? "" : " and ", known->second.place, known->second.size);
      }
    }
    if (unknown) {
      solve(each, variables[*unknown].name, [&](std::int64_t value) {
        values[*unknown] = value;
        return each.formula->evaluate(values).toScalar().toDouble();
      });
    } else if (const double expected = each.formula->evaluate(values).toScalar().toDouble();
               static_cast<double>(each.size) != expected) {
      throw DataError(fmt::format("{} is {}: must be {}, since {}", each.place, each.size, expected, others));
    }
    return true;
  }

  /// Solves a n + b = size for n. Only such formulas are solved, since torch.export writes no others for an n
  /// that isn't a size itself.
  template <class Formula>
  void solve(const Dependent& each, const std::string& symbol, Formula formula) {
    const double b = formula(0), a = formula(1) - b;
    if (a == 0 || formula(2) != b + 2 * a || formula(5) != b + 5 * a) return;
    const double value = (static_cast<double>(each.size) - b) / a;
    if (value != std::round(value))
      throw DataError(fmt::format(
          "{} is {}: must be {} n{} with an integer n, as when the model was exported", each.place, each.size,
          a, b == 0 ? "" : fmt::format(" {} {}", b < 0 ? "-" : "+", std::abs(b))));
    for (const auto& condition : program_.conditions) {
      if (!condition.expression.is_symbol() || condition.expression.variables().front().name != symbol)
        continue;
      const auto size_of = [&](std::optional<std::int64_t> limit) {
        return limit ? std::optional(static_cast<std::int64_t>(a * static_cast<double>(*limit) + b))
                     : std::nullopt;
      };
      if (value < static_cast<double>(condition.least.value_or(0)) ||
          (condition.most && value > static_cast<double>(*condition.most)))
        throw DataError(fmt::format("{} is {}: must be {}, as when the model was exported", each.place,
                                    each.size,
                                    a > 0 ? size_limits(size_of(condition.least), size_of(condition.most))
                                          : size_limits(size_of(condition.most), size_of(condition.least))));
    }
    symbols_.emplace(symbol, Known{static_cast<std::int64_t>(value), each.size, each.place});
  }

  void check_condition(const ExportedCondition& condition) const {
    const auto& variables = condition.expression.variables();
    std::vector<std::int64_t> values;
    std::vector<std::string> places;
    std::vector<std::string> inputs;
    for (std::size_t i = 0; i < variables.size(); ++i) {
      using Kind = SizeVariable::Kind;
      if (variables[i].kind == Kind::symbol) {
        const auto known = symbols_.find(variables[i].name);
        if (known == symbols_.end()) return;
        values.push_back(known->second.value);
        inputs.push_back(fmt::format("{} is {}", known->second.place, known->second.size));
        continue;
      }
      const auto& tensor = given_[condition.inputs[i]];
      if (!tensor.defined()) return;
      const auto d = variables[i].dimension;
      values.push_back(variables[i].kind == Kind::size     ? tensor.size(d)
                       : variables[i].kind == Kind::stride ? tensor.stride(d)
                                                           : tensor.storage_offset());
      places.push_back(fmt::format("dimension {} of {}", d, program_.inputs[condition.inputs[i]].name));
      if (auto text = input_text(condition.inputs[i]); std::ranges::find(inputs, text) == inputs.end())
        inputs.push_back(std::move(text));
    }
    if (holds(condition, values)) return;
    if (condition.expression.is_equality() && places.size() == 2)
      throw unequal(places[0], values[0], places[1], values[1]);
    const auto text = condition.expression.text();
    throw DataError(
        fmt::format("{}: {}, as when the model was exported", fmt::join(inputs, ", "),
                    condition.least || condition.most
                        ? fmt::format("{} must be {}", text, size_limits(condition.least, condition.most))
                        : fmt::format("the sizes must satisfy {}", text)));
  }

  static bool holds(const ExportedCondition& condition, const std::vector<std::int64_t>& values) try {
    const auto value = condition.expression.evaluate(values).toScalar();
    if (!condition.least && !condition.most) return value.toBool();
    return (!condition.least || value.toDouble() >= static_cast<double>(*condition.least)) &&
           (!condition.most || value.toDouble() <= static_cast<double>(*condition.most));
  } catch (const DataError&) {  // a division by zero
    return false;
  }

  std::string input_text(std::size_t i) const {
    return fmt::format("{} is {}", program_.inputs[i].name, describe(given_[i]));
  }

  static DataError unequal(std::string_view a, std::int64_t size_a, std::string_view b, std::int64_t size_b) {
    return DataError(fmt::format("{} is {}, but {} is {}: they must be equal", a, size_a, b, size_b));
  }

  const ExportedProgram& program_;
  const std::vector<torch::Tensor>& given_;
  std::map<std::string, Known> symbols_;
  std::vector<Dependent> dependent_;
};

}  // namespace

void ExportedProgram::check_inputs(const std::vector<torch::Tensor>& given) const {
  SizeCheck(*this, given).run();
}

}  // namespace etude::inline v0::detail
