#include "etude/integrations/mlflow/names.hpp"

#include <algorithm>

namespace etude::inline v0::detail {
namespace mlflow {

namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

bool is_taken_in_names(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-. :/").find(c) != std::string_view::npos;
}

}  // namespace

}  // namespace mlflow

std::string mlflow_name(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (!mlflow::continues_character(c)) plain += mlflow::is_taken_in_names(c) ? c : '_';

  std::string path;
  for (std::string_view rest = plain; !rest.empty();) {
    auto part = std::string(rest.substr(0, rest.find('/')));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (part.empty() || part == ".") continue;
    if (part == ".." || (path.empty() && part.starts_with(".."))) part.replace(0, 2, "__");
    path += (path.empty() ? "" : "/") + part;
  }
  path.resize(std::min(path.size(), longest_mlflow_name));
  while (path.ends_with('/')) path.pop_back();
  return path.empty() ? "_" : path;
}

const std::string& MLflowNames::operator[](const std::string& name) {
  if (const auto known = sent_.find(name); known != sent_.end()) return known->second;
  const auto plain = mlflow_name(name);
  auto sent = plain;
  for (int i = 2; !taken_.insert(sent).second; ++i) {
    const auto number = '_' + std::to_string(i);
    sent = plain.substr(0, longest_mlflow_name - number.size()) + number;
  }
  return sent_.emplace(name, sent).first->second;
}

}  // namespace etude::inline v0::detail
