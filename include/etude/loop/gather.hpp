#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/metrics/eval_prediction.hpp"

namespace etude {

/// `prediction` with all its tensors on the CPU.
EvalPrediction to_cpu(const EvalPrediction& prediction);

/// Tensors one after the other along the first dimension, on the CPU, in one piece of memory that is asked
/// for at once where it is known how many rows there will be. Where other dimensions differ, the smaller are
/// filled up with -100 at the end.
class GatheredTensor {
 public:
  /// `rows`: how many to expect, as far as that is known.
  explicit GatheredTensor(std::int64_t rows = 0) : expected_(rows) {}

  /// One without dimensions is one row. Throws DataError unless all have as many dimensions.
  void add(const torch::Tensor& part);

  /// Undefined if nothing was added.
  torch::Tensor take() const;

 private:
  /// The part of `whole` that is as large as `part`, in all dimensions but the first.
  static torch::Tensor corner(torch::Tensor whole, const torch::Tensor& part);

  void make_room_for(const torch::Tensor& rows);

  std::int64_t expected_;
  std::int64_t used_ = 0;
  torch::Tensor all_;
};

/// What an evaluation keeps of its batches. Those on a device stay there until there are `to_cpu_after` of
/// them, or until all are there.
class Gathered {
 public:
  /// `examples`: how many there will be, as far as that is known.
  Gathered(std::optional<std::int64_t> to_cpu_after, bool concatenate, std::optional<std::int64_t> examples);

  /// Of a batch of `size` examples.
  void add(EvalPrediction part, std::int64_t size);

  EvalPrediction take();

 private:
  struct GatheredTensors {
    std::vector<GatheredTensor> columns = {};
    Tensors first = {};

    void add(const Tensors& part, std::int64_t size, std::int64_t examples);
    Tensors take();
  };

  void take_in();

  std::optional<std::int64_t> to_cpu_after_;
  bool concatenate_;
  std::int64_t examples_;
  std::vector<std::pair<EvalPrediction, std::int64_t>> waiting_;
  GatheredTensors predictions_, label_ids_, inputs_;
  GatheredTensor losses_{examples_};
  std::vector<EvalPrediction> batches_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/loop/impl/gather.ipp"
#endif
