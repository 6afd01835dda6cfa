#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Reads and writes CSV text (RFC 4180) in files whose existing rows are kept byte for byte. CsvTable
/// (formats/csv.hpp) reads tables with libcsv, which loggers must not depend on.
namespace etude::inline v0::detail {

/// A field of a CSV file, quoted if RFC 4180 requires it.
std::string csv_field(std::string_view text);

/// A record of these fields, without a line end. Each is a number, or already quoted by `csv_field`.
std::string csv_record(std::span<const std::string> fields);

/// The shortest text that reads back as the same number.
std::string csv_number(double value);

/// The records of a CSV file with their line ends; the last may be incomplete.
std::vector<std::string_view> csv_raw_records(std::string_view text);

/// The records of a CSV file, without line ends and without an incomplete last one.
std::vector<std::string> csv_records(std::string_view text);

/// The fields of a record, without their quotes and its line end.
std::vector<std::string> csv_fields(std::string_view record);

}  // namespace etude::inline v0::detail
