#include "etude/callbacks/print_progress.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "etude/base/message.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

void print_line(const Context& e, std::string_view text) {
  if (e.state.is_local_process_zero) write_text(stdout, fmt::format("{}\n", text));
}

}  // namespace

}  // namespace detail

void PrintProgressCallback::on(const TrainBegin& e) {
  state.epochs.begin(e);
  detail::print_line(e, "\nStarting training run");
}

void PrintProgressCallback::on(const EpochBegin& e) {
  detail::print_line(e, fmt::format("\nStarting epoch {}", state.epochs.ended + 1));
}

void PrintProgressCallback::on(const EvaluateBegin& e) { detail::print_line(e, "\nStarting eval epoch"); }

void PrintProgressCallback::on(const EvaluationRunBegin& e) {
  detail::print_line(e, "\nStarting evaluation run");
}

void PrintProgressCallback::on(const EvaluationRunEnd& e) {
  detail::print_line(e, "Finishing evaluation run");
}

void PrintProgressCallback::on(const TrainEnd& e) { detail::print_line(e, "Finishing training run"); }

}  // namespace etude::inline v0
