#include "etude/integrations/mlflow.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/fault_of.hpp"
#include "common/mlflow_server.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/integrations/mlflow/client.hpp"
#include "etude/integrations/mlflow/names.hpp"
#include "etude/integrations/mlflow/run.hpp"
#include "etude/integrations/mlflow/variables.hpp"
#include "etude/testing/laws.hpp"

namespace integrations_mlflow_test {

using etude::ArgumentError;
using etude::MLflowCallback;

etude::TrainingArguments arguments(const toy::Folder& folder) {
  auto args = toy::logged_arguments(folder / "out");
  args.num_train_epochs = 1;
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

TEST_CASE("parameters are sent in hundreds, long ones are left out and reported, names are adapted") {
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
  const auto reported = toy::printed([&] { Trainer(toy::options(args), callback).train(); }, STDERR_FILENO);
  CHECK(toy::contains(reported, "the parameter long is left out: it has 6001 characters"));
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

TEST_CASE("parameters can be flattened, and limited to the first few") {
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

TEST_CASE("names that the server doesn't accept are adapted, and different names stay different") {
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

TEST_CASE("a non-finite number is sent as text, which the server doesn't read as 0") {
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

TEST_CASE("evaluations before and after a training belong to its run; another training is another run") {
  const toy::Folder folder;
  toy::MLflowServer server;
  {
    Trainer trainer(toy::options(arguments(folder)), to(server, folder));
    trainer.evaluate();
    trainer.train();
    trainer.evaluate();
    const auto key = trainer.callback<MLflowCallback>().state.run_key;
    trainer.train();
    CHECK(trainer.callback<MLflowCallback>().state.run_key != key);
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

TEST_CASE("a training that throws ends its run as FAILED; if its tracker throws, it has no run") {
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

TEST_CASE("a resumed training continues its run, and only sends new parameters") {
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
  const auto reported = toy::printed(
      [&] {
        Trainer(toy::options(args), callback)
            .train({.resume_from_checkpoint = std::filesystem::path(args.output_dir) / "checkpoint-1"});
      },
      STDERR_FILENO);
  CHECK(server.calls("runs/create").size() == 1);
  CHECK(server.keys("params").size() == params + 1);
  CHECK(server.keys("params").back() == "more");
  CHECK(toy::contains(reported, "keep their values"));
  CHECK(toy::contains(reported, "seed"));
  const auto updates = server.calls("runs/update");
  REQUIRE(updates.size() == 3);
  CHECK(updates[1].body["status"] == "RUNNING");
  CHECK(updates[2].body["status"] == "FINISHED");
}

etude::TrainingArguments trial_arguments(const std::filesystem::path& search, const std::string& name) {
  auto args = toy::arguments();
  args.output_dir = search / name;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 1;
  return args;
}

etude::TrainOptions trial(const std::string& name) {
  return {.trial = etude::HyperparameterTrial{.name = name, .params = {{"learning_rate", 1}, {"width", 4}}}};
}

std::string tag_of(const nlohmann::json& run, const std::string& key) {
  for (const auto& tag : run["tags"])
    if (tag["key"] == key) return tag["value"];
  return "";
}

TEST_CASE("the trials of a search are within one run, which has ended, and a resumed trial is where it was") {
  const toy::Folder folder;
  toy::MLflowServer server;
  for (const std::string name : {"run-0", "run-1"})
    Trainer(toy::options(trial_arguments(folder / "search", name)), to(server, folder)).train(trial(name));
  auto again = trial("run-1");
  again.resume_from_checkpoint = folder / "search/run-1/checkpoint-1";
  Trainer(toy::options(trial_arguments(folder / "search", "run-1")), to(server, folder)).train(again);

  const auto runs = server.calls("runs/create");
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].body["run_name"] == "search");
  CHECK(tag_of(runs[0].body, "etude.search").size() > 5);
  CHECK(tag_of(runs[0].body, "mlflow.parentRunId").empty());
  for (std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    CHECK(runs[i].body["run_name"] == "run-" + std::to_string(i - 1));
    CHECK(tag_of(runs[i].body, "mlflow.parentRunId") == "run0");
    CHECK(tag_of(runs[i].body, "etude.search").empty());
  }
  std::map<std::string, std::string> status;
  for (const auto& call : server.calls("runs/update")) status[call.body["run_id"]] = call.body["status"];
  CHECK((status == std::map<std::string, std::string>{
                       {"run0", "FINISHED"}, {"run1", "FINISHED"}, {"run2", "FINISHED"}}));
  std::map<std::string, int> losses;
  for (const auto& call : server.calls("runs/log-batch"))
    if (call.body.contains("metrics"))
      for (const auto& metric : call.body["metrics"]) losses[call.body["run_id"]] += metric["key"] == "loss";
  CHECK((losses == std::map<std::string, int>{{"run1", 2}, {"run2", 3}}));
  for (const auto* child : {"run1", "run2"}) {
    const auto params = server.logged("params", child);
    CHECK(std::ranges::count(params, nlohmann::json{{"key", "width"}, {"value", "4"}}) == 1);
    CHECK(params.size() == 1 + etude::field_names<etude::TrainingArguments>().size());
  }
}

TEST_CASE("a search is known by its folder's content, and its run has the name that the user gave") {
  const toy::Folder folder;
  toy::MLflowServer server;
  const auto train = [&](const std::string& search, const std::string& name) {
    auto args = trial_arguments(folder / search, name);
    args.run_name = "digits";
    Trainer(toy::options(args), to(server, folder)).train(trial(name));
  };
  train("search", "run-0");
  std::filesystem::rename(folder / "search", folder / "moved");
  train("moved", "run-1");
  train("search", "run-0");
  const auto runs = server.calls("runs/create");
  REQUIRE(runs.size() == 5);
  CHECK(runs[0].body["run_name"] == "digits");
  CHECK(runs[1].body["run_name"] == "run-0");
  CHECK(tag_of(runs[2].body, "mlflow.parentRunId") == "run0");
  CHECK(tag_of(runs[3].body, "etude.search") != tag_of(runs[0].body, "etude.search"));
  CHECK(tag_of(runs[4].body, "mlflow.parentRunId") == "run3");
}

TEST_CASE("trials are within the given parent, or within the run that a variable names for all of them") {
  const toy::Folder folder;
  toy::MLflowServer server;
  const auto train = [&](MLflowCallback callback) {
    Trainer(toy::options(trial_arguments(folder / "search", "run-0")), callback).train(trial("run-0"));
  };
  auto callback = to(server, folder);
  callback.parent_run_id = "parent";
  train(callback);
  {
    const toy::Variable run("MLFLOW_RUN_ID", "outer");
    train(to(server, folder));
  }
  const auto runs = server.calls("runs/create");
  REQUIRE(runs.size() == 2);
  CHECK(tag_of(runs[0].body, "mlflow.parentRunId") == "parent");
  CHECK(tag_of(runs[1].body, "mlflow.parentRunId") == "outer");
  // The option may name a different run for each trial.
  callback.parent_run_id = "";
  callback.run_id = "run0";
  train(callback);
  CHECK(server.calls("runs/create").size() == 2);
}

TEST_CASE("a metric that the server doesn't accept affects no other, is reported once, and counted") {
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
  const auto reported =
      toy::printed([&] { Trainer(toy::options(args), to(server, folder)).train(); }, STDERR_FILENO);
  const std::string note = "metrics epoch is left out: ";
  CHECK(toy::contains(reported, note));
  CHECK_FALSE(toy::contains(reported.substr(reported.find(note) + 1), note));
  CHECK(toy::contains(reported, "no epochs"));
  CHECK(toy::contains(reported, "3 were dropped"));
  std::set<std::string> taken;
  for (const auto& call : server.calls("runs/log-batch"))
    if (call.body.contains("metrics") && call.body["metrics"].size() == 1)
      taken.insert(call.body["metrics"][0]["key"].get<std::string>());
  CHECK(taken.contains("loss"));
  CHECK(taken.contains("train_loss"));
}

using etude::detail::MLflowRun;

etude::detail::MLflowRunOptions run_to(const std::string& address, const toy::Folder& folder) {
  return {.callback = "MLflowCallback",
          .tracker = "mlflow",
          .address = address,
          .http = {.timeout = std::chrono::seconds(2)},
          .spool_directory = folder / "spool",
          .key = "key",
          .experiment_id = "0"};
}

double seconds_of(const std::function<void()>& act) {
  const auto begun = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

/// A run with a logged metric that the server has received.
std::unique_ptr<MLflowRun> living_run(const etude::detail::MLflowRunOptions& options,
                                      const toy::MLflowServer& server) {
  auto run = std::make_unique<MLflowRun>(options, etude::TrainingArguments());
  run->log_metrics({{"loss", 1.0}}, 1);
  while (server.logged("metrics").empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return run;
}

TEST_CASE("at the end, only a failing server that has answered before is waited for") {
  const toy::Folder folder;
  toy::MLflowServer server;
  int failures = 3;
  server.before = [&](const auto& call, httplib::Response& response) {
    if (call.method != "runs/update" || --failures < 0) return false;
    response.status = failures == 2 ? 429 : 503;
    return true;
  };
  toy::printed([&] { living_run(run_to(server.address(), folder), server)->end("FINISHED"); }, STDERR_FILENO);
  CHECK(server.calls("runs/update").size() == 4);
  CHECK(toy::names_in(folder / "spool").empty());

  toy::MLflowServer down;
  down.before = [](const auto&, httplib::Response& response) { return (response.status = 503, true); };
  const auto took = seconds_of([&] {
    toy::printed([&] { MLflowRun(run_to(down.address(), folder), {}).end("FINISHED"); }, STDERR_FILENO);
  });
  CHECK(took < 3);
  CHECK(toy::names_in(folder / "spool").size() == 1);
}

TEST_CASE("leftovers of an earlier training that the server doesn't accept aren't waited for") {
  const toy::Folder folder;
  toy::MLflowServer server;
  server.before = [](const auto& call, httplib::Response& response) {
    const bool is_left = call.method == "runs/create" && call.body["experiment_id"] == "9";
    if (is_left) response.status = 503;
    return is_left;
  };
  auto left = run_to(server.address(), folder);
  left.experiment_id = "9";
  left.key = "left";
  left.drain_seconds = 0;
  toy::printed([&] { MLflowRun(left, {}).end("FINISHED"); }, STDERR_FILENO);
  const auto took = seconds_of([&] {
    toy::printed([&] { living_run(run_to(server.address(), folder), server)->end("FINISHED"); },
                 STDERR_FILENO);
  });
  CHECK(took < 5);
  CHECK(server.calls("runs/update").size() == 1);
}

/// A port that accepts connections and never answers.
class DumbPort {
 public:
  DumbPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    auto* address = reinterpret_cast<sockaddr*>(&address_);
    ::bind(socket_, address, size);
    ::listen(socket_, 16);
    ::getsockname(socket_, address, &size);
  }
  DumbPort(const DumbPort&) = delete;
  DumbPort& operator=(const DumbPort&) = delete;
  ~DumbPort() { ::close(socket_); }
  int port() const { return ntohs(address_.sin_port); }

 private:
  int socket_;
  sockaddr_in address_{};
};

TEST_CASE("a hanging artifact store delays the end by one request timeout, and once") {
  const toy::Folder folder;
  toy::MLflowServer server;
  const DumbPort store;
  server.before = [&](const auto& call, httplib::Response& response) {
    if (call.method != "runs/create") return false;
    response.set_content(fmt::format(R"({{"run": {{"info": {{"run_id": "r", "experiment_id": "0",
                                          "artifact_uri": "http://127.0.0.1:{}/a"}}}}}})",
                                     store.port()),
                         "application/json");
    return true;
  };
  std::filesystem::create_directories(folder / "checkpoint-1");
  toy::write_text(folder / "checkpoint-1" / "file", std::string(100, 'x'));
  auto options = run_to(server.address(), folder);
  options.drain_seconds = 30;
  options.http.timeout = std::chrono::seconds(1);  // and the five over which libcurl measures the speed
  auto run = living_run(options, server);
  run->log_checkpoint(folder / "checkpoint-1");
  const auto reported = toy::printed(
      [&] {
        CHECK(seconds_of([&] {
                run->end("FINISHED");
                run.reset();
              }) < 12);
      },
      STDERR_FILENO);
  CHECK(toy::contains(reported, "wait in"));
}

TEST_CASE("the end waits less long for a server that has gone than for one that answers") {
  const toy::Folder folder;
  toy::MLflowServer server;
  auto options = run_to(server.address(), folder);
  options.drain_seconds = 600;
  std::atomic<bool> is_gone = false;
  server.before = [&](const auto&, httplib::Response& response) {
    if (is_gone) response.status = 503;
    return is_gone.load();
  };
  auto run = living_run(options, server);
  is_gone = true;
  CHECK(seconds_of([&] { toy::printed([&] { run->end("FINISHED"); }, STDERR_FILENO); }) < 60);
  CHECK(toy::names_in(folder / "spool").size() == 1);
}

TEST_CASE("a proxy's answer in the server's place loses nothing") {
  const toy::Folder folder;
  toy::MLflowServer server;
  const std::vector<int> ways{302, 400, 405, 421, 200};
  std::size_t count = 0;
  server.before = [&](const auto& call, httplib::Response& response) {
    if (call.method != "runs/log-batch" || !call.body.contains("metrics") || count == ways.size())
      return false;
    response.status = ways[count++];
    response.set_content("<html>log in</html>", "text/html");
    if (response.status == 302) response.set_header("Location", "http://127.0.0.1:1/login?state=secret");
    return true;
  };
  const auto reported = toy::printed(
      [&] {
        MLflowRun run(run_to(server.address(), folder), {});
        while (server.logged("tags").empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until the run is open
        run.log_metrics({{"loss", 1.0}}, 1);
        run.end("FINISHED");
      },
      STDERR_FILENO);
  CHECK(server.logged("metrics").size() == ways.size() + 1);
  CHECK(toy::contains(reported, "302"));
  CHECK(toy::contains(reported, "it redirects to http://127.0.0.1:1/login"));
  CHECK_FALSE(toy::contains(reported, "secret"));
  CHECK_FALSE(toy::contains(reported, "dropped"));
  CHECK(toy::names_in(folder / "spool").empty());
}

TEST_CASE("artifacts go to an http address with its credentials and its query, which aren't shown") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "text");
  httplib::Server store;
  std::string query, authorization, body;
  int status = 200;
  store.Put("/store/a/checkpoint-1/file", [&](const httplib::Request& request, httplib::Response& response) {
    query = request.get_param_value("sig");
    authorization = request.get_header_value("Authorization");
    body = request.body;
    response.status = status;
    response.set_content("no: " + query, "text/plain");
  });
  store.Put("/api/2.0/mlflow-artifacts/artifacts/1/a/file",
            [&](const httplib::Request& request, httplib::Response& response) {
              body = "served " + request.body;
              response.status = status;
            });
  const int port = store.bind_to_any_port("127.0.0.1");
  std::thread thread([&] { store.listen_after_bind(); });
  while (!store.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  etude::detail::MLflowClient client(nobody, {.bearer = "own"});
  const auto put = [&] {
    client.put_artifact(fmt::format("http://ada:pass@127.0.0.1:{}/store/a?sig=secret", port),
                        "checkpoint-1/file", folder / "file");
  };
  put();
  CHECK(query == "secret");
  CHECK(authorization == "Basic YWRhOnBhc3M=");
  CHECK(body == "text");
  const auto plain = fmt::format("PUT http://127.0.0.1:{}/store/a/checkpoint-1/file: ", port);
  status = 400;
  CHECK(toy::fault_of<etude::detail::Refused>(put) == plain + "400 ");
  status = 503;
  CHECK(toy::fault_of<etude::detail::Unreachable>(put) == plain + "503 ");
  const auto put_to_server = [&] {
    etude::detail::MLflowClient(fmt::format("http://127.0.0.1:{}", port), {})
        .put_artifact("mlflow-artifacts:/1/a", "file", folder / "file");
  };
  status = 405;
  CHECK_THROWS_AS(put_to_server(), etude::detail::Unreachable);  // the response is the proxy's
  status = 200;
  put_to_server();
  CHECK(body == "served text");
  store.stop();
  thread.join();
  const auto gone = toy::fault_of<etude::detail::Unreachable>(put);
  CHECK(gone.starts_with(plain));
  CHECK_FALSE(toy::contains(gone, "secret"));
}

TEST_CASE("checking a run's name delays a training by at most 2 s, at its beginning and end together") {
  const toy::Folder folder;
  CHECK(seconds_of([&] {
          auto options = run_to(nobody, folder);
          options.renew_token = [](etude::detail::HttpClient&, bool) -> std::optional<std::string> {
            std::this_thread::sleep_for(std::chrono::seconds(20));
            return std::nullopt;
          };
          options.attach_to = "given";
          etude::detail::identify_mlflow_run(options, "", "", false);
          CHECK(options.attach_to == "given");
          CHECK(options.key.size() > 4);
        }) < 10);
}

TEST_CASE("wrong options are reported when training begins, without showing credentials") {
  const toy::Folder folder;
  const auto fault = [&](MLflowCallback callback) {
    callback.spool_directory = folder / "spool";
    Trainer trainer(toy::options(arguments(folder)), callback);
    return toy::fault_of<ArgumentError>([&] { trainer.train(); });
  };
  CHECK(toy::contains(fault({}), "MLFLOW_TRACKING_URI is set: must be the address"));
  CHECK(toy::contains(fault({.tracking_uri = "sqlite:///x.db"}), "tracking_uri is 'sqlite...'"));
  CHECK(toy::contains(fault({.tracking_uri = "azureml://a"}),
                      "AzureMLCallback, which is azure_ml in report_to"));
  const auto reported = fault({.tracking_uri = "http://ada:secret@127.0.0.1:1"});
  CHECK(toy::contains(reported, "must have none"));
  CHECK_FALSE(toy::contains(reported, "secret"));
  for (const char* name :
       {"MLFLOW_MAX_LOG_PARAMS", "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_TAGS", "MLFLOW_RUN_CONTEXT",
        "MLFLOW_TRACKING_SERVER_CERT_PATH", "MLFLOW_TRACKING_CLIENT_CERT_PATH"}) {
    const toy::Variable wrong(name, "-x");
    CHECK(toy::contains(fault({.tracking_uri = nobody}), std::string(name) + " is '-x'"));
  }
  toy::write_text(folder / "spool", "");
  CHECK(toy::contains(fault({.tracking_uri = nobody}), "spool"));
}

TEST_CASE("the experiment is that of the options, else of the environment's name, else of its id") {
  const toy::Variable name("MLFLOW_EXPERIMENT_NAME", "named"), id("MLFLOW_EXPERIMENT_ID", "3");
  const auto experiment = [](const std::string& given_name, const std::string& given_id) {
    const toy::Folder folder;
    toy::MLflowServer server;
    auto callback = to(server, folder);
    callback.experiment_name = given_name;
    callback.experiment_id = given_id;
    Trainer(toy::options(arguments(folder)), callback).train();
    const auto asked = server.calls("experiments/get-by-name");
    return server.calls("runs/create").at(0).body["experiment_id"].get<std::string>() + '/' +
           std::to_string(asked.size());
  };
  CHECK(experiment("", "") == "7/1");
  CHECK(experiment("other", "") == "7/1");
  CHECK(experiment("", "4") == "4/0");
}

TEST_CASE("an orchestrator's tags, other tools' certificates and the setting for system metrics are used") {
  using namespace etude::detail;
  const toy::Folder folder;
  {
    const toy::Variable context("MLFLOW_RUN_CONTEXT", R"({"job": 1, "team": "c"})"),
        tags("MLFLOW_TAGS", R"({"team": "b", "size": "s"})");
    CHECK(mlflow_tags({{"size", "m"}}) ==
          std::map<std::string, std::string>{{"job", "1"}, {"size", "m"}, {"team", "b"}});
  }
  const auto certificates = [&](const std::string& address, HttpOptions http = {}) {
    mlflow_address(address, http);
    return http.certificates;
  };
  toy::write_text(folder / "a.pem", "");
  {
    const toy::Variable unset("REQUESTS_CA_BUNDLE", ""), curl("CURL_CA_BUNDLE", folder / "a.pem");
    CHECK(certificates("https://a") == folder / "a.pem");
    CHECK(certificates("http://a").empty());
    CHECK(certificates("https://a", {.verify = false}).empty());
    CHECK(certificates("https://a", {.certificates = "own.pem"}) == "own.pem");
    const toy::Variable requests("REQUESTS_CA_BUNDLE", folder / "b.pem");
    CHECK(toy::contains(toy::fault_of<ArgumentError>([&] { certificates("https://a"); }),
                        "REQUESTS_CA_BUNDLE is"));
  }
  const toy::Variable system("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true");
  auto options = run_to(nobody, folder);
  options.drain_seconds = 0;
  CHECK(toy::contains(toy::printed([&] { const MLflowRun run(options, {}); }, STDERR_FILENO),
                      "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING is set"));
}

TEST_CASE("report_to=all includes it if there is a server's address") {
  CHECK_FALSE(MLflowCallback::is_available());
  const toy::Variable address("MLFLOW_TRACKING_URI", nobody);
  CHECK(MLflowCallback::is_available());
  const toy::Variable off("DISABLE_MLFLOW_INTEGRATION", "yes");
  CHECK_FALSE(MLflowCallback::is_available());
  const toy::Folder folder;
  Trainer(toy::options(arguments(folder)), MLflowCallback{.spool_directory = folder / "spool"}).train();
  CHECK(toy::names_in(folder / "").empty());
}

TEST_CASE("MLflowCallback keeps the laws of callbacks, also without a server") {
  const auto make = [](const std::filesystem::path& folder) {
    return MLflowCallback{.tracking_uri = nobody, .spool_directory = folder / "spool", .drain_seconds = 0.0};
  };
  CHECK(etude::laws::broken<MLflowCallback>(make, {.varying = {"run_key"}}) == std::vector<std::string>());
}

TEST_CASE(
    "a run with pictures is tagged once, and files that its store doesn't take are dropped and counted") {
  const toy::Folder folder;
  toy::MLflowServer server;  // its artifacts are at s3://
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  const auto reported = toy::printed(
      [&] {
        Trainer trainer(toy::options(args), to(server, folder));
        trainer.train();
        for (int i = 0; i < 2; ++i) trainer.log_image("eval_cat", torch::zeros({2, 2}));
      },
      STDERR_FILENO);
  const auto tags = server.logged("tags");
  CHECK(std::ranges::count(tags, nlohmann::json{{"key", "mlflow.loggedImages"}, {"value", "True"}}) == 1);
  CHECK(toy::contains(reported, "4 were dropped"));
  CHECK(toy::names_in(folder / "spool").empty());
}

}  // namespace integrations_mlflow_test
