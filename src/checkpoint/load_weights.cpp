#include "etude/checkpoint/load_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/checkpoint/model_files.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

StateDict read_weights(const std::filesystem::path& path) {
  const auto extension = path.extension();
  if (extension == ".pt" || extension == ".pth" || extension == ".bin")
    throw CheckpointError(
        fmt::format("{}: must be a safetensors file or a folder: for a PyTorch file, pass "
                    "load_torch_file(path).tensors, of "
                    "etude/formats/torch_file.hpp",
                    path.string()));
  return load_model_files(path);
}

std::string renamed(const std::string& name, const LoadWeightsOptions& options) {
  for (const auto& [from, to] : options.rename)
    if (name.starts_with(from)) return to + name.substr(from.size());
  return name;
}

void add_names(std::string& text, std::string_view what, const std::vector<std::string>& names) {
  constexpr std::size_t most = 10;
  if (names.empty()) return;
  text += fmt::format("{}: {}", what, fmt::join(std::span(names).first(std::min(most, names.size())), ", "));
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  text += '\n';
}

/// Copies `weights` into the tensors of `own`. `from` names the file in messages.
LoadWeightsReport load_into(const StateDict& own, const StateDict& weights, std::string_view from,
                            const LoadWeightsOptions& options) {
  std::map<std::string, std::pair<std::string, torch::Tensor>> given;  // new name to old name and tensor
  for (const auto& [name, tensor] : weights)
    if (const auto [place, is_new] = given.emplace(renamed(name, options), std::pair(name, tensor)); !is_new)
      throw CheckpointError(
          fmt::format("{}: '{}' and '{}' both become '{}'", from, place->second.first, name, place->first));
  LoadWeightsReport report;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies;
  std::set<std::string_view> known;
  std::set<const void*> filled;
  for (const auto& [name, tensor] : own) {
    known.insert(name);
    const auto found = given.find(name);
    if (found == given.end()) continue;
    const auto& value = found->second.second;
    if (value.sizes() != tensor.sizes()) {
      report.mismatched_keys.push_back({name, value.sizes().vec(), tensor.sizes().vec()});
      continue;
    }
    report.loaded.push_back(name);
    copies.emplace_back(tensor, value);
    filled.insert(tensor.unsafeGetTensorImpl());
  }
  for (const auto& [name, tensor] : own)
    if (!given.contains(name) && !filled.contains(tensor.unsafeGetTensorImpl()))
      report.missing_keys.push_back(name);
  for (const auto& [name, value] : given)
    if (!known.contains(name)) report.unexpected_keys.push_back(name);
  if ((options.strict && !report.is_complete()) || (report.loaded.empty() && !own.empty()))
    throw CheckpointError(fmt::format("{}: the weights don't fit the model\n{}", from, report.text()));
  const torch::NoGradGuard no_grad;
  for (auto& [tensor, value] : copies) tensor.copy_(value);
  return report;
}

}  // namespace

}  // namespace detail

std::string LoadWeightsReport::text() const {
  std::string text = fmt::format("loaded {} of {} tensors\n", loaded.size(),
                                 loaded.size() + missing_keys.size() + mismatched_keys.size());
  detail::add_names(text, "not in the file", missing_keys);
  std::vector<std::string> shapes;
  for (const auto& [name, in_file, in_model] : mismatched_keys)
    shapes.push_back(fmt::format("{} {} instead of {}", name, in_file, in_model));
  detail::add_names(text, "of another shape in the file", shapes);
  detail::add_names(text, "not in the model", unexpected_keys);
  return text;
}

LoadWeightsReport load_weights(const Model& model, const std::filesystem::path& path,
                               const LoadWeightsOptions& options) {
  return detail::load_into(model.named_state(), detail::read_weights(path), path.string(), options);
}

LoadWeightsReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                               const LoadWeightsOptions& options) {
  return detail::load_into(state_dict(module), detail::read_weights(path), path.string(), options);
}

LoadWeightsReport load_weights(const Model& model, const StateDict& weights,
                               const LoadWeightsOptions& options) {
  return detail::load_into(model.named_state(), weights, "load_weights", options);
}

LoadWeightsReport load_weights(torch::nn::Module& module, const StateDict& weights,
                               const LoadWeightsOptions& options) {
  return detail::load_into(state_dict(module), weights, "load_weights", options);
}

}  // namespace etude::inline v0
