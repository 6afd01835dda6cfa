#include "etude/tune/search_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/nearest.hpp"

namespace etude::inline v0::detail {

void SearchField::set(const nlohmann::ordered_json& value) const {
  JsonReader reader;
  field.type->read(reader, value, field.value, std::string(field.name));
  reader.throw_faults();
}

Distribution searched_values(const SearchField& field) {
  const auto& searched = field.doc.searched;
  const auto fault = [&](std::string_view allowed) {
    return ArgumentError(fmt::format("{} is searched: {}", field.field.name, allowed));
  };
  const bool is_number = field.kind == SearchField::Kind::real || field.kind == SearchField::Kind::whole;
  if (!searched.has_range && (searched.is_log || searched.spacing))
    throw fault("log() and step() need a range, searched(low, high)");
  if (searched.has_range && !is_number) throw fault("must have no range, since it isn't a number");
  Choices choices;
  for (const auto name : searched.names) choices.choices.emplace_back(name);
  for (const double number : searched.numbers) {
    if (const auto whole = exact<std::int64_t>(number); whole && field.kind == SearchField::Kind::whole)
      choices.choices.emplace_back(*whole);
    else
      choices.choices.emplace_back(number);
  }
  if (!choices.choices.empty()) return choices;
  if (is_number) {
    if (!searched.has_range) throw fault("must have a range, searched(low, high)");
    if (searched.spacing && !(*searched.spacing > 0)) throw fault("must have a positive step");
  }
  switch (field.kind) {
    case SearchField::Kind::boolean:
      return Choices{{false, true}};
    case SearchField::Kind::choice:
      for (const auto name : field.choices) choices.choices.emplace_back(name);
      return choices;
    case SearchField::Kind::real:
      return FloatRange{searched.low, searched.high, searched.is_log, searched.spacing};
    case SearchField::Kind::whole: {
      const auto first = exact<std::int64_t>(searched.low), last = exact<std::int64_t>(searched.high),
                 step = exact<std::int64_t>(searched.spacing.value_or(1));
      if (!first || !last || !step)
        throw ArgumentError(fmt::format("{} is searched from {} to {}: must be whole numbers",
                                        field.field.name, searched.low, searched.high));
      return IntRange{*first, *last, searched.is_log, *step};
    }
    case SearchField::Kind::other:
      break;
  }
  throw fault("must name its values by searched_among");
}

namespace {

/// True if an earlier field has the value that this field's condition names.
bool condition_holds(const std::vector<SearchField>& fields, const SearchField& field) {
  const auto& searched = field.doc.searched;
  const auto& other = find_field(fields, searched.condition);
  if (&other >= &field)
    throw ArgumentError(fmt::format("{} is searched only if {} is {}: {} must be an earlier field",
                                    field.field.name, searched.condition, searched.condition_value,
                                    searched.condition));
  const auto value = other.field.type->write(other.field.value);
  // The field's type parses both texts, so that "1" equals "1.0".
  other.set(std::string(searched.condition_value));
  const auto wanted = other.field.type->write(other.field.value);
  other.set(value);
  return value == wanted;
}

}  // namespace

void suggest_fields(Trial& trial, const std::vector<SearchField>& fields) {
  for (const auto& field : fields) {
    const auto& searched = field.doc.searched;
    if (!searched.is_searched) continue;
    if (!searched.condition.empty() && !condition_holds(fields, field)) continue;
    field.set(trial.suggest(std::string(field.field.name), searched_values(field)));
  }
}

const SearchField& find_field(const std::vector<SearchField>& fields, std::string_view name) {
  std::vector<std::string_view> names, groups;
  for (const auto& field : fields) {
    if (field.field.name == name) return field;
    names.push_back(field.field.name);
    if (std::ranges::find(groups, field.group) == groups.end()) groups.push_back(field.group);
  }
  throw ArgumentError(fmt::format("hp_space has {}: must be a field of {}{}", name, fmt::join(groups, " or "),
                                  did_you_mean(name, names)));
}

void check_range(const SearchField& field, const Distribution& distribution) {
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
  } else {
    // Setting the field throws if it doesn't allow the choice.
    const auto before = field.field.type->write(field.field.value);
    for (const auto& choice : std::get<Choices>(distribution).choices) field.set(choice);
    field.set(before);
  }
}

}  // namespace etude::inline v0::detail
