#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

/// Where a run comes from, as MLflow's own clients say it.
namespace etude::detail {

/// The commit that is checked out in `folder` or in one above it; empty where there is none.
std::string git_commit(std::filesystem::path folder);

/// mlflow.user, mlflow.source.name, mlflow.source.type and, if there is one, mlflow.source.git.commit.
std::vector<std::pair<std::string, std::string>> source_tags();

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/mlflow/impl/source.ipp"
#endif
