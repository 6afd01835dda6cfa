#pragma once

#include <etude.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/model/exported_module.hpp"
#include "etude/model/named_loss.hpp"

namespace etude::inline v0::c {

/// The inputs and labels that a model and its loss take. Makes batches of the program's tensors.
class Fields {
 public:
  enum class Labels { required, optional, refused };
  enum class Memory { of_program, copied };

  /// `label_names` are those of the arguments.
  Fields(const ExportedModuleImpl& model, LossName loss, const std::vector<std::string>& label_names);

  /// The inputs and labels in the model's order and types, on `device` if it is set. With `of_program`, they
  /// share the program's memory if the type and device are right. Throws DataError for a tensor with the
  /// wrong name, shape or type, or if one is missing or given twice.
  Batch batch(const etude_tensor* tensors, std::int32_t count, Labels labels, Memory memory,
              std::optional<torch::Device> device = {}) const;

  /// A batch whose tensors all share the program's memory, and the place of each among the fields.
  struct Shared {
    Batch batch = {};
    std::vector<std::size_t> places = {};
  };

  /// The batch with its labels. It is `last` if the tensors describe the same memory again; otherwise it is
  /// kept in `last` if no tensor had to be copied.
  Batch batch(const etude_tensor* tensors, std::int32_t count, torch::Device device, Shared& last) const;

 private:
  struct Field {
    std::string name;
    bool is_label = false;
    std::string title = {};  ///< for messages
    /// The model's, with -1 for a size that may vary; unset for a label that only the loss takes.
    std::optional<torch::ScalarType> dtype = {};
    std::optional<std::vector<std::int64_t>> sizes = {};
  };

  /// Whether the tensors describe the memory of the batch.
  bool match(const etude_tensor* tensors, std::int32_t count, const Shared& shared) const;
  std::size_t place_of(const etude_tensor& tensor, std::size_t position, Labels labels) const;
  torch::Tensor converted(torch::Tensor tensor, const Field& field) const;
  std::string names(Labels labels) const;

  std::string model_;
  std::vector<Field> fields_;  // the inputs, then the labels
  std::size_t inputs_ = 0;
  Tensors no_inputs_, no_labels_;  // undefined tensors with the names of a batch's
  torch::ScalarType number_;       // the dtype of labels that are numbers
  bool has_class_labels_;
};

}  // namespace etude::inline v0::c
