#include "etude/optim/group_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace etude::inline v0::detail {

nlohmann::ordered_json overlaid(nlohmann::ordered_json below, const nlohmann::ordered_json& above) {
  for (const auto& [name, value] : above.items()) below[name] = value;
  return below;
}

void OptionReader::check() const {
  if (reader_.faults.empty()) return;
  throw CheckpointError(fmt::format("the optimizer options: {}", fmt::join(reader_.faults, "\n")));
}

GroupNumbers::GroupNumbers(const nlohmann::ordered_json& values, const nlohmann::ordered_json& given,
                           std::string prefix, std::map<std::string, double> kept_now)
    : kept(std::move(kept_now)), reader_(values, given, std::move(prefix)) {
  reader_("lr", lr, allowed::at_least(0));
  reader_("initial_lr", initial_lr, allowed::at_least(0));
  reader_("weight_decay", weight_decay, allowed::at_least(0));
  for (auto& [name, value] : kept) reader_(name.c_str(), value, allowed::at_least(0));
}

SavedOptions::SavedOptions(const nlohmann::ordered_json& saved, std::size_t groups) {
  const auto found = saved.find("type");
  if (found == saved.end() || !found->is_string())
    throw CheckpointError("the optimizer options must have a string 'type'");
  type = found->get<std::string>();
  given = list_in(saved, "given", groups);
  changed = list_in(saved, "changed", groups);
}

std::vector<nlohmann::ordered_json> SavedOptions::list_in(const nlohmann::ordered_json& saved,
                                                          const char* name, std::size_t groups) {
  const auto found = saved.find(name);
  if (found == saved.end() || !found->is_array())
    throw CheckpointError(fmt::format("the optimizer options must have a list '{}'", name));
  if (found->size() != groups) {
    throw CheckpointError(
        fmt::format("the checkpoint has {} parameter group{} in its optimizer's '{}', but the optimizer has "
                    "{}",
                    found->size(), found->size() == 1 ? "" : "s", name, groups));
  }
  for (const auto& group : *found) {
    if (!group.is_object())
      throw CheckpointError(
          fmt::format("the optimizer options '{}' must be objects, not {}", name, short_json(group)));
  }
  return {found->begin(), found->end()};
}

nlohmann::ordered_json merge_options(const nlohmann::ordered_json& given_then,
                                     const nlohmann::ordered_json& changed_then,
                                     const nlohmann::ordered_json& given_now, bool same_type,
                                     std::vector<std::string>& differences, std::string_view prefix) {
  nlohmann::ordered_json result = given_now, comparable = given_now,
                         initial = nlohmann::ordered_json::object();
  for (const auto& [name, value] : given_now.items()) {
    if (name == "initial_lr") {
      initial[name] = value;
      comparable.erase(name);
    } else if (!same_type && name != "lr" && name != "weight_decay") {
      comparable.erase(name);
    }
  }
  std::vector<std::string> unreported;
  result = overlaid(result, three_way(given_then, changed_then, comparable, differences, prefix));
  return overlaid(result, three_way(given_then, changed_then, initial, unreported));
}

}  // namespace etude::inline v0::detail
