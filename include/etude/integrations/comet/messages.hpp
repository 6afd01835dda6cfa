#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What Comet's clients say, as their offline archives have it: {"type": ..., "payload": {...}} with sorted
/// names. Online, each of them becomes a request.
namespace etude::detail::comet {

using Message = nlohmann::json;

/// Milliseconds since 1970.
std::int64_t now();

/// At most so many letters, the last of them " [truncated]" where there were more.
std::string shortened(std::string text, std::size_t most);

Message metric(std::string_view name, double value, std::int64_t step, double epoch, std::int64_t time);

/// Lists stay lists where Comet's schema has a place for them, and are text where they are long or nested.
Message parameter(std::string_view name, const nlohmann::ordered_json& value,
                  std::optional<std::int64_t> step, std::string_view source, std::int64_t time);

/// {"args": ..., "config": ...} as Comet's client writes it: nested names are joined by |.
std::vector<Message> parameters(const nlohmann::ordered_json& values, std::int64_t time);

Message other(std::string_view key, const nlohmann::json& value);
Message graph(std::string text);

/// The program's file.
Message file_name();

/// Machine, system, user and command, without its arguments. What is there about Python says what there is
/// instead.
Message system_details();

/// A file of the run under a name of its own; `file_path` is where it is in the archive.
Message asset(std::string_view name, std::string_view file_path, std::int64_t step, std::int64_t time);

}  // namespace etude::detail::comet

#ifndef ETUDE_COMPILED
#include "etude/integrations/comet/impl/messages.ipp"
#endif
