#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/metrics/sample.hpp"

/// The messages of Comet's clients, as their offline archives store them: {"type": ..., "payload": {...}}
/// with sorted names. Online, each becomes a request.
namespace etude::inline v0::detail::comet {

using Message = nlohmann::json;

/// At most this many characters; a longer text ends with " [truncated]".
std::string shortened(const std::string& text, std::size_t most);

Message metric(std::string_view name, double value, std::int64_t step, double epoch, std::int64_t time);

/// Lists stay lists if Comet's schema has room for them, and become text if long or nested.
Message parameter(std::string_view name, const nlohmann::ordered_json& value,
                  std::optional<std::int64_t> step, std::string_view source, std::int64_t time);

/// {"args": ..., "config": ...} as Comet's client writes it: nested names are joined with |.
std::vector<Message> parameters(const nlohmann::ordered_json& values, std::int64_t time);

Message other(std::string_view key, const nlohmann::json& value);
Message graph(std::string text);

/// The program's path.
Message file_name();

/// Machine, system, user and command without its arguments. Fields about Python describe the program that
/// runs instead.
Message system_details();

/// A file of the run under a unique name; `file_path` is its path in the archive.
Message asset(std::string_view name, std::string_view file_path, std::int64_t step, std::int64_t time);

/// A sample's file, as Comet's `log_image`, `log_audio` and `log_text` upload it.
Message asset(const Sample& sample, std::int64_t step, std::int64_t time);

}  // namespace etude::inline v0::detail::comet
