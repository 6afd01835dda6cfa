#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

/// Names in the form that an MLflow server accepts.
namespace etude::inline v0::detail {

inline constexpr std::size_t longest_mlflow_name = 250;

/// Turns `name` into one that the server accepts; valid names don't change. Everything but letters, digits
/// and `_-. :/` becomes _, as in Hugging Face's callback; the result is made a plain relative path of at most
/// `longest_mlflow_name` characters.
std::string mlflow_name(std::string_view name);

/// The names sent in one run; different names stay different.
class MLflowNames {
 public:
  /// The name to send instead of `name`.
  const std::string& operator[](const std::string& name);

 private:
  std::map<std::string, std::string, std::less<>> sent_;
  std::set<std::string> taken_;
};

}  // namespace etude::inline v0::detail
