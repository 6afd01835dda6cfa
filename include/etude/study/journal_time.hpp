#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace etude::inline v0::detail {

/// Formats a time in UTC as Python's isoformat does: "2024-02-29T12:30:05.250000+00:00".
std::string journal_time();

/// Parses such a text, with or without the microseconds and the "+00:00", to seconds since 1970; nullopt for
/// any other text.
std::optional<double> seconds_of_journal_time(std::string_view text);

}  // namespace etude::inline v0::detail
