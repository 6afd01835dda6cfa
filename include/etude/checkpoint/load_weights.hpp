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
  /// Prefixes of names in the file, and what they become in the model; the first one that matches is used:
  /// {{"bert.", "backbone."}}. {{"", "backbone."}} adds a prefix to every name.
  std::vector<std::pair<std::string, std::string>> rename = {};
  /// If true, throws CheckpointError with the report, and copies nothing, unless every name and shape
  /// matches.
  bool strict = false;
};

/// The result of `load_weights`, with tensors named as in the model. The last three lists have the same names
/// as in Hugging Face's libraries.
struct LoadWeightsReport {
  struct Mismatch {
    std::string name;
    std::vector<std::int64_t> in_file, in_model;  ///< shapes
  };
  std::vector<std::string> loaded;
  std::vector<std::string> missing_keys;     ///< not in the file; they stay as they were
  std::vector<std::string> unexpected_keys;  ///< in the file, under their new names, but not in the model
  std::vector<Mismatch> mismatched_keys;     ///< with a different shape in the file; they stay as they were

  bool is_complete() const {
    return missing_keys.empty() && unexpected_keys.empty() && mismatched_keys.empty();
  }
  /// A summary to read, with at most ten names of each kind.
  std::string text() const;
};

/// Copies pretrained weights into the parameters and buffers of a model or module that have the same names
/// and shapes, and converts dtypes; all others stay as they are. A tensor with several names needs only one
/// of them. `path` is a safetensors file, or a folder with model.safetensors or its shards: a checkpoint, a
/// saved model, or a download from the Hugging Face Hub. For a .pt file, pass
/// `load_torch_file(path).tensors`.
///
/// Throws CheckpointError for a file that can't be read, if nothing matches, and if two names in the file
/// become the same; nothing is copied in that case.
LoadWeightsReport load_weights(const Model& model, const std::filesystem::path& path,
                               const LoadWeightsOptions& options = {});
LoadWeightsReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                               const LoadWeightsOptions& options = {});
LoadWeightsReport load_weights(const Model& model, const StateDict& weights,
                               const LoadWeightsOptions& options = {});
LoadWeightsReport load_weights(torch::nn::Module& module, const StateDict& weights,
                               const LoadWeightsOptions& options = {});

}  // namespace etude::inline v0
