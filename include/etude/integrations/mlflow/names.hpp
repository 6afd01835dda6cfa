#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

/// Names as an MLflow server takes them.
namespace etude::detail {

/// How many characters a text in UTF-8 has.
std::size_t characters(std::string_view text);

/// A name that the server takes, the same for one that it takes already: everything but letters, digits and
/// `_-. :/` becomes _, as Hugging Face's callback has it; what isn't a plain relative path is made one, and
/// at most 250 characters are left.
std::string mlflow_name(std::string_view name);

/// The names of one run: two different ones stay different.
class MLflowNames {
 public:
  /// The name to be sent for this one.
  const std::string& operator[](const std::string& name);

 private:
  std::map<std::string, std::string, std::less<>> sent_;
  std::set<std::string> taken_;
};

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/mlflow/impl/names.ipp"
#endif
