#include "etude/integrations/codecarbon.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/child.hpp"
#include "common/fault_of.hpp"
#include "common/logged.hpp"
#include "common/printed.hpp"
#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/dispatch/filters.hpp"
#include "etude/formats/csv_text.hpp"
#include "etude/testing/laws.hpp"

namespace integrations_codecarbon_test {

using doctest::Approx;
using etude::CodeCarbonCallback;
using Row = std::map<std::string, double>;

/// A tracker that is independent of the machine: without RAPL, and with configured powers.
CodeCarbonCallback tracker(const std::string& output_dir = "") {
  return {.output_dir = output_dir,
          .measure_power_secs = 0.1,
          .country_iso_code = "FRA",
          .force_cpu_power = 100,
          .force_ram_power = 36,
          .rapl_dir = "/nonexistent"};
}

etude::TrainingArguments arguments(const toy::Folder& folder) {
  auto args = toy::logged_arguments(folder);
  toy::save_to(folder, args, 2);
  return args;
}

std::vector<std::map<std::string, std::string>> rows(const std::filesystem::path& path) {
  const auto records = etude::detail::csv_records(toy::read_text(path));
  std::vector<std::map<std::string, std::string>> result;
  for (std::size_t i = 1; i < records.size(); ++i) {
    const auto names = etude::detail::csv_fields(records[0]), values = etude::detail::csv_fields(records[i]);
    CHECK(names.size() == 38);
    CHECK(values.size() == 38);
    for (std::size_t j = 0; j < names.size(); ++j) {
      if (j == 0) result.emplace_back();
      result.back()[names[j]] = values.at(j);
    }
  }
  return result;
}

double number(const std::map<std::string, std::string>& row, const std::string& column) {
  return std::stod(row.at(column));
}

struct Slow {
  int milliseconds = 60;
  void on(const etude::StepEnd&) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }
};

TEST_CASE("a training leaves a row with consistent figures, and its emissions in the last log") {
  const toy::Folder folder;
  auto callback = tracker();
  callback.pue = 1.5;
  callback.wue = 2;
  etude::Trainer<Slow, CodeCarbonCallback> trainer(toy::options(arguments(folder)), Slow{}, callback);
  trainer.train();
  const auto written = rows(folder / "emissions.csv");
  REQUIRE(written.size() == 1);
  const auto& row = written[0];
  const double seconds = number(row, "duration"), kwh = number(row, "energy_consumed");
  CHECK(seconds >= 0.24);
  CHECK(number(row, "ram_power") == Approx(54));
  CHECK(number(row, "ram_energy") == Approx(54.0 / 1000 * seconds / 3600));
  CHECK(number(row, "cpu_power") >= 14.99);
  CHECK(number(row, "cpu_power") <= 150.01);
  CHECK(number(row, "cpu_energy") == Approx(number(row, "cpu_power") / 1000 * seconds / 3600));
  CHECK(kwh == Approx(number(row, "cpu_energy") + number(row, "ram_energy") + number(row, "gpu_energy")));
  CHECK(number(row, "emissions") == Approx(kwh * 0.056039));
  CHECK(number(row, "emissions_rate") == Approx(kwh * 0.056039 / seconds));
  CHECK(number(row, "water_consumed") == Approx(2 * kwh));
  CHECK(row.at("country_name") == "France");
  CHECK(row.at("project_name") == "codecarbon");
  CHECK(row.at("run_id").size() == 36);
  CHECK(row.at("python_version").empty());
  CHECK(row.at("on_cloud") == "N");
  CHECK(row.at("pue") == "1.5");

  CHECK(toy::logged_at(trainer.state(), "emissions_kg") == std::vector{4});
  const auto& last = trainer.state().log_history.back();
  CHECK(last.contains("train_runtime"));
  const double logged = last.at("energy_consumed_kwh").get<double>();
  CHECK(logged > 0.5 * kwh);
  CHECK(logged <= kwh);
  CHECK(last.at("emissions_kg").get<double>() == Approx(logged * 0.056039));
}

TEST_CASE("a child made by fork() in a training doesn't wait for its parent's measurements, nor write") {
  struct Forking {
    std::string* end;
    void on(const etude::StepEnd& e) {
      if (e.state.global_step != 2) return;
      const auto child = ::fork();
      if (child == 0) throw std::runtime_error("in the child");
      *end = toy::end_of(child);
    }
  };
  const toy::Folder folder;
  std::string end;
  auto callback = tracker();
  callback.measure_power_secs = 1000;
  const auto duration = [&] { return number(rows(folder / "emissions.csv").at(0), "duration"); };
  auto trainer = std::make_unique<etude::Trainer<Forking, CodeCarbonCallback>>(
      toy::options(arguments(folder)), Forking{&end}, callback);
  try {
    trainer->train();
  } catch (const std::runtime_error&) {
    trainer.reset();
    ::_exit(duration() == 0 ? 3 : 4);
  }
  CHECK(end == "exit 3");
  CHECK(duration() > 0);
}

TEST_CASE("every log has the emissions so far, if configured") {
  const toy::Folder folder;
  auto callback = tracker();
  callback.log_always = true;
  etude::Trainer<Slow, CodeCarbonCallback> trainer(toy::options(arguments(folder)), Slow{150}, callback);
  trainer.train();
  CHECK(toy::logged_at(trainer.state(), "emissions_kg") == std::vector{1, 2, 3, 4, 4});
  const auto values = toy::logged(trainer.state(), "energy_consumed_kwh");
  CHECK(values.at(0) > 0);
  CHECK(std::ranges::is_sorted(values));
}

struct Throws {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 3) throw std::runtime_error("on purpose");
  }
};

TEST_CASE("a training that fails or is stopped leaves its row and its last log too") {
  const toy::Folder folder;
  etude::Trainer<CodeCarbonCallback, Throws> failing(toy::options(arguments(folder)), tracker());
  CHECK_THROWS(failing.train());
  CHECK(rows(folder / "emissions.csv").size() == 1);
  CHECK(toy::logged(failing.state(), "emissions_kg").size() == 1);

  const auto stop =
      etude::on<etude::StepEnd>().call([](const etude::StepEnd& e) { e.control.request_stop("enough"); });
  etude::Trainer stopped(toy::options(arguments(folder)), tracker(), stop);
  stopped.train();
  CHECK(rows(folder / "emissions.csv").size() == 2);
  CHECK(toy::logged(stopped.state(), "emissions_kg").size() == 1);
}

TEST_CASE("each training has its own row, and a resumed one continues its row") {
  const toy::Folder folder;
  etude::Trainer<Slow, CodeCarbonCallback> first(toy::options(arguments(folder)), Slow{}, tracker());
  first.train();
  const auto before = rows(folder / "emissions.csv");
  REQUIRE(before.size() == 1);
  first.train();
  CHECK(rows(folder / "emissions.csv").size() == 2);

  // Steps after the checkpoint have used energy, although they are repeated.
  etude::Trainer<Slow, CodeCarbonCallback> resumed(toy::options(arguments(folder)), Slow{}, tracker());
  toy::write_text(folder / "emissions.csv", "");
  first.train();
  const auto whole = rows(folder / "emissions.csv").at(0);
  resumed.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  const auto after = rows(folder / "emissions.csv");
  REQUIRE(after.size() == 1);
  CHECK(after[0].at("run_id") == whole.at("run_id"));
  CHECK(number(after[0], "duration") >= number(whole, "duration") + 0.12);
  CHECK(number(after[0], "energy_consumed") > number(whole, "energy_consumed"));
  CHECK(number(after[0], "ram_power") == Approx(36));

  // If the row is lost, the run continues from the checkpoint's figures.
  std::filesystem::remove(folder / "emissions.csv");
  etude::Trainer<Slow, CodeCarbonCallback> elsewhere(toy::options(arguments(folder)), Slow{}, tracker());
  elsewhere.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  const auto counted = rows(folder / "emissions.csv").at(0);
  CHECK(counted.at("run_id") == whole.at("run_id"));
  CHECK(number(counted, "duration") >= 0.24);
  CHECK(number(counted, "duration") < number(after[0], "duration"));
}

TEST_CASE("trials have a row each, in their folders or in one file, that names the search and the trial") {
  const toy::Folder folder;
  const auto train = [&](const std::string& name, const CodeCarbonCallback& callback) {
    auto args = arguments(folder);
    args.output_dir = folder / ("search/" + name);
    etude::Trainer<CodeCarbonCallback>(toy::options(args), callback)
        .train({.trial = etude::HyperparameterTrial{.name = name, .params = {{"width", 4}}}});
  };
  for (const std::string name : {"run-0", "run-1"}) {
    train(name, tracker());
    train(name, tracker(folder / "all"));
    CHECK(rows(folder / ("search/" + name + "/emissions.csv")).size() == 1);
  }
  const auto found = rows(folder / "all/emissions.csv");
  REQUIRE(found.size() == 2);
  CHECK(found[0].at("run_id") != found[1].at("run_id"));
  for (std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    CHECK(found[i].at("project_name") == "search");
    CHECK(found[i].at("experiment_id") == "run-" + std::to_string(i));
  }
  auto named = tracker(folder / "named");
  named.project_name = "mine";
  train("run-2", named);
  CHECK(rows(folder / "named/emissions.csv").at(0).at("project_name") == "mine");
}

struct ReadsRow {
  std::filesystem::path path;
  double kwh = -1;
  void on(const etude::StepEnd&) { kwh = number(rows(path).at(0), "energy_consumed"); }
};

TEST_CASE("the last log of a stopped training isn't mixed into the resumed one's logs") {
  const toy::Folder folder;
  const auto stop = etude::on<etude::StepEnd>().call([](const etude::StepEnd& e) {
    if (e.state.global_step == 3) e.control.request_stop("enough");
  });
  etude::Trainer stopped(toy::options(arguments(folder)), tracker(), stop);
  stopped.train();
  auto callback = tracker();
  callback.log_always = true;
  callback.measure_power_secs = 1000;  // so the log has the figures from the beginning
  std::filesystem::remove(folder / "emissions.csv");
  etude::Trainer<CodeCarbonCallback, ReadsRow> resumed(toy::options(arguments(folder)), callback,
                                                       ReadsRow{folder / "emissions.csv"});
  resumed.train({.resume_from_checkpoint = folder / "checkpoint-3"});
  CHECK(toy::logged_at(resumed.state(), "energy_consumed_kwh") == std::vector{4, 4});
  CHECK(toy::logged(resumed.state(), "energy_consumed_kwh").at(0) == resumed.callback<ReadsRow>().kwh);
}

TEST_CASE("only the first process of the machine writes") {
  const toy::Folder folder;
  struct Second {
    using runs_before = etude::callbacks<CodeCarbonCallback>;
    void on(const etude::InitEnd& e) {
      const_cast<etude::TrainerState&>(e.state).is_local_process_zero = false;
    }
    void on(const etude::TrainBegin& e) {
      const_cast<etude::TrainerState&>(e.state).is_local_process_zero = false;
    }
  };
  etude::Trainer<Second, CodeCarbonCallback> trainer(toy::options(arguments(folder)), Second{}, tracker());
  trainer.train();
  CHECK_FALSE(std::filesystem::exists(folder / "emissions.csv"));
  CHECK(toy::logged(trainer.state(), "emissions_kg").empty());
}

TEST_CASE("without a file configured none is written, and the logs still have the emissions") {
  const toy::Folder folder;
  auto callback = tracker();
  callback.save_to_file = false;
  etude::Trainer<CodeCarbonCallback> trainer(toy::options(arguments(folder)), callback);
  trainer.train();
  CHECK_FALSE(std::filesystem::exists(folder / "emissions.csv"));
  CHECK(toy::logged(trainer.state(), "emissions_kg").size() == 1);
}

TEST_CASE("invalid settings and unwritable files are refused when training begins") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "");
  const auto fault = [&](const CodeCarbonCallback& callback) {
    etude::Trainer<CodeCarbonCallback> trainer(toy::options(arguments(folder)), callback);
    return toy::fault_of<etude::ArgumentError>([&] { trainer.train(); });
  };
  auto negative = tracker();
  negative.measure_power_secs = -1;
  CHECK(toy::contains(fault(negative), "measure_power_secs is '-1': must be 0.1 or more"));
  CHECK(toy::contains(fault(tracker(folder / "file")), "output_dir is " + (folder / "file").string() + ": "));
}

struct RemovesFolder {
  std::filesystem::path path;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step != 1) return;
    std::filesystem::remove_all(path);
    toy::write_text(path, "in its place");
  }
};

TEST_CASE("a file that becomes unwritable stops no training, and is reported once") {
  const toy::Folder folder;
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::info;
  const auto text = toy::printed(
      [&] {
        etude::Trainer<RemovesFolder, Slow, CodeCarbonCallback> trainer(
            toy::options(args), RemovesFolder{folder / "apart"}, Slow{150}, tracker(folder / "apart"));
        trainer.train();
        CHECK(trainer.state().global_step == 4);
      },
      STDERR_FILENO);
  const auto reported = text.find("etude: warning: emissions: emissions can't be written: ");
  CHECK(reported != text.npos);
  CHECK(text.find("emissions can't be written", reported + 60) == text.npos);
  CHECK(toy::contains(text, "the last row could not be written to "));
}

TEST_CASE("a training reports how it measures, its assumptions, and the result") {
  const toy::Folder folder;
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::info;
  auto callback = tracker();
  callback.country_iso_code = "";
  const auto text = toy::printed(
      [&] { etude::Trainer<CodeCarbonCallback>(toy::options(args), callback).train(); }, STDERR_FILENO);
  CHECK(toy::contains(
      text, "etude: info: emissions: CPU by load of the machine, 100 W; memory by force_ram_power"));
  CHECK(toy::contains(text, "475.0 g/kWh (the world's average)"));
  CHECK(toy::contains(text, "etude: warning: emissions: the machine's country isn't set"));
  CHECK(toy::contains(text, "written to " + (folder / "emissions.csv").string()));
  CHECK(CodeCarbonCallback::is_available());
}

TEST_CASE("the callback keeps the laws") {
  const etude::laws::Options options{.only_reads = true,
                                     .varying = {"run_id", "totals", "emissions_kg", "energy_consumed_kwh"}};
  std::vector<std::string> breaches;
  const toy::Folder files;  // not the folder that the laws copy: the measuring thread writes meanwhile
  {
    const toy::Silence silence;
    breaches = etude::laws::broken<CodeCarbonCallback>([&] { return tracker(files); }, options);
  }
  CHECK(breaches == std::vector<std::string>());
}

}  // namespace integrations_codecarbon_test
