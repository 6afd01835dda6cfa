#pragma once

#include <etude.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "etude/data/dataset.hpp"
#include "fields.hpp"

namespace etude::inline v0::c {

/// Copied descriptions of the program's tensors, so only the memory must outlive them.
class ProgramTensors {
 public:
  ProgramTensors(const etude_tensor* tensors, std::int32_t count);

  const std::vector<etude_tensor>& tensors() const { return tensors_; }
  bool is_divided = false;  ///< whether each process has its own part of the examples

 private:
  struct Described {
    std::optional<std::string> name;
    std::vector<std::int64_t> shape;
    std::optional<std::vector<std::int64_t>> strides;
  };

  std::vector<std::unique_ptr<const Described>> described_;
  std::vector<etude_tensor> tensors_;
};

/// A dataset of these tensors, which shares their memory if the types are the model's.
Dataset dataset_of(const ProgramTensors& tensors, const Fields& fields, Fields::Labels labels);

}  // namespace etude::inline v0::c

struct etude_dataset {
  std::shared_ptr<etude::c::ProgramTensors> tensors;
};
