#include "etude/loop/event_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <iterator>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/message.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/libtorch/threads.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/batch_limit.hpp"
#include "etude/loop/loss_check.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

namespace {

/// Reports an error that follows another on the way out.
void print_secondary_error(const TrainingArguments& args, const std::exception_ptr& error) {
  const auto origin = take_origin(error);
  const auto whose =
      origin.callback.empty() ? "" : fmt::format(" {} threw in {}", origin.callback, origin.event);
  message(args, LogLevel::error, "and then{}: {}", whose, message_of(error));
}

/// Whether one of these callbacks may change or receive the results of an evaluation.
bool may_add_metrics_to_evaluation(const RuntimeCallbacks& callbacks) {
  const std::array rows{detail::handling_of(callbacks, events<>{})};
  const auto handled = [&](auto which) { return detail::handled_events(detail::known_events(which), rows); };
  for (const auto& each : handled(events<Log, Evaluate, EvaluateAll>{}))
    if (std::ranges::any_of(each.callbacks, [](const auto& handler) { return handler.second; })) return true;
  return !handled(events<EvaluateBegin, PredictionStepBegin, PredictionStep>{}).empty();
}

}  // namespace

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

EventSource::EventSource() : any_(*this) { core_.trainer = &any_; }

EventSource::~EventSource() = default;

void EventSource::connect(TrainerRef trainer, const TrainerTable& table) {
  trainer_ = trainer;
  table_ = &table;
}

void EventSource::add(const detail::ListedCallback& callback) {
  callbacks_.push_back(callback);
  if (callback.handling.runtime_callbacks) runtime_ = callback.handling.runtime_callbacks;
}

void EventSource::add(CallbackState state) { states_.push_back(std::move(state)); }

std::vector<CallbackState> EventSource::states() const {
  auto result = states_;
  for (const auto& each : callbacks_)
    if (const auto* added = each.handling.runtime_callbacks)
      std::ranges::move(added->states(), std::back_inserter(result));
  return result;
}

std::vector<std::string_view> EventSource::callback_names() const {
  std::vector<std::string_view> names;
  for (const auto& each : callbacks_)
    if (const auto* added = each.handling.runtime_callbacks)
      std::ranges::move(added->names(), std::back_inserter(names));
    else
      names.push_back(each.handling.callback);
  return names;
}

std::vector<detail::RequiredMetric> EventSource::required_metrics() const {
  std::vector<detail::RequiredMetric> required;
  for (const auto& each : callbacks_)
    if (each.watched_metric)
      if (auto name = each.watched_metric(each.callback); !name.empty())
        required.push_back({each.handling.callback, std::move(name)});
  return required;
}

std::string_view EventSource::reader_of_parameters() const {
  for (const auto& each : callbacks_) {
    if (each.reads_parameters(each.callback)) return each.handling.callback;
    const auto* added = each.handling.runtime_callbacks;
    if (const auto reader = added ? added->reader_of_parameters() : ""; !reader.empty()) return reader;
  }
  return {};
}

bool EventSource::may_add_metrics() const {
  return core_.overrides.log || std::ranges::any_of(callbacks_, [](const detail::ListedCallback& each) {
           const auto* added = each.handling.runtime_callbacks;
           return added ? may_add_metrics_to_evaluation(*added) : each.may_add_metrics;
         });
}

void EventSource::check_trackers() const {
  if (!core_.args.report_to.empty()) check_report_to(core_.args, callback_names());
}

std::vector<EventHandlers> EventSource::event_handlers() const {
  if (table_->event_handlers) return table_->event_handlers(*trainer_);
  std::vector<detail::CallbackHandling> rows;
  for (const auto& each : callbacks_) rows.push_back(each.handling);
  return detail::in_words(detail::handled_events(detail::known_events(Vocabulary{}), rows));
}

std::vector<detail::HandledEvent> EventSource::handlers_of(const std::vector<std::string_view>& names) const {
  std::vector<detail::CallbackHandling> rows;
  if (table_->own_handling) rows.push_back({table_->name, table_->own_handling});
  for (const auto& each : callbacks_) rows.push_back(each.handling);
  const auto all = detail::handled_events(detail::known_events(Vocabulary{}), rows);
  std::vector<detail::HandledEvent> result;
  for (const auto& name : names)
    std::ranges::copy_if(all, std::back_inserter(result),
                         [&](const auto& each) { return each.event == name; });
  return result;
}

void EventSource::check_written(const torch::Tensor& loss) const {
  if (!is_written<BackwardBegin>()) return;
  try {
    check_training_loss(loss);
  } catch (const DataError& error) {
    std::vector<std::string> writers;
    for (const auto& each : handlers_of(events<BackwardBegin>{}))
      for (const auto& [name, writes] : each.callbacks)
        if (writes) writers.push_back(name);
    if (writers.empty()) throw;
    throw DataError(fmt::format("{} has changed the loss in BackwardBegin: {}", fmt::join(writers, " or "),
                                error.what()));
  }
}

void EventSource::close_to(std::size_t depth) {
  while (open_.size() > depth) {
    const auto close = open_.back();
    open_.pop_back();
    close(*this);
  }
}

void EventSource::attempt(detail::FunctionRef<void()> part) {
  try {
    part();
  } catch (...) {
    note_failed_cleanup();
  }
}

void EventSource::report(const std::exception_ptr& error) {
  if (reported_ == error) return;
  reported_ = error;
  leave_out_frames(error);
  const auto origin = take_origin(error);
  const auto what = message_of(error);
  if (!origin.callback.empty())
    message(core_.args, LogLevel::error, "{} threw in {}: {}", origin.callback, origin.event, what);
  TrainError event{core_.context(), error, what, origin.callback, origin.event};
  raise_to_all(event, [&] { print_secondary_error(core_.args, std::current_exception()); });
}

void EventSource::run_guarded(detail::FunctionRef<void()> method) {
  const auto outside = depth();
  const InterruptionScope whole(false);
  std::optional<ThreadGuard> threads;
  std::optional<OwnGenerators::Use> generators;
  core_.is_quiet ? static_cast<void>(generators.emplace(core_.own_generators))
                 : static_cast<void>(threads.emplace());
  if (outside == 0) core_.ranks.check();
  try {
    method();
  } catch (const Interrupted&) {
    close_to(outside);
    throw;
  } catch (const StopTraining&) {
    // Inside a training this is a request, which the training handles.
    if (!core_.is_training() || outside == 0) report(std::current_exception());
    close_to(outside);
    throw;
  } catch (...) {
    if (outside == 0) core_.ranks.leave(std::current_exception());
    report(std::current_exception());
    close_to(outside);
    throw;
  }
}

void EventSource::note_failed_cleanup() {
  core_.ranks.leave(std::current_exception());
  print_secondary_error(core_.args, std::current_exception());
}

void announce_loader(EventSource& events, DataLoader& loader, LoaderUse use) {
  const auto& core = events.core();
  auto limit = use == LoaderUse::predict ? std::nullopt : batch_limit_of_environment();
  if (const auto created = events.raise<DataLoaderCreated>(loader, use, limit, core.is_intermediate()))
    limit = created->max_batches;
  if (limit) loader.limit_batches(*limit);
}

}  // namespace etude::inline v0
