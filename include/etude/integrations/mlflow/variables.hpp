#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

#include "etude/integrations/mlflow/run.hpp"

/// MLflow's environment variables. Each function throws an ArgumentError that names the variable, without the
/// value if it may hold credentials.
namespace etude::inline v0::detail {

/// Reads MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or ~/.mlflow/credentials, or else
/// MLFLOW_TRACKING_TOKEN; also the TLS variables and MLFLOW_HTTP_REQUEST_TIMEOUT.
HttpOptions mlflow_http_options();

/// Returns `given`, plus missing tags from MLFLOW_TAGS, then from MLFLOW_RUN_CONTEXT.
std::map<std::string, std::string> mlflow_tags(const std::map<std::string, std::string>& given);

/// `given`, or else MLFLOW_MAX_LOG_PARAMS; -1 means all.
std::int64_t mlflow_max_params(std::optional<std::int64_t> given);

/// Returns the server's address: `given`, which mustn't contain credentials, or else MLFLOW_TRACKING_URI,
/// whose credentials go to `http`. `instead_of` is a scheme that stands for https, such as azureml. If the
/// scheme is https and `http` verifies certificates but names no certificate file, sets it to
/// REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE.
std::string mlflow_address(const std::string& given, HttpOptions& http, const std::string& instead_of = "");

/// The value of a variable, which must be a whole number of at least 0; unset if the variable isn't set.
std::optional<std::int64_t> mlflow_count(const char* variable);

/// Whether MLFLOW_TRACKING_URI has one of these schemes.
bool mlflow_uri_begins(std::initializer_list<const char*> schemes);

}  // namespace etude::inline v0::detail
