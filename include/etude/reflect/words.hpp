#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/reflect/allowed.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/key_values.hpp"
#include "etude/reflect/read_text.hpp"

/// Conversion of command-line words to values, and back.
namespace etude::inline v0::detail {

/// Reads one word; returns false if T doesn't allow it. Throws ArgumentError with a more specific message.
template <class T>
bool read_word(const std::string& word, T& value) {
  if constexpr (is_optional<T>) {
    if (means_unset(word)) return value.reset(), true;
    typename T::value_type held{};
    if (!read_word(word, held)) return false;
    value = std::move(held);
    return true;
  } else if constexpr (OneText<T>) {
    return read_text(word, value);
  } else {
    nlohmann::ordered_json json;
    if (word.starts_with('{') || word.starts_with('[')) {
      json = parse_json(word);
    } else {
      json = parse_key_values(word);
    }
    JsonReader reader;
    reader.read(json, value, "");
    reader.throw_faults(", ");
    return true;
  }
}

/// Reads the words of a field. Unless `is_literal`, list elements may also share one word, separated by
/// commas or as a JSON list.
template <class T>
bool read_words(const std::vector<std::string>& words, T& value, bool is_literal = false) {
  if constexpr (is_optional<T>) {
    if (words.size() == 1 && means_unset(words[0])) return value.reset(), true;
    typename T::value_type held{};
    if (!read_words(words, held, is_literal)) return false;
    value = std::move(held);
    return true;
  } else if constexpr (List<T>) {
    if (!is_literal && words.size() == 1 && words[0].starts_with('[')) return read_word(words[0], value);
    T list{};
    const auto append = [&list](const std::string& word) {
      typename T::value_type item{};
      if (!read_word(word, item)) return false;
      list.push_back(std::move(item));
      return true;
    };
    for (const auto& text : words) {
      if (is_literal) {
        if (!append(text)) return false;
        continue;
      }
      for (std::string_view rest = text; !rest.empty();) {
        const std::string word(rest.substr(0, rest.find(',')));
        rest.remove_prefix(word.size() == rest.size() ? word.size() : word.size() + 1);
        if (!append(word)) return false;
      }
    }
    value = std::move(list);
    return true;
  } else {
    return words.size() == 1 && read_word(words[0], value);
  }
}

template <class T>
struct without_optional {
  using type = T;
};
template <class T>
struct without_optional<std::optional<T>> {
  using type = T;
};

/// The placeholder for a value of type T in a help text.
template <class T>
std::string placeholder() {
  if constexpr (is_optional<T>) {
    return placeholder<typename T::value_type>();
  } else if constexpr (List<T>) {
    return placeholder<typename T::value_type>() + " ...";
  } else if constexpr (std::same_as<T, bool>) {
    return "BOOL";
  } else if constexpr (std::integral<T>) {
    return "INT";
  } else if constexpr (std::floating_point<T>) {
    return "NUMBER";
  } else if constexpr (std::same_as<T, std::string>) {
    return "TEXT";
  } else if constexpr (ReflectedEnum<T>) {
    return "NAME";
  } else if constexpr (SpelledByItself<T>) {
    return std::string(T::placeholder);
  } else {
    return "JSON";
  }
}

/// `value` in the form used after its flag.
template <class T>
std::string spell_words(const T& value) {
  const auto json = to_json_value(value);
  if (json.is_null()) return "none";
  if (json.is_string()) return json.template get_ref<const std::string&>();
  if (json.is_number_float()) return spell_number(json.template get<double>());
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace etude::inline v0::detail
