#include "etude/callbacks/log_file.hpp"

#include <filesystem>
#include <string>

#include "etude/base/error.hpp"

namespace etude::inline v0::detail {

std::filesystem::path log_path(const TrainingArguments& args, const std::string& path) {
  if (path.empty()) throw ArgumentError("path is '': must be the name of a file");
  return std::filesystem::path(args.output_dir) / path;
}

}  // namespace etude::inline v0::detail
