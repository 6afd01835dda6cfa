#include <doctest/doctest.h>
#include <signal.h>
#include <torch/torch.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/child.hpp"
#include "common/folder.hpp"
#include "common/full_run.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/base/message.hpp"
#include "etude/libtorch/threads.hpp"
#include "etude/trainer.hpp"

namespace loop_quiet_test {

/// The settings of the process: signal handlers, and LibTorch's number of threads.
struct Settings {
  std::vector<void (*)(int)> handlers;
  int threads;

  static Settings now() {
    Settings result{{}, at::get_num_threads()};
    for (const int number : {SIGINT, SIGTERM, SIGPIPE}) {
      struct sigaction action {};
      ::sigaction(number, nullptr, &action);
      result.handlers.push_back(action.sa_handler);
    }
    return result;
  }
  bool operator==(const Settings&) const = default;
};

/// Records the settings that a training runs with.
struct Watches {
  std::vector<Settings> seen = {};
  void on(const etude::StepBegin&) { seen.push_back(Settings::now()); }
  void on(const etude::Evaluate&) { seen.push_back(Settings::now()); }
};

etude::TrainerOptions loud(const std::string& folder) {
  auto args = toy::arguments();
  args.output_dir = folder;
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 1;
  args.logging_strategy = args.eval_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  args.log_level = etude::LogLevel::debug;
  args.disable_tqdm.reset();
  return toy::options(args, 3);
}

TEST_CASE(
    "a quiet training prints nothing to standard output, and keeps signal handlers and threads as they are") {
  toy::Folder folder;
  const int threads = etude::usable_cores() + 1;
  CHECK(toy::end_of_child([&] {
          at::set_num_threads(threads);
          ::signal(SIGINT, SIG_IGN);
          const auto before = Settings::now();
          bool is_kept = true;
          const auto text = toy::printed([&] {
            etude::Trainer trainer(loud(folder), etude::quiet, Watches{});
            trainer.train();
            trainer.evaluate();
            for (const auto& seen : trainer.callback<Watches>().seen) is_kept = is_kept && seen == before;
            is_kept = is_kept && trainer.callback<Watches>().seen.size() == 7;
          });
          return !is_kept ? 2 : text.empty() && Settings::now() == before ? 0 : 3;
        }) == "exit 0");
}

TEST_CASE("a training that isn't quiet prints, and handles signals: the test above can fail") {
  toy::Folder folder;
  CHECK(toy::end_of_child([&] {
          const auto before = Settings::now();
          bool is_kept = true;
          const auto text = toy::printed([&] {
            etude::Trainer trainer(loud(folder), Watches{});
            trainer.train();
            is_kept = trainer.callback<Watches>().seen.front() == before;
          });
          return !is_kept && !text.empty() ? 0 : 1;
        }) == "exit 0");
}

using Dropping = etude::Trainer<etude::Quiet, toy::Diary, etude::EarlyStoppingCallback>;

TEST_CASE(
    "quiet trainings have random numbers of their own: neither the program's change nor those of each "
    "other") {
  const auto make = [](const std::string& folder, std::mt19937& engine, std::int64_t seed) {
    auto options = toy::full_options(folder, engine);
    options.args.seed = seed;
    options.args.data_seed = 1;
    options.args.num_train_epochs = 1;
    options.args.max_steps = 6;
    return options;
  };
  const auto alone = [&](std::int64_t seed) {
    toy::Folder folder;
    std::mt19937 engine;
    Dropping trainer(make(folder, engine, seed), toy::Diary{.engine = &engine});
    trainer.train();
    return toy::weights(trainer);
  };
  const auto first = alone(1), second = alone(2);
  CHECK(first != second);

  toy::Folder folders[2];
  std::mt19937 engines[2];
  auto options = make(folders[0], engines[0], 1);
  auto others = make(folders[1], engines[1], 2);
  torch::manual_seed(7);
  const auto expected = torch::rand({3});
  torch::manual_seed(7);
  Dropping a(options, toy::Diary{.engine = &engines[0]}), b(others, toy::Diary{.engine = &engines[1]});
  const auto loader = a.get_train_dataloader();
  auto batches = loader->begin_epoch(0);
  std::vector<torch::Tensor> drawn;
  for (int i = 0; const auto batch = batches.next(); ++i) {
    a.step(*batch);
    b.step(*batch);
    if (i < 3) drawn.push_back(torch::rand({1}));
  }
  a.finish();
  b.finish();
  CHECK(toy::weights(a) == first);
  CHECK(toy::weights(b) == second);
  CHECK(torch::equal(torch::cat(drawn), expected));
}

TEST_CASE("messages go to the handler that the program sets, and to standard error again without it") {
  std::string heard;
  const etude::TrainingArguments args;
  const auto text = toy::printed(
      [&] {
        const auto before = etude::set_message_handler([&](std::string_view level, std::string_view message) {
          heard += fmt::format("{}|{}", level, message);
          throw 1;
        });
        CHECK(!before);
        etude::message(args, etude::LogLevel::warning, "{} left", 3);
        CHECK(etude::set_message_handler({}));
        etude::message(args, etude::LogLevel::warning, "{} left", 2);
      },
      STDERR_FILENO);
  CHECK(heard == "warning|3 left");
  CHECK(text == "etude: warning: 2 left\n");
}

TEST_CASE("quiet may stand in the list without being given, and with no other callback") {
  static_assert(!etude::Trainer<etude::Quiet>::lists<etude::ProgressCallback>);
  static_assert(!etude::Trainer<etude::Quiet>::lists<etude::PrinterCallback>);
  static_assert(etude::Trainer<etude::Quiet>::lists<etude::DefaultFlowCallback>);
  static_assert(etude::Trainer<etude::Quiet, etude::PrinterCallback>::lists<etude::PrinterCallback>);
  etude::Trainer<etude::Quiet> listed(toy::options(toy::arguments()));
  etude::Trainer given(toy::options(toy::arguments()), etude::NoDefaultCallbacks{}, etude::quiet);
  CHECK(listed.train().global_step == 2);
  CHECK(given.train().global_step == 2);
}

}  // namespace loop_quiet_test
