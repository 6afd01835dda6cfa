#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "etude/integrations/mlflow/client.hpp"

namespace etude::inline v0::detail {

/// The expiring tokens of an Azure ML job; each is requested with the previous one. All senders to the job
/// share them.
class AzureMLTokens {
 public:
  /// Tokens are requested from `url`, which is empty if unknown.
  AzureMLTokens(std::string url, std::chrono::seconds interval);

  /// See RenewToken.
  std::optional<std::string> renewed(HttpClient& http, bool is_refused);

 private:
  std::mutex mutex_;
  std::string url_, current_;
  std::chrono::seconds interval_, pause_;
  std::chrono::steady_clock::time_point next_;
};

/// Returns the tokens of `url`, which the process shares: a training begins with the newest token that any
/// training has obtained.
std::shared_ptr<AzureMLTokens> azureml_tokens(const std::string& url, std::chrono::seconds interval);

/// The address from which a job requests its tokens, next to the workspace's MLflow address. Empty if
/// `address` isn't a workspace's, or if one of the ids is empty.
std::string azureml_token_url(const std::string& address, const std::string& experiment_id,
                              const std::string& run_id);

/// The interval between renewals: MLFLOW_AML_TOKEN_REFRESH_INTERVAL or MLFLOW_TOKEN_REFRESH_INTERVAL_SECONDS,
/// or 30 s. Throws ArgumentError unless it is a number of seconds.
std::chrono::seconds azureml_refresh_interval();

}  // namespace etude::inline v0::detail
