#pragma once

#include <torch/types.h>

#include <vector>

namespace etude::inline v0 {

/// A module that knows which of its parameters scale and shift normalized values, whatever their names, so
/// that weight decay leaves them out.
struct HasNormParameters {
  virtual std::vector<torch::Tensor> norm_parameters() const = 0;

 protected:
  ~HasNormParameters() = default;
};

}  // namespace etude::inline v0
