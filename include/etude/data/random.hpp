#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <vector>

#include "etude/base/mix.hpp"

namespace etude::inline v0 {
namespace detail {

/// The numbers below `size` in an order determined by (seed, epoch), the same on every machine and with every
/// version of LibTorch. This is a Fisher-Yates shuffle that uses no other generator and can be interrupted;
/// the bias of its modulo is below size / 2^64.
std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

void seed_data_generator(std::uint64_t seed);

/// Seeds this thread's generator for examples from (seed, index), and returns it.
at::Generator& example_generator(std::uint64_t seed, std::int64_t index);

}  // namespace detail

/// This thread's generator for random numbers of a dataset or a collator (augmentation). A DataLoader seeds
/// it before each batch from (seed, epoch, batch), so the numbers depend neither on the number of workers nor
/// on where training was resumed. They do depend on the batch size; numbers from the generator passed to a
/// dataset's `get(index, torch::Generator&)` don't. LibTorch's default generator is shared by all threads and
/// guarantees none of this.
at::Generator& data_generator();

}  // namespace etude::inline v0
