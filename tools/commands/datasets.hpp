#pragma once

#include <etude/data/dataset.hpp>
#include <etude/model/exported_module.hpp>
#include <etude/trainer_options.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "arguments.hpp"

/// The datasets that a command line names.
namespace tool {

constexpr auto class_file = "classes.json";

/// The names of the classes in `class_file` in this folder, or next to this file; empty if there is no such
/// file. Throws DataError if it has any other content.
std::vector<std::string> saved_class_names(const std::filesystem::path& path);

/// The kind of the labels: `unused` if no loss compares them.
enum class LabelKind { classes, numbers, unused };

/// How the images of a training are varied.
struct ImageAugmentation {
  bool random_resized_crop = false, random_flip = false;
};

/// Reads the data of one model.
class DatasetReader {
 public:
  /// `label_names` are the fields that are labels. `class_names` names the classes in the order of their
  /// numbers, if that is known.
  DatasetReader(etude::ExportedModule model, DataArguments args, std::vector<std::string> label_names,
                LabelKind label_kind, std::vector<std::string> class_names = {});

  /// A table may lack the column of the labels.
  void allow_missing_labels() { labels_may_be_missing_ = true; }

  /// All examples of these files and folders, in their order; .npy files come last, one dataset for each
  /// folder. Throws DataError and ArgumentError that name the file.
  etude::Dataset read(const std::vector<std::string>& paths, ImageAugmentation augmentation = {});

  /// The same, by name, for paths that are given as NAME=PATH.
  etude::EvalDatasets read_named(const std::vector<std::string>& words);

  /// The label classes in the order of their numbers, if labels were texts or folders; otherwise empty.
  const std::vector<std::string>& class_names() const { return class_names_; }

 private:
  etude::Dataset read_one(const std::filesystem::path& path, const ImageAugmentation& augmentation);
  etude::Dataset read_table(const std::filesystem::path& path);
  etude::Dataset read_tokens(const std::filesystem::path& path, etude::TokenType type) const;
  etude::Dataset read_images(const std::filesystem::path& path, const ImageAugmentation& augmentation);
  etude::Dataset read_arrays(std::vector<std::filesystem::path> paths) const;
  etude::Dataset fields(etude::Tensors tensors, const std::string& where) const;

  torch::Tensor as_model_takes(const std::string& name, const torch::Tensor& tensor) const;
  bool is_label(std::string_view name) const;
  std::string label_field() const;
  const etude::ExportedModule::Impl::Input& only_input(const std::string& what) const;

  etude::ExportedModule model_;
  DataArguments args_;
  std::vector<std::string> label_names_;
  std::vector<etude::ExportedModule::Impl::Input> inputs_;  // without labels
  std::vector<etude::ExportedModule::Impl::Input> labels_;  // among the model's inputs
  LabelKind label_kind_;
  bool labels_may_be_missing_ = false;
  std::vector<std::string> class_names_;
};

}  // namespace tool
