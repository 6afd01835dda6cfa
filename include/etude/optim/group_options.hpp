#pragma once

#include <c10/util/Type.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/allowed.hpp"
#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/three_way.hpp"

/// Saves and restores the options of parameter groups.
namespace etude::inline v0::detail {

/// The name of an object's class, without namespaces or template arguments.
template <typename Class>
std::string class_name(const Class& object) {
  std::string name = c10::demangle(typeid(object).name());
  name.resize(std::min(name.size(), name.find('<')));
  const auto colon = name.rfind(':');
  return colon == name.npos ? name : name.substr(colon + 1);
}

/// `below`, updated with the members of `above`.
nlohmann::ordered_json overlaid(nlohmann::ordered_json below, const nlohmann::ordered_json& above);

/// Reads options by name and continues after errors. Ranges are checked only for values that differ from
/// `given`, which the optimizer has already accepted.
class OptionReader {
 public:
  OptionReader(const nlohmann::ordered_json& values, const nlohmann::ordered_json& given, std::string prefix)
      : values_(values), given_(given), prefix_(std::move(prefix)) {}

  /// Sets `target` if a value of that name exists.
  template <typename T>
  void operator()(const char* name, T& target, const Allowed& range = allowed::finite()) {
    const auto found = values_.find(name);
    if (found == values_.end()) return;
    const std::string label = prefix_ + name;
    const auto faults = reader_.faults.size();
    reader_.read(*found, target, label);
    const auto given = given_.find(name);
    if (reader_.faults.size() > faults || (given != given_.end() && same_json(*given, *found))) return;
    check_field(label, range, target, reader_.faults);
  }

  void add_fault(std::string_view fault) { reader_.faults.push_back(prefix_ + std::string(fault)); }

  void check() const;

 private:
  const nlohmann::ordered_json& values_;
  const nlohmann::ordered_json& given_;
  std::string prefix_;
  JsonReader reader_;
};

/// The numeric options that every group has.
struct GroupNumbers {
  double lr = 0, initial_lr = 0, weight_decay = 0;
  std::map<std::string, double> kept;

  /// `kept_now` has the names of the numbers that the group keeps.
  GroupNumbers(const nlohmann::ordered_json& values, const nlohmann::ordered_json& given, std::string prefix,
               std::map<std::string, double> kept_now = {});

  void check() const { reader_.check(); }

 private:
  OptionReader reader_;
};

/// A parsed `options_state` with its structure checked.
struct SavedOptions {
  std::string type;
  std::vector<nlohmann::ordered_json> given, changed;

  SavedOptions(const nlohmann::ordered_json& saved, std::size_t groups);

 private:
  static std::vector<nlohmann::ordered_json> list_in(const nlohmann::ordered_json& saved, const char* name,
                                                     std::size_t groups);
};

/// Applies `three_way` to one group. Between different types of optimizer, only the learning rates and weight
/// decay are comparable, since other options may differ in meaning. The initial learning rate's differences
/// aren't reported, since the learning rate's are.
nlohmann::ordered_json merge_options(const nlohmann::ordered_json& given_then,
                                     const nlohmann::ordered_json& changed_then,
                                     const nlohmann::ordered_json& given_now, bool same_type,
                                     std::vector<std::string>& differences, std::string_view prefix);

}  // namespace etude::inline v0::detail
