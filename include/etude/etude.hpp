#pragma once

/// Includes LibTorch, etude::etude, and each of Etude's other libraries that the program links. The
/// integrations, the study and exported models have separate headers.

#include <fmt/format.h>
#include <torch/torch.h>

#include "etude/any_trainer.hpp"
#include "etude/base/message.hpp"
#include "etude/base/progress_bar.hpp"
#include "etude/callbacks/callback_times.hpp"
#include "etude/callbacks/convert_sync_batch_norm.hpp"
#include "etude/callbacks/default_flow.hpp"
#include "etude/callbacks/device_memory.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/callbacks/evaluation_samples.hpp"
#include "etude/callbacks/file_logger.hpp"
#include "etude/callbacks/gradient_accumulation_scheduler.hpp"
#include "etude/callbacks/gradual_unfreezing.hpp"
#include "etude/callbacks/interval_timer.hpp"
#include "etude/callbacks/learning_rate_monitor.hpp"
#include "etude/callbacks/limit_batches.hpp"
#include "etude/callbacks/limit_eval_steps.hpp"
#include "etude/callbacks/log_metrics.hpp"
#include "etude/callbacks/loss_spike.hpp"
#include "etude/callbacks/metric_callback.hpp"
#include "etude/callbacks/mixup.hpp"
#include "etude/callbacks/model_ema.hpp"
#include "etude/callbacks/model_summary.hpp"
#include "etude/callbacks/move_modules_to_device.hpp"
#include "etude/callbacks/neftune.hpp"
#include "etude/callbacks/norm_monitor.hpp"
#include "etude/callbacks/parameter_groups.hpp"
#include "etude/callbacks/predictions_to_csv.hpp"
#include "etude/callbacks/print_progress.hpp"
#include "etude/callbacks/printer.hpp"
#include "etude/callbacks/profiler.hpp"
#include "etude/callbacks/progress.hpp"
#include "etude/callbacks/run_history.hpp"
#include "etude/callbacks/save_best_model.hpp"
#include "etude/callbacks/save_training_state.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"
#include "etude/callbacks/stochastic_weight_averaging.hpp"
#include "etude/callbacks/terminate_on_nan.hpp"
#include "etude/callbacks/throughput.hpp"
#include "etude/callbacks/timer.hpp"
#include "etude/callbacks/top_k_checkpoints.hpp"
#include "etude/callbacks/underflow_overflow.hpp"
#include "etude/callbacks/wsd_checkpoint.hpp"
#include "etude/checkpoint/load_weights.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/data/concatenated.hpp"
#include "etude/data/on_policy.hpp"
#include "etude/data/padding.hpp"
#include "etude/data/parallel_streams.hpp"
#include "etude/data/samplers.hpp"
#include "etude/dispatch/filters.hpp"
#include "etude/dispatch/runtime_callbacks.hpp"
#include "etude/events.hpp"
#include "etude/formats/idx.hpp"
#include "etude/formats/npy.hpp"
#include "etude/formats/stored_tensors.hpp"
#include "etude/formats/token_windows.hpp"
#include "etude/formats/wav.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/loop/batch_limit.hpp"
#include "etude/metrics/accuracy.hpp"
#include "etude/metrics/auroc.hpp"
#include "etude/metrics/average_precision.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/metrics/calibration_error.hpp"
#include "etude/metrics/confusion_matrix.hpp"
#include "etude/metrics/f_beta.hpp"
#include "etude/metrics/mean_absolute_error.hpp"
#include "etude/metrics/mean_squared_error.hpp"
#include "etude/metrics/metric_history.hpp"
#include "etude/metrics/perplexity.hpp"
#include "etude/metrics/r2_score.hpp"
#include "etude/metrics/sample.hpp"
#include "etude/metrics/speed.hpp"
#include "etude/metrics/streaming.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/model/equal.hpp"
#include "etude/model/label_smoothing.hpp"
#include "etude/model/modules.hpp"
#include "etude/model/recomputation.hpp"
#include "etude/model/script_module.hpp"
#include "etude/model/units.hpp"
#include "etude/optim/clipping.hpp"
#include "etude/optim/model_freezer.hpp"
#include "etude/optim/optimizers.hpp"
#include "etude/optim/parameter_rules.hpp"
#include "etude/precision/grad_scaler.hpp"
#include "etude/reflect/command_line.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/run.hpp"
#include "etude/trainer.hpp"
#include "etude/trainer_control.hpp"
#include "etude/trainer_options.hpp"
#include "etude/tune/batch_size_finder.hpp"
#include "etude/tune/learning_rate_finder.hpp"
#include "etude/tune/memory_estimate.hpp"
#include "etude/version.hpp"

#ifdef ETUDE_PARALLEL
#include "etude/parallel/distributed_data_parallel.hpp"
#else
namespace etude::inline v0 {
struct __attribute__((unavailable("link etude::parallel"))) DistributedDataParallel {};
template <int Stage>
struct __attribute__((unavailable("link etude::parallel"))) ShardedDataParallel {};
}  // namespace etude::inline v0
#endif

#ifdef ETUDE_REPORT
#include "etude/callbacks/report.hpp"
#include "etude/report/run_report.hpp"
#else
namespace etude::inline v0 {
struct __attribute__((unavailable("link etude::report"))) ReportCallback {};
}  // namespace etude::inline v0
#endif

#ifdef ETUDE_SEARCH
#include "etude/tune/hyperparameter_search.hpp"
#else
namespace etude::inline v0 {
struct __attribute__((unavailable("link etude::search"))) HyperparameterSearchOptions {};
}  // namespace etude::inline v0
#endif
