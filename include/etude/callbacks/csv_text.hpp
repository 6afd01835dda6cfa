#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The text of CSV files (RFC 4180), for callbacks that write and continue them.
namespace etude::inline v0::detail {

/// A field of a CSV file, quoted if RFC 4180 requires it.
std::string csv_field(std::string_view text);

/// The shortest text that reads back as the same number.
std::string csv_number(double value);

/// The records of a CSV file, without line ends and without an incomplete last one.
std::vector<std::string> csv_records(std::string_view text);

/// The fields of a record, without their quotes.
std::vector<std::string> csv_fields(std::string_view record);

}  // namespace etude::inline v0::detail
