#include "etude/tune/hyperparameter_search.hpp"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "etude/base/console.hpp"
#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/message.hpp"
#include "etude/base/progress_bar.hpp"
#include "etude/base/sigpipe.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/io/child_program.hpp"
#include "etude/io/disk_full.hpp"
#include "etude/io/file_system.hpp"
#include "etude/reflect/json_parser.hpp"
#include "etude/report/page_text.hpp"
#include "etude/study/remote_study.hpp"
#include "etude/study/report.hpp"
#include "etude/study/study.hpp"
#include "search_trial.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// The number of searches that this process has begun.
std::int64_t& searches_begun() {
  static std::int64_t count = 0;
  return count;
}

}  // namespace

SearchResult Search::run() {
  ordinal_ = ++searches_begun();
  if (options_.driver != SearchDriver::none) {
    run_driven();
    return result();
  }
  if (const char* given = std::getenv(trial_variable)) {
    run_given_trial(given);
    return result();  // the trial belongs to a later search of this program, so this one is over
  }
  study_->enqueue_first(options_.enqueued_trials);
  show_progress();
  const auto begin = std::chrono::steady_clock::now();
  const auto is_late = [&] {
    return options_.timeout &&
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >
               *options_.timeout;
  };
  const bool in_processes = options_.trial_processes || options_.n_jobs > 1 || options_.trial_timeout;
  // The children write their checkpoints first.
  SignalGuard signals(in_processes);
  const InterruptionScope interruptible(in_processes);
  std::list<Child> children;
  // The search waits for its children even after a fault; a time limit ends a child that hangs.
  std::exception_ptr fault;
  for (;;) {
    const bool is_ending = (in_processes && SignalGuard::came() != 0) || fault;
    if (is_ending)
      for (auto& child : children) child.program.ask_to_end();
    const auto jobs = static_cast<std::size_t>(options_.n_jobs);
    try {
      while (!is_ending && children.size() < jobs && !is_late()) {
        auto trial = study_->claim(n_trials_);
        if (!trial) break;
        warn_without_lock(*trial);
        if (!may_go_on(*trial)) continue;
        if (in_processes)
          children.push_back(start(std::move(*trial)));
        else
          run_here(*trial);
      }
      if (children.empty() && (is_ending || is_late() || !study_->others_run())) break;
    } catch (...) {
      if (children.empty()) throw;
      fault = std::current_exception();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(children.empty() ? 200 : 10));
    for (auto child = children.begin(); child != children.end();) {
      const auto exit = child->program.poll();
      if (!exit) {
        limit(*child++);
        continue;
      }
      try {
        end(*child, *exit);
      } catch (...) {
        if (!fault) fault = std::current_exception();
      }
      child = children.erase(child);
    }
  }
  if (fault) std::rethrow_exception(fault);
  if (const int signal = in_processes ? SignalGuard::came() : 0) {
    signals.restore();
    throw Interrupted(signal);
  }
  return result();
}

/// Runs in the process of one trial, which ends here.
void Search::run_given_trial(const std::string& given) {
  const auto json = parse_json(given);
  if (ordinal_ < json.at("search").get<std::int64_t>()) return;
  ::unsetenv(trial_variable);
  int status = 0;
  try {
    const auto folder = json.at("output_dir").get<std::string>();
    if (folder != args_.output_dir)
      throw SearchFault(fmt::format(
          "output_dir is {} in the process of a trial: must be {}, as in the program that started it",
          args_.output_dir, folder));
    if (const auto lock = json.at("lock").get<int>(); lock >= 0) ::fcntl(lock, F_SETFD, FD_CLOEXEC);
    auto trial =
        study_->running_trial(json.at("number").get<std::int64_t>(), json.at("is_continued").get<bool>());
    end_with_parent();
    run_here(trial);
  } catch (const SearchFault& fault) {
    message_of(LogLevel::error, fault.what());
    status = fault_status;
  } catch (const DiskFullError& error) {
    message_of(LogLevel::error, error.what());
    status = disk_full_status;
  } catch (const Interrupted&) {
    status = interrupted_status;
  }
  std::exit(status);
}

void Search::warn_without_lock(const StudyTrial& trial) {
  if (trial.lock_descriptor() < 0 && !std::exchange(warned_, true))
    message_of(LogLevel::warning,
               "the journal's file system has no locks: a trial whose process ends isn't resumed");
}

void Search::run_here(StudyTrial& trial) {
  SearchTrialOf job(*this, trial, &trial);
  trial.defer();
  try {
    run_(job);
    if (was_told_by_another(trial)) return;
    if (job.is_pruned())
      study_->tell(trial, TrialState::pruned);
    else
      study_->tell(trial, job.values());
    if (trial.frozen().state == TrialState::fail)
      message_of(LogLevel::warning,
                 fmt::format("trial {} failed: its objective isn't a number", trial.number()));
  } catch (const Interrupted&) {
    throw;  // the trial stays running, so that another call resumes it
  } catch (const SearchFault& fault) {
    give_up(trial, fault.what());
    throw;
  } catch (const MetricError& error) {
    give_up(trial, error.what());
    throw SearchFault(error.what());
  } catch (const DiskFullError& error) {
    give_up(trial, error.what());
    throw;
  } catch (...) {
    fail(trial, etude::message_of(std::current_exception()));
  }
  announce(trial.frozen());
  remove_others();
}

/// A user may have ended the trial in a dashboard.
bool Search::was_told_by_another(const StudyTrial& trial) {
  study_->trials();
  if (!trial.frozen().is_finished()) return false;
  message_of(LogLevel::warning, fmt::format("trial {} was ended by another program", trial.number()));
  return true;
}

/// Writes the page about all trials; the search continues if that fails.
void Search::write_page(const std::vector<FrozenTrial>& trials) {
  try {
    write_report(std::filesystem::path(args_.output_dir) / "report.html", options_.study_name, trials,
                 objective_.directions(), [this](const FrozenTrial& trial) { return page_of(trial); });
  } catch (const CheckpointError& error) {
    message_of(LogLevel::warning, error.what());
  }
}

void Search::fail(StudyTrial& trial, const std::string& why) {
  message_of(LogLevel::warning, fmt::format("trial {} failed: {}", trial.number(), why));
  if (was_told_by_another(trial)) return;
  trial.set_user_attr(error_attr, why);
  study_->tell(trial, TrialState::fail);
}

/// Leaves a trial to the next call, without counting that as a restart.
void Search::give_up(StudyTrial& trial, const std::string& why) {
  trial.discard();
  try {
    trial.set_system_attr(fault_attr, why);
    trial.set_system_attr(restarts_attr, nullptr);
  } catch (const CheckpointError&) {  // A full disk has no room for it.
  }
}

/// True if a trial that another process began should be attempted again.
bool Search::may_go_on(StudyTrial& trial) {
  if (!trial.is_continued()) return true;
  const auto frozen = trial.frozen();
  if (frozen.system_attrs.contains(pruned_attr)) {
    study_->tell(trial, TrialState::pruned);
    announce(trial.frozen());
    return false;
  }
  // Clears the fault of an earlier call.
  if (!text_attr(frozen.system_attrs, fault_attr).empty()) trial.set_system_attr(fault_attr, nullptr);
  std::int64_t step = 0, count = 1;
  if (const auto folder = folder_of(frozen))
    if (const auto newest = get_last_checkpoint(*folder)) step = checkpoint_step(*newest).value_or(0);
  if (const auto before = frozen.system_attrs.find(restarts_attr); before != frozen.system_attrs.end()) {
    if (before->is_null())
      count = 0;  // it was given up, which doesn't count as a restart
    else if (number_attr(*before, "step") == step)
      count = number_attr(*before, "count") + 1;
  }
  if (count > options_.max_restarts) {
    fail(trial, fmt::format("its process ended {} times at step {}", count, step));
    return false;
  }
  trial.set_system_attr(restarts_attr, {{"step", step}, {"count", count}});
  return true;
}

Search::Child Search::start(StudyTrial trial) {
  const nlohmann::ordered_json job{{"search", ordinal_},
                                   {"output_dir", args_.output_dir},
                                   {"lock", trial.lock_descriptor()},
                                   {"number", trial.number()},
                                   {"is_continued", trial.is_continued()}};
  const auto threads = std::to_string(std::max<std::int64_t>(1, at::get_num_threads() / options_.n_jobs));
  const auto output = std::filesystem::path(args_.output_dir) / fmt::format("trial-{}.txt", trial.number());
  ChildProgram program({.environment = {{trial_variable, job.dump()},
                                        {"OMP_NUM_THREADS", threads},
                                        {"MKL_NUM_THREADS", threads}},
                        .output = output,
                        .kept_open = trial.lock_descriptor()});
  return {std::move(trial), std::move(program)};
}

/// Ends a process that exceeds trial_timeout, with five seconds to finish a record.
void Search::limit(Child& child) const {
  if (!options_.trial_timeout) return;
  const auto now = std::chrono::steady_clock::now();
  if (std::chrono::duration<double>(now - child.begin).count() <= *options_.trial_timeout) return;
  if (!child.is_late_since) {
    child.is_late_since = now;
    child.program.ask_to_end();
  } else if (now - *child.is_late_since > std::chrono::seconds(5)) {
    child.program.kill();
  }
}

/// Handles the end of a trial's process.
void Search::end(const Child& child, const ChildProgram::Exit& exit) {
  auto trial = child.trial;
  study_->trials();
  if (const auto frozen = trial.frozen(); frozen.is_finished()) return announce(frozen);
  if (child.is_late_since)
    return fail(trial,
                fmt::format("it takes longer than trial_timeout, {} seconds", *options_.trial_timeout));
  // A trial that was asked to end has written a checkpoint, and will be resumed.
  if (exit.signal == SIGTERM || exit.signal == SIGINT || exit.code == interrupted_status) return;
  const auto fault = text_attr(trial.frozen().system_attrs, fault_attr);
  const auto place = fmt::format("its output is in {}/trial-{}.txt", args_.output_dir, trial.number());
  if (exit.code == fault_status)
    throw SearchFault(fault.empty()
                          ? fmt::format("the process of trial {} can't run it: {}", trial.number(), place)
                          : fault);
  if (exit.code == disk_full_status)
    throw DiskFullError(fmt::format("there is no room for trial {}: {}", trial.number(), place));
  fail(trial, fmt::format("{}; {}", exit.text(), place));
}

/// Runs trials that another program assigns.
void Search::run_driven() {
  std::fflush(stdout);
  const Descriptor out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  // Requests go to stdout, so the program's other output is sent to stderr.
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  const WithoutSigpipe without;
  RemoteStudy study(exchange_lines(STDIN_FILENO, out.get()));
  while (const auto trial = study.ask(objective_.directions())) {
    SearchTrialOf job(*this, *trial, nullptr);
    const auto tell = [&](TrialState state, std::vector<double> values) {
      if (state == TrialState::complete)
        study.tell(*trial, values);
      else
        study.tell(*trial, state);
      driven_.push_back(trial->frozen());
      driven_.back().state = state;
      driven_.back().values = std::move(values);
    };
    try {
      run_(job);
      const bool is_number =
          std::ranges::none_of(job.values(), [](double value) { return std::isnan(value); });
      if (job.is_pruned())
        tell(TrialState::pruned, {});
      else if (is_number)
        tell(TrialState::complete, job.values());
      else
        tell(TrialState::fail, {});
    } catch (const Interrupted&) {
      throw;
    } catch (const CommunicationError&) {
      throw;
    } catch (const SearchFault&) {
      tell(TrialState::fail, {});
      throw;
    } catch (const DiskFullError&) {
      tell(TrialState::fail, {});
      throw;
    } catch (...) {
      const auto why = etude::message_of(std::current_exception());
      message_of(LogLevel::warning, fmt::format("trial {} failed: {}", trial->number(), why));
      trial->set_user_attr(error_attr, why);
      tell(TrialState::fail, {});
    }
  }
  std::fflush(stdout);
  ::dup2(out.get(), STDOUT_FILENO);  // restores stdout, for another search in this program
}

/// Prints how a trial ended, unless the log level is above warning.
void Search::announce(const FrozenTrial& trial) {
  // At most once a second, since writing a page of thousands of trials takes a while.
  if (const auto now = std::chrono::steady_clock::now(); now - page_time_ > std::chrono::seconds(1)) {
    write_page(study_->trials());
    page_time_ = now;
  }
  show_progress();
  if (!args_.shows(LogLevel::warning)) return;
  const auto text = [](const std::vector<double>& values) {
    return fmt::format("{:.6g}", fmt::join(values, ", "));
  };
  std::string line = fmt::format("trial {}: ", trial.number);
  if (trial.state == TrialState::complete)
    line += text(trial.values);
  else
    line += to_string(trial.state);
  if (trial.state == TrialState::pruned)
    line += fmt::format(" at step {}", number_attr(trial.user_attrs, steps_attr));
  const auto best = study_->best_trials();
  if (objective_.directions().size() == 1 && !best.empty())
    line += fmt::format("; best {} (trial {})", text(best[0].values), best[0].number);
  etude::print("{}\n", line);
}

/// Draws the outer progress bar, such as "trial 3/20", above those of the trials.
void Search::show_progress() {
  if (args_.disable_tqdm.value_or(false) || !is_drawable(stderr)) return;
  const auto trials = study_->trials();
  const std::int64_t ended = std::ranges::count_if(trials, &FrozenTrial::is_finished);
  if (!bar_) bar_ = std::make_unique<ProgressBar>(stderr, "trial", n_trials_, ended);
  bar_->set_title(fmt::format("trial {}/{}", std::min(ended + 1, n_trials_), n_trials_));
  bar_->update(ended);
  const auto best = study_->best_trials();
  if (objective_.directions().size() == 1 && !best.empty())
    bar_->set_fields({{"best", fmt::format("{:.4g}", best[0].values[0])}});
}

void Search::remove_others() {
  if (!options_.keep_best_only) return;
  const auto trials = study_->trials();
  const auto best = best_trials(trials, objective_.directions());
  for (const auto& trial : trials) {
    const bool is_best =
        std::ranges::any_of(best, [&](const auto& each) { return each.number == trial.number; });
    const auto folder = folder_of(trial);
    if (!trial.is_finished() || is_best || !folder) continue;
    try {
      for (const auto& checkpoint : checkpoint_folders(*folder)) default_file_system().remove_all(checkpoint);
    } catch (const CheckpointError& error) {
      message_of(LogLevel::warning, error.what());
    }
  }
}

/// The folder in `output_dir` that a trial's record names.
std::optional<std::filesystem::path> Search::folder_of(const FrozenTrial& trial) const {
  const auto name = text_attr(trial, run_dir_attr);
  if (!is_entry_name(name)) return {};
  return std::filesystem::path(args_.output_dir) / name;
}

/// The relative address in `output_dir` of a trial's page, if its trainer has a `ReportCallback`.
std::string Search::page_of(const FrozenTrial& trial) const {
  const auto folder = folder_of(trial);
  if (std::error_code none; !folder || !std::filesystem::exists(*folder / "report.html", none)) return {};
  return address_part(folder->filename().string()) + "/report.html";
}

SearchResult Search::result() {
  if (bar_) bar_->close();
  bar_.reset();
  SearchResult result{.trials = study_ ? study_->trials() : driven_, .directions = objective_.directions()};
  if (study_) remove_others();
  result.report = std::filesystem::path(args_.output_dir) / "report.html";
  write_page(result.trials);
  auto best = best_trials(result.trials, result.directions);
  if (result.directions.size() == 1 && best.size() > 1) best.resize(1);
  for (const auto& trial : best) {
    BestRun run{.run_id = std::to_string(trial.number), .objective = trial.values};
    for (const auto& [name, number] : trial.params) run.hyperparameters[name] = trial.param(name);
    if (const auto folder = folder_of(trial)) {
      run.run_dir = *folder;
      run.config = run.run_dir / "hyperparameters.json";
      if (const auto checkpoint = text_attr(trial, checkpoint_attr); checkpoint_step(checkpoint))
        run.checkpoint = run.run_dir / std::filesystem::path(checkpoint).filename();
    }
    result.best_runs.push_back(std::move(run));
  }
  return result;
}

/// Rejects fields that a search couldn't tell apart.
void Search::check_names(const std::vector<SearchField>& fields) {
  std::set<std::string_view> names;
  for (const auto& field : fields)
    if (!names.insert(field.field.name).second)
      throw ArgumentError(fmt::format("{} is a field of several structs: must be one of {} alone",
                                      field.field.name, field.group));
}

/// Rejects options that have no effect if another program chooses the trials.
void Search::check_driven() const {
  const HyperparameterSearchOptions defaults;
  std::vector<std::string_view> set;
  const auto check = [&](std::string_view name, bool is_default) {
    if (!is_default) set.push_back(name);
  };
  check("n_trials", options_.n_trials == defaults.n_trials);
  check("timeout", !options_.timeout);
  check("trial_timeout", !options_.trial_timeout);
  check("sampler", options_.sampler == defaults.sampler && !options_.custom_sampler);
  check("pruner", options_.pruner == defaults.pruner && !options_.custom_pruner);
  check("n_jobs", options_.n_jobs == 1);
  check("trial_processes", !options_.trial_processes);
  check("keep_best_only", !options_.keep_best_only);
  check("journal", options_.journal.empty());
  check("enqueued_trials", options_.enqueued_trials.empty());
  if (!set.empty())
    throw ArgumentError(fmt::format(
        "driver is stdio: {} must be left out, since the other program decides that", fmt::join(set, ", ")));
}

SearchResult search(const HyperparameterSearchOptions& options, const TrainingArguments& args,
                    const std::vector<SearchField>& fields, const RunTrial& run) try {
  return Search(options, args, fields, run).run();
} catch (const SearchFault& fault) {
  throw ArgumentError(fault.what());
} catch (const DiskFullError& error) {
  throw DiskFullError(fmt::format(
      "{}; the next call resumes the search with the same trial, once there is room", error.what()));
}

}  // namespace detail

std::string SearchResult::table() const { return format_trials(trials, directions); }

const BestRun& SearchResult::best_run() const {
  if (directions.size() > 1)
    throw Error(fmt::format("the search has {} directions: see best_runs", directions.size()));
  if (best_runs.empty()) throw Error(fmt::format("none of {} trials is complete", trials.size()));
  return best_runs[0];
}

void SearchSpace::suggest(Trial& trial) const {
  if (function_) return function_(trial);
  for (const auto& [name, distribution] : entries_) trial.suggest(name, distribution);
}

}  // namespace etude::inline v0
