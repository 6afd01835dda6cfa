#include "etude/data/samplers.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <random>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/data/random.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

std::uint64_t draw_seed() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

// A number in [0, 1), the same on every platform.
double uniform(std::mt19937_64& generator) { return static_cast<double>(generator() >> 11) * 0x1p-53; }

}  // namespace

std::vector<std::int64_t> group_by_length(std::vector<std::int64_t> order,
                                          const std::vector<std::int64_t>& lengths, std::int64_t batch_size) {
  const auto size = static_cast<std::int64_t>(order.size());
  const auto length = [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; };
  // At most as many batches as exist, so that a huge batch size doesn't overflow.
  const auto batches = std::clamp<std::int64_t>(size / 4 / batch_size, 1, 50);
  const auto megabatch = std::min(batch_size, size) * batches;
  auto longest = order.begin();
  for (std::int64_t begin = 0; begin < size; begin += megabatch) {
    interruption_point();
    const auto first = order.begin() + begin;
    std::stable_sort(first, order.begin() + std::min(begin + megabatch, size),
                     [&](auto a, auto b) { return length(a) > length(b); });
    if (length(*first) > length(*longest)) longest = first;
  }
  std::swap(*order.begin(), *longest);
  return order;
}

}  // namespace detail

void SeededSampler::reset(torch::optional<std::size_t>) {
  seed_ = detail::draw_seed();
  order_ = order(seed_);
  position_ = 0;
}

torch::optional<std::vector<std::size_t>> SeededSampler::next(std::size_t batch_size) {
  if (position_ >= order_.size()) return {};
  const auto count = std::min(batch_size, order_.size() - position_);
  const auto first = order_.begin() + static_cast<std::ptrdiff_t>(position_);
  position_ += count;
  return std::vector<std::size_t>(first, first + static_cast<std::ptrdiff_t>(count));
}

void SeededSampler::save(torch::serialize::OutputArchive& archive) const {
  const std::vector<std::int64_t> state{static_cast<std::int64_t>(seed_),
                                        static_cast<std::int64_t>(position_)};
  archive.write("state", torch::tensor(state, torch::kLong), /*is_buffer=*/true);
}

void SeededSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor state;
  archive.read("state", state, /*is_buffer=*/true);
  seed_ = static_cast<std::uint64_t>(state[0].item<std::int64_t>());
  order_ = order(seed_);
  position_ = static_cast<std::size_t>(state[1].item<std::int64_t>());
}

LengthGroupedSampler::LengthGroupedSampler(std::vector<std::int64_t> lengths, std::int64_t batch_size)
    : lengths_(std::move(lengths)), batch_size_(batch_size) {
  if (lengths_.empty()) throw ArgumentError("lengths: there must be at least one");
  if (batch_size_ < 1) throw ArgumentError(fmt::format("batch_size is {}: must be at least 1", batch_size_));
}

std::vector<std::int64_t> LengthGroupedSampler::order(std::uint64_t seed) const {
  return detail::group_by_length(detail::permutation(size(), seed, 0), lengths_, batch_size_);
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, WeightedSampling options)
    : weights_(std::move(weights)),
      num_samples_(options.num_samples.value_or(static_cast<std::int64_t>(weights_.size()))),
      replacement_(options.replacement) {
  for (std::size_t i = 0; i < weights_.size(); ++i)
    if (!(weights_[i] >= 0) || !std::isfinite(weights_[i]))
      throw ArgumentError(fmt::format("weight {} is {}: must be a finite number from 0", i, weights_[i]));
  const auto positive = std::ranges::count_if(weights_, [](double weight) { return weight > 0; });
  if (positive == 0) throw ArgumentError("weights: one must be positive");
  if (!std::isfinite(std::reduce(weights_.begin(), weights_.end())))
    throw ArgumentError("weights: their sum must be finite");
  if (num_samples_ < 1)
    throw ArgumentError(fmt::format("num_samples is {}: must be at least 1", num_samples_));
  constexpr std::int64_t most = std::int64_t{1} << 40;
  if (num_samples_ > most)
    throw ArgumentError(
        fmt::format("num_samples is {}: must be at most 2^40, since an epoch's samples are listed in memory",
                    num_samples_));
  if (!replacement_ && num_samples_ > positive)
    throw ArgumentError(fmt::format(
        "num_samples is {}: must be at most {}, the examples of positive weight, without replacement",
        num_samples_, positive));
}

std::vector<std::int64_t> WeightedRandomSampler::order(std::uint64_t seed) const {
  std::mt19937_64 generator(detail::mix(seed, 0));
  std::vector<std::int64_t> examples;
  if (replacement_) {
    std::vector<double> sums(weights_.size());
    std::partial_sum(weights_.begin(), weights_.end(), sums.begin());
    // The last example with positive weight, in case the product below rounds up to the whole sum.
    const auto last = std::ranges::lower_bound(sums, sums.back());
    for (std::int64_t i = 0; i < num_samples_; ++i) {
      if (i % 1'000'000 == 0) interruption_point();
      const auto drawn = std::ranges::upper_bound(sums, detail::uniform(generator) * sums.back());
      examples.push_back(std::min(drawn, last) - sums.begin());
    }
    return examples;
  }
  // Efraimidis and Spirakis 2006: with exponential times whose rates are the weights, the smallest times are
  // a weighted sample without replacement.
  std::vector<std::pair<double, std::int64_t>> times;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const double time = -std::log1p(-detail::uniform(generator));
    if (weights_[i] > 0) times.emplace_back(time / weights_[i], static_cast<std::int64_t>(i));
  }
  std::partial_sort(times.begin(), times.begin() + num_samples_, times.end());
  for (std::int64_t i = 0; i < num_samples_; ++i)
    examples.push_back(times[static_cast<std::size_t>(i)].second);
  return examples;
}

std::vector<std::int64_t> lengths_of(const Dataset& dataset, const std::string& name) {
  if (!dataset.is_indexed() || !dataset.size())
    throw DataError("lengths_of needs a dataset with an index and a size");
  std::vector<std::int64_t> lengths, indices;
  const auto measure = [&](const std::vector<Example>& examples) {
    for (const auto& example : examples) {
      const auto* input = example.inputs.find(name);
      if (!input && !example.inputs.empty()) input = &example.inputs[0];
      if (!input || input->dim() == 0)
        throw DataError(fmt::format("example {} has no length: its inputs are {}", lengths.size(),
                                    describe(example.inputs)));
      lengths.push_back(input->size(0));
    }
    return Batch{{}, {}, static_cast<std::int64_t>(examples.size())};
  };
  constexpr std::int64_t at_once = 256;
  for (std::int64_t first = 0; first < *dataset.size(); first += at_once) {
    indices.resize(static_cast<std::size_t>(std::min(at_once, *dataset.size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    dataset.fetch(indices, measure);
  }
  return lengths;
}

}  // namespace etude::inline v0
