#include "etude/integrations/azureml/tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "etude/integrations/mlflow/variables.hpp"
#include "etude/integrations/shared/outbox.hpp"
#include "etude/integrations/shared/text.hpp"

namespace etude::inline v0::detail {

AzureMLTokens::AzureMLTokens(std::string url, std::chrono::seconds interval)
    : url_(std::move(url)),
      interval_(interval),
      pause_(interval),
      next_(std::chrono::steady_clock::now() + interval) {}

std::optional<std::string> AzureMLTokens::renewed(HttpClient& http, bool is_refused) {
  const auto now = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  if (!current_.empty() && current_ != http.options().bearer) return current_;
  if (url_.empty() || (now < next_ && !is_refused)) return std::nullopt;
  next_ = now + interval_;
  lock.unlock();  // so other threads don't wait for the response
  try {
    const auto response = http.send({.method = "GET", .url = url_});
    const auto answer = nlohmann::json::parse(response.body, nullptr, false);
    lock.lock();
    if (auto token = text_in(answer, "token"); response.status == 200 && !token.empty()) {
      pause_ = interval_;
      return current_ = std::move(token);
    }
    // The environment may have a better token.
    if (response.status == 401 && current_ == http.options().bearer) current_ = "";
    if (response.status == 429) pause_ = std::min(2 * pause_, std::chrono::seconds(600));
    next_ = now + std::max(pause_, response.retry_after.value_or(pause_));
  } catch (const Unreachable&) {
    // The current token may still work.
  }
  return std::nullopt;
}

std::shared_ptr<AzureMLTokens> azureml_tokens(const std::string& url, std::chrono::seconds interval) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<AzureMLTokens>> known;
  const std::lock_guard lock(mutex);
  auto& tokens = known[url];
  if (!tokens) tokens = std::make_shared<AzureMLTokens>(url, interval);
  return tokens;
}

std::string azureml_token_url(const std::string& address, const std::string& experiment_id,
                              const std::string& run_id) {
  constexpr std::string_view mlflow = "/mlflow/v";
  const auto begin = address.find(mlflow);
  if (begin == address.npos || experiment_id.empty() || run_id.empty()) return "";
  const auto end = std::min(address.find('/', begin + mlflow.size()), address.size());
  return fmt::format("{}/history/v1.0{}/experimentids/{}/runs/{}/token", address.substr(0, begin),
                     address.substr(end), url_escaped(experiment_id), url_escaped(run_id));
}

std::chrono::seconds azureml_refresh_interval() {
  for (const char* name : {"MLFLOW_AML_TOKEN_REFRESH_INTERVAL", "MLFLOW_TOKEN_REFRESH_INTERVAL_SECONDS"})
    if (const auto seconds = mlflow_count(name))
      return std::chrono::seconds(std::max<std::int64_t>(*seconds, 1));
  return std::chrono::seconds(30);
}

}  // namespace etude::inline v0::detail
