/// Measures whether anything grows with the length of a training: the time of a step, a log and a checkpoint,
/// and the memory, after 10^2 and after 10^6 steps of one run with `logging_steps = 500`. Times are divided
/// by the time of a matrix product measured alongside, since the machine's speed may change in between.
/// `growth_bench [STEPS]`.

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <etude/etude.hpp>
#include <filesystem>
#include <fstream>

#include "measure.hpp"

namespace {

using Clock = std::chrono::steady_clock;

/// Microseconds of the steps, logs and checkpoints in a window of a training.
struct Window {
  std::vector<double> steps, logs, saves, products;
  double megabytes = 0;
};

double resident_megabytes() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

/// Times `length` steps from each step in `begin`. Every fiftieth step requests a log and a checkpoint, which
/// are timed separately.
struct Watch {
  static constexpr std::int64_t length = 2000;
  explicit Watch(std::vector<std::int64_t> begin_) : begin(std::move(begin_)), windows(begin.size()) {}

  std::vector<std::int64_t> begin;
  std::vector<Window> windows;

  void on(const etude::StepBegin& e) {
    window_ = nullptr;
    for (std::size_t i = 0; i < begin.size(); ++i)
      if (begin[i] <= e.state.global_step && e.state.global_step < begin[i] + length) window_ = &windows[i];
    if (window_ != nullptr) from_ = Clock::now();
  }
  void on(const etude::StepEnd& e) {
    if (window_ == nullptr) return;
    window_->steps.push_back(microseconds());
    from_ = Clock::now();
    static_cast<void>(torch::mm(matrix_, matrix_));
    window_->products.push_back(microseconds());
    if (e.state.global_step % 50 != 0) return;
    e.control.should_log = e.control.should_save = true;
    from_ = Clock::now();
  }
  void on(const etude::Log&) {
    if (window_ == nullptr) return;
    window_->logs.push_back(microseconds());
    from_ = Clock::now();
  }
  void on(const etude::Save&) {
    if (window_ == nullptr) return;
    window_->saves.push_back(microseconds());
    window_->megabytes = resident_megabytes();
  }

 private:
  double microseconds() const {
    return std::chrono::duration<double, std::micro>(Clock::now() - from_).count();
  }

  torch::Tensor matrix_ = torch::ones({128, 128});
  Window* window_ = nullptr;
  Clock::time_point from_;
};

using bench::median;

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t steps = argc > 1 ? std::stoll(argv[1]) : 1'000'000;
  at::set_num_threads(1);
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("etude_growth_{}", ::getpid());
  const auto x = torch::randn({4096, 4});
  etude::Trainer<etude::NoDefaultCallbacks, etude::DefaultFlowCallback, Watch> trainer(
      {.model = torch::nn::Linear(4, 2),
       .args = {.output_dir = folder.string(),
                .per_device_train_batch_size = 32,
                .max_steps = steps,
                .save_strategy = etude::SaveStrategy::no,
                .save_total_limit = 2,
                .log_level = etude::LogLevel::error,
                .disable_tqdm = true},
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = {x, x.select(1, 0).gt(0).to(torch::kLong)}},
      Watch({100, steps - Watch::length}));
  trainer.train();
  std::filesystem::remove_all(folder);

  const auto& windows = trainer.callback<Watch>().windows;
  const auto row = [&](const char* name, auto part) {
    const double early = median(windows[0].*part), late = median(windows[1].*part);
    fmt::print("| {} | {:.1f} us | {:.1f} us | {:.2f} |\n", name, early, late,
               late / median(windows[1].products) / (early / median(windows[0].products)));
  };
  fmt::print("| | after 100 steps | after {} | ratio |\n|---|---|---|---|\n", steps);
  row("a step", &Window::steps);
  row("a log", &Window::logs);
  row("a checkpoint", &Window::saves);
  fmt::print("| memory | {:.0f} MB | {:.0f} MB | {:.2f} |\n", windows[0].megabytes, windows[1].megabytes,
             windows[1].megabytes / windows[0].megabytes);
}
