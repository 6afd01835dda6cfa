// Measures a message between the ranks that a launcher has started: RANK, WORLD_SIZE and so on, as torchrun
// sets them. Rank 0 prints microseconds, the median of several rounds, for Gloo and for shared memory.
#include <fmt/format.h>
#include <torch/types.h>

#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "../measure.hpp"
#include "etude/io/launch.hpp"
#include "etude/parallel/gloo.hpp"
#include "etude/parallel/shared_memory.hpp"

namespace {

double microseconds(etude::Communicator& ranks, std::int64_t floats) {
  const auto tensor = torch::zeros({floats});
  std::vector<double> taken;
  const int messages = floats < 1000000 ? 20 : 1;
  for (int i = 0; i < 20; ++i) {
    ranks.barrier();
    taken.push_back(bench::seconds([&] {
      for (int k = 0; k < messages; ++k) ranks.sum(tensor);
    }));
  }
  return bench::median(taken) / messages * 1e6;
}

}  // namespace

int main() try {
  auto ranks = etude::join_with_gloo(etude::find_launch());
  const std::vector<std::int64_t> sizes{1, 1000, 4000, 125000, 5000000};
  std::vector<double> gloo;
  for (const auto floats : sizes) gloo.push_back(microseconds(*ranks, floats));
  ranks = etude::over_shared_memory(std::move(ranks),
                                    {.warn = [](const std::string& why) { fmt::print("{}\n", why); }});
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto shared = microseconds(*ranks, sizes[i]);
    if (ranks->rank() == 0)
      fmt::print("- sum of {} floats, {} ranks: Gloo {:.1f} us, shared memory {:.1f} us\n", sizes[i],
                 ranks->world_size(), gloo[i], shared);
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
