#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <utility>

#include "etude/base/linkage.hpp"
#include "etude/callbacks/mixup.hpp"
#include "etude/data/mixup.hpp"
#include "etude/data/random.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude {

ETUDE_INLINE at::Generator BatchMixing::generator(const Context& e) {
  auto seed = detail::mix(static_cast<std::uint64_t>(e.args.data_seed.value_or(e.args.seed)), 3);
  seed = detail::mix(seed, static_cast<std::uint64_t>(e.state.global_step));
  return at::detail::createCPUGenerator(detail::mix(seed, static_cast<std::uint64_t>(place_++)));
}

ETUDE_INLINE void MixUp::on(BatchFetched& e) {
  auto own = generator(e);
  e.batch = mix_up(std::move(e.batch), options, own);
}

ETUDE_INLINE void CutMix::on(BatchFetched& e) {
  auto own = generator(e);
  e.batch = cut_mix(std::move(e.batch), options, own);
}

}  // namespace etude
