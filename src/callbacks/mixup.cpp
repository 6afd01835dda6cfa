#include "etude/callbacks/mixup.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <utility>

#include "etude/data/random.hpp"

namespace etude::inline v0 {

void BatchMixing::on(BatchFetched& e) {
  auto seed = detail::mix(static_cast<std::uint64_t>(e.args.data_seed.value_or(e.args.seed)), 3);
  seed = detail::mix(seed, static_cast<std::uint64_t>(e.state.global_step));
  auto generator = at::detail::createCPUGenerator(detail::mix(seed, static_cast<std::uint64_t>(place_++)));
  e.batch = mix_(std::move(e.batch), options, generator);
}

}  // namespace etude::inline v0
