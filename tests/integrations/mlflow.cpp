#include "etude/integrations/mlflow.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/mlflow_server.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/integrations/mlflow/names.hpp"
#include "etude/testing/laws.hpp"

namespace {

using etude::ArgumentError;
using etude::MLflowCallback;

etude::TrainingArguments arguments(const toy::Folder& folder) {
  auto args = toy::arguments();
  args.output_dir = folder / "out";
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  return args;
}

MLflowCallback to(const toy::MLflowServer& server, const toy::Folder& folder) {
  return {.tracking_uri = server.address(), .spool_directory = folder / "spool"};
}

using Trainer = etude::Trainer<MLflowCallback>;

const std::string nobody = "http://127.0.0.1:1";

TEST_CASE("a training is a run with parameters and metrics that ends as FINISHED, and leaves no spool") {
  const toy::Folder folder;
  toy::MLflowServer server;
  {
    auto callback = to(server, folder);
    callback.tags = {{"team", "a"}};
    Trainer trainer(toy::options(arguments(folder)), callback);
    trainer.train();
    CHECK(server.calls("runs/update").size() == 1);
  }
  CHECK(server.calls("runs/create").size() == 1);
  CHECK(server.calls("runs/create")[0].body["experiment_id"] == "0");
  CHECK(server.calls("runs/update")[0].body["status"] == "FINISHED");
  std::vector<std::pair<int, double>> losses;
  std::set<std::int64_t> times;
  for (const auto& metric : server.logged("metrics"))
    if (metric["key"] == "loss") {
      losses.emplace_back(metric["step"], metric["value"]);
      times.insert(metric["timestamp"].get<std::int64_t>());
    }
  CHECK(losses.size() == 2);
  CHECK(losses[0].first == 1);
  CHECK(times.size() == 2);
  const auto tags = server.logged("tags");
  CHECK(std::ranges::find(tags, nlohmann::json{{"key", "team"}, {"value", "a"}}) != tags.end());
  CHECK(toy::names_in(folder / "spool").empty());
}

TEST_CASE("parameters come in hundreds, what is too long is left out and told, names are made fit") {
  const toy::Folder folder;
  toy::MLflowServer server;
  auto callback = to(server, folder);
  for (int i = 0; i < 250; ++i) callback.config[fmt::format("p{}", i)] = i;
  callback.config["long"] = std::string(6001, 'x');
  callback.config["fits"] = [] {
    std::string text;
    for (int i = 0; i < 6000; ++i) text += "ä";
    return text;
  }();
  callback.config["a(b)"] = true;
  callback.config["nested"] = {{"a", {{"b", nullptr}}}};
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  const auto told = toy::printed([&] { Trainer(toy::options(args), callback).train(); }, STDERR_FILENO);
  CHECK(toy::contains(told, "the parameter long is left out: it has 6001 characters"));
  std::size_t all = 0;
  for (const auto& call : server.calls("runs/log-batch"))
    if (call.body.contains("params")) {
      CHECK(call.body["params"].size() <= 100);
      all += call.body["params"].size();
    }
  CHECK(all == 250 + 3 + etude::field_names<etude::TrainingArguments>().size());
  std::map<std::string, std::string> values;
  for (const auto& param : server.logged("params")) values[param["key"]] = param["value"];
  CHECK(values.size() == all);
  CHECK(values["p249"] == "249");
  CHECK(values["fits"].size() == 12000);
  CHECK(values["a_b_"] == "True");
  CHECK(values["nested"] == R"({"a":{"b":null}})");
  CHECK_FALSE(values.contains("long"));
}

TEST_CASE("parameters can be flattened, and be the first few") {
  const toy::Folder folder;
  toy::MLflowServer server;
  auto callback = to(server, folder);
  callback.config["nested"] = {{"a", {{"b", nullptr}}}};
  callback.config["next"] = "text";
  callback.config["last"] = 1;
  callback.max_log_params = 2;
  const toy::Variable flat("MLFLOW_FLATTEN_PARAMS", "True");
  Trainer(toy::options(arguments(folder)), callback).train();
  CHECK(server.keys("params") == std::vector<std::string>{"nested.a.b", "next"});
  CHECK(server.logged("params")[0]["value"] == "None");
}

TEST_CASE("names that the server doesn't take are made fit, and two stay two") {
  using etude::detail::mlflow_name;
  CHECK(mlflow_name("eval/loss_1-a.b c:d") == "eval/loss_1-a.b c:d");
  CHECK(mlflow_name("f(x)=ä") == "f_x___");
  CHECK(mlflow_name("/a//./b/") == "a/b");
  CHECK(mlflow_name("../a/..") == "__/a/__");
  CHECK(mlflow_name("..a") == "__a");
  CHECK(mlflow_name("") == "_");
  CHECK(mlflow_name(std::string(300, 'x')) == std::string(250, 'x'));
  etude::detail::MLflowNames names;
  CHECK(names["a(b"] == "a_b");
  CHECK(names["a_b"] == "a_b_2");
  CHECK(names["a(b"] == "a_b");
  CHECK(names[std::string(260, 'x')].size() == 250);
  CHECK(names[std::string(270, 'x')] == std::string(248, 'x') + "_2");
}

struct LogsOdd {
  void on(const etude::StepEnd& e) {
    e.log("nan", std::numeric_limits<double>::quiet_NaN());
    e.log("low", -std::numeric_limits<double>::infinity());
  }
};

TEST_CASE("what isn't a finite number is a word, which the server doesn't take for 0") {
  const toy::Folder folder;
  toy::MLflowServer server;
  etude::Trainer<LogsOdd, MLflowCallback>(toy::options(arguments(folder)), LogsOdd{}, to(server, folder))
      .train();
  int count = 0;
  for (const auto& metric : server.logged("metrics")) {
    if (metric["key"] == "nan") CHECK((++count, metric["value"] == "NaN"));
    if (metric["key"] == "low") CHECK((++count, metric["value"] == "-Infinity"));
  }
  CHECK(count == 4);
}

TEST_CASE("an evaluation before the training and one behind it are of its run; another training is another") {
  const toy::Folder folder;
  toy::MLflowServer server;
  {
    Trainer trainer(toy::options(arguments(folder)), to(server, folder));
    trainer.evaluate();
    trainer.train();
    trainer.evaluate();
    const auto key = trainer.callback<MLflowCallback>().run_key;
    trainer.train();
    CHECK(trainer.callback<MLflowCallback>().run_key != key);
  }
  CHECK(server.calls("runs/create").size() == 2);
  int evaluations = 0;
  for (const auto& metric : server.logged("metrics", "run0"))
    if (metric["key"] == "eval_loss") ++evaluations;
  CHECK(evaluations == 2);
  CHECK(server.calls("runs/update").size() == 2);
}

struct Throws {
  void on(const etude::StepEnd&) { throw std::runtime_error("on purpose"); }
};

TEST_CASE("a training that throws ends its run as FAILED, one whose tracker refuses has none") {
  const toy::Folder folder;
  toy::MLflowServer server;
  etude::Trainer<MLflowCallback, Throws> trainer(toy::options(arguments(folder)), to(server, folder),
                                                 Throws{});
  CHECK_THROWS_WITH(trainer.train(), "on purpose");
  CHECK(server.calls("runs/update").back().body["status"] == "FAILED");

  const auto calls = server.calls().size();
  auto wrong = to(server, folder);
  wrong.max_log_params = -2;
  Trainer refused(toy::options(arguments(folder)), wrong);
  CHECK(toy::contains(toy::fault_of<ArgumentError>([&] { refused.train(); }), "max_log_params is -2"));
  CHECK(server.calls().size() == calls);
}

TEST_CASE("a resumed training goes on in its run, and of its parameters sends the new ones") {
  const toy::Folder folder;
  toy::MLflowServer server;
  auto args = arguments(folder);
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 1;
  Trainer(toy::options(args), to(server, folder)).train();
  const auto params = server.keys("params").size();
  args.log_level = etude::LogLevel::warning;
  args.seed = 7;
  auto callback = to(server, folder);
  callback.config["more"] = 1;
  const auto told = toy::printed(
      [&] {
        Trainer(toy::options(args), callback)
            .train({.resume_from_checkpoint = std::filesystem::path(args.output_dir) / "checkpoint-1"});
      },
      STDERR_FILENO);
  CHECK(server.calls("runs/create").size() == 1);
  CHECK(server.keys("params").size() == params + 1);
  CHECK(server.keys("params").back() == "more");
  CHECK(toy::contains(told, "keep the value that they have"));
  CHECK(toy::contains(told, "seed"));
  const auto updates = server.calls("runs/update");
  REQUIRE(updates.size() == 3);
  CHECK(updates[1].body["status"] == "RUNNING");
  CHECK(updates[2].body["status"] == "FINISHED");
}

TEST_CASE("one metric that the server doesn't take costs no other") {
  const toy::Folder folder;
  toy::MLflowServer server;
  server.before = [](const auto& call, httplib::Response& response) {
    if (call.method != "runs/log-batch" || !call.body.contains("metrics")) return false;
    for (const auto& metric : call.body["metrics"])
      if (metric["key"] == "epoch") {
        response.status = 400;
        response.set_content(R"({"error_code": "INVALID_PARAMETER_VALUE", "message": "no epochs"})",
                             "application/json");
        return true;
      }
    return false;
  };
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  const auto told =
      toy::printed([&] { Trainer(toy::options(args), to(server, folder)).train(); }, STDERR_FILENO);
  CHECK(toy::contains(told, "metrics epoch is left out: "));
  CHECK(toy::contains(told, "no epochs"));
  std::set<std::string> taken;
  for (const auto& call : server.calls("runs/log-batch"))
    if (call.body.contains("metrics") && call.body["metrics"].size() == 1)
      taken.insert(call.body["metrics"][0]["key"].get<std::string>());
  CHECK(taken.contains("loss"));
  CHECK(taken.contains("train_loss"));
}

TEST_CASE("wrong options are told where training begins, and none of it shows credentials") {
  const toy::Folder folder;
  const auto fault = [&](MLflowCallback callback) {
    callback.spool_directory = folder / "spool";
    Trainer trainer(toy::options(arguments(folder)), callback);
    return toy::fault_of<ArgumentError>([&] { trainer.train(); });
  };
  CHECK(toy::contains(fault({}), "MLFLOW_TRACKING_URI is set: must be the address"));
  CHECK(toy::contains(fault({.tracking_uri = "sqlite:///x.db"}), "tracking_uri is 'sqlite...'"));
  const auto told = fault({.tracking_uri = "http://ada:secret@127.0.0.1:1"});
  CHECK(toy::contains(told, "must have none"));
  CHECK_FALSE(toy::contains(told, "secret"));
  for (const char* name : {"MLFLOW_MAX_LOG_PARAMS", "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_TAGS",
                           "MLFLOW_TRACKING_SERVER_CERT_PATH", "MLFLOW_TRACKING_CLIENT_CERT_PATH"}) {
    const toy::Variable wrong(name, "-x");
    CHECK(toy::contains(fault({.tracking_uri = nobody}), std::string(name) + " is '-x'"));
  }
  toy::write_text(folder / "spool", "");
  CHECK(toy::contains(fault({.tracking_uri = nobody}), "spool"));
}

TEST_CASE("report_to=all takes it where there is a server's address") {
  CHECK_FALSE(MLflowCallback::is_available());
  const toy::Variable address("MLFLOW_TRACKING_URI", nobody);
  CHECK(MLflowCallback::is_available());
  const toy::Variable off("DISABLE_MLFLOW_INTEGRATION", "yes");
  CHECK_FALSE(MLflowCallback::is_available());
  const toy::Folder folder;
  Trainer(toy::options(arguments(folder)), MLflowCallback{.spool_directory = folder / "spool"}).train();
  CHECK(toy::names_in(folder / "").empty());
}

TEST_CASE("MLflowCallback keeps the laws of callbacks, also where there is no server") {
  const auto make = [](const std::filesystem::path& folder) {
    return MLflowCallback{.tracking_uri = nobody, .spool_directory = folder / "spool", .drain_seconds = 0.0};
  };
  CHECK(etude::laws::broken<MLflowCallback>(make, {.varying = {"run_key"}}) == std::vector<std::string>());
}

}  // namespace
