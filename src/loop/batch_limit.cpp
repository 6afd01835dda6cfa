#include "etude/loop/batch_limit.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <string_view>

#include "etude/base/error.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0 {
namespace detail {
namespace {

constexpr const char* limit_batches_variable = "ETUDE_LIMIT_BATCHES";

}  // namespace
}

std::optional<std::int64_t> batch_limit_of_environment() {
  const char* value = ::getenv(detail::limit_batches_variable);
  const std::string_view text = value ? value : "";
  if (text.empty() || detail::means_unset(text)) return std::nullopt;
  std::int64_t limit = 0;
  if (!detail::read_text(text, limit) || limit < 1)
    throw ArgumentError(fmt::format("{} is '{}': must be a whole number of at least 1, or none",
                                    detail::limit_batches_variable, text));
  return limit;
}

LimitBatches::LimitBatches(std::int64_t num_batches) {
  if (num_batches < 1) throw ArgumentError(fmt::format("num_batches is {}: must be at least 1", num_batches));
  if (const char* before = ::getenv(detail::limit_batches_variable)) before_ = before;
  ::setenv(detail::limit_batches_variable, std::to_string(num_batches).c_str(), 1);
}

LimitBatches::~LimitBatches() {
  if (before_)
    ::setenv(detail::limit_batches_variable, before_->c_str(), 1);
  else
    ::unsetenv(detail::limit_batches_variable);
}

}  // namespace etude::inline v0
