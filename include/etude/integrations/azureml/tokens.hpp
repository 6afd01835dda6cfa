#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "etude/base/linkage.hpp"
#include "etude/integrations/mlflow/client.hpp"

namespace etude::detail {

/// The tokens of a job of Azure ML, which end after a while: each is asked for with the one before. Whoever
/// sends to the job shares them.
class AzureMLTokens final : public TokenSource {
 public:
  /// `url` is where they are; empty if nobody can say.
  AzureMLTokens(std::string url, std::chrono::seconds interval);

  ETUDE_INLINE std::optional<std::string> renewed(HttpClient& http, bool is_refused) override;

 private:
  std::mutex mutex_;
  std::string url_, current_;
  std::chrono::seconds interval_, pause_;
  std::chrono::steady_clock::time_point next_;
};

/// The tokens of `url`, for the whole process: a training begins with the newest that another has got.
std::shared_ptr<AzureMLTokens> azureml_tokens(const std::string& url, std::chrono::seconds interval);

/// Where a job asks for its tokens: beside the workspace's MLflow address. Empty for an address that isn't
/// one of a workspace, and without a run or its experiment.
std::string azureml_token_url(const std::string& address, const std::string& experiment_id,
                              const std::string& run_id);

/// How often they are renewed: MLFLOW_AML_TOKEN_REFRESH_INTERVAL or MLFLOW_TOKEN_REFRESH_INTERVAL_SECONDS, or
/// 30 s. Throws ArgumentError for what is no number of seconds.
std::chrono::seconds azureml_refresh_interval();

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/azureml/impl/tokens.ipp"
#endif
