#include "etude/integrations/tensorboard.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/logged.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "common/variables.hpp"
#include "etude/base/error.hpp"
#include "etude/integrations/tensorboard/summary_writer.hpp"
#include "etude/testing/laws.hpp"
#include "integrations/tensorboard/read_events.hpp"

namespace integrations_tensorboard_test {

using Steps = std::vector<std::int64_t>;
using Numbers = std::vector<double>;
using Tracked = etude::Trainer<etude::TensorBoardCallback>;

/// Saves and evaluates every two steps, of eight.
etude::TrainerOptions resumable(const toy::Folder& folder) {
  auto args = toy::logged_arguments(folder);
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 2;
  args.eval_strategy = etude::IntervalStrategy::steps;
  args.eval_steps = 2;
  return toy::options(args, 4);
}

std::filesystem::path run_in(const toy::Folder& folder) {
  const auto runs = toy::names_in(folder / "runs");
  REQUIRE(runs.size() == 1);
  return folder / "runs" / *runs.begin();
}

/// The status on the HPARAMS page: 1 is success, 2 failure.
int status_of(const std::filesystem::path& run) {
  const auto folders = toy::folders_in(run);
  REQUIRE(folders.size() == 1);
  const auto content = toy::shown(run / *folders.begin(), "_hparams_/session_end_info").back().content;
  protozero::pbf_reader data(content);
  REQUIRE(data.next(4));
  auto session = data.get_message();
  REQUIRE(session.next(1));
  return session.get_enum();
}

std::filesystem::path session_of(const std::filesystem::path& run) {
  const auto folders = toy::folders_in(run);
  REQUIRE(folders.size() == 1);
  return run / *folders.begin();
}

struct FailsAt {
  std::int64_t step = -1;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == step) throw std::runtime_error("failed on purpose");
  }
};

struct Killed {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 2) ::raise(SIGTERM);
  }
};

TEST_CASE("a log is one record, under Hugging Face's names") {
  const toy::Folder folder;
  auto args = toy::logged_arguments(folder);
  args.eval_strategy = etude::IntervalStrategy::epoch;
  Tracked trainer(toy::options(args));
  trainer.train();
  const auto run = run_in(folder);
  const auto files = toy::event_files(run);
  REQUIRE(files.size() == 1);
  const auto events = toy::read_events(files[0]);
  // Version, arguments, model, graph; four steps, two evaluations, the summary.
  REQUIRE(events.size() == 4 + 7);
  CHECK(events[1].values.at(0).tag == "args/text_summary");
  CHECK(events[2].values.at(0).tag == "model/text_summary");
  CHECK_FALSE(events[3].graph.empty());
  CHECK(toy::steps_of(run, "train/loss") == Steps{1, 2, 3, 4});
  CHECK(toy::steps_of(run, "train/learning_rate") == Steps{1, 2, 3, 4});
  CHECK(toy::steps_of(run, "train/epoch") == Steps{1, 2, 2, 3, 4, 4, 4});
  CHECK(toy::steps_of(run, "eval/loss") == Steps{2, 4});
  CHECK(toy::steps_of(run, "train/train_runtime") == Steps{4});
  Numbers losses;
  for (const double loss : toy::logged(trainer.state(), "loss"))
    losses.push_back(static_cast<double>(static_cast<float>(loss)));
  CHECK(toy::numbers_of(run, "train/loss") == losses);
  CHECK(events[4].values.size() == 4);  // loss, grad_norm, learning_rate, epoch
}

TEST_CASE("arguments and the model's config are JSON that Markdown shows verbatim") {
  const toy::Folder folder;
  etude::TensorBoardCallback callback;
  callback.config = {{"width", 3}, {"name", "\xff"}, {"nested", {{"depth", std::nan("")}}}};
  Tracked trainer(toy::options(toy::logged_arguments(folder)), callback);
  trainer.train();
  const auto run = run_in(folder);
  const auto args = toy::shown(run, "args/text_summary").at(0).text;
  CHECK(args.starts_with("    {\n      \"output_dir\": "));
  CHECK(nlohmann::json::parse(args).at("num_train_epochs") == 2);
  const auto config = nlohmann::json::parse(toy::shown(run, "model_config/text_summary").at(0).text);
  CHECK(config.at("width") == 3);
  const auto hparams = toy::shown(session_of(run), "_hparams_/session_start_info").at(0).content;
  for (const auto* name : {"width", "nested.depth", "learning_rate"})
    CHECK(hparams.find(name) != std::string::npos);
}

TEST_CASE("histograms show gradients before clipping and parameters after the step") {
  const toy::Folder folder;
  auto args = toy::logged_arguments(folder);
  args.optim = etude::OptimizerNames::sgd;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.learning_rate = 0.5;
  args.max_grad_norm = 1;
  Tracked trainer(toy::options(args, 1), etude::TensorBoardCallback{.histogram_steps = 1});
  trainer.train();
  const auto run = run_in(folder);
  // At (0, 1), with w = b = 0, the gradient of b is -2, which is clipped to -1.
  CHECK(toy::steps_of(run, "gradients/bias") == Steps{1, 2});
  CHECK(toy::steps_of(run, "parameters/bias") == Steps{1, 2});
  CHECK(toy::shown(run, "gradients/bias").at(0).histogram.sum == doctest::Approx(-2));
  CHECK(toy::shown(run, "parameters/bias").at(0).histogram.sum == doctest::Approx(0.5).epsilon(1e-4));
  CHECK(toy::shown(run, "gradients/weight").at(0).histogram.sum == 0);
}

TEST_CASE("without an interval there are no histograms, and an invalid one is refused") {
  const toy::Folder folder;
  Tracked(toy::options(toy::logged_arguments(folder))).train();
  CHECK(toy::shown(run_in(folder), "parameters/bias").empty());
  Tracked trainer(toy::options(toy::logged_arguments(folder)),
                  etude::TensorBoardCallback{.histogram_steps = 0});
  CHECK(toy::fault_of<etude::ArgumentError>([&] {
          trainer.train();
        }).starts_with("histogram_steps is 0: must be"));
}

TEST_CASE("non-finite numbers are reported once, and the histograms show the others") {
  const toy::Folder folder;
  auto args = toy::logged_arguments(folder);
  args.log_level = etude::LogLevel::warning;
  auto options = toy::options(args);
  const toy::Line line;
  line->weight.data().fill_(std::numeric_limits<float>::quiet_NaN());
  options.model = line;
  Tracked trainer(std::move(options), etude::TensorBoardCallback{.histogram_steps = 1});
  const auto said = toy::printed([&] { trainer.train(); }, STDERR_FILENO);
  const std::string reported = "numbers of the parameters aren't finite at step 1";
  CHECK(said.find(reported) != said.npos);
  CHECK(said.find("parameters aren't", said.find(reported) + reported.size()) == said.npos);
  CHECK(toy::shown(run_in(folder), "parameters/weight").empty());
}

TEST_CASE("a resumed training hides the steps that it repeats and keeps those before its checkpoint") {
  const toy::Folder folder;
  const auto callback = etude::TensorBoardCallback{.histogram_steps = 1};
  etude::Trainer<FailsAt, etude::TensorBoardCallback> first(resumable(folder), FailsAt{7}, callback);
  CHECK_THROWS_AS(first.train(), std::runtime_error);
  const auto run = run_in(folder);
  CHECK(toy::steps_of(run, "train/loss") == Steps{1, 2, 3, 4, 5, 6});
  CHECK(status_of(run) == 2);
  const auto session = session_of(run);
  // The second of these resumes from an earlier checkpoint than the first, whose checkpoints it replaces.
  for (const std::string from : {"checkpoint-4", "checkpoint-2", "checkpoint-6"}) {
    etude::Trainer<FailsAt, etude::TensorBoardCallback> trainer(resumable(folder), FailsAt{}, callback);
    trainer.train({.resume_from_checkpoint = folder / from});
    CHECK(run_in(folder) == run);
    CHECK(toy::steps_of(run, "train/loss") == Steps{1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(toy::steps_of(run, "eval/loss") == Steps{2, 4, 6, 8});
    CHECK(toy::steps_of(run, "gradients/bias") == Steps{1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(toy::steps_of(run, "parameters/bias") == Steps{1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(toy::steps_of(run, "train/train_loss") == Steps{8});
    CHECK(status_of(run) == 1);
    CHECK(session_of(run) == session);
    CHECK(toy::event_files(session).size() == 1);  // with two, TensorBoard would keep showing the first
    Numbers losses;
    for (const double loss : toy::logged(trainer.state(), "loss"))
      losses.push_back(static_cast<double>(static_cast<float>(loss)));
    CHECK(toy::numbers_of(run, "train/loss") == losses);
  }
  CHECK(toy::event_files(run).size() == 4);
  int graphs = 0;  // TensorBoard complains about more than one
  for (const auto& file : toy::event_files(run))
    for (const auto& event : toy::read_events(file)) graphs += !event.graph.empty();
  CHECK(graphs == 1);
  CHECK(toy::shown(run, "model/text_summary").size() == 1);
}

TEST_CASE("a training continues in its folder, in another process, also after everything was moved") {
  const toy::Folder folder;
  Tracked(resumable(folder)).train();
  const auto run = run_in(folder).filename();
  toy::Folder other;
  std::filesystem::remove_all(other / "");
  std::filesystem::rename(folder / "", other / "");
  Tracked(resumable(other)).train({.resume_from_checkpoint = other / "checkpoint-4"});
  CHECK(run_in(other).filename() == run);
  CHECK(toy::steps_of(run_in(other), "train/loss") == Steps{1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("if the files are missing, a resumed training writes the history from the state") {
  const toy::Folder folder;
  etude::Trainer<>(resumable(folder)).train();
  Tracked trainer(resumable(folder));
  trainer.train({.resume_from_checkpoint = folder / "checkpoint-4"});
  CHECK(toy::steps_of(run_in(folder), "train/loss") == Steps{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(toy::steps_of(run_in(folder), "eval/loss") == Steps{2, 4, 6, 8});
}

TEST_CASE("a training continues after a truncated file") {
  const toy::Folder folder;
  Tracked(resumable(folder)).train();
  const auto run = run_in(folder);
  const auto file = toy::event_files(run).at(0);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 5);
  Tracked(resumable(folder)).train({.resume_from_checkpoint = folder / "checkpoint-4"});
  const auto events = toy::read_events(toy::event_files(run).at(1));
  CHECK(events.at(1).session == 1);
  CHECK(events.at(1).step == 4);
  Steps steps;
  for (const auto& event : events)
    for (const auto& value : event.values)
      if (value.tag == "train/loss") steps.push_back(event.step);
  CHECK(steps == Steps{4, 5, 6, 7, 8});
}

TEST_CASE("each training has its own folder, also within one second") {
  const toy::Folder folder;
  Tracked trainer(toy::options(toy::logged_arguments(folder)));
  for (int i = 0; i < 3; ++i) trainer.train();
  CHECK(toy::names_in(folder / "runs").size() == 3);
}

TEST_CASE("a folder named in code wins over TENSORBOARD_LOGGING_DIR, which wins over the default") {
  const toy::Folder folder;
  const toy::Variable home("HOME", folder), place("TENSORBOARD_LOGGING_DIR", "~/boards");
  Tracked(toy::options(toy::logged_arguments(folder))).train();
  CHECK(toy::event_files(folder / "boards").size() == 1);
  Tracked(toy::options(toy::logged_arguments(folder)),
          etude::TensorBoardCallback{.logging_dir = folder / "mine"})
      .train();
  CHECK(toy::event_files(folder / "mine").size() == 1);
  CHECK(toy::names_in(folder / "runs").empty());
}

TEST_CASE("a trial's run has the trial's name once in its path, and HPARAMS its hyperparameters") {
  const toy::Folder folder;
  const auto train = [](const std::filesystem::path& output_dir, const std::string& name,
                        const std::string& logging_dir = "") {
    auto args = toy::arguments();
    args.output_dir = output_dir;
    Tracked(toy::options(args), etude::TensorBoardCallback{.logging_dir = logging_dir})
        .train({.trial = etude::HyperparameterTrial{.name = name, .params = {{"width", 4}}}});
  };
  const auto run_of = [](const std::filesystem::path& output_dir) {
    const auto runs = toy::names_in(output_dir / "runs");
    REQUIRE(runs.size() == 1);
    return output_dir / "runs" / *runs.begin();
  };
  train(folder / "search/run-0", "run-0");
  const auto run = run_of(folder / "search/run-0");
  CHECK(toy::event_files(run).size() == 1);
  const auto hparams = toy::shown(session_of(run), "_hparams_/session_start_info").at(0).content;
  CHECK(hparams.find("width") != std::string::npos);
  train(folder / "other", "run-1");
  CHECK(toy::event_files(run_of(folder / "other") / "run-1").size() == 1);
  train(folder / "search/run-2", "run-2", folder / "boards");
  CHECK(toy::event_files(folder / "boards/run-2").size() == 1);
}

TEST_CASE("another training in a named folder hides nothing of the previous one") {
  const toy::Folder folder;
  Tracked trainer(toy::options(toy::logged_arguments(folder)),
                  etude::TensorBoardCallback{.logging_dir = folder / "mine"});
  trainer.train();
  trainer.train();
  CHECK(toy::steps_of(folder / "mine", "train/loss") == Steps{1, 2, 3, 4, 1, 2, 3, 4});
  CHECK(toy::folders_in(folder / "mine").size() == 2);
}

TEST_CASE("evaluations before and after a training are in its run, and the last metrics in HPARAMS") {
  const toy::Folder folder;
  Tracked trainer(toy::options(toy::logged_arguments(folder)));
  trainer.evaluate();
  trainer.train();
  trainer.evaluate();
  trainer.evaluate();
  const auto run = run_in(folder);
  CHECK(toy::steps_of(run, "eval/loss") == Steps{0, 4, 4});
  const auto session = session_of(run);
  CHECK(toy::steps_of(session, "eval/loss") == Steps{4, 4, 4});
  CHECK(toy::numbers_of(session, "eval/loss").back() == toy::numbers_of(run, "eval/loss").back());
  CHECK(toy::steps_of(session, "train/train_loss") == Steps{4});
  CHECK(trainer.callback<etude::TensorBoardCallback>().writer() != nullptr);
}

TEST_CASE("a training that a signal ends isn't a success") {
  const toy::Folder folder;
  const auto before = std::signal(SIGTERM, [](int) {});
  etude::Trainer<Killed, etude::TensorBoardCallback> trainer(toy::options(toy::logged_arguments(folder)));
  CHECK_THROWS_AS(trainer.train(), etude::Interrupted);
  std::signal(SIGTERM, before);
  CHECK(status_of(run_in(folder)) == 2);
}

TEST_CASE("a program can add its own data to the run") {
  const toy::Folder folder;
  Tracked trainer(toy::options(toy::logged_arguments(folder)));
  CHECK(trainer.callback<etude::TensorBoardCallback>().writer() == nullptr);
  trainer.train();
  trainer.callback<etude::TensorBoardCallback>().writer()->add_text("verdict", "good");
  CHECK(toy::shown(run_in(folder), "verdict/text_summary").at(0).text == "good");
}

TEST_CASE("the graph and the HPARAMS page can be left out") {
  const toy::Folder folder;
  Tracked trainer(toy::options(toy::logged_arguments(folder)),
                  etude::TensorBoardCallback{.log_graph = false, .log_hparams = false});
  trainer.train();
  const auto run = run_in(folder);
  CHECK(toy::folders_in(run).empty());
  const auto events = toy::read_events(toy::event_files(run).at(0));
  REQUIRE(events.size() > 4);
  for (const auto& event : events) CHECK(event.graph.empty());
}

TEST_CASE("an unwritable folder is refused when training begins, with the name of its setting") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "");
  const auto refused = [&](etude::TensorBoardCallback callback, const std::string& output_dir) {
    auto args = toy::logged_arguments(folder);
    args.output_dir = output_dir;
    Tracked trainer(toy::options(args), std::move(callback));
    return toy::fault_of<etude::ArgumentError>([&] { trainer.train(); });
  };
  const std::string place = folder / "file/run";
  CHECK(refused({.logging_dir = place}, folder)
            .starts_with("logging_dir is '" + place + "': must be a folder"));
  CHECK(refused({}, place).starts_with("output_dir is '" + place + "': must be a folder"));
  const toy::Variable variable("TENSORBOARD_LOGGING_DIR", place);
  CHECK(refused({}, folder).starts_with("TENSORBOARD_LOGGING_DIR is '" + place + "': must be a folder"));
}

TEST_CASE("attempts with batches that are too large aren't in the HPARAMS page") {
  const toy::Folder folder;
  Tracked trainer(toy::first_too_large(toy::logged_arguments(folder)));
  trainer.train();
  std::size_t sessions = 0;
  const auto runs = toy::names_in(folder / "runs");
  for (const auto& run : runs) sessions += toy::folders_in(folder / "runs" / run).size();
  CHECK(runs.size() == 2);
  CHECK(sessions == 1);
}

TEST_CASE("a copy begins with no run open") {
  const toy::Folder folder;
  Tracked trainer(toy::options(toy::logged_arguments(folder)));
  trainer.train();
  const auto copy = trainer.callback<etude::TensorBoardCallback>();
  CHECK(copy.writer() == nullptr);
}

TEST_CASE("the callback keeps the laws") {
  const auto make = [](const std::filesystem::path& folder) {
    return etude::TensorBoardCallback{.logging_dir = folder / "board", .histogram_steps = 2};
  };
  CHECK(etude::laws::broken<etude::TensorBoardCallback>(make) == std::vector<std::string>());
}

TEST_CASE("samples are in the run of their training, under the names of metrics") {
  const toy::Folder folder;
  Tracked trainer(toy::options(toy::logged_arguments(folder)));
  trainer.log_text("eval_before", "x");
  trainer.train();
  trainer.log_text("story", "Once");
  const auto run = run_in(folder);
  CHECK(toy::steps_of(run, "eval/before/text_summary") == Steps{0});
  CHECK(toy::steps_of(run, "train/story/text_summary") == Steps{4});
}

}  // namespace integrations_tensorboard_test
