#include "etude/loop/core.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/cuda.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "compatibility.hpp"
#include "etude/base/counting.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/message.hpp"
#include "etude/base/utf8.hpp"
#include "etude/checkpoint/model_files.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/data/random.hpp"
#include "etude/io/checksum.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/libtorch/memory.hpp"
#include "etude/loop/calls.hpp"
#include "etude/loop/fetching.hpp"
#include "etude/loop/options.hpp"
#include "etude/loop/snapshot.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/model/loss.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/create.hpp"
#include "etude/optim/torch_optimizer.hpp"
#include "etude/parallel/broadcast.hpp"
#include "etude/parallel/processes.hpp"
#include "etude/precision/cast_guard.hpp"
#include "etude/reflect/json.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// The labels over which a model's own loss is a mean, including those of -100.
torch::Tensor own_loss_items(const Model& model, const Tensors& labels) {
  const auto* named = labels.find("labels");
  const auto& all = named ? *named : labels[0];
  return model.loss_items() == LossItems::shifted_labels && all.dim() > 0 ? all.slice(-1, 1) : all;
}

/// Throws ArgumentError, in all processes, unless they have the same arguments, apart from those about
/// output.
void check_same_arguments(const Ranks& ranks, const TrainingArguments& args) {
  if (!ranks.several()) return;
  static constexpr std::array<std::string_view, 7> own{
      "log_level", "log_level_replica", "report", "log_lines", "disable_tqdm", "report_to", "run_name"};
  auto all = ranks.gather_values(to_json_value(args));
  const auto& first = all[0];
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    auto& other = all[rank];
    for (const auto& [name, value] : first.items())
      if (other[name] != value && std::ranges::find(own, name) == own.end())
        throw ArgumentError(
            fmt::format("{} is {} in rank 0 and {} in rank {}: must be the same in all processes", name,
                        value.dump(), other[name].dump(), rank));
  }
}

/// Whether the user has put the layers of a model on several devices.
bool is_spread(const Model& model) {
  const auto parameters = model.parameters();
  return std::ranges::any_of(parameters,
                             [&](const auto& each) { return each.device() != parameters.front().device(); });
}

/// The total number of batches in all datasets; unset without datasets, if one has no length, or if the sum
/// is too large.
std::optional<std::int64_t> eval_batches(const EvalDatasets& datasets, std::int64_t batch_size) {
  std::optional<std::int64_t> batches;
  for (const auto& [name, dataset] : datasets) {
    const auto size = dataset.size();
    if (!size) return std::nullopt;
    batches = batches.value_or(0) + std::min(groups_of(*size, batch_size), largest_dataset);
    if (*batches > largest_dataset) return std::nullopt;
  }
  return batches;
}

}  // namespace

}  // namespace detail

BatchStream TrainerCore::begin_batches() const {
  const InterruptionScope may_be_given_up(may_interrupt_groups());
  const auto& from = progress.position;
  return fetched(
      args,
      [&] {
        return may_save() ? train_dataloader->begin_epoch(from.epoch, from.examples, from.dataset_state)
                          : train_dataloader->begin_epoch_without_states(from.epoch, from.examples,
                                                                         from.dataset_state);
      },
      [&] { return fmt::format("train_dataset, at example {} of epoch {}", from.examples, from.epoch); });
}

void TrainerCore::ask_dataset_state() {
  auto& position = progress.position;
  if (!may_save() && batches && batches->position() == position.examples)
    position.dataset_state = batches->state_now();
}

DataPosition TrainerCore::position_after(std::int64_t examples,
                                         std::shared_ptr<const DatasetState> dataset_state,
                                         std::int64_t micro_batches) const {
  const auto& before = progress.position;
  const auto padded = before.padded_examples + micro_batches * total_train_batch_size();
  return {.epoch = before.epoch,
          .examples = examples,
          .padded_examples = std::min(padded, detail::largest_dataset),
          .micro_batches = 0,
          .exhausted = before.exhausted,
          .dataset_state = std::move(dataset_state)};
}

bool TrainerCore::brings_own_batches() const {
  return ranks.several() &&
         !(train_dataloader && train_dataloader->options().part.world_size == ranks.world_size());
}

std::optional<std::int64_t> TrainerCore::batches_left() const {
  if (!train_dataloader) return std::nullopt;
  const auto own = train_dataloader->size(progress.position.examples);
  return brings_own_batches() ? ranks.most(own) : own;
}

DatasetInfo TrainerCore::train_dataset_info() const {
  const auto& dataset = options.train_dataset;
  DatasetInfo own{dataset.size(), dataset.fingerprint()};
  if (!dataset.is_divided() || !ranks.several()) return own;
  DatasetInfo all{0, {}, ranks.world_size()};
  Checksum sum;
  bool has_fingerprints = true;
  for (const auto& text : ranks.gather(to_json_text(own))) {
    const auto part = from_json_text<DatasetInfo>(text);
    if (all.size && part.size)
      *all.size += *part.size;
    else
      all.size.reset();
    has_fingerprints = has_fingerprints && !part.fingerprint.empty();
    sum.update(std::as_bytes(std::span(text)));
  }
  if (has_fingerprints) all.fingerprint = sum.hex();
  return all;
}

std::optional<double> TrainerCore::items_in(const Tensors& labels) const {
  if (labels.empty() || !may_count_items()) return {};
  const bool is_models_own = !options.loss && loss_reduction() == LossReduction::mean;
  return static_cast<double>(
      count_items(is_models_own ? Tensors(detail::own_loss_items(model, labels)) : labels));
}

LossReduction TrainerCore::loss_reduction() const {
  if (options.compute_loss || step_sharing() != StepSharing::together) return LossReduction::unknown;
  if (options.loss) return options.loss.reduction();
  const bool is_known = model.loss_items() != LossItems::unknown || args.label_smoothing_factor > 0;
  return is_known ? LossReduction::mean : LossReduction::unknown;
}

std::optional<LossDivisor> TrainerCore::loss_divisor(const Tensors& labels) const {
  if (labels.empty() || loss_reduction() != LossReduction::mean) return {};
  if (options.loss) return options.loss.divisor(labels);
  return LossDivisor(detail::own_loss_items(model, labels).ne(-100).sum());
}

void TrainerCore::warn_of_unknown_divisor() {
  unknown_divisor.warn(overrides.steps_by_hand                  ? "the loss of training_step"
                       : overrides.compute_loss                 ? "the loss of compute_loss"
                       : options.compute_loss                   ? "the loss of the option compute_loss"
                       : step_sharing() == StepSharing::in_turn ? "an optimizer's compute_loss"
                       : options.loss && options.loss.module()  ? options.loss.module()->name()
                       : options.loss                           ? "the function given as loss"
                                                                : "the loss of " + model.name());
}

std::vector<std::optional<LossDivisor>> TrainerCore::count(const std::vector<Batch>& micro_batches,
                                                           const std::vector<double>& shares) {
  const bool is_divided = micro_batches.size() > 1 || ranks.world_size() > 1 || part_size.state() > 0;
  // With auto_microbatching, a batch may yet have to be divided.
  const auto reduction = is_divided || args.auto_microbatching ? loss_reduction() : LossReduction::unknown;
  group.set_reduction(reduction);
  std::vector<std::optional<LossDivisor>> divisors;  // allocates only if it has elements
  if (reduction == LossReduction::mean) divisors.resize(micro_batches.size());
  std::optional<LossDivisor> all;
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    const auto& [inputs, labels, size] = micro_batches[i];
    if (reduction == LossReduction::mean) {
      divisors[i] = shares[i] == 0 ? LossDivisor(0) : loss_divisor(labels);
      if (all && divisors[i])
        *all += *divisors[i];
      else if (divisors[i])
        all = divisors[i];
    }
    if (shares[i] == 0) continue;
    group.tokens += token_counter.input_tokens(micro_batches[i]);
    if (const auto items = items_in(labels)) group.add_items(*items);
  }
  group.set_divisor(std::move(all));
  if (is_divided && reduction == LossReduction::unknown && !options.loss.counts_items())
    unknown_divisor.begin(micro_batches, shares);
  else
    unknown_divisor.begin();
  return divisors;
}

TrainingProgress TrainerCore::current_progress() {
  auto now = progress;
  // A process whose part is shorter counts fewer examples.
  if (brings_own_batches()) now.position.examples = *ranks.most(now.position.examples);
  now.train_batch_size = args.per_device_train_batch_size;
  now.world_size = ranks.world_size();
  now.gradient_accumulation_steps = accumulation.steps();
  now.micro_batch_size = part_size.state();
  log_window.save(now);
  auto logs = pending_logs;
  ranks.average(logs);
  now.pending_logs = logs.state();
  now.control = control;
  now.optimizers = optimizers.names();
  now.scaler = scaler ? std::optional(scaler->state()) : std::nullopt;
  if (const auto& saved = now.position.dataset_state) {
    now.dataset_state = *saved;
    if (nlohmann::json values = saved->values; const auto bad = mend_utf8(values))
      throw DataError(fmt::format(
          "train_dataset: its state() has the string {}, which isn't UTF-8: keep bytes in a tensor "
          "of etude::DatasetState",
          *bad));
  }
  now.stop_reason = mended_utf8(control.stop_reason);
  return now;
}

void TrainerCore::complete_logs(Metrics& logs) {
  pending_logs.take_into(logs);
  if (args.include_num_input_tokens_seen != InputTokens::no)
    logs["num_input_tokens_seen"] = static_cast<double>(state.num_input_tokens_seen);
  logs["epoch"] = state.epoch;
}

void TrainerCore::add_skipped_steps(Metrics& logs) const {
  if (progress.skipped_steps > 0) logs["skipped_steps"] = static_cast<double>(progress.skipped_steps);
}

void TrainerCore::load_progress(const TrainingProgress& saved) {
  const auto train_dataset = std::exchange(progress.train_dataset, std::nullopt);
  progress = saved;
  progress.dataset_state.reset();  // part of `progress.position` once it is known to fit
  progress.train_dataset = train_dataset;
  part_size.load_state(saved.micro_batch_size);
  if (scaler && saved.scaler) scaler->load_state(*saved.scaler);
  log_window.load(saved);
  if (ranks.is_first()) pending_logs.load_state(saved.pending_logs);  // contains the logs of all processes
  control = saved.control;
  control.stop_reason = saved.stop_reason;
}

TrainerCore::TrainerCore() : Trained(args), RunReports(*this, *this, *this) {}

void TrainerCore::initialise(std::shared_ptr<Communicator> (*join)(const TrainingArguments&)) {
  check_options(options);
  args = normalized(options.args);
  ranks.join(join(args));
  args.launch = options.args.launch = ranks.communicator().launch();
  set_process();
  detail::check_same_arguments(ranks, options.args);
  warn_of_stale_optimizer(options);
  warn_of_greatest_error(options.args);
  std::error_code error;
  const auto output_dir = std::filesystem::absolute(args.output_dir, error).string();
  if (error || !is_utf8(output_dir))
    throw ArgumentError(
        fmt::format("output_dir is '{}', and the working folder {}: must be an absolute path in this case",
                    args.output_dir, error ? "is gone" : "has a name that isn't UTF-8"));
  args.output_dir = output_dir;
  device = detail::device_for(args.launch, args.use_cpu);
  check_device(*this);
  if (args.tf32) allow_tf32(*args.tf32);
  make_model();
}

void TrainerCore::set_process() {
  state.is_world_process_zero = args.process_index() == 0;
  state.is_local_process_zero = args.local_process_index() == 0;
}

void TrainerCore::prepare_machine() const {
  const ActivityClock::Scope scope(activity_clock, TimedActivity::setup);
  if (device.is_cpu() && !is_quiet) warn_of_slow_blas(args);  // changes the number of threads meanwhile
  if (device.is_cpu() && (args.bf16 || args.pure_bf16) && !cpu_multiplies_bfloat16())
    message(args, LogLevel::warning,
            "{} is true, but this processor has no instructions for bfloat16: float32 is faster",
            args.bf16 ? "bf16" : "pure_bf16");
  if (device.is_cpu() && args.fp16)
    message(args, LogLevel::warning,
            "fp16 is true on the CPU, where it is slower than float32: bf16 is the faster type there");
  const auto gpus = device.is_cuda() ? static_cast<std::int64_t>(torch::cuda::device_count()) : 0;
  if (gpus > 1 && args.world_size() == 1 && !detail::is_spread(model))
    message(args, LogLevel::warning, "{}", detail::advice_for_gpus(gpus));
  if (!is_quiet) keep_freed_memory();
}

void TrainerCore::warn_of_unsaved_state() const {
  const auto loss = options.loss.module();
  if (!loss || args.save_strategy == SaveStrategy::no) return;
  std::unordered_set<const void*> saved;
  for (const auto& parameter : model.parameters()) saved.insert(parameter.unsafeGetTensorImpl());
  std::vector<std::string> unsaved;
  for (const auto& item : loss->named_parameters())
    if (item.value().requires_grad() && !saved.contains(item.value().unsafeGetTensorImpl()))
      unsaved.push_back(item.key());
  if (unsaved.empty()) return;
  message(args, LogLevel::warning,
          "no checkpoint has {} of the loss, {}: make it a part of the model if it is trained",
          fmt::join(unsaved, ", "), loss->name());
}

void TrainerCore::save_model(const std::filesystem::path& directory) const {
  const Calls::Scope call(calls, Calls::save_model);
  const ActivityClock::Scope scope(activity_clock, TimedActivity::saving);
  const AveragedWeightsInUse averaged(optimizers);
  const ShardedUnits::Whole whole(sharded_units.get());
  if (!ranks.is_first()) return;
  const auto weights = model.state_dict();
  save_model_files(directory, weights, default_max_shard_size, options.files());
  options.save_companions(model, weights, directory);
}

void TrainerCore::make_model() {
  const auto seed = static_cast<std::uint64_t>(args.seed);
  {
    const std::lock_guard in_use(default_generators_mutex());
    args.full_determinism ? enable_full_determinism(seed) : set_seed(seed);
    model = options.model_init ? options.model_init.function()() : options.model;
  }
  if (!model) throw ArgumentError("model_init returned no model");
  const bool has_loss = has_own_compute_loss() || (!options.phases.empty() &&
                                                   std::ranges::all_of(options.phases, [](const auto& named) {
                                                     return static_cast<bool>(named.second.compute_loss);
                                                   }));
  // Without a dataset, a program's own loop may call the model's parts.
  if (options.train_dataset && !model.has_forward() && !has_loss && !overrides.training_step)
    throw ArgumentError(fmt::format(
        "model: {} has no forward: it must have one, or compute_loss must be set, which calls its "
        "parts",
        model.name()));
  carried = CarriedStates(model);
  optimizers.clear();
  weights_are = args.pure_bf16 ? std::optional(torch::kBFloat16) : std::nullopt;
  if (weights_are) cast_weights(model, *weights_are);
  scaler = args.fp16 ? std::optional(GradScaler()) : std::nullopt;
  if (detail::is_spread(model)) {
    device = model.parameters().front().device();  // Its forward moves tensors from one to the next.
  } else {
    model.to(device);
  }
  if (const auto& loss_module = options.loss.module()) loss_module->to(device);
  share_model();
  // The weights are the same; dropout and the like should differ.
  if (!ranks.is_first()) set_seed(detail::mix(seed, static_cast<std::uint64_t>(ranks.rank())));
}

void TrainerCore::share_model() {
  if (ranks.several()) broadcast_state(ranks.communicator(), model.state_dict());
}

void TrainerCore::share_buffers() {
  if (!ranks.several()) return;
  std::vector<torch::Tensor> buffers;
  for (const auto& [name, buffer] : model.named_buffers()) buffers.push_back(buffer);
  broadcast_tensors(ranks.communicator(), buffers);
}

void TrainerCore::backward(const torch::Tensor& loss) {
  const ActivityClock::Scope scope(activity_clock, TimedActivity::backward);
  if (const auto turn = optimizers.turn(); turn && optimizers.size() > 1) return backward(loss, *turn);
  if (step_by_hand && group.size() > 1 && optimizers.size() > 1)
    throw ArgumentError(
        fmt::format("gradient_accumulation_steps is {}: must be 1 for backward(loss), which would add one "
                    "optimizer's gradients to another's; call optimizer(\"...\").backward(loss)",
                    args.gradient_accumulation_steps));
  const auto share = step_by_hand ? group.share_of(loss) : loss;
  scaler ? scaler->scale(share).backward() : share.backward();
}

void TrainerCore::backward(const torch::Tensor& loss, std::size_t optimizer) {
  const ActivityClock::Scope scope(activity_clock, TimedActivity::backward);
  std::vector<torch::Tensor> inputs;
  for (const auto& param_group : optimizers[optimizer].optimizer->param_groups())
    for (const auto& [name, parameter] : param_group.parameters)
      if (parameter.requires_grad()) inputs.push_back(parameter);
  if (inputs.empty()) return;
  auto share = step_by_hand ? group.share_of(loss) : loss;
  if (scaler) share = scaler->scale(share);
  share.backward({}, /*retain_graph=*/{}, /*create_graph=*/false, torch::TensorList(inputs));
}

void TrainerCore::begin_training() {
  ranks.begin_training();
  state = {};
  set_process();
  log_history.begin_training();
  progress = {};
  if (train_dataloader) progress.train_dataset = train_dataset_info();
  log_window.begin_training();
  group.forget_losses();
  work_begin.reset();
  token_counter.begin_training();
  updating = false;
}

void TrainerCore::set_plan(const TrainPlan& plan, const TrainPlan& whole) {
  run_config = {.num_epochs = plan.num_train_epochs,
                .train_per_device_batch_size = args.per_device_train_batch_size,
                .eval_per_device_batch_size = args.per_device_eval_batch_size,
                .gradient_accumulation_steps = args.gradient_accumulation_steps,
                .gradient_clip_norm = args.max_grad_norm,
                .gradient_clip_value = args.max_grad_value,
                .train_total_batch_size = total_train_batch_size() * args.gradient_accumulation_steps,
                .eval_total_batch_size = args.per_device_eval_batch_size * ranks.world_size(),
                .num_update_steps_per_epoch = plan.updates_per_epoch,
                .num_local_update_steps_per_epoch = plan.updates_per_epoch,
                .max_num_train_steps = plan.max_steps,
                .train_dataloader_len = plan.batches_per_epoch,
                .eval_dataloader_len = {},
                .is_local_process_zero = state.is_local_process_zero,
                .is_world_process_zero = state.is_world_process_zero,
                .is_distributed = ranks.world_size() > 1,
                .num_processes = ranks.world_size()};
  run_config.eval_dataloader_len =
      detail::eval_batches(options.eval_dataset, run_config.eval_total_batch_size);
  const auto max_steps = state.max_steps = whole.max_steps;
  state.num_train_epochs = whole.num_train_epochs;
  state.train_batch_size = args.per_device_train_batch_size;
  state.logging_steps = args.logging_steps.steps(max_steps);
  state.eval_steps = args.eval_steps.value_or(args.logging_steps).steps(max_steps);
  state.save_steps = args.save_steps.steps(max_steps);
}

std::unique_ptr<Optimizer> TrainerCore::make_optimizer() {
  if (options.optimizer) return std::make_unique<TorchOptimizer>(options.optimizer, model.named_parameters());
  const auto module = model.module();
  return module ? etude::make_optimizer(args, *module, options.parameter_groups)
                : etude::make_optimizer(args, model.named_parameters(), options.parameter_groups);
}

std::unique_ptr<LRScheduler> TrainerCore::make_scheduler(std::int64_t max_steps) {
  if (const auto& own = options.lr_scheduler) return own(*optimizers.current(), run_config);
  return etude::make_scheduler(args, *optimizers.current(), max_steps);
}

Context TrainerCore::context() {
  return {args,
          state,
          control,
          model,
          optimizers.current(),
          optimizers.current_scheduler(),
          optimizers,
          train_dataloader.get(),
          evaluation ? &evaluation->loader : nullptr,
          options.processing_class ? &options.processing_class : nullptr,
          pending_logs,
          *trainer};
}

}  // namespace etude::inline v0
