#include "etude/callbacks/file_logger.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "common/child.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_jsonl_logger_test {

struct LogsMore {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 2) e.log("a \"new\" one", 2);
    if (e.state.global_step == 3) e.log("not a number", std::numeric_limits<double>::quiet_NaN());
  }
};

etude::TrainingArguments arguments(const toy::Folder& folder) {
  auto args = toy::logged_arguments(folder);
  toy::save_to(folder, args, 2);
  return args;
}

std::vector<nlohmann::json> lines(const std::filesystem::path& path) {
  std::vector<nlohmann::json> result;
  std::istringstream text(toy::read_text(path));
  for (std::string line; std::getline(text, line);) result.push_back(nlohmann::json::parse(line));
  return result;
}

std::vector<int> steps(const std::vector<nlohmann::json>& lines) {
  std::vector<int> result;
  for (const auto& line : lines) result.push_back(line.at("step").get<int>());
  return result;
}

TEST_CASE("every log is a line with exact numbers") {
  const toy::Folder folder;
  etude::Trainer<LogsMore, etude::JSONLinesLoggerCallback> trainer(toy::options(arguments(folder)));
  trainer.train();
  const auto written = lines(folder / "metrics.jsonl");
  CHECK(steps(written) == std::vector{1, 2, 3, 4, 4});
  CHECK(written[1].at("a \"new\" one") == 2);
  CHECK(written[2].at("not a number") == "NaN");
  CHECK_FALSE(written[0].contains("not a number"));
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(written[i].at("loss") == trainer.state().log_history[i].at("loss"));
  CHECK(toy::read_text(folder / "metrics.jsonl").starts_with("{\"step\":1,\"loss\":"));
}

TEST_CASE("a resumed training repeats no line, and writes those of a lost file again") {
  const toy::Folder folder;
  etude::Trainer<LogsMore, etude::JSONLinesLoggerCallback> whole(toy::options(arguments(folder)));
  whole.train();
  auto expected = lines(folder / "metrics.jsonl");
  expected.pop_back();  // the summary, which includes times
  for (const bool lost : {false, true}) {
    if (lost) std::filesystem::remove(folder / "metrics.jsonl");
    etude::Trainer<LogsMore, etude::JSONLinesLoggerCallback> resumed(toy::options(arguments(folder)));
    resumed.train({.resume_from_checkpoint = folder / "checkpoint-2"});
    auto written = lines(folder / "metrics.jsonl");
    written.pop_back();
    CHECK(written == expected);
  }
}

TEST_CASE("a new training overwrites the file or appends to it, and a resumed one continues there") {
  const toy::Folder folder;
  toy::write_text(folder / "metrics.jsonl", "{\"step\":7}\n{\"step\":8}\n{\"st");
  etude::Trainer<etude::JSONLinesLoggerCallback> trainer(toy::options(arguments(folder)),
                                                         etude::JSONLinesLoggerCallback{.append = true});
  trainer.train();
  CHECK(steps(lines(folder / "metrics.jsonl")) == std::vector{7, 8, 1, 2, 3, 4, 4});
  trainer.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  CHECK(steps(lines(folder / "metrics.jsonl")) == std::vector{7, 8, 1, 2, 3, 4, 4});
  etude::Trainer<etude::JSONLinesLoggerCallback>(toy::options(arguments(folder))).train();
  CHECK(steps(lines(folder / "metrics.jsonl")) == std::vector{1, 2, 3, 4, 4});
}

TEST_CASE("an evaluation outside of training adds its line") {
  const toy::Folder folder;
  etude::Trainer<etude::JSONLinesLoggerCallback> trainer(
      toy::options(arguments(folder)), etude::JSONLinesLoggerCallback{.path = "deep/log.jsonl"});
  trainer.evaluate();
  trainer.evaluate();
  const auto written = lines(folder / "deep/log.jsonl");
  CHECK(steps(written) == std::vector{0, 0});
  CHECK(written[1].at("eval_loss") == 1);  // w = b = 0 at (0, 1)
}

// Limits the size of files to `room` bytes while the logs of the second and third step are written.
struct FullDisk {
  rlim_t room;
  void on(const etude::StepBegin& e) const {
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = e.state.global_step == 1 || e.state.global_step == 2 ? room : limit.rlim_max;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
};

TEST_CASE("logs that don't fit on the disk are lost, and those after them are complete") {
  const toy::Folder folder;
  auto args = arguments(folder);
  args.save_strategy = etude::SaveStrategy::no;
  etude::Trainer<etude::JSONLinesLoggerCallback>(toy::options(args, 2)).train();
  const auto whole = toy::read_text(folder / "metrics.jsonl");
  const auto room = whole.find('\n') + 10;
  CHECK(toy::end_of_child([&] {
          ::signal(SIGXFSZ, SIG_IGN);
          etude::Trainer(toy::options(args, 2), etude::JSONLinesLoggerCallback{}, FullDisk{room}).train();
          return 0;
        }) == "exit 0");
  CHECK((steps(lines(folder / "metrics.jsonl")) == std::vector<int>{1, 4, 4}));
}

TEST_CASE("a file that can't be written is refused when training begins") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "");
  auto args = arguments(folder);
  args.save_strategy = etude::SaveStrategy::no;
  args.output_dir = folder / "file" / "folder";
  etude::Trainer<etude::JSONLinesLoggerCallback> trainer(toy::options(args));
  CHECK_THROWS_AS(trainer.train(), etude::ArgumentError);
}

}  // namespace callbacks_jsonl_logger_test
