#pragma once

#include <string>

#include "etude/training_arguments.hpp"

namespace etude {
namespace detail {

/// Says where the exception that is being handled has come from: `dataset`, and the example if it is known.
void place_dataset_error(const TrainingArguments& args, std::string dataset);

}  // namespace detail

/// Runs `fetch`, which gets a batch of the dataset that `dataset()` names. An exception of LibTorch's says
/// where it came from; another that isn't Etude's comes out as it was thrown, and the person at the terminal
/// is told its place.
template <class Fetch, class Dataset>
auto fetched(const TrainingArguments& args, Fetch fetch, Dataset dataset) {
  try {
    return fetch();
  } catch (...) {
    detail::place_dataset_error(args, dataset());
    throw;
  }
}

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/loop/impl/fetching.ipp"
#endif
