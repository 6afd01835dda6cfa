// trainee OUTPUT_DIR RESULT [--async] [--patience N] [--workers N] [--fsync] [--slow MILLISECONDS]
// [--handler]
//         [--exit STEP]
// Trains, from the newest checkpoint of OUTPUT_DIR if one exists, and writes the outcome to RESULT. Reports
// its progress on standard output: "training", "at STEP MICRO_BATCH", "saved STEP", "done".

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "common/full_run.hpp"
#include "common/quick_files.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/io/folder.hpp"

namespace {

void report(const std::string& line) {
  const auto text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(8);
}

struct Reporter {
  std::int64_t exit_at = -1, micro_batch = 0, loaded = 0;

  void on(const etude::CheckpointLoaded& e) {
    etude::FolderReader folder(e.checkpoint);
    loaded = etude::parse_json(folder.text("training_progress.json"))["position"]["micro_batches"];
  }
  void on(const etude::TrainBegin&) { report("training"); }
  void on(const etude::StepBegin&) { micro_batch = std::exchange(loaded, 0); }
  void on(const etude::SubstepEnd& e) { report(fmt::format("at {} {}", e.state.global_step, ++micro_batch)); }
  void on(const etude::StepEnd& e) {
    report(fmt::format("at {} 0", e.state.global_step));
    if (e.state.global_step == exit_at) std::exit(0);
  }
  void on(const etude::Save& e) { report(fmt::format("saved {}", *etude::checkpoint_step(e.checkpoint))); }
};

struct Command {
  bool async = false, fsync = false, handler = false;
  std::int64_t patience = 100, workers = 0, slow = 0, exit = -1;

  explicit Command(std::vector<std::string_view> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto number = [&] { return std::stoll(std::string(words.at(++i))); };
      if (words[i] == "--async")
        async = true;
      else if (words[i] == "--fsync")
        fsync = true;
      else if (words[i] == "--handler")
        handler = true;
      else if (words[i] == "--patience")
        patience = number();
      else if (words[i] == "--workers")
        workers = number();
      else if (words[i] == "--exit")
        exit = number();
      else if (words[i] == "--slow")
        slow = number();
      else
        throw std::invalid_argument(std::string(words[i]));
    }
  }
};

void (*handler_of(int signal))(int) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

// The contents of `output_dir/trainer_state.json`, without timings and the folder's path.
std::string written_state(const std::filesystem::path& output_dir) {
  const etude::MappedFile file(output_dir / "trainer_state.json");
  auto state = etude::parse_json(file.text());
  state["best_model_checkpoint"] =
      std::filesystem::path(state["best_model_checkpoint"].get<std::string>()).filename().string();
  for (auto& entry : state["log_history"]) {
    std::vector<std::string> timings;
    for (const auto& [name, value] : entry.items())
      if (toy::is_timing(name)) timings.push_back(name);
    for (const auto& name : timings) entry.erase(name);
  }
  return state.dump(1) + "\n";
}

int train(const std::string& output_dir, const std::string& result, const Command& command) {
  std::mt19937 engine;
  auto options = toy::full_options(output_dir, engine);
  options.train_dataset = toy::waves(110);  // 14 steps of 4 micro-batches, and 1 of 3
  options.args.per_device_train_batch_size = 2;
  options.args.num_train_epochs = 3;
  options.args.save_steps = 2;
  options.args.eval_steps = 3;
  options.args.save_total_limit = 3;
  options.args.load_best_model_at_end = true;
  options.args.save_async = command.async;
  options.args.dataloader_num_workers = command.workers;
  options.args.log_level = etude::LogLevel::warning;
  if (!command.fsync)
    options.file_system = std::make_shared<toy::QuickFiles>([&](std::string_view operation, const auto&) {
      if (operation == "finish") std::this_thread::sleep_for(std::chrono::milliseconds(command.slow));
    });
  etude::Trainer<toy::Quiet, Reporter, toy::Diary, etude::EarlyStoppingCallback> trainer(
      options, Reporter{.exit_at = command.exit}, toy::Diary{.engine = &engine},
      etude::EarlyStoppingCallback{.early_stopping_patience = command.patience});
  if (command.handler)
    for (const int signal : {SIGTERM, SIGINT}) ::signal(signal, [](int) { report("handled"); });
  const auto before = std::pair(handler_of(SIGTERM), handler_of(SIGINT));
  const auto handlers_are_back = [&] { return before == std::pair(handler_of(SIGTERM), handler_of(SIGINT)); };
  try {
    trainer.train({.resume_from_checkpoint = etude::if_any});
  } catch (const etude::Interrupted& interrupted) {
    report(fmt::format("interrupted {} {}", interrupted.signal, handlers_are_back()));
    return 3;
  }
  if (!handlers_are_back()) return 4;
  etude::write_file(etude::default_file_system(), result, toy::outcome(trainer) + written_state(output_dir));
  report("done");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  report("started");
  torch::set_num_threads(1);
  return train(argv[1], argv[2], Command({argv + 3, argv + argc}));
}
