#include "etude/loop/write_checkpoint.hpp"

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/base/utf8.hpp"
#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/data/program_state.hpp"
#include "etude/dispatch/callback_state.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/folder.hpp"
#include "etude/io/manifest.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/loop/carried.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/snapshot.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {
namespace detail {

nlohmann::json stateful_callbacks(const TrainerCore& core, const std::vector<CallbackState>& callbacks) {
  nlohmann::json states = save_states(callbacks);
  for (auto& [name, state] : states.items())
    if (const auto bad = mend_utf8(state))
      message(core.args, LogLevel::warning,
              "the state of {} has {}, which isn't UTF-8: in the checkpoint those bytes are replaced", name,
              *bad);
  states["TrainerControl"] = {{"args", to_json_value(core.control)},
                              {"attributes", nlohmann::json::object()}};
  return states;
}

namespace {

/// Adds the program's variables of all processes.
void add_program_state(const TrainerCore& core, CheckpointContents& contents) {
  if (core.options.program_state.empty()) return;
  auto own = save_variables(core.options.program_state);
  auto all = tensors_of_others(core.ranks, own.tensors);
  all.insert(all.begin(), own.tensors.begin(), own.tensors.end());
  nlohmann::ordered_json values{{"ranks", nlohmann::ordered_json::array()}};
  for (const auto& text : core.ranks.gather(own.values.dump())) values["ranks"].push_back(parse_json(text));
  contents.texts[program_values_file] = to_json_text(values);
  if (!all.empty()) contents.tensors[program_tensors_file] = std::move(all);
}

std::string gradient_name(const std::string& parameter) { return "gradients." + parameter; }
constexpr const char *indices_suffix = ".indices", *values_suffix = ".values";  // of sparse ones

}  // namespace

StateDict half_done(TrainerCore& core, StateDict& model) {
  StateDict result;
  for (const auto& each : core.optimizers) {
    auto& flat = each.optimizer->flat_parameters();
    flat.mend();
    for (std::size_t i = 0; i < flat.layout()->slots.size(); ++i) {
      if (!flat.has_gradient(i)) continue;
      const auto name = gradient_name(flat.layout()->slots[i].name);
      const auto& gradient = flat.parameter(i).grad();
      if (!gradient.is_sparse()) {
        result.emplace_back(name, gradient);
        continue;
      }
      // Coalescing here would change the order in which the group's gradients are added up.
      result.emplace_back(name + indices_suffix, gradient._indices());
      result.emplace_back(name + values_suffix, gradient._values());
    }
  }
  const auto& losses = core.group.losses();
  for (std::size_t i = 0; i < losses.size(); ++i) result.emplace_back(fmt::format("losses.{}", i), losses[i]);
  if (!core.work_begin) return result;
  const auto& buffers = core.work_begin->get<part::Buffers>().copies;
  for (auto& [name, tensor] : model) {
    const auto found = std::ranges::find_if(
        buffers, [&own = tensor](const auto& buffer) { return buffer.first.is_same(own); });
    if (found == buffers.end() || torch::equal(tensor, found->second)) continue;
    result.emplace_back("buffers." + name, tensor);
    tensor = found->second;
  }
  return result;
}

namespace {

/// Returns a gradient that was saved as indices and values because it was sparse; undefined for any other.
/// Throws CheckpointError unless the indices and values fit the parameter.
torch::Tensor sparse_gradient(const std::map<std::string, torch::Tensor>& tensors, const std::string& name,
                              const torch::Tensor& parameter) {
  const auto indices = tensors.find(name + indices_suffix), values = tensors.find(name + values_suffix);
  if (indices == tensors.end()) return {};
  const auto check = [&](bool fits, std::string_view fault) {
    if (!fits)
      throw CheckpointError(fmt::format("{}: {} doesn't fit {}: {}", half_done_file, indices->first,
                                        describe(parameter), fault));
  };
  const auto& at = indices->second;
  check(values != tensors.end(), "its values are missing");
  check(at.scalar_type() == at::kLong && at.dim() == 2 && at.size(0) > 0 && at.size(0) <= parameter.dim(),
        "must be int64 with a row for each of its first dimensions");
  auto sizes = parameter.sizes().slice(static_cast<std::size_t>(at.size(0))).vec();
  sizes.insert(sizes.begin(), at.size(1));
  check(values->second.sizes() == sizes, "must have as many as its values");
  for (std::int64_t i = 0; i < at.size(0); ++i)
    check(at[i].ge(0).logical_and(at[i].lt(parameter.size(i))).all().item<bool>(),
          "must be within its sizes");
  const auto options = parameter.options().requires_grad(false);
  return at::_sparse_coo_tensor_unsafe(at.to(options.dtype(at::kLong), /*non_blocking=*/false, /*copy=*/true),
                                       values->second.to(options, /*non_blocking=*/false, /*copy=*/true),
                                       parameter.sizes(), options.layout(at::kSparse));
}

/// `scale` is the current scale of the gradients, as a multiple of the saved gradients'.
void load_gradients(FlatParameters& flat, const std::map<std::string, torch::Tensor>& tensors, double scale) {
  flat.mend();
  for (std::size_t i = 0; i < flat.layout()->slots.size(); ++i) {
    const auto& parameter = flat.parameter(i);
    const auto name = gradient_name(flat.layout()->slots[i].name);
    if (auto sparse = sparse_gradient(tensors, name, parameter); sparse.defined()) {
      if (scale != 1) sparse.mul_(scale);
      parameter.mutable_grad() = std::move(sparse);
    }
    if (const auto found = tensors.find(name); found != tensors.end()) {
      if (parameter.sizes() != found->second.sizes())
        throw CheckpointError(
            fmt::format("{}: {} must be {}", half_done_file, found->first, describe(parameter)));
      auto& gradient = parameter.mutable_grad();
      if (!gradient.defined()) gradient = torch::zeros_like(parameter.detach());
      gradient.copy_(found->second);  // in place, so that the parameter counts as having a gradient
      if (scale != 1) gradient.mul_(scale);
    }
  }
}

}  // namespace

void load_half_done(TrainerCore& core, const StateDict& saved) {
  const torch::NoGradGuard no_grad;
  const std::map<std::string, torch::Tensor> tensors(saved.begin(), saved.end());
  const auto& then = core.progress.scaler;
  const double scale = (core.scaler ? core.scaler->get_scale() : 1) / (then ? then->scale : 1);
  for (const auto& each : core.optimizers) load_gradients(each.optimizer->flat_parameters(), tensors, scale);
  for (auto& [name, tensor] : core.model.state_dict())
    if (const auto found = tensors.find("buffers." + name); found != tensors.end()) {
      if (tensor.sizes() != found->second.sizes())
        throw CheckpointError(
            fmt::format("{}: {} must be {}", half_done_file, found->first, describe(tensor)));
      tensor.copy_(found->second);
    }
  core.group.forget_losses();
  const auto loss = [](std::int64_t i) { return fmt::format("losses.{}", i); };
  // A micro-batch that went through the model in parts has one loss per part.
  for (std::int64_t i = 0; i < core.progress.position.micro_batches || tensors.contains(loss(i)); ++i) {
    if (!tensors.contains(loss(i)))
      throw CheckpointError(fmt::format("{}: {} is missing", half_done_file, loss(i)));
    core.group.add_loss(tensors.at(loss(i)).to(core.device, /*non_blocking=*/false, /*copy=*/true));
  }
}

}  // namespace detail

CheckpointContents checkpoint_contents(TrainerCore& core, const std::vector<CallbackState>& callbacks,
                                       std::string reason) {
  CheckpointContents contents{.step = core.state.global_step,
                              .reason = std::move(reason),
                              .model = core.model.state_dict(),
                              .tensors = {},
                              .texts = {}};
  if (!core.args.save_only_model && !core.optimizers.empty()) {
    for (const auto& each : core.optimizers) {
      contents.tensors[optimizer_file("optimizer.safetensors", each.name)] =
          gather_state(*each.optimizer, core.ranks.communicator());
      contents.texts[optimizer_file("optimizer.json", each.name)] =
          to_json_text(each.optimizer->options_state());
      contents.texts[optimizer_file("scheduler.json", each.name)] = to_json_text(each.lr_scheduler->state());
    }
    auto& random = contents.tensors["random_state.safetensors"];
    for (const auto& [name, state] : random_state(core.options.generators)) random.emplace_back(name, state);
    const auto others = detail::tensors_of_others(core.ranks, random);
    random.insert(random.end(), others.begin(), others.end());
    core.ask_dataset_state();
    const auto& position = core.progress.position;
    if (core.train_dataloader)
      if (const auto state =
              core.train_dataloader->sampler_state(position.exhausted || !core.progress.loop.epoch_is_open());
          !state.empty())
        random.emplace_back("sampler", detail::bytes_of(state));
    if (const auto& state = position.dataset_state; state && !state->tensors.empty())
      contents.tensors[dataset_state_file] = StateDict(state->tensors.begin(), state->tensors.end());
    if (auto carried = detail::carried_state_of_all(core.ranks, core, position.micro_batches > 0);
        !carried.empty())
      contents.tensors[carried_state_file] = std::move(carried);
    detail::add_program_state(core, contents);
    if (core.progress.position.micro_batches > 0) {
      if (core.work_begin)
        for (const auto& [name, state] : core.work_begin->get<part::Generators>().state)
          random.emplace_back("group." + name, state);
      contents.tensors[half_done_file] = detail::half_done(core, contents.model);
    }
    contents.texts["training_progress.json"] = to_json_text(core.current_progress());
  }
  core.state.stateful_callbacks = detail::stateful_callbacks(core, callbacks);
  contents.texts["training_args.json"] = to_json_text(core.options.args);
  contents.texts["trainer_state.json"] = core.log_history.state_text();
  return contents;
}

std::filesystem::path write_checkpoint(TrainerCore& core, const std::vector<CallbackState>& callbacks,
                                       std::map<std::string, StateDict> tensors) {
  const ActivityClock::Scope scope(core.activity_clock, TimedActivity::saving);
  if (core.updating) throw Error("a checkpoint can't be written during an update: write it at StepEnd");
  core.checkpoint_writer.wait();
  auto& store = core.checkpoint_writer.store();
  auto& state = core.state;
  auto& ranks = core.ranks;
  if (const auto best = state.best_global_step)
    if (*best == state.global_step || store.has(*best))
      state.best_model_checkpoint = store.folder(*best).string();
  if (ranks.several() && state.best_global_step)
    if (const auto best = ranks.first(state.best_model_checkpoint.value_or("")); !best.empty())
      state.best_model_checkpoint = best;
  core.share_buffers();
  const ShardedUnits::Whole whole(core.sharded_units.get());
  auto contents = checkpoint_contents(core, callbacks, core.checkpoint_writer.reason());
  if (!ranks.is_first()) return store.folder(state.global_step);
  auto writer = store.create(state.global_step);
  const auto target = writer->target();
  core.options.save_companions(core.model, core.model.state_dict(), writer->folder());
  for (auto& [file, list] : tensors)
    if (file.ends_with(".json") || file.starts_with("model") || file == dataset_state_file ||
        file == carried_state_file || file.starts_with("program_state") ||
        !contents.tensors.try_emplace(file, std::move(list)).second)
      throw CheckpointError(fmt::format("a callback can't name a file in {} '{}': Etude uses that name",
                                        target.string(), file));
  core.checkpoint_writer.write(std::move(writer), std::move(contents), state.best_model_checkpoint);
  return target;
}

void write_trainer_state(TrainerCore& core, const std::vector<CallbackState>& callbacks) {
  const Calls::Scope call(core.calls, Calls::save_state);
  const ActivityClock::Scope scope(core.activity_clock, TimedActivity::saving);
  if (!core.ranks.is_first()) return;
  auto& files = core.checkpoint_writer.store().files();
  files.create_directories(core.args.output_dir);
  core.state.stateful_callbacks = detail::stateful_callbacks(core, callbacks);
  write_file(files, std::filesystem::path(core.args.output_dir) / "trainer_state.json",
             core.log_history.state_text());
}

}  // namespace etude::inline v0
