/// Measures how much more a step costs through the C interface than in C++: the same training of a linear
/// model (3 inputs, 2 outputs, batches of 4, AdamW) each way, which advance in turns of 400 steps. Prints,
/// for each way to call a step, its CPU time and the median difference to the C++ step of the same round,
/// with a 95 % confidence interval. `c_bench [--json FILE] [ROUNDS]`.

#include <etude.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <etude/etude.hpp>
#include <etude/model/load_exported.hpp>
#include <etude/model/named_loss.hpp>
#include <etude/parallel/distributed_data_parallel.hpp>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "measure.hpp"

namespace {

/// Many, since the library has its own copy of Etude, which a turn's first steps bring into the caches.
constexpr int steps_of_a_turn = 400;

/// The CPU time of this thread, in microseconds.
double microseconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

void check(etude_status status) {
  if (status != ETUDE_OK) throw std::runtime_error(etude_last_error());
}

/// The program's data: a batch that changes in each step.
struct Program {
  std::array<float, 12> x{};
  std::array<float, 8> y{};
  std::int64_t step = 0;

  void advance() {
    ++step;
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = std::sin(static_cast<float>(step) + static_cast<float>(i));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] * x[i + 1];
  }
};

etude::TrainingArguments arguments() {
  etude::TrainingArguments args;
  args.output_dir = "/tmp/etude_c_bench";
  args.learning_rate = 1e-3;
  args.max_steps = 100'000'000;
  args.lr_scheduler_type = etude::SchedulerType::constant;
  args.save_strategy = etude::SaveStrategy::no;
  return args;
}

/// The same trainer as in libetude_c.so.
class InCpp {
 public:
  explicit InCpp(const char* model)
      : trainer_({.model = etude::load_exported(model),
                  .args = arguments(),
                  .loss = etude::named_loss(etude::LossName::mse)}) {
    trainer_.begin();
  }
  void step(const torch::Tensor& x, const torch::Tensor& y) { trainer_.step(x, y); }

 private:
  etude::Trainer<etude::Quiet, etude::DistributedDataParallel, etude::RuntimeCallbacks> trainer_;
};

class InC {
 public:
  /// With `moves`, each step has its data in other memory than the step before.
  InC(const char* model, Program& program, bool moves) : program_(program), moves_(moves) {
    etude_options* options = nullptr;
    check(etude_options_create(&options));
    check(etude_options_set_json(
        options, R"({"output_dir": "/tmp/etude_c_bench", "learning_rate": 1e-3, "max_steps": 100000000,
                     "lr_scheduler_type": "constant", "save_strategy": "no", "loss": "mse"})"));
    check(etude_trainer_create(model, options, &trainer_));
    etude_options_destroy(options);
    check(etude_trainer_begin(trainer_, nullptr));
    tensors_[0].name = "input";
    tensors_[0].data = program.x.data();
    tensors_[0].shape = x_shape_.data();
    tensors_[1].name = "labels";
    tensors_[1].data = program.y.data();
    tensors_[1].shape = y_shape_.data();
    tensors_[0].rank = tensors_[1].rank = 2;
  }
  InC(const InC&) = delete;
  InC& operator=(const InC&) = delete;
  ~InC() { etude_trainer_destroy(trainer_); }
  void step() {
    if (moves_) {
      auto& memory = copies_[static_cast<std::size_t>(program_.step % 2)];
      memory = program_;
      tensors_[0].data = memory.x.data();
      tensors_[1].data = memory.y.data();
    }
    check(etude_trainer_step(trainer_, tensors_.data(), 2, nullptr));
  }

 private:
  Program& program_;
  bool moves_;
  std::array<Program, 2> copies_;
  etude_trainer* trainer_ = nullptr;
  std::array<std::int64_t, 2> x_shape_{4, 3}, y_shape_{4, 2};
  std::array<etude_tensor, 2> tensors_{};
};

}  // namespace

int main(int argc, char** argv) {
  int rounds = 200;
  std::ofstream json;
  for (int i = 1; i < argc; ++i)
    if (argv[i] == std::string("--json") && i + 1 < argc)
      json.open(argv[++i]);
    else
      rounds = std::max(1, std::stoi(argv[i]));
  torch::set_num_threads(1);

  Program program;
  InCpp with_tensors(BENCH_MODEL), with_memory(BENCH_MODEL);
  InC in_c(BENCH_MODEL, program, /*moves=*/false), moving(BENCH_MODEL, program, /*moves=*/true);
  const auto x = torch::from_blob(program.x.data(), {4, 3}), y = torch::from_blob(program.y.data(), {4, 2});
  const std::vector<std::pair<std::string, std::function<void()>>> ways{
      {"in C++, with tensors of the program", [&] { with_tensors.step(x, y); }},
      {"in C++, with memory of the program",
       [&] {
         with_memory.step(torch::from_blob(program.x.data(), {4, 3}),
                          torch::from_blob(program.y.data(), {4, 2}));
       }},
      {"through C", [&] { in_c.step(); }},
      {"through C, in other memory each time", [&] { moving.step(); }}};
  std::vector<std::vector<double>> times(ways.size());
  constexpr int warm_up = 4;
  for (int round = -warm_up; round < rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const auto way = (i + static_cast<std::size_t>(round + warm_up)) % ways.size();
      const auto begin = microseconds();
      for (int step = 0; step < steps_of_a_turn; ++step) {
        program.advance();
        ways[way].second();
      }
      if (round >= 0) times[way].push_back((microseconds() - begin) / steps_of_a_turn);
    }
  }
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::vector<double> more;
    for (std::size_t round = 0; round < times[i].size(); ++round)
      more.push_back(times[i][round] - times[0][round]);
    std::ranges::sort(more);
    // The median lies between these two of the sorted differences in 95 % of all samples.
    const auto half = 0.98 * std::sqrt(static_cast<double>(more.size()));
    const auto at = [&](double rank) {
      return more[static_cast<std::size_t>(std::clamp(rank, 0.0, static_cast<double>(more.size() - 1)))];
    };
    const auto middle = static_cast<double>(more.size()) / 2;
    fmt::print("- a step {}: {:.1f} µs", ways[i].first, bench::median(times[i]));
    if (i > 0)
      fmt::print("; {:+.2f} µs ({:+.2f} to {:+.2f})", at(middle), at(middle - half), at(middle + half));
    fmt::print("\n");
    json << nlohmann::ordered_json{{"way", ways[i].first},
                                   {"microseconds", bench::median(times[i])},
                                   {"more", at(middle)},
                                   {"more_least", at(middle - half)},
                                   {"more_most", at(middle + half)}}
         << '\n';
  }
}
