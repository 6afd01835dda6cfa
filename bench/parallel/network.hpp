#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "../train/workloads.hpp"

/// The networks that bench/parallel/ trains; ddp.py has the same ones in Python.
namespace bench {

/// `batch_size` is the size of each process's batch.
inline const std::vector<Workload>& parallel_workloads() {
  using Sizes = std::vector<std::int64_t>;
  static const std::vector<Workload> all{
      {"small", 32,
       [] {
         return std::make_shared<Perceptron>(Sizes{784, 128, 128, 10});
       },
       [] { return classified_noise(2048, 784, 10); }},
      {"wide", 128,
       [] {
         return std::make_shared<Perceptron>(Sizes{784, 1024, 1024, 1024, 1024, 1024, 10});
       },
       [] { return classified_noise(8192, 784, 10); }},
      *std::ranges::find(workloads(), "transformer", &Workload::name),
      {"large", 8,
       [] {
         return std::make_shared<Perceptron>(Sizes{784, 2048, 2048, 2048, 2048, 2048, 10});
       },
       [] { return classified_noise(256, 784, 10); }}};
  return all;
}

}  // namespace bench
