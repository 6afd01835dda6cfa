#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

/// A run's source, in the tags that MLflow's clients set.
namespace etude::inline v0::detail {

/// The commit that is checked out in `folder` or above it; empty if there is none.
std::string git_commit(std::filesystem::path folder);

/// mlflow.user, mlflow.source.name, mlflow.source.type and, if there is one, mlflow.source.git.commit.
std::vector<std::pair<std::string, std::string>> source_tags();

}  // namespace etude::inline v0::detail
