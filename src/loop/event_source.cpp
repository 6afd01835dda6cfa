#include "etude/loop/event_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"

namespace etude::inline v0 {

void detail::print_error(const TrainingArguments& args, const ErrorOrigin& origin, std::string_view what) {
  message(args, LogLevel::error, "{} threw in {}: {}", origin.callback, origin.event, what);
}

void detail::print_secondary_error(const TrainingArguments& args, const std::exception_ptr& error) {
  const auto origin = take_origin(error);
  const auto whose =
      origin.callback.empty() ? "" : fmt::format(" {} threw in {}", origin.callback, origin.event);
  message(args, LogLevel::error, "and then{}: {}", whose, message_of(error));
}

void detail::FirstError::operator()() {
  if (first_.error) return print_secondary_error(args_, std::current_exception());
  first_ = take_origin(std::current_exception());
}

void detail::FirstError::rethrow() {
  if (!first_.error) return;
  const auto error = first_.error;
  last_origin() = std::move(first_);
  std::rethrow_exception(error);
}

void detail::throw_written_loss(const std::vector<HandledEvent>& handled, const DataError& error) {
  std::vector<std::string> writers;
  for (const auto& each : handled)
    for (const auto& [name, writes] : each.callbacks)
      if (writes) writers.push_back(name);
  if (writers.empty()) throw;
  throw DataError(
      fmt::format("{} has changed the loss in BackwardBegin: {}", fmt::join(writers, " or "), error.what()));
}

}  // namespace etude::inline v0
