#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

#include "etude/integrations/mlflow/run.hpp"

/// What MLflow's environment variables say. Each throws ArgumentError that names the variable, without the
/// value of one that holds credentials.
namespace etude::detail {

/// MLFLOW_TRACKING_USERNAME and PASSWORD, or those of ~/.mlflow/credentials; else MLFLOW_TRACKING_TOKEN. The
/// variables of TLS, and MLFLOW_HTTP_REQUEST_TIMEOUT.
HttpOptions mlflow_http_options();

/// `given`, and those of MLFLOW_TAGS that it doesn't have, and then those of MLFLOW_RUN_CONTEXT.
std::map<std::string, std::string> mlflow_tags(const std::map<std::string, std::string>& given);

/// `given`, or MLFLOW_MAX_LOG_PARAMS; -1 is all.
std::int64_t mlflow_max_params(std::optional<std::int64_t> given);

/// The server's address, without credentials, which go to `http`: `given`, which must have none, or else
/// MLFLOW_TRACKING_URI. `instead_of` is a scheme that stands for https, such as azureml. Where it is https
/// and `http` verifies certificates and has none of its own, it gets REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE.
std::string mlflow_address(const std::string& given, HttpOptions& http, const std::string& instead_of = "");

/// The whole number, at least 0, of a variable, if it is set.
std::optional<std::int64_t> mlflow_count(const char* variable);

/// Whether MLFLOW_TRACKING_URI has one of these schemes.
bool mlflow_uri_begins(std::initializer_list<const char*> schemes);

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/mlflow/impl/settings.ipp"
#endif
