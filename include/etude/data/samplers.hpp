#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "etude/data/batch_stream.hpp"
#include "etude/data/dataset.hpp"

namespace etude::inline v0 {

/// A sampler whose order is a function of a seed, which `reset` draws from LibTorch's CPU generator. With a
/// DataLoader, that seed is a function of (seed, epoch), so nothing needs to be saved to resume an epoch.
/// Without one, `save` and `load` keep the seed and the position.
class SeededSampler : public SizedSampler {
 public:
  void reset(torch::optional<std::size_t> new_size = {}) override;
  torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// The order of an epoch's examples.
  virtual std::vector<std::int64_t> order(std::uint64_t seed) const = 0;

 private:
  std::uint64_t seed_ = 0;
  std::vector<std::int64_t> order_;
  std::size_t position_ = 0;
};

/// Batches examples of similar length to reduce padding: an epoch's examples are shuffled, split into
/// megabatches of 50 batches (or fewer, so that there are at least four), and each megabatch is sorted,
/// longest first. The longest example of all comes first, so that a lack of memory shows at once. Equivalent
/// to Hugging Face's sampler of the same name.
class LengthGroupedSampler final : public SeededSampler {
 public:
  /// There is one length per example. `batch_size` is the batch size of an update, including accumulation.
  /// Throws ArgumentError if it isn't positive or `lengths` is empty.
  LengthGroupedSampler(std::vector<std::int64_t> lengths, std::int64_t batch_size);

  std::int64_t size() const override { return static_cast<std::int64_t>(lengths_.size()); }

 protected:
  std::vector<std::int64_t> order(std::uint64_t seed) const override;

 private:
  std::vector<std::int64_t> lengths_;
  std::int64_t batch_size_;
};

struct WeightedSampling {
  /// The number of examples per epoch; unset means the number of weights.
  std::optional<std::int64_t> num_samples = {};
  /// If true, an example may occur more than once per epoch.
  bool replacement = true;
};

/// Draws examples with probabilities proportional to their weights, for imbalanced classes, like the sampler
/// of the same name in Python's torch.
class WeightedRandomSampler final : public SeededSampler {
 public:
  /// Throws ArgumentError for weights that are negative, not finite or all 0, and, without replacement, for
  /// more samples than examples with positive weight.
  explicit WeightedRandomSampler(std::vector<double> weights, WeightedSampling options = {});

  std::int64_t size() const override { return num_samples_; }

 protected:
  std::vector<std::int64_t> order(std::uint64_t seed) const override;

 private:
  std::vector<double> weights_;
  std::int64_t num_samples_;
  bool replacement_;
};

/// The length of each example in a dataset: the first dimension of its input `name` or, if there is no input
/// of that name, of its first input. Fetches each example once. Throws DataError for a stream and for scalar
/// inputs.
std::vector<std::int64_t> lengths_of(const Dataset& dataset, const std::string& name = "input_ids");

namespace detail {

/// Groups the examples of a shuffled `order` by length.
std::vector<std::int64_t> group_by_length(std::vector<std::int64_t> order,
                                          const std::vector<std::int64_t>& lengths, std::int64_t batch_size);

}  // namespace detail
}  // namespace etude::inline v0
