#pragma once

#include <fmt/format.h>

#include <boost/property_tree/ini_parser.hpp>
#include <boost/property_tree/ptree.hpp>
#include <filesystem>
#include <system_error>

#include "etude/base/error.hpp"

namespace etude::detail {

/// The sections of an INI file; none where there is no file. Throws ArgumentError for one that can't be read.
inline boost::property_tree::ptree read_ini(const std::filesystem::path& path) {
  boost::property_tree::ptree sections;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return sections;
  try {
    boost::property_tree::read_ini(path.string(), sections);
  } catch (const boost::property_tree::ini_parser_error& fault) {
    throw ArgumentError(
        fmt::format("{} can't be read: {} (line {})", path.string(), fault.message(), fault.line()));
  }
  return sections;
}

}  // namespace etude::detail
