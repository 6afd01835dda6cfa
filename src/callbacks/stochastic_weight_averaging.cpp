#include "etude/callbacks/stochastic_weight_averaging.hpp"

#include <fmt/format.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numbers>
#include <utility>

#include "etude/any_trainer.hpp"
#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/message.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/folder.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/parallel/broadcast.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Resets the statistics of a model's BatchNorm modules, and makes them cumulative means during its lifetime.
class CumulativeStatistics {
 public:
  explicit CumulativeStatistics(torch::nn::Module& model) {
    const torch::NoGradGuard no_grad;
    for (const auto& module : model.modules()) {
      add(std::dynamic_pointer_cast<torch::nn::BatchNorm1dImpl>(module));
      add(std::dynamic_pointer_cast<torch::nn::BatchNorm2dImpl>(module));
      add(std::dynamic_pointer_cast<torch::nn::BatchNorm3dImpl>(module));
    }
  }
  CumulativeStatistics(const CumulativeStatistics&) = delete;
  CumulativeStatistics& operator=(const CumulativeStatistics&) = delete;
  ~CumulativeStatistics() {
    for (auto& [options, momentum] : changed_) options->momentum() = momentum;
  }

  bool empty() const { return changed_.empty(); }

 private:
  using Options = torch::nn::BatchNormOptions;
  using Momentum = std::remove_cvref_t<decltype(std::declval<Options&>().momentum())>;

  template <class Norm>
  void add(const std::shared_ptr<Norm>& norm) {
    if (!norm || !norm->options.track_running_stats()) return;
    norm->reset_running_stats();
    // The aliasing pointer keeps the options' module alive.
    changed_.emplace_back(std::shared_ptr<Options>(norm, &norm->options), norm->options.momentum());
    norm->options.momentum().reset();
  }

  std::vector<std::pair<std::shared_ptr<Options>, Momentum>> changed_;
};

}  // namespace

}  // namespace detail

void StochasticWeightAveragingCallback::on(const CheckpointLoaded& e) {
  if (is_running || state.n_averaged == 0 || !e.args.restore_callback_states_from_checkpoint) return;
  FolderReader reader(e.checkpoint, /*need_manifest=*/false);
  if (reader.has(file)) loaded = load_safetensors(reader.map(file)).tensors;
}

void StochasticWeightAveragingCallback::on(const TrainBegin& e) {
  check(e);
  is_running = true;
  has_failed = false;
  lrs.clear();
  weights.reset();
  if (e.state.global_step == 0) state = {};
  state.epochs.begin(e);
  if (state.n_averaged > 0 && !loaded.empty()) {
    weights.emplace(e.model, /*use_buffers=*/false);
    weights->load(std::exchange(loaded, {}));
  } else if (state.n_averaged > 0) {
    message(e.args, LogLevel::warning, "the checkpoint has no {}: the average starts from scratch", file);
    state.n_averaged = 0;
  }
}

void StochasticWeightAveragingCallback::check(const Context& e) {
  detail::check_fields(*this);
  if (e.optimizers.size() > 1)
    throw ArgumentError(
        "StochasticWeightAveragingCallback can't be used with several optimizers, of which it anneals one");
  if (!(swa_epoch_start >= 0) || !std::isfinite(swa_epoch_start) ||
      (swa_epoch_start > 1 && swa_epoch_start != std::floor(swa_epoch_start)))
    throw ArgumentError(
        fmt::format("swa_epoch_start is {}: must be an epoch, counted from 1, or from 0 to 1 a share of all",
                    swa_epoch_start));
  const auto all = e.state.num_train_epochs;
  const auto start = swa_epoch_start < 1
                         ? detail::share_rounded_down(swa_epoch_start, static_cast<double>(all))
                         : swa_epoch_start;
  first_epoch =
      static_cast<std::int64_t>(std::clamp(start - 1, 0.0, static_cast<double>(detail::most_steps)));
  if (first_epoch >= all)
    throw ArgumentError(
        fmt::format("swa_epoch_start is {}: there are {} epochs, and no average", swa_epoch_start, all));
  if (e.args.load_best_model_at_end)
    throw ArgumentError(
        "load_best_model_at_end is true: StochasticWeightAveragingCallback ends with the average of the "
        "weights");
}

void StochasticWeightAveragingCallback::on(const EpochBegin& e) {
  const auto since = state.epochs.ended - first_epoch;
  if (!swa_lr || since < 0) return;
  const auto& groups = e.optimizer->param_groups();
  if (state.begin_lrs.size() != groups.size()) {
    state.begin_lrs.clear();
    for (const auto& group : groups) state.begin_lrs.push_back(group.lr);
  }
  // As in torch.optim.swa_utils.SWALR: moves from the rates at the beginning of annealing to swa_lr.
  const double way = annealing_epochs == 0
                         ? 1
                         : std::min(static_cast<double>(since) / static_cast<double>(annealing_epochs), 1.0);
  const double share =
      annealing_strategy == AnnealingStrategy::cos ? (1 - std::cos(std::numbers::pi * way)) / 2 : way;
  lrs.clear();
  for (const double lr : state.begin_lrs) lrs.push_back(*swa_lr * share + lr * (1 - share));
}

void StochasticWeightAveragingCallback::on(const StepBegin& e) {
  for (std::size_t i = 0; i < lrs.size(); ++i)
    e.optimizer->set_learning_rates(i, lrs[i], e.optimizer->param_groups()[i].initial_lr);
}

void StochasticWeightAveragingCallback::on(const EpochEnd& e) {
  if (!is_running || has_failed || !state.epochs.end(e) || state.epochs.ended <= first_epoch) return;
  if (!weights) weights.emplace(e.model, /*use_buffers=*/false);
  detail::count_up(state.n_averaged);
  // With a weight of 1 / n, the n-th update keeps the plain mean of the epochs.
  weights->update(*e.optimizer, 1 / static_cast<double>(state.n_averaged));
}

void StochasticWeightAveragingCallback::on(SaveBegin& e) {
  if (is_running && state.n_averaged > 0) e.tensors.emplace(file, weights->state());
}

void StochasticWeightAveragingCallback::on(const TrainEnd& e) {
  loaded.clear();
  if (!std::exchange(is_running, false) || has_failed) return;
  if (state.n_averaged == 0) {
    message(
        e.args, LogLevel::warning,
        "training has ended before epoch {} was over, the first to be averaged: the last weights are kept",
        first_epoch + 1);
    return;
  }
  weights->copy_to_model();
  renew_statistics(e);
}

std::vector<NamedTensor> StochasticWeightAveragingCallback::average() const {
  if (!weights) throw Error("StochasticWeightAveragingCallback has no average yet");
  return weights->model_state();
}

void StochasticWeightAveragingCallback::renew_statistics(const Context& e) const {
  const auto module = e.model.module();
  if (!module) {
    if (std::ranges::any_of(e.model.named_buffers(),
                            [](const auto& buffer) { return buffer.first.ends_with("running_mean"); }))
      message(e.args, LogLevel::warning,
              "the running means of {}, a TorchScript module, are not those of the averaged weights",
              e.model.name());
    return;
  }
  const torch::NoGradGuard no_grad;
  const detail::CumulativeStatistics statistics(*module);
  if (statistics.empty()) return;
  if (!e.train_dataloader) {
    message(e.args, LogLevel::warning,
            "the running means of {} are not those of the averaged weights: a training by step() has no "
            "train_dataset to compute them from",
            e.model.name());
    return;
  }
  const auto device = e.model.parameters().front().device();
  const RandomStateGuard random(device);
  const auto modes = e.model.eval_guard();
  e.model.train();
  auto batches = e.train_dataloader->begin_epoch(0);
  const auto next = [&] {
    const InterruptionScope waiting(true);
    return batches.next();
  };
  while (const auto batch = next()) e.trainer.compute_loss(batch->to(device, e.args.dataloader_pin_memory));
  // Each process has seen only its part of the data. All take the first process's statistics, since it writes
  // the checkpoint.
  std::vector<torch::Tensor> buffers;
  for (const auto& [name, buffer] : e.model.named_buffers()) buffers.push_back(buffer);
  broadcast_tensors(e.trainer.communicator(), buffers);
}

}  // namespace etude::inline v0
