#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

/// Text for a terminal. Whatever comes from a file passes through `plain`, so that it can't control the
/// terminal.
namespace tool {

using Json = nlohmann::ordered_json;

/// One line without control characters.
std::string plain(std::string_view text);

/// The same for several lines.
std::string plain_lines(std::string_view text);

/// Writes lines to stdout.
void print(std::string_view lines);

/// Writes JSON to stdout, in ASCII.
void print_json(const Json& json);

/// Writes a message to stderr, with "etude: " before each line.
void complain(std::string_view message);

/// "512 B", "1.23 MB": powers of 1000.
std::string bytes_text(std::uint64_t bytes);

/// "1 tensor", "1,234 tensors".
std::string counted(std::uint64_t count, std::string_view noun);

/// A value of a JSON file as a person writes it: strings without quotes, at most `longest` columns.
std::string value_text(const Json& value, std::size_t longest = 60);

/// Rows of equally many cells, indented by two. `alignment` has "l" or "r" for each column.
std::string table(const std::vector<std::vector<std::string>>& rows, std::string_view alignment);

/// A path with the folder "." or a trailing slash removed.
std::string without_slash(std::string path);

}  // namespace tool
