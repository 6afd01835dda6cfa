#include "etude/checkpoint/resume.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/checkpoint/checkpoint.hpp"
#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/resume_point.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/checkpoint/training_progress.hpp"
#include "etude/data/program_state.hpp"
#include "etude/dispatch/callback_state.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/folder.hpp"
#include "etude/io/manifest.hpp"
#include "etude/io/mapped_file.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/scheduler_state.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/read_text.hpp"
#include "etude/reflect/three_way.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

template <class T>
T read_json(FolderReader& folder, const std::string& name) {
  try {
    return from_json_text<T>(folder.text(name));
  } catch (const ArgumentError& error) {
    throw CheckpointError(fmt::format("{}: {}", (folder.folder() / name).string(), error.what()));
  }
}

template <class T>
std::optional<T> read_json_if_any(FolderReader& folder, const std::string& name) {
  return folder.has(name) ? std::optional(read_json<T>(folder, name)) : std::nullopt;
}

StateDict read_tensors_if_any(FolderReader& folder, const std::string& name) {
  return folder.has(name) ? load_safetensors(folder.map(name)).tensors : StateDict();
}

/// The content of `program_state.json`.
struct ProgramValues {
  ETUDE_STRUCT(ProgramValues,
               (std::vector<nlohmann::ordered_json>, ranks, "values of each process's variables, by rank"));
};

/// Joins a tensor that was written in `count` parts.
torch::Tensor joined_parts(FolderReader& folder, const std::string& name, const std::string& count) {
  std::int64_t parts = 0;
  std::vector<torch::Tensor> all;
  const auto fault = [&](std::string_view what) {
    return CheckpointError(
        fmt::format("{}: {} {}", (folder.folder() / program_tensors_file).string(), printable(name), what));
  };
  if (!read_text(count, parts) || parts < 1) throw fault("must have a whole number of parts, at least 1");
  for (std::int64_t i = 0; i < parts; ++i) {
    const auto part = load_safetensors(folder.map(program_part_file(name, i))).tensors;
    if (part.size() != 1 || part[0].first != name) throw fault("has a part with other tensors");
    all.push_back(part[0].second);
  }
  try {
    return torch::cat(all);
  } catch (const c10::Error&) {
    throw fault("has parts of different types or shapes");
  }
}

std::optional<std::vector<SavedVariables>> read_program_state(FolderReader& folder) {
  const auto values = read_json_if_any<ProgramValues>(folder, program_values_file);
  if (!values) return std::nullopt;
  std::vector<SavedVariables> result;
  for (const auto& each : values->ranks) {
    if (!each.is_object())
      throw CheckpointError(fmt::format("{}: ranks must be a list, each an object",
                                        (folder.folder() / program_values_file).string()));
    result.push_back({.values = each});
  }
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (auto [rank, own] = rank_and_name(name); rank >= 0 && rank < std::ssize(result))
      result[static_cast<std::size_t>(rank)].tensors.emplace_back(std::move(own), tensor);
  };
  if (!folder.has(program_tensors_file)) return result;
  const auto [tensors, parts] = load_safetensors(folder.map(program_tensors_file));
  for (const auto& [name, tensor] : tensors) add(name, tensor);
  for (const auto& [name, count] : parts) add(name, joined_parts(folder, name, count));
  return result;
}

}  // namespace

std::optional<TrainingProgress> read_progress(FolderReader& folder) {
  constexpr auto file = "training_progress.json";
  auto progress = read_json_if_any<TrainingProgress>(folder, file);
  // Without it, a checkpoint from the middle of an epoch would resume as if nothing had begun.
  if (progress && !read_json<nlohmann::ordered_json>(folder, file).contains("loop"))
    throw CheckpointError(fmt::format("{} has no loop: must have the stages of the training and its epoch",
                                      (folder.folder() / file).string()));
  if (progress && progress->dataset_state)
    for (auto& [name, tensor] : read_tensors_if_any(folder, dataset_state_file))
      progress->dataset_state->tensors.emplace(name, tensor);
  return progress;
}

namespace {

SavedOptimizer read_optimizer(FolderReader& folder, const std::string& name) {
  const auto tensors = optimizer_file("optimizer.safetensors", name);
  return {.state = folder.has(tensors) ? std::optional(read_tensors_if_any(folder, tensors)) : std::nullopt,
          .options = read_json_if_any<nlohmann::ordered_json>(folder, optimizer_file("optimizer.json", name)),
          .scheduler = read_json_if_any<SchedulerState>(folder, optimizer_file("scheduler.json", name))};
}

}  // namespace

void check_place(const ResumePoint& point) {
  const auto& state = point.state;
  const auto require = [&](bool good, const char* what) {
    if (!good) throw CheckpointError(fmt::format("{}: {}", point.path.string(), what));
  };
  const auto counts = [](std::int64_t number) { return number >= 0 && number <= most_steps; };
  const auto differs = [](std::int64_t by) { return by >= -most_steps && by <= most_steps; };
  require(counts(state.global_step), "global_step must be from 0 to 1e15");
  require(state.epoch >= 0 && state.epoch <= static_cast<double>(most_steps), "epoch must be from 0 to 1e15");
  require(state.num_input_tokens_seen >= 0, "num_input_tokens_seen must be at least 0");
  require(!point.manifest || point.manifest->global_step == state.global_step,
          "global_step must equal the manifest's");
  if (!point.progress) return;
  const auto& progress = *point.progress;
  const auto& position = progress.position;
  require(counts(position.epoch) && counts(position.examples) && position.padded_examples >= 0,
          "position must be counted from 0 to 1e15");
  require(progress.loop.has_started() || !progress.loop.epoch_is_open(),
          "loop must be between epochs before the training has started");
  require(position.micro_batches >= 0 &&
              position.micro_batches < std::max<std::int64_t>(progress.gradient_accumulation_steps, 1),
          "micro_batches must be fewer than gradient_accumulation_steps");
  require(counts(progress.last_logged_step) && progress.last_logged_step <= state.global_step,
          "last_logged_step must be from 0 to global_step");
  require(differs(progress.extra_steps) && differs(progress.extra_epochs),
          "extra_steps and extra_epochs must be at most 1e15");
  const auto& done = progress.done_phases;
  require(counts(done.steps) && done.steps <= state.global_step && counts(done.epochs) &&
              done.epochs <= position.epoch && done.skipped_steps >= 0 &&
              done.skipped_steps <= progress.skipped_steps,
          "done_phases must have at most the steps and epochs of the training");
  for (std::int64_t i = 0; i < position.micro_batches; ++i)
    require(
        std::ranges::any_of(point.half_done,
                            [&](const auto& named) { return named.first == fmt::format("losses.{}", i); }),
        "losses of the half-done accumulation are missing");
}

}  // namespace detail

ResumePoint read_resume_point(FolderReader& folder) {
  ResumePoint point{
      .path = folder.folder(),
      .manifest = folder.manifest(),
      .model = read_model_files(folder),
      .state = detail::read_json<TrainerState>(folder, "trainer_state.json"),
      .progress = detail::read_progress(folder),
      .training_args = detail::read_json_if_any<nlohmann::ordered_json>(folder, "training_args.json"),
      .half_done = detail::read_tensors_if_any(folder, half_done_file),
      .program_state = detail::read_program_state(folder)};
  auto names = point.progress ? point.progress->optimizers : std::vector<std::string>();
  if (names.empty()) names.emplace_back();
  for (const auto& name : names) point.optimizers[name] = detail::read_optimizer(folder, name);
  constexpr std::string_view group = "group.";
  for (auto& [name, bytes] : detail::read_tensors_if_any(folder, "random_state.safetensors")) {
    if (name == "sampler")
      point.sampler = detail::text_of(bytes);
    else if (name.starts_with(group))
      point.group_random[name.substr(group.size())] = bytes;
    else
      point.random[name] = bytes;
  }
  // Copies, so that the file doesn't stay open.
  for (auto& [name, tensor] : detail::read_tensors_if_any(folder, carried_state_file))
    if (name.starts_with(group))
      point.group_carried[name.substr(group.size())] = tensor.clone();
    else
      point.carried[name] = tensor.clone();
  detail::check_place(point);
  return point;
}

TrainerState load_trainer_state(const std::filesystem::path& checkpoint) {
  FolderReader folder(checkpoint, /*need_manifest=*/false);
  return detail::read_json<TrainerState>(folder, "trainer_state.json");
}

std::optional<ResumePoint> find_resume_point(const TrainOptions::Resume& resume, const CheckpointStore& store,
                                             const TrainingArguments& args) {
  if (!resume.path.empty()) {
    std::error_code error;
    const auto has = [&](const char* name) { return std::filesystem::exists(resume.path / name, error); };
    if (const auto inside = checkpoint_folders(resume.path);
        !inside.empty() && !has(model_file) && !has(model_index_file))
      throw CheckpointError(
          fmt::format("{} isn't a checkpoint, but contains some: resume_from_checkpoint must be one of them, "
                      "such as {}, or, with this as output_dir, true",
                      resume.path.string(), inside.back().string()));
    if (!has("trainer_state.json"))
      throw CheckpointError(
          fmt::format("Can't find a valid checkpoint at {}: resume_from_checkpoint must be the folder of a "
                      "checkpoint, with a trainer_state.json",
                      resume.path.string()));
    const auto path = resume.path.has_filename() ? resume.path : resume.path.parent_path();
    FolderReader folder(path, /*need_manifest=*/false);
    folder.verify();
    return read_resume_point(folder);
  }
  std::string first_fault;
  const auto pass_over = [&](const std::filesystem::path& path, std::string_view why) {
    message(args, LogLevel::warning, "skipping {}: {}", path.string(), why);
    std::error_code error;
    if (first_fault.empty() && std::filesystem::exists(path / manifest_file, error)) first_fault = why;
  };
  for (const auto& path : store.candidates(pass_over)) try {
      FolderReader folder(path);
      folder.verify();
      return read_resume_point(folder);
    } catch (const CheckpointError& error) {
      pass_over(path, error.what());
    }
  if (!first_fault.empty())
    throw CheckpointError(fmt::format("No valid checkpoint found in output directory ({}): {}",
                                      store.output_dir().string(), first_fault));
  if (resume.may_be_none) return std::nullopt;
  throw CheckpointError(
      fmt::format("No valid checkpoint found in output directory ({}), and resume_from_checkpoint is true",
                  store.output_dir().string()));
}

namespace detail {

bool ended_in_good_order(const ResumePoint& checkpoint) {
  try {
    const MappedFile file(checkpoint.path.parent_path() / "trainer_state.json");
    const auto last = from_json_text<TrainerState>(file.text());
    const auto& before = checkpoint.state.log_history;
    return last.global_step == checkpoint.state.global_step && last.log_history.size() >= before.size() &&
           std::equal(before.begin(), before.end(), last.log_history.begin(),
                      [](const auto& a, const auto& b) {
                        return to_json_value(a).dump() == to_json_value(b).dump();  // NaN equals NaN here
                      });
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> changed_arguments(const ResumePoint& checkpoint, const TrainingArguments& args) {
  std::vector<std::string> differences;
  if (checkpoint.training_args)
    three_way(*checkpoint.training_args, nlohmann::ordered_json::object(), to_json_value(args), differences);
  return differences;
}

void use_found_batch_size(const ResumePoint& checkpoint, const TrainingArguments& asked,
                          TrainingArguments& args) {
  constexpr auto key = "per_device_train_batch_size";
  const auto found = checkpoint.state.train_batch_size;
  const auto& then = checkpoint.training_args;
  const bool is_asked_anew =
      then && then->is_object() && then->contains(key) && (*then)[key] != asked.per_device_train_batch_size;
  if (!found || *found < 1 || *found >= args.per_device_train_batch_size || is_asked_anew) return;
  args.per_device_train_batch_size = *found;
  message(args, LogLevel::info, "resuming {} with the {} that fitted into memory: {}",
          checkpoint.path.string(), key, *found);
}

bool rates_are_new(const std::vector<std::string>& differences, const TrainerState& then,
                   std::int64_t max_steps) {
  return then.max_steps != max_steps || std::ranges::any_of(differences, [](std::string_view line) {
           return line.starts_with("learning_rate:") || line.starts_with("lr_scheduler_") ||
                  line.starts_with("warmup_steps:");
         });
}

bool is_another_metric(const std::vector<std::string>& differences) {
  return std::ranges::any_of(differences, [](std::string_view line) {
    return line.starts_with("metric_for_best_model:") || line.starts_with("greater_is_better:");
  });
}

nlohmann::ordered_json without_spoilt_rates(nlohmann::ordered_json options) {
  const auto changed = options.find("changed");
  if (changed == options.end() || !changed->is_array()) return options;
  for (auto& group : *changed) {
    const auto lr = group.find("lr");
    double rate = 0;
    if (JsonReader reader; lr != group.end()) reader.read(*lr, rate, "lr");
    if (!is_learning_rate(rate)) group.erase("lr");
  }
  return options;
}

void load_optimizer(const SavedOptimizer& saved, Optimizer& optimizer,
                    const std::vector<std::string>& arguments, bool& rates_are_new, StateReport& report) {
  const auto& options = saved.options;
  const bool is_another =
      (options && options->is_object() && options->contains("type") &&
       (*options)["type"] != optimizer.type()) ||
      std::ranges::any_of(arguments, [](std::string_view line) { return line.starts_with("optim"); });
  if (options) rates_are_new |= optimizer.load_options(without_spoilt_rates(*options), report.differences);
  if (!saved.state) return report.problems.push_back("optimizer state is missing: it starts from scratch");
  try {
    optimizer.load_state(*saved.state);
  } catch (const CheckpointError& error) {
    if (!is_another) throw;
    report.problems.push_back(fmt::format("the optimizer differs and starts from scratch: {}", error.what()));
  }
}

void load_scheduler(const SavedOptimizer& optimizer, const std::filesystem::path& file, std::int64_t step,
                    LRScheduler& scheduler, bool joins_each_step, bool rates_are_new,
                    std::vector<std::string>& problems) {
  const auto& saved = optimizer.scheduler;
  if (!saved) {
    scheduler.fast_forward(step);
    return problems.push_back(fmt::format("schedule state is missing: it is set to step {}", step));
  }
  const auto count = saved->find("step_count");
  const auto fits = [&](double number) {
    const auto last = static_cast<double>(step);
    return joins_each_step ? number == last : number >= 0 && number <= last && number == std::floor(number);
  };
  if (count == saved->end() || count->second.size() != 1 || !fits(count->second.front()))
    throw CheckpointError(fmt::format("{}: step_count must be {}the global_step, {}", file.string(),
                                      joins_each_step ? "" : "a whole number, at most ", step));
  if (const auto rates = saved->find("lr"); rates != saved->end())
    if (const auto spoilt = std::ranges::find_if_not(rates->second, is_learning_rate);
        spoilt != rates->second.end()) {
      rates_are_new = true;
      problems.push_back(
          fmt::format("the learning rate is {}, which the lr_scheduler gave or a callback had set: the "
                      "lr_scheduler sets it again",
                      without_sign_of_nan(*spoilt)));
    }
  scheduler.load_state(*saved, rates_are_new);
}

TrainingProgress progress_by_steps(const TrainerState& state, const TrainingArguments& args,
                                   std::int64_t updates_per_epoch) {
  TrainingProgress progress;
  const auto updates = state.global_step % updates_per_epoch;
  const auto examples_of_an_update = args.gradient_accumulation_steps * args.per_device_train_batch_size;
  if (updates > most_steps / examples_of_an_update)
    throw CheckpointError(fmt::format(
        "step {} of the checkpoint is too large: the examples of an epoch are counted up to 1e15, and "
        "an update has {}",
        state.global_step, examples_of_an_update));
  progress.position.epoch = state.global_step / updates_per_epoch;
  progress.position.examples = progress.position.padded_examples = updates * examples_of_an_update;
  progress.loop = {.stage = TrainingStage::epochs,
                   .epoch = updates > 0 ? EpochStage::steps : EpochStage::between};
  progress.train_batch_size = args.per_device_train_batch_size;
  progress.gradient_accumulation_steps = args.gradient_accumulation_steps;
  progress.last_logged_step = state.global_step;
  return progress;
}

}  // namespace detail
}  // namespace etude::inline v0
