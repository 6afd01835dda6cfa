#pragma once

#include <string>

#include "etude/training_arguments.hpp"

namespace etude::inline v0 {
namespace detail {

/// Adds the origin of the exception being handled: `dataset`, and the example if known.
void place_dataset_error(const TrainingArguments& args, std::string dataset);

}  // namespace detail

/// Runs `fetch`, which reads a batch of the dataset named by `dataset()`. Adds that origin to LibTorch's
/// exceptions. Exceptions that are neither LibTorch's nor Etude's pass through unchanged, and their origin is
/// reported on the terminal.
template <class Fetch, class Dataset>
auto fetched(const TrainingArguments& args, Fetch fetch, Dataset dataset) {
  try {
    return fetch();
  } catch (...) {
    detail::place_dataset_error(args, dataset());
    throw;
  }
}

}  // namespace etude::inline v0
