#include "checkpoints.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <system_error>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/checkpoint/checkpoint.hpp"
#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/resume_point.hpp"
#include "etude/data/random.hpp"
#include "etude/dispatch/callback_state.hpp"
#include "etude/io/folder.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/loop/carried.hpp"
#include "etude/loop/write_checkpoint.hpp"

namespace etude::inline v0 {

namespace detail {

/// Loads a part of a checkpoint; if it doesn't fit, the error names the checkpoint and the remedies.
template <class Part>
void load_part(const std::filesystem::path& checkpoint, std::string_view what, Part take_over) {
  try {
    take_over();
  } catch (const CheckpointError& error) {
    throw CheckpointError(
        fmt::format("{} doesn't fit this {}: to start from scratch, give another output_dir or leave out "
                    "resume_from_checkpoint; {}",
                    checkpoint.string(), what, error.what()));
  }
}

}  // namespace detail

TrainingCheckpoints::TrainingCheckpoints(EventSource& events) : events_(events), core_(events.core()) {}

TrainingCheckpoints::~TrainingCheckpoints() {
  events_.attempt([&] { core_.checkpoint_writer.wait(); });
  core_.checkpoint_writer.unlock();
}

bool TrainingCheckpoints::has_news() const {
  return core_.checkpoint_writer.store().has_written() ||
         (resumes() && core_.may_save() && !detail::ended_in_good_order(*point_));
}

const std::filesystem::path& TrainingCheckpoints::path() const { return point_->path; }

void TrainingCheckpoints::find(const TrainOptions::Resume& resume) {
  core_.checkpoint_writer.wait();
  auto& store = core_.checkpoint_writer.new_store();
  const bool writes = core_.may_save() && core_.ranks.is_first();
  if (writes) {
    if (!store.lock())
      throw CheckpointError(fmt::format("output_dir is {}: another training is writing its checkpoints there",
                                        core_.args.output_dir));
    for (const auto& problem : store.clean()) message(core_.args, LogLevel::warning, "{}", problem);
  }
  if (resume) find_point(resume, store);
  if (resumes()) point_->path = std::filesystem::absolute(point_->path);
  if (resumes() && core_.args.auto_find_batch_size)
    detail::use_found_batch_size(*point_, core_.options.args, core_.args);
  store.begin(resumes() ? point_->manifest : std::nullopt);
  if (!resumes() || !writes) return;
  if (const auto problem =
          store.finish_commit(path(), core_.args.save_total_limit, point_->state.best_model_checkpoint))
    message(core_.args, LogLevel::warning, "{}", *problem);
}

/// All processes resume from the checkpoint that the first one finds.
void TrainingCheckpoints::find_point(const TrainOptions::Resume& resume, const CheckpointStore& store) {
  auto& ranks = core_.ranks;
  std::optional<ResumePoint> found;
  if (ranks.is_first()) found = find_resume_point(resume, store, core_.args);
  if (const auto path = ranks.first(found ? std::filesystem::absolute(found->path).string() : "");
      !ranks.is_first() && !path.empty())
    found = find_resume_point(std::filesystem::path(path), store, core_.args);
  if (found) point_ = std::make_unique<ResumePoint>(std::move(*found));
}

void TrainingCheckpoints::take_own_random() {
  const auto then = point_->progress ? point_->progress->world_size : 1;
  const auto rank = core_.ranks.rank();
  for (auto* state : {&point_->random, &point_->group_random}) {
    const auto all = std::exchange(*state, {});
    for (const auto& [name, bytes] : all)
      if (const auto [of, own] = detail::rank_and_name(name); of == rank) state->emplace(own, bytes);
  }
  if (then == core_.ranks.world_size() || rank == 0) return;
  // Derives a seed from the step and the rank, so that no process repeats its earlier numbers or another's.
  const auto seed = detail::mix(static_cast<std::uint64_t>(core_.args.seed),
                                static_cast<std::uint64_t>(point_->state.global_step));
  set_seed(detail::mix(seed, static_cast<std::uint64_t>(rank)));
  point_->random = random_state(core_.options.generators);
}

DonePhases TrainingCheckpoints::done_phases() const {
  if (!resumes()) return {};
  if (point_->progress) return point_->progress->done_phases;
  if (!core_.options.phases.empty())
    throw CheckpointError(
        fmt::format("{} has no training_progress.json, which says what phase it is in", path().string()));
  return {};
}

void TrainingCheckpoints::load_training(TrainPlan& plan, std::int64_t later_steps) {
  auto& state = core_.state;
  const auto asked_before = core_.control;
  detail::load_part(path(), "model", [&] { core_.model.load_state_dict(point_->model); });
  state = point_->state;
  core_.set_process();
  state.num_input_tokens_seen = std::min(state.num_input_tokens_seen, detail::largest_dataset);
  if (!point_->progress)
    point_->progress = detail::progress_by_steps(state, core_.args, plan.updates_per_epoch);
  if (point_->progress->train_dataset && core_.progress.train_dataset)
    warn_of_another_dataset(*point_->progress->train_dataset);
  take_own_random();
  core_.load_progress(*point_->progress);
  auto& position = core_.progress.position;
  const auto& done = core_.progress.done_phases;
  const auto& examples_then = point_->progress->train_dataset;
  const auto& examples_now = core_.progress.train_dataset;
  const bool has_other_size = examples_then && examples_now && examples_then->size && examples_now->size &&
                              *examples_then->size != *examples_now->size;
  const bool has_other_parts = examples_then && examples_now && examples_then->parts != examples_now->parts;
  if (has_other_parts) position.examples = 0;  // a place in one part means nothing in another
  const auto batch_size_then = static_cast<double>(point_->progress->train_batch_size) *
                               static_cast<double>(point_->progress->world_size);
  if (core_.ranks.several() || point_->progress->world_size > 1) position.micro_batches = 0;
  if (!core_.train_dataloader) {
    position.micro_batches = 0;  // the program's next batches are different ones
  } else if (has_other_size || has_other_parts || batch_size_then != core_.padded(1) ||
             point_->progress->gradient_accumulation_steps != core_.accumulation.in(position.epoch)) {
    position.micro_batches = 0;
    position.padded_examples = position.examples;
    if (const auto left = core_.batches_left()) {
      const auto before = std::exchange(
          plan, continued(plan, core_.args, state.global_step - done.steps, position.epoch - done.epochs,
                          position.exhausted ? 0 : *left, core_.accumulation.by_epoch(done.epochs)));
      core_.progress.extra_steps = plan.max_steps - before.max_steps;
      core_.progress.extra_epochs = plan.num_train_epochs - before.num_train_epochs;
    }
  } else {
    plan.max_steps = std::max<std::int64_t>(plan.max_steps + core_.progress.extra_steps, 1);
    plan.num_train_epochs =
        std::clamp<std::int64_t>(plan.num_train_epochs + core_.progress.extra_epochs, 1, detail::most_steps);
  }
  plan = after(done, plan);
  if (plan.max_steps > detail::most_steps)
    throw CheckpointError(
        fmt::format("{}: extra_steps is {}: with them max_steps is {}, and must be at most 1e15",
                    path().string(), core_.progress.extra_steps, plan.max_steps));
  position.padded_examples = std::min(position.padded_examples, detail::largest_dataset);
  if (position.epoch >= plan.num_train_epochs) position.micro_batches = 0;  // nothing continues them
  if (core_.args.ignore_data_skip) position.examples = position.padded_examples = position.micro_batches = 0;
  detail::take_own_carried(core_, core_, *point_);
  auto& control = core_.control;
  if (control.should_training_stop &&
      (point_->state.max_steps != plan.max_steps + later_steps || detail::ended_in_good_order(*point_))) {
    control.should_training_stop = false;
    control.stop_reason.clear();
  }
  control.add(asked_before);
  warn_if_nothing_is_left(plan.max_steps + later_steps);
}

void TrainingCheckpoints::warn_of_another_dataset(const DatasetInfo& then) const {
  const auto& now = *core_.progress.train_dataset;
  const auto count = [](const auto& size) {
    return size ? fmt::format("{}", *size) : "an unknown number of";
  };
  std::string difference;
  if (now.size != then.size)
    difference = fmt::format("{} -> {} examples", count(then.size), count(now.size));
  else if (now.parts != then.parts)
    difference = fmt::format("divided into {} -> {} parts", then.parts, now.parts);
  else if (!now.fingerprint.empty() && !then.fingerprint.empty() && now.fingerprint != then.fingerprint)
    difference = "as many examples, but different ones";
  if (!difference.empty())
    message(core_.args, LogLevel::warning, "resuming {} with another train_dataset: {}", path().string(),
            difference);
}

void TrainingCheckpoints::warn_if_nothing_is_left(std::int64_t max_steps) const {
  const auto step = core_.state.global_step;
  if (step < max_steps) return;
  const auto& args = core_.args;
  const auto limit = args.max_steps > 0 ? fmt::format("max_steps ({})", args.max_steps)
                                        : fmt::format("num_train_epochs ({})", args.num_train_epochs);
  message(args, LogLevel::warning,
          "nothing is left to train: {} is already at step {} of {}; to continue, raise {}; to start from "
          "scratch, give another output_dir",
          path().string(), step, max_steps, limit);
}

void TrainingCheckpoints::load_rest() {
  StateReport report;
  auto arguments = detail::changed_arguments(*point_, core_.options.args);
  const auto rates_are_new = detail::rates_are_new(arguments, point_->state, core_.state.max_steps);
  for (auto& each : core_.optimizers) {
    auto saved = point_->optimizers.extract(each.name);
    const auto of = saved ? std::move(saved.mapped()) : SavedOptimizer();
    const auto file = path() / optimizer_file("scheduler.json", each.name);
    bool new_rates =
        rates_are_new || (each.lr_scheduler->needs_metric() && detail::is_another_metric(arguments));
    StateReport found;
    detail::load_part(path(), "optimizer",
                      [&] { detail::load_optimizer(of, *each.optimizer, arguments, new_rates, found); });
    detail::load_part(path(), "lr_scheduler", [&] {
      detail::load_scheduler(of, file, point_->state.global_step - core_.progress.done_phases.steps,
                             *each.lr_scheduler,
                             /*joins_each_step=*/each.name.empty(), new_rates, found.problems);
    });
    const auto name = each.name.empty() ? "" : fmt::format("optimizer '{}': ", each.name);
    for (const auto& line : found.differences) report.differences.push_back(name + line);
    for (const auto& line : found.problems) report.problems.push_back(name + line);
  }
  for (const auto& [name, unused] : point_->optimizers)
    report.problems.push_back(
        fmt::format("the state of its optimizer {} isn't used: this training has none of that name",
                    name.empty() ? "without a name" : fmt::format("'{}'", name)));
  if (core_.args.restore_callback_states_from_checkpoint)
    load_states(point_->state.stateful_callbacks, events_.states(), report);
  load_dataset_state(report.problems);
  take_own_program_state(report.problems);
  load_program_state();
  if (!point_->sampler.empty() && core_.train_dataloader)
    core_.train_dataloader->load_sampler_state(point_->sampler);
  arguments.insert(arguments.end(), report.differences.begin(), report.differences.end());
  for (const auto& line : arguments)
    message(core_.args, LogLevel::warning, "resuming {} with another argument: {}", path().string(), line);
  for (const auto& line : report.problems)
    message(core_.args, LogLevel::warning, "resuming {}: {}", path().string(), line);
  // Open files would keep their disk space and, on some file systems, get in the way.
  point_->model.clear();
  point_->optimizers.clear();
}

void TrainingCheckpoints::load_dataset_state(std::vector<std::string>& problems) {
  auto& position = core_.progress.position;
  auto saved = std::exchange(point_->progress->dataset_state, std::nullopt);
  if (core_.args.ignore_data_skip || !core_.train_dataloader) return;
  const bool has_state = core_.train_dataloader->has_dataset_state();
  if (has_state && core_.brings_own_batches()) {
    problems.push_back(
        fmt::format("each process has different data, and the saved state of train_dataset is rank 0's: "
                    "epoch {} starts from the dataset's first state, and is read up to example {}",
                    position.epoch, position.examples));
    return;
  }
  if (has_state && saved)
    position.dataset_state = std::make_shared<const DatasetState>(detail::copy_of(*std::move(saved)));
  else if (saved)
    problems.push_back(
        fmt::format("train_dataset has no load_state() for its saved state: it continues by counting, from "
                    "example {} of epoch {}",
                    position.examples, position.epoch));
  else if (has_state && (position.epoch > 0 || position.examples > 0))
    problems.push_back(
        fmt::format("the state of train_dataset is missing: epoch {} starts from its first state, and is "
                    "read up to example {}",
                    position.epoch, position.examples));
}

void TrainingCheckpoints::take_own_program_state(std::vector<std::string>& problems) {
  const auto saved = std::exchange(point_->program_state, std::nullopt);
  const bool has_variables = !core_.options.program_state.empty();
  const auto rank = static_cast<std::size_t>(core_.ranks.rank());
  if (has_variables && saved && rank < saved->size())
    program_state_ = (*saved)[rank];
  else if (has_variables)
    problems.push_back(saved ? fmt::format("the program's state of rank {} is missing: its variables stay "
                                           "as they are",
                                           rank)
                             : "the program's state is missing: its variables stay as they are");
  else if (saved)
    problems.emplace_back("the program's state isn't used: the option program_state is empty");
}

void TrainingCheckpoints::load_program_state() {
  if (!program_state_) return;
  detail::load_part(path(), "program", [&] { load_variables(core_.options.program_state, *program_state_); });
}

void TrainingCheckpoints::settle_program_state() {
  load_program_state();
  if (core_.progress.position.micro_batches == 0) program_state_.reset();  // else the group is read again
}

void TrainingCheckpoints::begun() {
  load_program_state();
  after_begin_.emplace(events_);
  if (point_->random.empty())
    message(core_.args, LogLevel::warning,
            "resuming {}: the state of the generators is missing: random numbers will differ",
            path().string());
  else
    load_random(point_->random);
  if (hears_again(core_.progress)) model_after_begin_.emplace(events_);
  if (!core_.progress.loop.epoch_is_open()) announce_again();
}

void TrainingCheckpoints::load_group_begin() {
  load_random(point_->group_random);
  detail::load_carried(core_, core_.carried, point_->group_carried);
}

void TrainingCheckpoints::put_back_model() {
  if (model_after_begin_) model_after_begin_->restore();
}

void TrainingCheckpoints::put_back() {
  put_back_model();
  model_after_begin_.reset();
  const auto now = core_.control;
  after_begin_->restore();
  if (now.should_training_stop) core_.control.request_stop(now.stop_reason);
  if (!point_->random.empty()) load_random(point_->random);
  load_program_state();
  detail::load_carried(core_, core_.carried, point_->carried);
  if (core_.progress.position.micro_batches == 0) announce_again();
}

void TrainingCheckpoints::load_half_done() {
  detail::load_half_done(core_, point_->half_done);
  point_->half_done.clear();
}

void TrainingCheckpoints::save(std::string reason) {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::saving);
  if (core_.updating) return;  // the exception left weights and moments between two steps
  announce();
  saved_.reset();
  auto& writer = core_.checkpoint_writer;
  const CheckpointWriter::Reason this_ones(writer, std::move(reason));
  writer.announce_later(events_.trainer().save_checkpoint());
  saved_ = {core_.state.global_step, core_.progress};
  // Only the first of several processes writes.
  if (core_.ranks.several() ? !core_.args.save_async : !writer.is_writing()) announce();
}

void TrainingCheckpoints::poll() {
  if (core_.ranks.several()) return;  // Only the first process knows.
  if (core_.checkpoint_writer.has_ended()) announce();
}

void TrainingCheckpoints::announce() {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::saving);
  core_.checkpoint_writer.wait();
  if (const auto checkpoint = core_.checkpoint_writer.take_unannounced()) report(*checkpoint);
}

void TrainingCheckpoints::report(const std::filesystem::path& checkpoint) {
  core_.ranks.barrier();  // The first process has written it.
  const AveragedWeightsInUse weights(core_.optimizers);
  events_.raise<Save>(checkpoint);
  if (!core_.options.push) return;
  events_.raise<PushBegin>(checkpoint);
  if (core_.ranks.is_first()) core_.options.push.function()(checkpoint);
}

void TrainingCheckpoints::save_on_the_way_out(const char* reason, const SafePoint* point) {
  events_.attempt([&] { announce(); });
  if (!point && saved_ && saved_->first == core_.state.global_step && same_place(saved_->second)) return;
  const Snapshot<part::Callbacks> now(events_);
  events_.attempt([&] {
    if (point) go_back(*point);
    save(reason);
    announce();
  });
  now.restore();
}

void TrainingCheckpoints::load_best() {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::saving);
  if (!core_.state.best_model_checkpoint) {
    message(
        core_.args, LogLevel::warning, "no checkpoint of the best model to load: {}",
        core_.state.best_metric ? "none was saved when it was reached" : "no evaluation gave a best metric");
    return;
  }
  std::filesystem::path best;
  if (core_.ranks.is_first()) best = load_best_weights();
  best = core_.ranks.first(best.string());
  if (best.empty()) return;
  core_.share_model();
  events_.raise<CheckpointLoaded>(best);
}

/// Returns the checkpoint, or nothing if it is gone.
std::filesystem::path TrainingCheckpoints::load_best_weights() {
  // The output folder may have been moved since, and another run may be in its old place.
  std::filesystem::path best = *core_.state.best_model_checkpoint;
  const auto& store = core_.checkpoint_writer.store();
  if (const auto step = core_.state.best_global_step; step && store.has(*step)) best = store.folder(*step);
  if (std::error_code error; !std::filesystem::exists(best, error)) {
    message(core_.args, LogLevel::error,
            "the checkpoint of the best model, {}, is gone: the last weights are kept", best.string());
    return {};
  }
  FolderReader folder(best, /*need_manifest=*/false);
  core_.model.load_state_dict(read_model_files(folder));
  return best;
}

void TrainingCheckpoints::go_back(const SafePoint& point) {
  point.restore();
  if (core_.work_begin) core_.work_begin->restore();
  core_.progress.position.micro_batches = 0;
  core_.group.forget_losses();
  core_.optimizers.zero_grad();
}

void TrainingCheckpoints::announce_again() {
  if (point_->manifest && (point_->manifest->reason == "periodic" || point_->manifest->reason == "best"))
    report(path());
}

bool TrainingCheckpoints::hears_again(const TrainingProgress& there) const {
  const bool of_group =
      events_.hears<BatchFetchBegin>() || events_.hears<BatchFetched>() || events_.hears<StepBegin>();
  return there.loop.epoch_is_open() &&
         (events_.hears<EpochBegin>() || (of_group && there.position.micro_batches > 0));
}

bool TrainingCheckpoints::same_place(const TrainingProgress& saved) const {
  const auto& now = core_.progress;
  return saved.position == now.position && saved.loop == now.loop;
}

void TrainingCheckpoints::load_random(const RandomState& state) {
  for (const auto& problem : load_random_state(state, core_.options.generators))
    message(core_.args, LogLevel::warning, "resuming {}: {}", resumes() ? path().string() : "", problem);
}

}  // namespace etude::inline v0
