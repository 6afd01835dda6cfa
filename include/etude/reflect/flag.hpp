#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/reflect/allowed.hpp"
#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/words.hpp"

namespace etude::inline v0::detail {

/// A type-erased field of one of the structs.
struct Flag {
  std::string name, doc, group, placeholder, allowed, range, default_text;
  std::vector<std::string_view> choices;  // for an enum
  Spelling spelling = Spelling::flag;
  bool is_switch = false, is_list = false;
  bool is_required = false;  // whether a positional field must be given
  std::function<bool(const std::vector<std::string>&)> read;
  std::function<void(std::vector<std::string>&)> check;  // reports values that the definition doesn't allow
};

template <class T>
std::vector<std::string_view> choices_of() {
  if constexpr (ReflectedEnum<T>) {
    return {enum_names<T>.begin(), enum_names<T>.end()};
  } else {
    return {};
  }
}

template <class T>
Flag make_flag(std::string_view name, const FieldDoc& doc, std::string_view group, T& member) {
  using Plain = typename without_optional<T>::type;
  auto range = doc.allowed.text();
  auto value = placeholder<T>();
  auto allowed = allowed_values<Plain>("none");
  if constexpr (List<Plain>) {
    if (doc.spelling == Spelling::repeated) {
      value = placeholder<typename Plain::value_type>();
      allowed = allowed_values<typename Plain::value_type>("none");
    }
  }
  return {
      .name = std::string(name),
      .doc = std::string(doc.text),
      .group = std::string(group),
      .placeholder = std::move(value),
      .allowed =
          std::move(allowed) + (range.empty() ? "" : ", ") + range + (is_optional<T> ? ", or none" : ""),
      .range = std::move(range),
      .default_text = spell_words(member),
      .choices = choices_of<Plain>(),
      .spelling = doc.spelling,
      .is_switch = std::same_as<Plain, bool>,
      .is_list = List<Plain>,
      .is_required = !is_optional<T> && (!List<Plain> || doc.allowed.is_not_empty()),
      .read = [is_literal = doc.spelling != Spelling::flag, &member](
                  const std::vector<std::string>& words) { return read_words(words, member, is_literal); },
      .check = [name = std::string(name), allowed = doc.allowed,
                &member](std::vector<std::string>& faults) { check_field(name, allowed, member, faults); }};
}

#define ETUDE_DETAIL_FLAG(...) \
  extern template Flag make_flag(std::string_view, const FieldDoc&, std::string_view, __VA_ARGS__&)
ETUDE_DETAIL_FOR_COMMON_TYPES(ETUDE_DETAIL_FLAG);
#undef ETUDE_DETAIL_FLAG

/// A positional field's name in messages and in the usage line: in capitals.
std::string positional_name(const Flag& flag);

/// The positional fields in the usage line, such as "SOURCES ... [TARGET]".
std::string positional_usage(const std::vector<Flag>& flags);

/// The parts of a help text besides the flags.
struct HelpFrame {
  std::string_view program, about = {}, notes = {};
  bool has_config = true;
};

std::string help_text(const std::vector<Flag>& flags, const HelpFrame& frame);

}  // namespace etude::inline v0::detail
