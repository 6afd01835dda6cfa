#include <doctest/doctest.h>
#include <signal.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/printed.hpp"
#include "common/quick_files.hpp"
#include "common/toy.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/checkpoint/resume_point.hpp"
#include "etude/io/folder.hpp"

/// Trainings on a stream with a state: ten points per epoch, in three updates. Each update has two batches of
/// two points, except the last one of an epoch, which has one batch.
namespace checkpoint_dataset_state_test {

using Numbers = std::vector<std::int64_t>;
using Example = std::pair<torch::Tensor, torch::Tensor>;

Example point(std::int64_t i) {
  const auto x = torch::full({1}, static_cast<double>(i) / 10);
  return {x, 2 * x + 1};
}

/// A stream on which each pass begins three points later than the previous one.
struct Turning {
  std::shared_ptr<Numbers> read = std::make_shared<Numbers>();
  std::int64_t at = 0, pass = -1;

  void reset() {
    at = 0;
    ++pass;
  }
  std::optional<Example> next() {
    if (at == 10) return std::nullopt;
    read->push_back((at++ + 3 * pass) % 10);
    return point(read->back());
  }
  nlohmann::ordered_json state() const { return {{"at", at}, {"pass", pass}}; }
  void load_state(const nlohmann::ordered_json& state) {
    at = state.at("at");
    pass = state.at("pass");
  }
};

/// A stream that shuffles with a buffer of four points, which it changes in place.
struct Buffered {
  std::shared_ptr<Numbers> read = std::make_shared<Numbers>();
  std::mt19937 generator{5};
  std::int64_t at = 4;
  torch::Tensor buffer = torch::arange(4);

  void reset() {
    at = 4;
    buffer.copy_(torch::arange(4));
  }
  std::optional<Example> next() {
    if (at == 14) return std::nullopt;
    const auto place = static_cast<std::int64_t>(generator() % 4);
    read->push_back(buffer[place].item<std::int64_t>());
    buffer[place] = at++;
    return point(read->back());
  }
  etude::DatasetState state() const {
    std::ostringstream text;
    text << generator;
    return {.values = {{"generator", text.str()}, {"at", at}}, .tensors = {{"buffer", buffer}}};
  }
  void load_state(const etude::DatasetState& state) {
    std::istringstream(state.values.at("generator").get<std::string>()) >> generator;
    at = state.values.at("at");
    buffer = state.tensors.at("buffer");
  }
};

/// A stream that continues with its next pass without being rewound.
struct Endless {
  std::shared_ptr<Numbers> read = std::make_shared<Numbers>();
  std::int64_t at = 0;

  std::optional<Example> next() {
    if (at % 11 == 10) return ++at, std::nullopt;
    read->push_back(at++);
    return point(read->back());
  }
  nlohmann::ordered_json state() const { return at; }
  void load_state(const nlohmann::ordered_json& state) { at = state; }
};

/// A stream of the points of Turning's first pass, without a state.
struct Plain {
  std::shared_ptr<Numbers> read = std::make_shared<Numbers>();
  std::int64_t at = 0;

  void reset() { at = 0; }
  std::optional<Example> next() {
    if (at == 10) return std::nullopt;
    read->push_back(at++);
    return point(read->back());
  }
};

/// Throws at the end of a step, as if the training was killed there, or interrupts the n-th micro-batch that
/// isn't its group's last.
struct Ender {
  std::int64_t fails_at = -1;
  int interrupted_at = -1;
  void on(const etude::StepEnd& e) const {
    if (e.state.global_step == fails_at) throw std::runtime_error("killed");
  }
  void on(const etude::SubstepEnd&) {
    if (--interrupted_at == 0) ::raise(SIGTERM);
  }
};

/// A program's signal handler, which returns.
struct Handler {
  void (*before)(int) = ::signal(SIGTERM, [](int) {});
  ~Handler() { ::signal(SIGTERM, before); }
};

etude::TrainingArguments nine_steps(const std::string& folder, int workers) {
  auto args = toy::arguments();
  toy::save_to(folder, args);
  args.max_steps = 9;
  args.per_device_train_batch_size = 2;
  args.gradient_accumulation_steps = 2;
  args.dataloader_num_workers = workers;
  args.enable_jit_checkpoint = true;
  return args;
}

struct Outcome {
  Numbers read;
  std::vector<float> weights;
  bool ended;
};

template <class Stream>
Outcome run(const etude::TrainingArguments& args, Ender ender = {}) {
  const Stream stream;
  auto options = toy::options(args);
  options.file_system = std::make_shared<toy::QuickFiles>();
  options.train_dataset = stream;
  etude::Trainer<Ender> trainer(options, ender);
  bool ended = true;
  try {
    trainer.train({.resume_from_checkpoint = etude::if_any});
  } catch (const std::exception&) {
    ended = false;
  }
  Outcome outcome{*stream.read, {}, ended};
  for (const auto& [name, parameter] : trainer.model().named_parameters())
    outcome.weights.push_back(parameter.template item<float>());
  return outcome;
}

/// The number of examples in so many updates.
std::ptrdiff_t examples_of(std::int64_t steps) { return steps / 3 * 10 + steps % 3 * 4; }

Numbers from(const Numbers& all, std::ptrdiff_t first) { return {all.begin() + first, all.end()}; }

template <class Stream>
void check_killed_runs() {
  for (const int workers : {0, 1}) {
    const toy::Folder whole;
    const auto unbroken = run<Stream>(nine_steps(whole, workers));
    REQUIRE(unbroken.ended);
    REQUIRE(unbroken.read.size() == 30);
    for (std::int64_t step = 2; step <= 9; ++step) {
      CAPTURE(workers);
      CAPTURE(step);
      const toy::Folder folder;
      REQUIRE_FALSE(run<Stream>(nine_steps(folder, workers), {.fails_at = step}).ended);
      // Resumes with the other number of workers.
      const auto resumed = run<Stream>(nine_steps(folder, 1 - workers));
      CHECK(resumed.read == from(unbroken.read, examples_of(step - 1)));
      CHECK(resumed.weights == unbroken.weights);
    }
  }
}

TEST_CASE(
    "a resumed training continues a stream with a state, and has the weights of the uninterrupted one") {
  const toy::Folder folder;
  CHECK(run<Turning>(nine_steps(folder, 0)).read ==
        Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5});
  check_killed_runs<Turning>();
}

TEST_CASE("a state of JSON and tensors is resumed to the bit") { check_killed_runs<Buffered>(); }

TEST_CASE("a training interrupted within an accumulation group reads the stream from the group's beginning") {
  const Handler handler;
  for (const int workers : {0, 1}) {
    const toy::Folder whole;
    const auto unbroken = run<Buffered>(nine_steps(whole, workers));
    // Groups 0, 1, 3, 4, 6 and 7 have two micro-batches, so the first one can be interrupted.
    for (int n = 1; n <= 6; ++n) {
      CAPTURE(workers);
      CAPTURE(n);
      const toy::Folder folder;
      REQUIRE_FALSE(run<Buffered>(nine_steps(folder, workers), {.interrupted_at = n}).ended);
      const auto group = (n - 1) / 2 * 3 + (n - 1) % 2;
      etude::FolderReader checkpoint(folder / ("checkpoint-" + std::to_string(group)));
      CHECK(etude::read_resume_point(checkpoint).progress->position.micro_batches == 1);
      const auto resumed = run<Buffered>(nine_steps(folder, workers));
      CHECK(resumed.read == from(unbroken.read, examples_of(group)));
      CHECK(resumed.weights == unbroken.weights);
    }
  }
}

TEST_CASE("an epoch of a stream that can't be rewound begins where the one before has ended") {
  const Numbers numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  for (const int workers : {0, 1})
    for (std::int64_t step = 4; step <= 9; ++step) {
      CAPTURE(step);
      const toy::Folder folder;
      auto args = nine_steps(folder, workers);
      args.gradient_accumulation_steps = 1;  // so that the end comes after a whole group
      args.max_steps = 10;
      REQUIRE_FALSE(run<Endless>(args, {.fails_at = step}).ended);
      const auto resumed = run<Endless>(args);
      CHECK(resumed.ended);
      CHECK(resumed.read.size() >= 22 - 2 * static_cast<std::size_t>(step));
      CHECK(Numbers(resumed.read.begin(), resumed.read.begin() + 22 - 2 * step) ==
            from(numbers, 2 * step - 2));
    }
}

TEST_CASE("with another batch size a stream with a state continues with the same example") {
  const toy::Folder whole, folder;
  const auto unbroken = run<Turning>(nine_steps(whole, 1));
  run<Turning>(nine_steps(folder, 1), {.fails_at = 6});
  auto args = nine_steps(folder, 1);
  args.per_device_train_batch_size = 1;
  args.gradient_accumulation_steps = 1;
  args.max_steps = 7;
  const auto resumed = run<Turning>(args);
  CHECK(resumed.ended);
  // Step 5 ended at example 8 of the second pass, which has two more examples.
  CHECK(Numbers(resumed.read.begin(), resumed.read.begin() + 2) == Numbers{1, 2});
}

TEST_CASE("ignore_data_skip begins the epoch again, also in a stream with a state") {
  const toy::Folder folder;
  run<Turning>(nine_steps(folder, 0), {.fails_at = 3});
  auto args = nine_steps(folder, 0);
  args.ignore_data_skip = true;
  CHECK(run<Turning>(args).read.front() == 0);
}

TEST_CASE("only a checkpoint of a state with tensors has a file of them") {
  for (const bool has_tensors : {false, true}) {
    const toy::Folder folder;
    auto args = nine_steps(folder, 0);
    args.max_steps = 1;
    has_tensors ? run<Buffered>(args) : run<Turning>(args);
    CHECK(std::filesystem::exists(folder / "checkpoint-1" / "dataset_state.safetensors") == has_tensors);
    std::ifstream file(folder / "checkpoint-1" / "training_progress.json");
    CHECK(nlohmann::json::parse(file).at("dataset_state").at("values").at("at") == (has_tensors ? 8 : 4));
  }
}

template <class Before, class After>
std::string warnings_of_resuming_at_8(bool drop_state, Outcome& resumed) {
  const toy::Folder folder;
  auto args = nine_steps(folder, 0);
  args.log_level = etude::LogLevel::warning;
  const auto checkpoint = folder / "checkpoint-2";
  toy::printed([&] { run<Before>(args, {.fails_at = 3}); }, STDERR_FILENO);
  if (drop_state) {
    auto progress = nlohmann::ordered_json::parse(std::ifstream(checkpoint / "training_progress.json"));
    REQUIRE(progress.erase("dataset_state") == 1);
    std::ofstream(checkpoint / "training_progress.json") << progress;
    std::filesystem::remove(checkpoint / "etude_manifest.json");
  }
  const After stream;
  auto options = toy::options(args);
  options.train_dataset = stream;
  etude::Trainer<> trainer(options);
  const auto warnings =
      toy::printed([&] { trainer.train({.resume_from_checkpoint = checkpoint}); }, STDERR_FILENO);
  resumed.read = *stream.read;
  resumed.weights.clear();
  for (const auto& [name, parameter] : trainer.model().named_parameters())
    resumed.weights.push_back(parameter.template item<float>());
  return warnings;
}

TEST_CASE("without a state of the stream or a stream for the state, examples are counted, with a warning") {
  const toy::Folder whole, whole_plain;
  const auto turning = run<Turning>(nine_steps(whole, 0));
  const auto plain = run<Plain>(nine_steps(whole_plain, 0));
  REQUIRE(plain.weights != turning.weights);
  Outcome resumed{};

  // Earlier versions wrote checkpoints without a state.
  CHECK(toy::contains(warnings_of_resuming_at_8<Turning, Turning>(true, resumed),
                      "checkpoint-2: the state of train_dataset is missing: epoch 0 starts from its first "
                      "state, and is read up to example 8\n"));
  CHECK(resumed.read == turning.read);
  CHECK(resumed.weights == turning.weights);

  CHECK(toy::contains(warnings_of_resuming_at_8<Turning, Plain>(false, resumed),
                      "checkpoint-2: train_dataset has no load_state() for its saved state: it continues by "
                      "counting, from example 8 of epoch 0\n"));
  CHECK(resumed.read == plain.read);

  CHECK(warnings_of_resuming_at_8<Turning, Turning>(false, resumed) == "");
  CHECK(warnings_of_resuming_at_8<Plain, Plain>(false, resumed) == "");
  CHECK(resumed.weights == plain.weights);
}

/// A stream with a state that JSON can't hold.
struct Binary : Plain {
  nlohmann::ordered_json state() const { return std::string("\xff\xfe"); }
  void load_state(const nlohmann::ordered_json&) {}
};

TEST_CASE("a state with bytes that aren't UTF-8 is an error that names the dataset") {
  const toy::Folder folder;
  auto options = toy::options(nine_steps(folder, 0));
  options.train_dataset = Binary();
  etude::Trainer<> trainer(options);
  CHECK(toy::contains(toy::fault_of<etude::DataError>([&] { trainer.train(); }),
                      "train_dataset: its state() has the string '\\xff\\xfe', which isn't UTF-8"));
}

}  // namespace checkpoint_dataset_state_test
