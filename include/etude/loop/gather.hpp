#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/metrics/eval_prediction.hpp"
#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

namespace detail {

/// Returns a prediction with `change` applied to each tensor, and without the batches.
template <class Change>
EvalPrediction transformed(const EvalPrediction& prediction, Change change) {
  return {prediction.predictions.transform(change),
          prediction.label_ids.transform(change),
          prediction.inputs.transform(change),
          prediction.losses.defined() ? change(prediction.losses) : prediction.losses,
          {}};
}

inline torch::Tensor on_cpu(const torch::Tensor& tensor) { return tensor.cpu(); }

inline torch::Tensor at_least_1d(const torch::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
}

}  // namespace detail

/// The numbers of examples of an evaluation's batches, and of rows in each of its tensors.
struct BatchRows {
  std::vector<std::int64_t> examples;
  std::vector<std::vector<std::int64_t>> columns;  ///< the rows of each batch, for each tensor

  /// Adds a batch of `size` examples. A batch of 0 is padding, whose rows don't count.
  void add(const EvalPrediction& part, std::int64_t size);
  /// The numbers of one batch.
  BatchRows of(std::size_t batch) const;
  /// The numbers of all batches, as one batch.
  BatchRows joined() const;
};

/// Throws DataError for labels and inputs of a batch of `size` examples that can't be joined with those of
/// other batches, and, if several processes have parts of a batch, for predictions too.
void check_joins(const EvalPrediction& part, std::int64_t size, bool several_processes);

/// Gathers the rows of each batch from all processes, ordered by batch and then by process. Tensors that all
/// examples of a batch share are taken from one process. Shorter rows are padded with -100. RowsByIndex
/// counts from the first of all examples. Throws DataError unless all processes have the same tensors, apart
/// from their sizes.
EvalPrediction gather_rows(Communicator& communicator, const EvalPrediction& own, const BatchRows& rows);

/// The batches of one process, joined: RowsByIndex counts from the first of all examples.
EvalPrediction renumbered(EvalPrediction all, const BatchRows& rows);

/// Concatenates tensors along the first dimension on the CPU, in memory that is allocated once if the number
/// of rows is known. Where other dimensions differ, the smaller tensors are padded at the end with -100.
class GatheredTensor {
 public:
  /// `rows`: the expected number, if known.
  explicit GatheredTensor(std::int64_t rows = 0) : expected_(rows) {}

  /// A tensor without dimensions is one row. Throws DataError unless all have the same number of dimensions.
  void add(const torch::Tensor& part);

  /// Undefined if nothing was added.
  torch::Tensor take() const;

 private:
  void make_room_for(const torch::Tensor& rows);

  std::int64_t expected_;
  std::int64_t used_ = 0;
  torch::Tensor all_;
};

/// Collects the tensors that an evaluation keeps of its batches. Tensors on a device stay there until there
/// are `to_cpu_after` of them, or until the end.
class Gathered {
 public:
  /// `examples`: the expected number, if known.
  Gathered(std::optional<std::int64_t> to_cpu_after, bool concatenate, std::optional<std::int64_t> examples);

  /// Adds a batch of `size` examples.
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

}  // namespace etude::inline v0
