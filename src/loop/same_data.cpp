#include "etude/loop/same_data.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/io/checksum.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

std::string description_of(const Dataset& dataset) {
  if (dataset.is_divided()) return "a part of the data";
  const auto size = dataset.size();
  auto text = fmt::format("{}{} example{}", dataset.is_indexed() ? "" : "a stream of ",
                          size ? fmt::format("{}", *size) : "an unknown number of", size == 1 ? "" : "s");
  if (const auto fingerprint = dataset.fingerprint(); !fingerprint.empty())
    text += fmt::format(" (checksum {})", checksum(std::as_bytes(std::span(fingerprint))).substr(0, 12));
  return text;
}

/// Returns a text such as "rank 0 has 20 examples, ranks 1, 2 have 10 examples". `texts` has one for each
/// rank.
std::string list_by_rank(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> groups;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    auto group = std::ranges::find_if(groups, [&](const auto& each) { return each.first == texts[rank]; });
    if (group == groups.end()) group = groups.insert(group, {texts[rank], {}});
    group->second.push_back(rank);
  }
  std::vector<std::string> parts;
  for (const auto& [text, ranks] : groups)
    parts.push_back(fmt::format("rank{} {} {} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
                                ranks.size() == 1 ? "has" : "have", text));
  return fmt::format("{}", fmt::join(parts, ", "));
}

using NamedDatasets = std::vector<std::pair<std::string, Dataset>>;

void check_same_data(const Ranks& ranks, const NamedDatasets& datasets) {
  if (!ranks.several()) return;
  auto own = nlohmann::json::array();
  for (const auto& [name, dataset] : datasets) own.push_back({name, description_of(dataset)});
  const auto all = ranks.gather_values(own);
  std::size_t most = 0;
  for (const auto& of_rank : all) most = std::max(most, of_rank.size());
  for (std::size_t i = 0; i < most; ++i) {
    std::string name;
    std::vector<std::string> texts;
    for (const auto& of_rank : all) {
      if (i >= of_rank.size()) {
        texts.emplace_back("none");
        continue;
      }
      const auto called = of_rank[i][0].get<std::string>();
      if (name.empty()) name = called;
      const auto text = of_rank[i][1].get<std::string>();
      texts.push_back(called == name ? text : fmt::format("{}, {}", called, text));
    }
    if (std::ranges::count(texts, texts[0]) == std::ssize(texts)) continue;
    throw DataError(fmt::format(
        "{} isn't the same in all processes: {}: must be the same; declare data that is divided already by "
        "etude::already_divided(dataset)",
        name, list_by_rank(texts)));
  }
}

}  // namespace

}  // namespace detail

void check_same_data(const RunSettings& run, const DataLoader* train_dataloader) {
  detail::NamedDatasets datasets;
  if (train_dataloader) datasets.emplace_back("train_dataset", train_dataloader->dataset());
  if (!run.overrides.get_eval_dataloader)
    for (const auto& [name, dataset] : run.options.eval_dataset)
      datasets.emplace_back(name.empty() ? "eval_dataset" : fmt::format("eval_dataset '{}'", name), dataset);
  detail::check_same_data(run.ranks, datasets);
}

void check_same_data(const Ranks& ranks, const std::string& name, const Dataset& dataset) {
  detail::check_same_data(ranks, {{name, dataset}});
}

}  // namespace etude::inline v0
