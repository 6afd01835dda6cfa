#include "etude/callbacks/mixup.hpp"

#include <cstdint>
#include <utility>

namespace etude::inline v0 {

at::Generator BatchMixing::generator(const Context& e) {
  auto seed = detail::mix(static_cast<std::uint64_t>(e.args.data_seed.value_or(e.args.seed)), 3);
  seed = detail::mix(seed, static_cast<std::uint64_t>(e.state.global_step));
  return at::detail::createCPUGenerator(detail::mix(seed, static_cast<std::uint64_t>(place_++)));
}

void MixUp::on(BatchFetched& e) {
  auto own = generator(e);
  e.batch = mix_up(std::move(e.batch), options, own);
}

void CutMix::on(BatchFetched& e) {
  auto own = generator(e);
  e.batch = cut_mix(std::move(e.batch), options, own);
}

}  // namespace etude::inline v0
