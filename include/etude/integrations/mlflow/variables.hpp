#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

#include "etude/integrations/mlflow/run.hpp"

/// MLflow's environment variables. Each function throws ArgumentError that names the variable, without the
/// value if it may hold credentials.
namespace etude::inline v0::detail {

/// MLFLOW_TRACKING_USERNAME and PASSWORD, or the credentials in ~/.mlflow/credentials; else
/// MLFLOW_TRACKING_TOKEN. Also the TLS variables, and MLFLOW_HTTP_REQUEST_TIMEOUT.
HttpOptions mlflow_http_options();

/// `given`, then tags from MLFLOW_TAGS that it lacks, then tags from MLFLOW_RUN_CONTEXT.
std::map<std::string, std::string> mlflow_tags(const std::map<std::string, std::string>& given);

/// `given`, or MLFLOW_MAX_LOG_PARAMS; -1 is all.
std::int64_t mlflow_max_params(std::optional<std::int64_t> given);

/// The server's address, without credentials, which go to `http`: `given`, which mustn't have any, or else
/// MLFLOW_TRACKING_URI. `instead_of` is a scheme that stands for https, such as azureml. If it is https and
/// `http` verifies certificates but names no file of them, `http` gets REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE.
std::string mlflow_address(const std::string& given, HttpOptions& http, const std::string& instead_of = "");

/// The value of a variable, a whole number of at least 0, if it is set.
std::optional<std::int64_t> mlflow_count(const char* variable);

/// Whether MLFLOW_TRACKING_URI has one of these schemes.
bool mlflow_uri_begins(std::initializer_list<const char*> schemes);

}  // namespace etude::inline v0::detail
