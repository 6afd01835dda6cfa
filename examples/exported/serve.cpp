/// Serves a model that Python exported, in several threads: reads numbers, and writes each with the model's
/// output.
///
///   exported_serve model.pt2 < numbers

#include <fmt/core.h>
#include <torch/torch.h>

#include <atomic>
#include <etude/model/load_exported.hpp>
#include <exception>
#include <iostream>
#include <iterator>
#include <thread>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 2) {
    fmt::print(stderr, "usage: exported_serve MODEL.pt2\n");
    return 2;
  }
  etude::ExportedModule model = etude::load_exported(argv[1]);
  model->eval();
  const std::vector<float> requests(std::istream_iterator<float>(std::cin), {});
  std::vector<float> answers(requests.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    const torch::NoGradGuard no_grad;  // each thread needs its own
    torch::set_num_threads(1);         // the requests keep the cores busy
    for (std::size_t i; (i = next++) < requests.size();)
      answers[i] = model->forward(torch::full({1, 1}, requests[i])).single().item<float>();
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  }
  for (std::size_t i = 0; i < requests.size(); ++i) fmt::print("{} {:.9f}\n", requests[i], answers[i]);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
