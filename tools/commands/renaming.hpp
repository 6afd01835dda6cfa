#pragma once

#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace tool {

/// A tensor's old name and its new one.
using Renamed = std::pair<std::string, std::string>;

/// The names that `convert` writes, as its options --map, --rename, --only and --drop say. An entry or
/// pattern that matches no name is an error.
class Renaming {
 public:
  /// Throws UsageError with the option, its value and what is allowed.
  Renaming(const std::string& map_file, const std::vector<std::string>& rename,
           const std::vector<std::string>& only, const std::vector<std::string>& drop);

  /// Throws UsageError if two names become one, or if no name is left.
  std::vector<Renamed> apply(const std::vector<std::string>& names) const;

 private:
  struct Pattern {
    std::string option, text;
    std::regex regex;
    std::string replacement = {};
  };

  static Pattern pattern(const char* option, const std::string& text, const std::string& regex);
  std::string renamed(const std::string& name, std::vector<bool>& used) const;

  std::map<std::string, std::string> map_;
  std::vector<Pattern> rename_, only_, drop_;
};

}  // namespace tool
