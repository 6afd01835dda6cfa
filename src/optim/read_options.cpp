#include "etude/optim/read_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/nearest.hpp"

namespace etude::inline v0::detail {

void read_options(const nlohmann::json& values, const std::vector<JsonField>& options,
                  std::string_view where) {
  if (values.is_null()) return;
  if (!values.is_object())
    throw ArgumentError(
        fmt::format("{} is {}: must be a JSON object or name=value,name=value", where, values.dump()));
  JsonReader reader;
  reader.read_fields(values, options, "");
  std::vector<std::string_view> known;
  for (const auto& option : options) known.push_back(option.name);
  std::vector<std::string> faults;
  for (const auto& name : reader.unknown_keys)
    faults.push_back(fmt::format("'{}' is unknown: must be one of {}{}", name, fmt::join(known, ", "),
                                 did_you_mean(name, known)));
  faults.insert(faults.end(), reader.faults.begin(), reader.faults.end());
  throw_faults(std::move(faults), fmt::format("{}: ", where));
}

}  // namespace etude::inline v0::detail
