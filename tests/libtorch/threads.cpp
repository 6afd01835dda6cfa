#include "etude/libtorch/threads.hpp"

#include <doctest/doctest.h>

#include <map>

#include "common/folder.hpp"
#include "etude/trainer.hpp"

namespace libtorch_threads_test {

std::optional<double> quota(const std::map<std::string, std::string>& files) {
  const toy::Folder root;
  for (const auto& [name, text] : files) {
    std::filesystem::create_directories((root / name).parent_path());
    toy::write_text(root / name, text);
  }
  return etude::cpu_quota(std::string(root));
}

TEST_CASE("a control group's quota applies, its own or that of a parent") {
  CHECK(quota({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "250000 100000\n"}}) == 2.5);
  CHECK(quota({{"proc/self/cgroup", "0::/a/b\n"},
               {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
               {"sys/fs/cgroup/a/cpu.max", "50000 100000\n"}}) == 0.5);
  CHECK(quota({{"proc/self/cgroup", "0::/a/b\n"},
               {"sys/fs/cgroup/a/b/cpu.max", "300000 100000\n"},
               {"sys/fs/cgroup/a/cpu.max", "800000 100000\n"}}) == 3);
}

TEST_CASE("the quota of version 1 comes from the cpu hierarchy") {
  CHECK(quota({{"proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/x\n"},
               {"sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "400000\n"},
               {"sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"}}) == 4);
  CHECK_FALSE(quota({{"proc/self/cgroup", "4:cpu:/x\n"},
                     {"sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n"},
                     {"sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"}}));
}

TEST_CASE("files without a valid quota mean no limit, whatever they contain") {
  CHECK_FALSE(quota({}));
  CHECK_FALSE(quota({{"proc/self/cgroup", "0::/\n"}}));
  CHECK_FALSE(quota({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "max 100000\n"}}));
  CHECK_FALSE(quota({{"proc/self/cgroup", "nonsense"}, {"sys/fs/cgroup/cpu.max", "what"}}));
}

struct Count {
  int threads = 0;
  void on(const etude::TrainBegin&) { threads = at::get_num_threads(); }
};

TEST_CASE("a training uses at most as many threads as there are cores, and restores the number") {
  const int cores = etude::usable_cores(), before = at::get_num_threads();
  const auto threads_with = [&](int given) {
    at::set_num_threads(given);
    etude::Trainer<etude::NoDefaultCallbacks, Count> trainer(
        {.model = torch::nn::Linear(1, 1),
         .args = {.output_dir = "/nonexistent", .max_steps = 1, .save_strategy = etude::SaveStrategy::no},
         .loss = torch::nn::MSELoss(),
         .train_dataset = {torch::ones({1, 1}), torch::ones({1, 1})}});
    trainer.train();
    CHECK(at::get_num_threads() == given);
    at::set_num_threads(before);
    return trainer.callback<Count>().threads;
  };
  CHECK(threads_with(cores + 3) == cores);
  CHECK(threads_with(1) == 1);
}

}  // namespace libtorch_threads_test
