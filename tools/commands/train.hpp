#pragma once

#include <string>
#include <vector>

/// The subcommands that train, evaluate and run a model of torch.export. They take `words` as
/// `etude::run` does, and return its exit codes.
namespace tool {

int train(const std::vector<std::string>& words);
int evaluate(const std::vector<std::string>& words);
int predict(const std::vector<std::string>& words);

}  // namespace tool
