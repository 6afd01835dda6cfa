#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "etude/checkpoint/model_files.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// How `load_weights` reads a file.
struct LoadWeightsOptions {
  /// Beginnings of names in the file and what they become in the model; the first that fits counts:
  /// {{"bert.", "backbone."}}. {{"", "backbone."}} puts a prefix before each name.
  std::vector<std::pair<std::string, std::string>> rename = {};
  /// Throw CheckpointError with the report, and copy nothing, unless every name and shape fits.
  bool strict = false;
};

/// The result of `load_weights`, by the names in the model; the last two lists have Hugging Face's names.
struct LoadWeightsReport {
  struct Mismatch {
    std::string name;
    std::vector<std::int64_t> in_file, in_model;  ///< shapes
  };
  std::vector<std::string> loaded;
  std::vector<std::string> missing_keys;     ///< not in the file; they stay as they were
  std::vector<std::string> unexpected_keys;  ///< in the file, by their new names, but not in the model
  std::vector<Mismatch> mismatched_keys;     ///< of another shape in the file; they stay as they were

  bool is_complete() const {
    return missing_keys.empty() && unexpected_keys.empty() && mismatched_keys.empty();
  }
  /// Some lines for people, with at most ten names of each kind.
  std::string text() const;
};

/// Copies pretrained weights into the parameters and buffers of a model or module that have the same names
/// and shapes, and converts dtypes; the others stay as they are. A tensor with several names needs only one
/// of them. `path` is a safetensors file, or a folder with model.safetensors or its shards: a checkpoint, a
/// saved model, or a download from the Hugging Face Hub. For a .pt file, pass
/// `load_torch_file(path).tensors`.
///
/// Throws CheckpointError for a file that can't be read, if nothing fits, and if two names in the file become
/// one; nothing is copied then.
LoadWeightsReport load_weights(const Model& model, const std::filesystem::path& path,
                               const LoadWeightsOptions& options = {});
LoadWeightsReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                               const LoadWeightsOptions& options = {});
LoadWeightsReport load_weights(const Model& model, const StateDict& weights,
                               const LoadWeightsOptions& options = {});
LoadWeightsReport load_weights(torch::nn::Module& module, const StateDict& weights,
                               const LoadWeightsOptions& options = {});

}  // namespace etude::inline v0
