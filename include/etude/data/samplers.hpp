#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "etude/data/batch_stream.hpp"
#include "etude/data/dataset.hpp"

namespace etude {

/// A sampler whose order of an epoch is a function of one number, which `reset` draws from LibTorch's CPU
/// generator: under a DataLoader a function of (seed, epoch), and nothing needs to be stored to go on with an
/// epoch. Elsewhere its state is that number and the position, which `save` and `load` keep.
class SeededSampler : public SizedSampler {
 public:
  ETUDE_INLINE void reset(torch::optional<std::size_t> new_size = {}) override;
  ETUDE_INLINE torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  ETUDE_INLINE void save(torch::serialize::OutputArchive& archive) const override;
  ETUDE_INLINE void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// The examples of an epoch.
  virtual std::vector<std::int64_t> order(std::uint64_t seed) const = 0;

 private:
  std::uint64_t seed_ = 0;
  std::vector<std::int64_t> order_;
  std::size_t position_ = 0;
};

/// Puts examples of like length in one batch, so that little is padded: those of an epoch are shuffled, cut
/// into megabatches of 50 batches (fewer, so that there are four, if there is less) and each of those is
/// sorted, long ones first. The longest example of all comes first, so that memory that won't do is known at
/// once. Follows Hugging Face's sampler of this name.
class LengthGroupedSampler final : public SeededSampler {
 public:
  /// Of as many examples as there are lengths. `batch_size` counts those of one update, with accumulation.
  /// Throws ArgumentError when it isn't positive or there are no lengths.
  LengthGroupedSampler(std::vector<std::int64_t> lengths, std::int64_t batch_size);

  std::int64_t size() const override { return static_cast<std::int64_t>(lengths_.size()); }

 protected:
  ETUDE_INLINE std::vector<std::int64_t> order(std::uint64_t seed) const override;

 private:
  std::vector<std::int64_t> lengths_;
  std::int64_t batch_size_;
};

struct WeightedSampling {
  /// How many examples an epoch has; as many as there are weights, if unset.
  std::optional<std::int64_t> num_samples = {};
  /// Whether an example may come again in an epoch.
  bool replacement = true;
};

/// Draws examples with probabilities in proportion to their weights, as torch's sampler of this name in
/// Python does: for classes of unlike size.
class WeightedRandomSampler final : public SeededSampler {
 public:
  /// Throws ArgumentError for weights that are negative, not finite or all 0, and, without replacement, for
  /// more samples than examples of positive weight.
  explicit WeightedRandomSampler(std::vector<double> weights, WeightedSampling options = {});

  std::int64_t size() const override { return num_samples_; }

 protected:
  ETUDE_INLINE std::vector<std::int64_t> order(std::uint64_t seed) const override;

 private:
  std::vector<double> weights_;
  std::int64_t num_samples_;
  bool replacement_;
};

/// How long each example of a dataset is: the first dimension of its input `name` or, if it has none of that
/// name, of its first input. Each example is fetched once. Throws DataError for a stream and for a number.
std::vector<std::int64_t> lengths_of(const Dataset& dataset, const std::string& name = "input_ids");

namespace detail {

/// The examples of a shuffled `order`, grouped by length.
std::vector<std::int64_t> group_by_length(std::vector<std::int64_t> order,
                                          const std::vector<std::int64_t>& lengths, std::int64_t batch_size);

}  // namespace detail
}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/data/impl/samplers.ipp"
#endif
