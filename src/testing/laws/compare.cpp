#include "etude/testing/laws/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/lower_case.hpp"

namespace etude::inline v0::laws::detail {

Difference difference(const std::vector<std::pair<std::string, torch::Tensor>>& expected,
                      const std::vector<std::pair<std::string, torch::Tensor>>& seen) {
  if (expected.size() != seen.size())
    return fmt::format("{} weights and buffers instead of {}", seen.size(), expected.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto& [name, was] = expected[i];
    const auto& [other, is] = seen[i];
    if (name != other || was.sizes() != is.sizes() || was.scalar_type() != is.scalar_type())
      return fmt::format("the weights: {} is {} now", name, other);
    if (was.equal(is) || (was.is_floating_point() && was.allclose(is, 0, 0, true))) continue;
    const auto apart = (was.to(torch::kDouble) - is.to(torch::kDouble)).abs().max().item<double>();
    return fmt::format("the weights: {} differs by up to {:.3g}", name, apart);
  }
  return {};
}

Difference difference(const Moment& expected, const Moment& seen) {
  if (!expected.random.equal(seen.random)) return "the random numbers to come";
  for (std::size_t i = 0; i < std::min(expected.modes.size(), seen.modes.size()); ++i)
    if (expected.modes[i] != seen.modes[i])
      return fmt::format("the mode of {}: it is in {} mode", seen.modes[i].first,
                         seen.modes[i].second ? "training" : "evaluation");
  return difference(expected.weights, seen.weights);
}

bool Varying::has(const std::string& name) const {
  static constexpr std::array words{"time",     "times", "runtime",   "second", "seconds", "elapsed",
                                    "duration", "date",  "timestamp", "memory", "mem",     "throughput"};
  if (std::ranges::find(names_, name) != names_.end()) return true;
  std::string word;
  for (const char c : etude::detail::lower_case(name) + "_") {
    if (c >= 'a' && c <= 'z') {
      word += c;
    } else if (std::ranges::find(words, word) != words.end()) {
      return true;
    } else {
      word.clear();
    }
  }
  return false;
}

Difference difference(const nlohmann::ordered_json& expected, const nlohmann::ordered_json& seen,
                      const Varying& varying, const std::string& place, double tolerance) {
  if (expected.is_object() && seen.is_object()) {
    for (const auto& [name, was] : expected.items())
      if (!seen.contains(name)) return fmt::format("{} has no {}", place, name);
    for (const auto& [name, is] : seen.items()) {
      if (!expected.contains(name)) return fmt::format("{} has {} too, which is {}", place, name, is.dump());
      const auto& was = expected.at(name);
      if (varying.has(name) && was.is_number() == is.is_number() && was.is_null() == is.is_null()) continue;
      if (auto found = difference(was, is, varying, fmt::format("{}.{}", place, name), tolerance))
        return found;
    }
    return {};
  }
  if (expected.is_array() && seen.is_array()) {
    if (expected.size() != seen.size())
      return fmt::format("{} has {} items, and had {}", place, seen.size(), expected.size());
    for (std::size_t i = 0; i < seen.size(); ++i)
      if (auto found = difference(expected[i], seen[i], varying, fmt::format("{}[{}]", place, i), tolerance))
        return found;
    return {};
  }
  if (expected == seen) return {};
  if (expected.is_number() && seen.is_number()) {
    const auto was = expected.get<double>(), is = seen.get<double>();
    if ((std::isnan(was) && std::isnan(is)) ||
        std::abs(was - is) <= tolerance * std::max(std::abs(was), std::abs(is)))
      return {};
  }
  return fmt::format("{} is {}, and was {}", place, seen.dump(), expected.dump());
}

Difference difference(const Run& expected, const Run& seen, const Varying& varying, bool with_states,
                      bool from_the_end) {
  const auto is_step = [](const Moment& moment) { return moment.event == "StepEnd"; };
  auto was = expected.moments, is = seen.moments;
  if (from_the_end) {
    std::erase_if(was, [&](const auto& moment) { return !is_step(moment); });
    std::erase_if(is, [&](const auto& moment) { return !is_step(moment); });
    if (!is.empty())
      std::erase_if(was, [&](const auto& moment) { return moment.step < is.front().step; });
    else
      was.clear();
    was.push_back(expected.moments.back());
    is.push_back(seen.moments.back());
  }
  for (std::size_t i = 0; i < std::min(was.size(), is.size()); ++i) {
    if (was[i].event != is[i].event || was[i].step != is[i].step)
      return fmt::format("the training reaches {} where it reached {}", is[i].words().substr(3),
                         was[i].words().substr(3));
    if (const auto found = difference(was[i], is[i])) return fmt::format("{} {}", is[i].words(), *found);
  }
  if (was.size() != is.size())
    return fmt::format("the training has {} moments, and had {}", is.size(), was.size());
  if (auto found = difference(expected.logs, seen.logs, varying, "log_history")) return found;
  for (std::size_t i = 0; with_states && i < seen.states.size(); ++i)
    if (auto found = difference(expected.states.at(i < expected.states.size() ? i : 0), seen.states[i],
                                varying, "its state"))
      return found;
  return {};
}

void replace_folder(nlohmann::ordered_json& json, const std::filesystem::path& folder) {
  if (json.is_structured()) {
    for (auto& item : json) replace_folder(item, folder);
  } else if (json.is_string()) {
    auto& text = json.get_ref<std::string&>();
    if (text.starts_with(folder.string())) text.replace(0, folder.string().size(), "<folder>");
  }
}

}  // namespace etude::inline v0::laws::detail
