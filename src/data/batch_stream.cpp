#include "etude/data/batch_stream.hpp"

#include <algorithm>

#include "epoch.hpp"
#include "etude/base/counting.hpp"
#include "etude/data/dataset.hpp"

namespace etude::inline v0 {

std::optional<Batch> BatchStream::next() { return epoch_->next(); }

std::int64_t BatchStream::position() const { return epoch_->position; }

double BatchStream::share() const { return epoch_->share; }

std::shared_ptr<const DatasetState> BatchStream::dataset_state() const { return epoch_->state; }

std::shared_ptr<const DatasetState> BatchStream::state_now() const {
  if (epoch_->keeps_states || epoch_->workers || !epoch_->dataset.has_state()) return epoch_->state;
  return std::make_shared<const DatasetState>(epoch_->dataset.state());
}

std::int64_t DataLoaderOptions::global_batch_size() const {
  if (part.world_size == 1) return batch_size;
  return std::min(batch_size, detail::largest_dataset / part.world_size) * part.world_size;
}

}  // namespace etude::inline v0
