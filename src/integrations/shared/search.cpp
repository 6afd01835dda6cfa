#include "etude/integrations/shared/search.hpp"

#include <filesystem>
#include <optional>

namespace etude::inline v0::detail {

std::optional<TrackedSearch> search_of(const Context& e) {
  if (!e.state.is_hyper_param_search || !e.state.trial_name) return std::nullopt;
  TrackedSearch search{std::filesystem::path(e.args.output_dir) / "", "", false};
  search.folder = search.folder.lexically_normal().parent_path();
  search.has_folders = search.folder.filename() == *e.state.trial_name;
  if (search.has_folders) search.folder = search.folder.parent_path();
  const auto& run_name = e.args.run_name;
  const bool is_named =
      run_name && *run_name != e.args.output_dir && *run_name != tracked_arguments(e).output_dir;
  search.name = is_named ? *run_name : search.folder.filename().string();
  return search;
}

}  // namespace etude::inline v0::detail
