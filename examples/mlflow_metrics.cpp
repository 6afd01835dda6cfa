/// A metrics logger that sends to an MLflow server, from the first process of all, in the place of printing.
/// The server is the one of the environment variable MLFLOW_TRACKING_URI.

#include <curl/curl.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "data/digits.hpp"

/// One run on the server, by MLflow's REST API 2.0.
class MLflowRun {
 public:
  MLflowRun(std::string server, const std::string& name) : server_(std::move(server)) {
    const auto made =
        post("runs/create", {{"experiment_id", "0"}, {"run_name", name}, {"start_time", now()}});
    id_ = made.at("run").at("info").at("run_id").get<std::string>();
  }

  void log(const etude::Metrics& metrics, std::int64_t step) {
    auto values = nlohmann::json::array();
    for (const auto& [name, value] : metrics)
      values.push_back({{"key", name}, {"value", value}, {"timestamp", now()}, {"step", step}});
    post("runs/log-batch", {{"run_id", id_}, {"metrics", values}});
  }

  void end(const std::string& status) {
    post("runs/update", {{"run_id", id_}, {"status", status}, {"end_time", now()}});
  }

 private:
  static std::int64_t now() {
    using namespace std::chrono;
    return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  }

  nlohmann::json post(const std::string& method, const nlohmann::json& body) {
    const auto url = server_ + "/api/2.0/mlflow/" + method, text = body.dump();
    std::string answer;
    const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), curl_easy_cleanup);
    const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> header(
        curl_slist_append(nullptr, "Content-Type: application/json"), curl_slist_free_all);
    curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, header.get());
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, text.c_str());
    curl_easy_setopt(curl.get(), CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, 30L);
    curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer);
    curl_easy_setopt(
        curl.get(), CURLOPT_WRITEFUNCTION,
        +[](const char* part, std::size_t size, std::size_t count, std::string* all) {
          all->append(part, size * count);
          return size * count;
        });
    if (const auto fault = curl_easy_perform(curl.get()); fault != CURLE_OK)
      throw etude::Error(fmt::format("{}: {}", url, curl_easy_strerror(fault)));
    return nlohmann::json::parse(answer);
  }

  std::string server_, id_;
};

struct MLflowMetrics : etude::LogMetricsBase<MLflowMetrics> {
  std::shared_ptr<MLflowRun> run = nullptr;

  void log_metrics(const etude::Context& e, const etude::Metrics& metrics) {
    if (e.state.is_world_process_zero) run->log(metrics, e.state.global_step);
  }
};

int main(int argc, char** argv) {
  const auto args = etude::parse_arguments(argc, argv, digits::arguments());
  const char* server = std::getenv("MLFLOW_TRACKING_URI");
  if (server == nullptr)
    throw etude::ArgumentError("MLFLOW_TRACKING_URI is not set: must be the server's address");
  const auto run = std::make_shared<MLflowRun>(server, args.run_name.value_or(args.output_dir));

  const auto [train, test] = digits::split(digits::read(), args.seed);
  MLflowMetrics logger;
  logger.run = run;
  etude::Trainer<MLflowMetrics> trainer({.model = digits::Net(),
                                         .args = args,
                                         .loss = torch::nn::CrossEntropyLoss(),
                                         .train_dataset = digits::dataset(train),
                                         .eval_dataset = digits::dataset(test),
                                         .compute_metrics = etude::metrics::accuracy},
                                        logger);
  trainer.train();
  run->end("FINISHED");
}
