#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "etude/reflect/command_line.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/json_fields.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/study/trial.hpp"

namespace etude::inline v0::detail {

/// A field that a search may set.
struct SearchField {
  enum class Kind { real, whole, boolean, choice, other };

  JsonField field;
  FieldDoc doc;
  Kind kind;
  std::vector<std::string_view> choices;  ///< the names of an enum's values
  std::string group;                      ///< the struct's name

  /// Throws ArgumentError, which names the field, for a value of the wrong type.
  void set(const nlohmann::ordered_json& value) const;
};

template <class T>
constexpr SearchField::Kind kind_of() {
  if constexpr (is_optional<T>) return kind_of<typename T::value_type>();
  if (std::same_as<T, bool>) return SearchField::Kind::boolean;
  if (ReflectedEnum<T>) return SearchField::Kind::choice;
  if (std::integral<T>) return SearchField::Kind::whole;
  if (std::floating_point<T>) return SearchField::Kind::real;
  return SearchField::Kind::other;
}

/// The fields of all structs, which must outlive them.
template <class... Structs>
std::vector<SearchField> search_fields(Structs&... structs) {
  std::vector<SearchField> fields;
  const auto add = [&]<class T>(T& object) {
    for_each_field(object, [&]<class Member>(std::string_view name, const FieldDoc& doc, Member& member) {
      fields.push_back({{name, &member, &json_type<Member>()},
                        doc,
                        kind_of<Member>(),
                        choices_of<typename without_optional<Member>::type>(),
                        std::string(short_type_name<T>())});
    });
  };
  (add(structs), ...);
  return fields;
}

template <class T>
void collect_all_faults(const T& object, std::vector<std::string>& into) {
  for (auto& fault : field_faults(object)) into.push_back(std::move(fault));
  collect_faults(object, into);
}

/// The values of a field that is `searched`. Throws ArgumentError for a field whose type can't be searched.
Distribution searched_values(const SearchField& field);

/// Asks the trial for each field that is `searched`, in order, and sets it; skips fields whose condition
/// isn't met.
void suggest_fields(Trial& trial, const std::vector<SearchField>& fields);

/// Finds a field by name. Throws ArgumentError with a suggestion if there is none.
const SearchField& find_field(const std::vector<SearchField>& fields, std::string_view name);

/// Throws ArgumentError for a range that goes beyond the field's allowed values.
void check_range(const SearchField& field, const Distribution& distribution);

}  // namespace etude::inline v0::detail

namespace etude::inline v0 {

/// Asks the trial for each field of the struct that is `searched`, and sets it; for use in a custom
/// `hp_space`.
template <ReflectedStruct T>
void suggest(Trial& trial, T& object) {
  detail::suggest_fields(trial, detail::search_fields(object));
}

}  // namespace etude::inline v0
