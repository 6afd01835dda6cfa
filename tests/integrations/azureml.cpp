#include "etude/integrations/azureml.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/fault_of.hpp"
#include "common/mlflow_server.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/integrations/azureml/tokens.hpp"
#include "etude/testing/laws.hpp"

namespace integrations_azureml_test {

using etude::AzureMLCallback;

const std::string workspace = "/mlflow/v1.0/subscriptions/s/workspaces/w";
const std::string tokens = "/history/v1.0/subscriptions/s/workspaces/w/experimentids/e/runs/given/token";

etude::TrainingArguments arguments(const toy::Folder& folder) {
  auto args = toy::logged_arguments(folder / "out");
  args.num_train_epochs = 1;
  return args;
}

using Trainer = etude::Trainer<AzureMLCallback>;

TEST_CASE("in a job it logs metrics to the job's run, renews the token, and lets the platform end the run") {
  const toy::Folder folder;
  toy::MLflowServer server(workspace);
  int renewed = 0;
  server.before = [&](const auto& call, httplib::Response& response) {
    if (call.method == tokens) {
      ++renewed;
      response.set_content(R"({"token": "second"})", "application/json");
      return true;
    }
    if (call.authorization != "Bearer second") {
      response.status = 401;
      return true;
    }
    if (call.method.starts_with("runs/get")) {
      response.set_content(R"({"run": {"info": {"run_id": "given", "experiment_id": "e"}}})",
                           "application/json");
      return true;
    }
    return false;
  };
  const toy::Variable uri("MLFLOW_TRACKING_URI", server.address() + "?query=1"),
      token("AZUREML_RUN_TOKEN", "first"), run("MLFLOW_RUN_ID", "given"),
      experiment("MLFLOW_EXPERIMENT_ID", "e"), artifacts("HF_MLFLOW_LOG_ARTIFACTS", "1"),
      user("MLFLOW_TRACKING_USERNAME", "ada"), password("MLFLOW_TRACKING_PASSWORD", "x");
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  const auto reported = toy::printed(
      [&] { Trainer(toy::options(args), AzureMLCallback{.spool_directory = folder / "spool"}).train(); },
      STDERR_FILENO);
  CHECK(toy::contains(reported, "checkpoints aren't sent"));
  CHECK_FALSE(toy::contains(reported, "401"));
  CHECK(renewed >= 1);
  int losses = 0;
  for (const auto& metric : server.logged("metrics"))
    if (metric["key"] == "loss") CHECK(metric["step"] == ++losses);
  CHECK(losses == 2);
  for (const auto* never : {"runs/create", "runs/update"}) CHECK(server.calls(never).empty());
  CHECK(server.logged("params").empty());
}

TEST_CASE("a second training in a job begins with the newest token if the environment's has expired") {
  const toy::Folder folder;
  toy::MLflowServer server(workspace);
  int renewed = 0;
  server.before = [&](const auto& call, httplib::Response& response) {
    const auto now = [&] { return renewed == 0 ? "Bearer first" : "Bearer t" + std::to_string(renewed); };
    if (call.authorization != now() || (renewed == 0 && call.method != tokens))
      return (response.status = 401, true);
    if (call.method == tokens)
      response.set_content(fmt::format(R"({{"token": "t{}"}})", ++renewed), "application/json");
    else if (call.method.starts_with("runs/get"))
      response.set_content(R"({"run": {"info": {"run_id": "given", "experiment_id": "e"}}})",
                           "application/json");
    else
      return false;
    return true;
  };
  const toy::Variable uri("MLFLOW_TRACKING_URI", server.address()), token("AZUREML_RUN_TOKEN", "first"),
      run("MLFLOW_RUN_ID", "given"), experiment("MLFLOW_EXPERIMENT_ID", "e");
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  const auto reported = toy::printed(
      [&] {
        Trainer trainer(toy::options(args), AzureMLCallback{.spool_directory = folder / "spool"});
        trainer.train();
        trainer.train();
      },
      STDERR_FILENO);
  CHECK(reported == "");
  int losses = 0;
  for (const auto& metric : server.logged("metrics")) losses += metric["key"] == "loss" ? 1 : 0;
  CHECK(losses == 4);
}

TEST_CASE("a sender uses the token that another one renewed, or the environment's if that is refused") {
  using etude::detail::azureml_tokens;
  using etude::detail::HttpClient;
  httplib::Server service;
  std::string valid = "a";
  service.Get("/token", [&](const httplib::Request& request, httplib::Response& response) {
    if (request.get_header_value("Authorization") != "Bearer " + valid) return (void)(response.status = 401);
    valid += "a";
    response.set_content(R"({"token": ")" + valid + R"("})", "application/json");
  });
  const int port = service.bind_to_any_port("127.0.0.1");
  std::thread thread([&] { service.listen_after_bind(); });
  while (!service.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto url = fmt::format("http://127.0.0.1:{}/token", port);
  const auto tokens_of = [&] { return azureml_tokens(url, std::chrono::seconds(100)); };
  {
    HttpClient first({.bearer = "a"}), second({.bearer = "a"});
    CHECK(tokens_of()->renewed(second, false) == std::nullopt);
    CHECK(tokens_of()->renewed(first, true) == "aa");
    CHECK(tokens_of()->renewed(second, false) == "aa");
    second.set_bearer("aa");
    CHECK(tokens_of()->renewed(second, false) == std::nullopt);
    valid = "other";
    CHECK(tokens_of()->renewed(second, true) == std::nullopt);
    HttpClient third({.bearer = "other"});
    CHECK(tokens_of()->renewed(third, true) == "othera");
  }
  service.stop();
  thread.join();
}

TEST_CASE("elsewhere it creates a run of the experiment, and ends it") {
  const toy::Folder folder;
  toy::MLflowServer server(workspace);
  const toy::Variable token("MLFLOW_TRACKING_TOKEN", "t");
  Trainer(toy::options(arguments(folder)),
          AzureMLCallback{
              .tracking_uri = server.address(), .log_params = true, .spool_directory = folder / "spool"})
      .train();
  CHECK(server.calls("experiments/get-by-name").size() == 1);
  CHECK(server.calls("runs/create").at(0).body["experiment_id"] == "7");
  CHECK(server.calls("runs/update").at(0).body["status"] == "FINISHED");
  CHECK(server.logged("params").size() == etude::field_names<etude::TrainingArguments>().size());
}

TEST_CASE("trials are runs within the job's, with their hyperparameters, and end") {
  const toy::Folder folder;
  toy::MLflowServer server(workspace);
  const toy::Variable token("MLFLOW_TRACKING_TOKEN", "t"), run("MLFLOW_RUN_ID", "given");
  for (const std::string name : {"run-0", "run-1"}) {
    auto args = arguments(folder);
    args.output_dir = folder / name;
    Trainer(toy::options(args),
            AzureMLCallback{.tracking_uri = server.address(), .spool_directory = folder / "spool"})
        .train({.trial = etude::HyperparameterTrial{.name = name, .params = {{"width", 4}}}});
  }
  const auto runs = server.calls("runs/create");
  REQUIRE(runs.size() == 2);
  for (std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    CHECK(runs[i].body["run_name"] == "run-" + std::to_string(i));
    const auto& tags = runs[i].body["tags"];
    CHECK(std::ranges::count(tags, nlohmann::json{{"key", "mlflow.parentRunId"}, {"value", "given"}}) == 1);
    CHECK((server.logged("params", "run" + std::to_string(i)) ==
           std::vector<nlohmann::json>{{{"key", "width"}, {"value", "4"}}}));
  }
  const auto updates = server.calls("runs/update");
  REQUIRE(updates.size() == 2);
  for (const auto& update : updates) CHECK(update.body["status"] == "FINISHED");
}

TEST_CASE("a job's tokens are found in its environment") {
  using etude::detail::azureml_token_url;
  CHECK(azureml_token_url("https://a.ms/mlflow/v2.0/subscriptions/s", "e 1", "r") ==
        "https://a.ms/history/v1.0/subscriptions/s/experimentids/e%201/runs/r/token");
  CHECK(azureml_token_url("https://a.ms", "e", "r") == "");
  CHECK(azureml_token_url("https://a.ms/mlflow/v1.0/x", "", "r") == "");
}

TEST_CASE("an unsupported address or a missing token is reported when training begins") {
  const toy::Folder folder;
  const auto fault = [&](const std::string& uri) {
    Trainer trainer(toy::options(arguments(folder)),
                    AzureMLCallback{.tracking_uri = uri, .spool_directory = folder / "spool"});
    return toy::fault_of<etude::ArgumentError>([&] { trainer.train(); });
  };
  CHECK(toy::contains(fault("azureml://127.0.0.1:1/mlflow/v1.0/x"),
                      "MLFLOW_TRACKING_TOKEN nor AZUREML_RUN_TOKEN"));
  CHECK(toy::contains(fault("databricks"), "azureml://, http:// or https://"));
  const toy::Variable interval("MLFLOW_AML_TOKEN_REFRESH_INTERVAL", "soon"),
      token("MLFLOW_TRACKING_TOKEN", "t");
  CHECK(toy::contains(fault("azureml://127.0.0.1:1/mlflow/v1.0/x"),
                      "MLFLOW_AML_TOKEN_REFRESH_INTERVAL is 'soon'"));
}

TEST_CASE("report_to=all includes it if there is a workspace's address") {
  CHECK_FALSE(AzureMLCallback::is_available());
  const toy::Variable address("MLFLOW_TRACKING_URI", "azureml://127.0.0.1:1/mlflow/v1.0/x");
  CHECK(AzureMLCallback::is_available());
  CHECK_FALSE(etude::MLflowCallback::is_available());
}

TEST_CASE("AzureMLCallback keeps the laws of callbacks") {
  const toy::Variable token("MLFLOW_TRACKING_TOKEN", "t");
  const auto make = [](const std::filesystem::path& folder) {
    return AzureMLCallback{
        .tracking_uri = "http://127.0.0.1:1", .spool_directory = folder / "spool", .drain_seconds = 0.0};
  };
  CHECK(etude::laws::broken<AzureMLCallback>(make, {.varying = {"run_key"}}) == std::vector<std::string>());
}

}  // namespace integrations_azureml_test
