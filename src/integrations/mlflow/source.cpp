#include "etude/integrations/mlflow/source.hpp"

#include <fstream>
#include <string_view>
#include <system_error>

#include "etude/integrations/shared/environment.hpp"

namespace etude::inline v0::detail {
namespace mlflow {

namespace {

std::string first_line(const std::filesystem::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

bool is_commit(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) && text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// The commit that a reference points to, in any of git's folders for it.
std::string commit_of(const std::filesystem::path& git, const std::string& reference) {
  auto common = git;
  if (const auto link = first_line(git / "commondir"); !link.empty()) common = git / link;
  for (const auto& folder : {git, common})
    if (auto commit = first_line(folder / reference); is_commit(commit)) return commit;
  std::ifstream packed(common / "packed-refs");
  for (std::string line; std::getline(packed, line);)
    if (line.ends_with(' ' + reference)) return line.substr(0, line.find(' '));
  return "";
}

}  // namespace

}  // namespace mlflow

std::string git_commit(std::filesystem::path folder) {
  for (;; folder = folder.parent_path()) {
    auto git = folder / ".git";
    constexpr std::string_view elsewhere = "gitdir: ", reference = "ref: ";
    if (const auto line = mlflow::first_line(git); line.starts_with(elsewhere))
      git = folder / line.substr(elsewhere.size());
    if (auto head = mlflow::first_line(git / "HEAD"); head.starts_with(reference))
      return mlflow::commit_of(git, head.substr(reference.size()));
    else if (mlflow::is_commit(head))
      return head;
    if (!folder.has_relative_path()) return "";
  }
}

std::vector<std::pair<std::string, std::string>> source_tags() {
  std::error_code error;
  std::vector<std::pair<std::string, std::string>> tags{
      {"mlflow.user", user_name()}, {"mlflow.source.name", program_path()}, {"mlflow.source.type", "LOCAL"}};
  if (auto commit = git_commit(std::filesystem::current_path(error)); mlflow::is_commit(commit))
    tags.emplace_back("mlflow.source.git.commit", std::move(commit));
  return tags;
}

}  // namespace etude::inline v0::detail
