#include "etude/loop/host_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/batch_stream.hpp"

namespace etude::inline v0 {

std::optional<Batch> HostBatches::next() {
  if (waiting_.empty()) return std::nullopt;
  auto batch = std::move(waiting_.front());
  waiting_.pop_front();
  taken_ += batch.size;
  return batch;
}

std::int64_t HostBatches::position() const {
  const auto& before = core_.progress.position.examples;
  return std::min(before + taken_ * core_.ranks.world_size(), detail::largest_dataset);
}

Batch batch_of_host(Batch batch, const TrainingArguments& args) {
  // A batch with a size is of the program's own making: its tensors may have other first dimensions.
  if (batch.size <= 0) batch = make_batch(std::move(batch.inputs), std::move(batch.labels));
  return split_labels(std::move(batch), args.label_names.value_or(DataLoaderOptions().label_names));
}

void AnyHostLoop::check_goes_on() const {
  if (last_)
    throw Error(fmt::format(
        "step() was called after the training has stopped at step {} ({}): call finish(), and begin() for "
        "another",
        last_->global_step, last_->stop_reason.empty() ? "max_steps are done" : last_->stop_reason));
}

void HostBatches::clear() {
  waiting_.clear();
  taken_ = 0;
}

}  // namespace etude::inline v0
