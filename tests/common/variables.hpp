#pragma once

#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace toy {

/// While it lives, an environment variable has this value, or is unset if the value is null.
class Variable {
 public:
  Variable(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    set(value);
  }
  Variable(std::string name, const std::string& value) : Variable(std::move(name), value.c_str()) {}
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) {
    value == nullptr ? ::unsetenv(name_.c_str()) : ::setenv(name_.c_str(), value, 1);
  }

  std::string name_;
  std::optional<std::string> before_;
};

/// While it lives, these variables are set, and variables for which `is_hidden` returns true are unset.
class Variables {
 public:
  using Set = std::map<std::string, std::string>;

  Variables(const Set& set, const std::function<bool(std::string_view name)>& is_hidden) {
    std::map<std::string, const char*> values;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      if (const auto name = text.substr(0, text.find('=')); is_hidden(name)) values.emplace(name, nullptr);
    }
    for (const auto& [name, value] : set) values[name] = value.c_str();
    for (const auto& [name, value] : values) variables_.emplace_back(name, value);
  }

 private:
  std::deque<Variable> variables_;
};

}  // namespace toy
