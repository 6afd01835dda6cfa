#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace etude::inline v0::detail {

/// The values of each section by their lower-case names; values before the first section are in "".
using IniSections = std::map<std::string, std::map<std::string, std::string>>;

/// Reads an INI file as Python's configparser does: `name = value` or `name: value`, lines that begin with #
/// or ; are comments, and a line that is indented further than its option continues it. If two values have
/// the same name, the last wins. Throws ArgumentError with the line number for any other line; `source` is
/// the file's name in messages. (inih isn't used: it reads an option as a continuation of the previous one if
/// both are indented, cuts off a value at " ;", and can't read lines of more than 200 bytes.)
IniSections parse_ini(std::string_view text, std::string_view source);

/// The sections of a file; empty if it doesn't exist. Throws ArgumentError if it can't be read.
IniSections read_ini(const std::filesystem::path& path);

}  // namespace etude::inline v0::detail
