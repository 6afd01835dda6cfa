#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/nearest.hpp"
#include "etude/tune/search_fields.hpp"

namespace etude::inline v0::detail {

ETUDE_INLINE void SearchField::set(const nlohmann::ordered_json& value) const {
  JsonReader reader;
  field.type->read(reader, value, field.value, std::string(field.name));
  reader.throw_faults();
}

ETUDE_INLINE Distribution searched_values(const SearchField& field) {
  const auto& searched = field.doc.searched;
  const double low = searched.low, high = searched.high, spacing = searched.spacing;
  Choices choices;
  for (const auto name : searched.names) choices.choices.emplace_back(name);
  for (const double number : searched.numbers) {
    if (const auto whole = exact<std::int64_t>(number); whole && field.kind == SearchField::Kind::whole)
      choices.choices.emplace_back(*whole);
    else
      choices.choices.emplace_back(number);
  }
  if (!choices.choices.empty()) return choices;
  const auto fault = [&](std::string_view allowed) {
    return ArgumentError(
        fmt::format("{} is searched from {} to {}: must be {}", field.field.name, low, high, allowed));
  };
  switch (field.kind) {
    case SearchField::Kind::boolean:
      return Choices{{false, true}};
    case SearchField::Kind::choice:
      for (const auto name : field.choices) choices.choices.emplace_back(name);
      return choices;
    case SearchField::Kind::real:
      return FloatRange{low, high, searched.is_log, spacing > 0 ? std::optional(spacing) : std::nullopt};
    case SearchField::Kind::whole: {
      const auto first = exact<std::int64_t>(low), last = exact<std::int64_t>(high),
                 step = exact<std::int64_t>(spacing > 0 ? spacing : 1);
      if (!first || !last || !step) throw fault("whole numbers");
      return IntRange{*first, *last, searched.is_log, *step};
    }
    case SearchField::Kind::other:
      break;
  }
  throw ArgumentError(
      fmt::format("{} is searched: must name its values by searched_among", field.field.name));
}

ETUDE_INLINE void suggest_fields(Trial& trial, const std::vector<SearchField>& fields) {
  for (const auto& field : fields) {
    const auto& searched = field.doc.searched;
    if (!searched.is_searched) continue;
    if (!searched.condition.empty()) {
      const auto& other = find_field(fields, searched.condition).field;
      const auto value = other.type->write(other.value);
      if ((value.is_string() ? value.get<std::string>() : value.dump()) != searched.condition_value) continue;
    }
    field.set(trial.suggest(std::string(field.field.name), searched_values(field)));
  }
}

ETUDE_INLINE const SearchField& find_field(const std::vector<SearchField>& fields, std::string_view name) {
  std::vector<std::string_view> names, groups;
  for (const auto& field : fields) {
    if (field.field.name == name) return field;
    names.push_back(field.field.name);
    if (std::ranges::find(groups, field.group) == groups.end()) groups.push_back(field.group);
  }
  throw ArgumentError(fmt::format("hp_space has {}: must be a field of {}{}", name, fmt::join(groups, " or "),
                                  did_you_mean(name, names)));
}

ETUDE_INLINE void check_range(const SearchField& field, const Distribution& distribution) {
  const auto check = [&](double end) {
    if (!field.doc.allowed.allows(end))
      throw ArgumentError(
          fmt::format("hp_space has {} for {}: must be {}", end, field.field.name, field.doc.allowed.text()));
  };
  if (const auto* range = std::get_if<FloatRange>(&distribution)) {
    check(range->low);
    check(range->high);
  } else if (const auto* whole = std::get_if<IntRange>(&distribution)) {
    check(static_cast<double>(whole->low));
    check(static_cast<double>(whole->high));
  }
}

}  // namespace etude::inline v0::detail
