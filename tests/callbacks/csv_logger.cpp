#include "etude/callbacks/file_logger.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/formats/csv_text.hpp"

namespace callbacks_csv_logger_test {

using Row = std::vector<std::string>;
using etude::detail::csv_fields;
using etude::detail::csv_records;

/// Logs values under changing names, some of which need quotes.
struct LogsMore {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 2) e.log("a, \"new\" one", 2);
    if (e.state.global_step == 3) e.log("not a number", std::numeric_limits<double>::quiet_NaN());
    if (e.state.global_step == 4) e.log("exact", .1);
  }
};

/// The file as a table: the column names, then each row.
std::vector<Row> table(const std::filesystem::path& path) {
  std::vector<Row> rows;
  for (const auto& record : csv_records(toy::read_text(path))) rows.push_back(csv_fields(record));
  return rows;
}

/// A column without its name.
Row column(const std::vector<Row>& rows, const std::string& name) {
  const auto place = std::find(rows.at(0).begin(), rows.at(0).end(), name) - rows.at(0).begin();
  Row values;
  for (std::size_t i = 1; i < rows.size(); ++i) values.push_back(rows[i].at(static_cast<std::size_t>(place)));
  return values;
}

TEST_CASE("every log is a row, and a new name becomes a column without damaging earlier rows") {
  const toy::Folder folder;
  etude::Trainer<LogsMore, etude::CSVLoggerCallback> trainer(toy::options(toy::logged_arguments(folder)));
  trainer.train();
  const auto rows = table(folder / "metrics.csv");
  REQUIRE(rows.size() == 6);  // the names, four steps and the summary
  CHECK(rows[0] == Row{"step", "loss", "grad_norm", "learning_rate", "epoch", "a, \"new\" one",
                       "not a number", "exact", "train_runtime", "train_samples_per_second",
                       "train_steps_per_second", "total_flos", "train_loss"});
  for (const auto& row : rows) CHECK(row.size() == 13);
  CHECK(column(rows, "step") == Row{"1", "2", "3", "4", "4"});
  CHECK(column(rows, "epoch") == Row{"0.5", "1", "1.5", "2", "2"});
  CHECK(column(rows, "a, \"new\" one") == Row{"", "2", "", "", ""});
  CHECK(column(rows, "not a number") == Row{"", "", "nan", "", ""});
  CHECK(column(rows, "exact") == Row{"", "", "", "0.1", ""});
  const auto losses = column(rows, "loss");
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(std::stod(losses[i]) == trainer.state().log_history[i].at("loss").get<double>());
  CHECK(toy::read_text(folder / "metrics.csv").find("\"a, \"\"new\"\" one\"") != std::string::npos);
}

TEST_CASE("rows are on disk during training, also if it ends by an exception") {
  struct Throws {
    std::filesystem::path file;
    std::size_t seen = 0;
    void on(const etude::StepBegin& e) {
      if (e.state.global_step < 3) return;
      seen = table(file).size();
      throw std::runtime_error("no");
    }
  };
  const toy::Folder folder;
  etude::Trainer<etude::CSVLoggerCallback, Throws> trainer(toy::options(toy::logged_arguments(folder)),
                                                           Throws{folder / "metrics.csv"});
  CHECK_THROWS_AS(trainer.train(), std::runtime_error);
  CHECK(trainer.callback<Throws>().seen == 4);
  CHECK(column(table(folder / "metrics.csv"), "step") == Row{"1", "2", "3", "3"});  // with the summary
}

TEST_CASE("a resumed training repeats no row, and writes those of a lost file again") {
  const toy::Folder folder;
  auto args = toy::logged_arguments(folder);
  toy::save_to(folder, args, 2);
  etude::Trainer<LogsMore, etude::CSVLoggerCallback> whole(toy::options(args));
  whole.train();
  const auto expected = table(folder / "metrics.csv");
  for (const bool lost : {false, true}) {
    if (lost) std::filesystem::remove(folder / "metrics.csv");
    etude::Trainer<LogsMore, etude::CSVLoggerCallback> resumed(toy::options(args));
    resumed.train({.resume_from_checkpoint = folder / "checkpoint-2"});
    const auto rows = table(folder / "metrics.csv");
    for (const auto& name : {"step", "epoch", "loss", "learning_rate", "a, \"new\" one", "exact"})
      CHECK(column(rows, name) == column(expected, name));
  }
}

TEST_CASE("a new training overwrites the file or appends to it, and a resumed one continues there") {
  const toy::Folder folder;
  auto args = toy::logged_arguments(folder);
  toy::write_text(folder / "metrics.csv", "step,\"old, but good\"\r\n7,\"1\n2\"\r\n8");  // cut short
  {
    toy::save_to(folder, args, 2);
    etude::Trainer<etude::CSVLoggerCallback> trainer(toy::options(args),
                                                     etude::CSVLoggerCallback{.append = true});
    trainer.train();
    trainer.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  }
  const auto rows = table(folder / "metrics.csv");
  CHECK(column(rows, "old, but good") == Row{"1\n2", "", "", "", "", ""});
  CHECK(column(rows, "step") == Row{"7", "1", "2", "3", "4", "4"});
  CHECK(column(rows, "epoch") == Row{"", "0.5", "1", "1.5", "2", "2"});
  etude::Trainer<etude::CSVLoggerCallback>(toy::options(args)).train();
  CHECK(column(table(folder / "metrics.csv"), "step") == Row{"1", "2", "3", "4", "4"});
}

TEST_CASE("an evaluation outside of training adds its row") {
  const toy::Folder folder;
  toy::write_text(folder / "metrics.csv", "step,epoch,eval_loss\n9,1,0.5\n");
  etude::Trainer<etude::CSVLoggerCallback> trainer(toy::options(toy::logged_arguments(folder)));
  trainer.evaluate();
  const auto rows = table(folder / "metrics.csv");
  CHECK(column(rows, "step") == Row{"9", "0"});
  CHECK(column(rows, "eval_loss") == Row{"0.5", "1"});  // w = b = 0 at (0, 1)
}

TEST_CASE("a file that can't be written is refused when training begins") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "");
  auto args = toy::logged_arguments(folder);
  args.output_dir = folder / "file" / "folder";
  etude::Trainer<etude::CSVLoggerCallback> trainer(toy::options(args));
  CHECK_THROWS_AS(trainer.train(), etude::ArgumentError);
  etude::Trainer<etude::CSVLoggerCallback> nameless(toy::options(args), etude::CSVLoggerCallback{.path = ""});
  CHECK_THROWS_WITH_AS(nameless.train(), "path is '': must be the name of a file", etude::ArgumentError);
}

}  // namespace callbacks_csv_logger_test
