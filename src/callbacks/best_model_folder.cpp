#include "etude/callbacks/best_model_folder.hpp"

#include <fmt/format.h>
#include <torch/version.h>

#include <system_error>

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/checkpoint/model_files.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/folder.hpp"
#include "etude/io/manifest.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

constexpr const char* best_model_file = "best_model.json";

}  // namespace

}  // namespace detail

BestModelFolder::BestModelFolder(const std::filesystem::path& folder)
    : path_(std::filesystem::absolute(folder).lexically_normal()) {
  if (!path_.has_filename()) path_ = path_.parent_path();
}

void BestModelFolder::check(const std::string& option) const {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path_, error);
  if (!std::filesystem::exists(status)) return;
  const bool is_ours = std::filesystem::is_directory(status) &&
                       (std::filesystem::is_empty(path_, error) ||
                        std::filesystem::exists(path_ / detail::best_model_file, error));
  if (!is_ours)
    throw ArgumentError(
        fmt::format("{} is {}: must be a separate folder, because it is replaced as a whole: it must be "
                    "missing, empty or contain a {}",
                    option, path_.string(), detail::best_model_file));
}

void BestModelFolder::write(const Context& e, const std::vector<NamedTensor>& state,
                            const BestModelInfo& info) const {
  const auto& options = e.trainer.options();
  FolderWriter writer(options.files(), path_,
                      path_.parent_path() / fmt::format(".{}.partial", path_.filename().string()));
  options.save_companions(e.model, state, writer.folder());
  write_model_files(writer, state);
  writer.write_text(detail::best_model_file, to_json_text(info));
  writer.commit({.libtorch = TORCH_VERSION, .global_step = info.global_step, .reason = "best"});
}

std::optional<BestModelInfo> BestModelFolder::info() const {
  try {
    FolderReader reader(path_);
    return from_json_text<BestModelInfo>(reader.text(detail::best_model_file));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<NamedTensor> BestModelFolder::weights() const {
  FolderReader reader(path_);
  return read_model_files(reader);
}

}  // namespace etude::inline v0
