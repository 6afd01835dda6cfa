#include "etude/reflect/json_parser.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/json_reader.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// The code unit of an escape such as "\\ud83d" at the beginning of a text, or -1.
int escaped_unit(std::string_view text) {
  int unit = -1;
  if (!text.starts_with("\\u") || text.size() < 6) return unit;
  const auto* const end = text.data() + 6;
  return std::from_chars(text.data() + 2, end, unit, 16).ptr == end ? unit : -1;
}

/// Replaces Python's extensions of JSON: bare NaN, Infinity and -Infinity become strings, and lone
/// surrogates, which Python uses for bytes that aren't UTF-8, become the replacement character.
std::string without_extensions(std::string_view text) {
  const auto is_high = [](int unit) { return unit >= 0xD800 && unit < 0xDC00; };
  const auto is_low = [](int unit) { return unit >= 0xDC00 && unit < 0xE000; };
  std::string result;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    const auto rest = text.substr(i);
    if (const int unit = in_string ? escaped_unit(rest) : -1; is_high(unit) || is_low(unit)) {
      const bool is_pair = is_high(unit) && is_low(escaped_unit(rest.substr(6)));
      result += is_pair ? rest.substr(0, 12) : "\\ufffd";
      i += is_pair ? 12 : 6;
      continue;
    }
    if (in_string) {
      const auto length = rest[0] == '\\' && rest.size() > 1 ? 2u : 1u;
      in_string = rest[0] != '"';
      result += rest.substr(0, length);
      i += length;
      continue;
    }
    std::string_view word;
    for (const std::string_view name : {"NaN", "Infinity", "-Infinity"})
      if (rest.starts_with(name)) word = name;
    if (word.empty()) {
      in_string = rest[0] == '"';
      result += rest[0];
      ++i;
    } else {
      result.append("\"").append(word).append("\"");
      i += word.size();
    }
  }
  return result;
}

}  // namespace

void parse_json_events(std::string_view text, nlohmann::ordered_json::json_sax_t& listener) {
  nlohmann::ordered_json::sax_parse(text, &listener);
}

namespace {

/// Builds ordered JSON from parser events. nlohmann's own builder searches linearly for each key, which takes
/// hours for a malicious object.
class OrderedJsonBuilder final : public nlohmann::ordered_json::json_sax_t {
 public:
  using Json = nlohmann::ordered_json;

  Json result;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t& value) override { return add(std::move(value)); }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override {
    keep_last_of_each_name(open_.back()->get_ref<Json::object_t&>());
    return end_array();
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t, const std::string& read, const nlohmann::json::exception& error) override {
    std::string fault = error.what();
    if (const auto at = fault.find(read); at != fault.npos) fault.replace(at, read.size(), shortened(read));
    throw ArgumentError("not JSON: " + fault);
  }

 private:
  static constexpr std::size_t deepest = 100;  // nlohmann::json copies and prints recursively

  bool add(Json value) {
    put(std::move(value));
    return true;
  }

  bool open(Json value) {
    if (open_.size() == deepest)
      throw ArgumentError(fmt::format("JSON is nested deeper than {} levels", deepest));
    open_.push_back(&put(std::move(value)));
    return true;
  }

  // The returned place stays valid until everything open in it is closed.
  Json& put(Json value) {
    if (open_.empty()) return result = std::move(value);
    if (open_.back()->is_array()) return open_.back()->emplace_back(std::move(value));
    return open_.back()->get_ref<Json::object_t&>().emplace_back(std::move(key_), std::move(value)).second;
  }

  // A duplicate name keeps its last value at its first position, as in nlohmann's own objects.
  static void keep_last_of_each_name(Json::object_t& members) {
    auto* const member = members.data();
    std::vector<std::size_t> by_name(members.size());
    std::iota(by_name.begin(), by_name.end(), std::size_t{0});
    std::ranges::stable_sort(by_name, {}, [&](std::size_t i) { return std::string_view(member[i].first); });
    std::vector<bool> again(members.size());
    bool any = false;
    for (std::size_t i = 0, first = 0; i < by_name.size(); ++i) {
      if (member[by_name[i]].first != member[by_name[first]].first) first = i;
      if (i == first) continue;
      member[by_name[first]].second = std::move(member[by_name[i]].second);
      again[by_name[i]] = any = true;
    }
    if (!any) return;
    Json::object_t kept;
    for (std::size_t i = 0; i < members.size(); ++i)
      if (!again[i]) kept.emplace_back(member[i].first, std::move(member[i].second));
    members.swap(kept);
  }

  std::vector<Json*> open_;
  std::string key_;
};

}  // namespace

}  // namespace detail

}  // namespace etude::inline v0

namespace etude::inline v0 {

nlohmann::ordered_json parse_json(std::string_view text) {
  if (text.find('\0') != text.npos) throw ArgumentError("not JSON: there is a NUL in it");  // read as the end
  detail::OrderedJsonBuilder builder;
  const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
  if (has("NaN") || has("Infinity") || has("\\ud") || has("\\uD")) {
    detail::parse_json_events(detail::without_extensions(text), builder);
  } else {
    detail::parse_json_events(text, builder);
  }
  return std::move(builder.result);
}

}  // namespace etude::inline v0
