#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/any_trainer.hpp"
#include "etude/base/message.hpp"
#include "etude/callbacks/default_flow.hpp"
#include "etude/callbacks/printer.hpp"
#include "etude/callbacks/progress.hpp"
#include "etude/dispatch/composition.hpp"
#include "etude/dispatch/describe.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/evaluate.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/host_loop.hpp"
#include "etude/loop/optimizer_handle.hpp"
#include "etude/loop/snapshot.hpp"
#include "etude/loop/train.hpp"
#include "etude/loop/trainer_checks.hpp"
#include "etude/metrics/report.hpp"
#include "etude/parallel/processes.hpp"
#include "etude/tune/memory_estimate.hpp"

namespace etude::inline v0 {

template <class... List>
class Trainer;

namespace detail {
/// The callbacks that every trainer has by default; args.disable_tqdm disables one of the last two.
struct TrainerDefaults {
  using events = Vocabulary;
  using first = callbacks<DefaultFlowCallback>;
  using last = callbacks<ProgressCallback, PrinterCallback>;
};

/// The class that has the method `log(Metrics&)` among the overloads of this name.
template <class Owner>
std::type_identity<Owner> owner_of(void (Owner::*)(Metrics&));

template <>
inline constexpr bool leaves_out<Quiet, ProgressCallback> = true;
template <>
inline constexpr bool leaves_out<Quiet, PrinterCallback> = true;
}  // namespace detail

template <class... List>
using TrainerComposition = Composition<detail::TrainerDefaults, List...>;

/// The base of custom trainers: derive as `struct MyTrainer : etude::TrainerBase<MyTrainer, Callbacks...>`,
/// with `using TrainerBase::TrainerBase;`, and redefine any method under "Overridable". They are called
/// statically, and may call the base's. If the derived class has `on(const Event&)`, it receives that event
/// before its callbacks. Classes derived further can't override anything, so make it final.
/// `Trainer<Callbacks...>` overrides nothing.
template <class Derived, class... List>
class TrainerBase
    : private EventSource<Derived, typename TrainerComposition<List...>::handler,
                          !std::same_as<typename detail::processes_of<List...>::type, SingleProcess>> {
  using Composed = TrainerComposition<List...>;
  using Processes = typename detail::processes_of<List...>::type;
  static_assert(Composed::checks::passed());
  using Callbacks = typename Composed::callbacks_list;
  using Handler = typename Composed::handler;
  using Source = EventSource<Derived, Handler, !std::same_as<Processes, SingleProcess>>;
  using Source::core_, Source::handler_, Source::guarded, Source::is_heard, Source::is_written, Source::raise,
      Source::open;

 public:
  /// Builds the trainer from `options` and the given callbacks; callbacks of the list that aren't given are
  /// default constructed. Throws `ArgumentError` that lists every invalid option, or for a callback that is
  /// given as its base; `DataError`; and exceptions of callbacks in `InitEnd`.
  template <class... Given>
  explicit TrainerBase(TrainerOptions options, Given&&... given)
      : Source(Composed::maker::make(detail::take_given(std::forward<Given>(given)...))) {
    static_assert(detail::check_given<Derived, callbacks<List...>, std::remove_cvref_t<Given>...>());
    if constexpr (!std::same_as<Derived, Trainer<List...>>)
      static_assert(
          detail::check_trainer<Derived, TrainerBase, Composed::closed>(typename Composed::known_events{}));
    core_.options = std::move(options);
    core_.trainer = &any_;
    core_.overrides = overrides();
    core_.is_quiet = (std::same_as<List, Quiet> || ...);
    guarded([&] {
      if constexpr (requires { Processes::stage; }) core_.shard_stage = Processes::stage;
      core_.initialise([](const TrainingArguments& args) -> std::shared_ptr<Communicator> {
        return Processes::join(args);
      });
      raise(InitEnd{core_.context()});
    });
  }
  /// Chosen for braces that no TrainerOptions can be made of: a misspelt option, or a value of a wrong type.
  template <class Mistake =
                mistake::braces_are_no_TrainerOptions_so_write_etude_TrainerOptions_before_them_to_see_why>
  explicit TrainerBase(...) = delete;
  TrainerBase(const TrainerBase&) = delete;
  TrainerBase& operator=(const TrainerBase&) = delete;

  /// Trains the model on `train_dataset` according to the arguments. A second call continues with the current
  /// weights and optimizer (with `model_init`, it starts from scratch).
  TrainOutput train(const TrainOptions& options = {}) {
    const Calls::Scope call(core_.calls, Calls::train);
    check_no_host_loop("train()");
    const PhaseClock::Run run(core_.phase_clock, core_.args, core_.options.files(), core_.device.is_cpu());
    core_.prepare_machine();
    if (!core_.options.train_dataset) throw ArgumentError("train_dataset is not set: train() needs it");
    const RaisedFlag training(core_.training);
    const RemoteControl::UnderWay under_way(core_.remote);
    auto output = guarded([&] {
      return core_.args.auto_find_batch_size ? train_in_memory(options)
                                             : TrainLoop<Source>(*this).run(options);
    });
    core_.phase_clock.finish();
    output.time_by_phase = time_by_phase();
    return output;
  }

  /// Begins a training in a loop of the program's own: `step` gives it batches, `finish` ends it. Its events,
  /// checkpoints and logs are those of `train()`, with one epoch that lasts until `finish` or until
  /// `should_epoch_stop` is set. `train_dataset` isn't used. `max_steps` may be left out if the schedule has
  /// no end (`constant`) and no interval is a fraction of it; otherwise throws `ArgumentError`. A training
  /// that is resumed has the weights, optimizer, schedule, generators, callbacks and step of the checkpoint;
  /// which batches come next is the program's concern. Several processes must all make the same calls.
  void begin(const TrainOptions& options = {}) {
    const Calls::Scope call(core_.calls, Calls::step);
    check_no_host_loop("begin()");
    begin_host_loop(options);
  }

  /// Gives a micro-batch, on any device, to a training by steps, which the first one begins. Every
  /// `gradient_accumulation_steps` calls make an update, in the last of them, because a loss may be divided
  /// by the number of labels of all. Throws `DataError` for tensors that are no batch, which are left out,
  /// and `Error` if an earlier call has returned `should_stop`. Any other exception ends the training as it
  /// does in `train()`.
  StepOutput step(Batch batch) {
    const Calls::Scope call(core_.calls, Calls::step);
    if (!host_loop_) begin_host_loop({});
    host_loop_->check_goes_on();
    auto checked = batch_of_host(std::move(batch), core_.args);
    return in_host_loop([&](auto& loop) { return loop.step(std::move(checked)); });
  }
  StepOutput step(Tensors inputs, Tensors labels) {
    return step(Batch{std::move(inputs), std::move(labels)});
  }

  /// Ends a training by steps: an update with the micro-batches that are left, if there are any, the last
  /// evaluation and checkpoint, and `TrainEnd`. The destructor of a trainer ends a training that isn't
  /// finished without an evaluation, a checkpoint or an exception; a class that derives from TrainerBase and
  /// has an `on` or a `log` must call `finish` before.
  TrainOutput finish() {
    const Calls::Scope call(core_.calls, Calls::step);
    if (!host_loop_) throw Error("finish() was called, but no training by step() is under way");
    auto output = in_host_loop([](auto& loop) { return loop.finish(); });
    host_loop_.reset();
    output.time_by_phase = time_by_phase();
    return output;
  }

  /// These may be called from any thread. A training that is paused waits before its next step; one that is
  /// cancelled stops after the step under way, as if a callback had requested it, with the last evaluation
  /// and checkpoint. An evaluation under way is finished first. `cancel` returns false if no training is
  /// under way. One process that is paused makes the others wait, at most `ddp_timeout`; one that is
  /// cancelled stops all.
  void pause() { core_.remote.pause(); }
  void resume() { core_.remote.resume(); }
  bool is_paused() const { return core_.remote.is_paused(); }
  bool cancel(std::string_view reason = "the training was cancelled") { return core_.remote.cancel(reason); }

  /// The model's outputs for every example of `dataset`, in order, and metrics if it has labels.
  PredictionOutput predict(const Dataset& dataset, const PredictOptions& options = {}) {
    const Calls::Scope call(core_.calls, Calls::predict);
    return guarded([&] {
      if (!core_.training) this->check_trackers();
      Metrics reported;
      auto result = EvaluationLoop<Source>(*this, options.metric_key_prefix, options.ignore_keys)
                        .template run<PredictBegin, PredictEnd>(dataset, Keep::all, [&](Metrics& metrics) {
                          reported = raise(Predict{core_.context(), std::move(metrics)}).metrics;
                        });
      return PredictionOutput{std::move(result.prediction.predictions),
                              std::move(result.prediction.label_ids), std::move(reported)};
    });
  }

  /// Raises a built-in or custom event: first to the trainer itself if it has a matching `on`, then to the
  /// static callbacks, then to those added at run time.
  template <class Event>
  void call_event(Event&& event) {
    using Plain = std::remove_cvref_t<Event>;
    static_assert([]<class... Known>(events<Known...>) {
      return detail::expect<(!Composed::closed || detail::count_of<Plain, Known...> != 0),
                            mistake::event_is_not_named_in_the_Raises_of_this_trainer<Plain, Derived>>();
    }(typename Composed::known_events{}));
    if constexpr (Source::template is_heard_by_trainer<Plain>()) detail::deliver(derived(), event);
    handler_.call_event(std::forward<Event>(event));
  }

  /// Whether any callback of the list handles `Event`.
  template <class Event>
  static constexpr bool handles = Handler::template handles<Event>;

  /// Whether the list contains a callback of this type.
  template <class Callback>
  static constexpr bool lists = []<class... Static>(callbacks<Static...>) {
    return (std::same_as<Static, Callback> || ...);
  }(Callbacks{});

  /// The types of all callbacks: first the list, then those added at run time.
  using Source::callback_names;

  /// The callback of this type, from the list or added at run time. The first one if there are several.
  template <class Callback>
  Callback& callback() {
    if constexpr (lists<Callback>) {
      return find<Callback>();
    } else {
      static_assert(
          detail::expect<Composed::has_runtime_callbacks,
                         mistake::callback_is_not_in_the_list_of_this_trainer<Callback, Derived>>());
      return runtime().template get<Callback>();
    }
  }

  /// Adds a callback at run time; it runs after those of the list. It doesn't receive `InitEnd`.
  template <class Given>
  CallbackHandle add_callback(Given&& callback) {
    using Callback = std::remove_cvref_t<Given>;
    if constexpr (detail::expect<
                      Composed::has_runtime_callbacks,
                      mistake::add_callback_needs_RuntimeCallbacks_in_the_list_of_this_trainer<Derived>>()) {
      static_assert(detail::check_added<Callback>(typename Composed::known_events{},
                                                  typename Composed::static_callbacks{}));
      static_assert(detail::expect<
                    !detail::handles_only<Callback, InitEnd>(typename Composed::known_events{}),
                    mistake::InitEnd_has_gone_by_at_run_time_so_list_the_callback_in_the_type_of_the_trainer<
                        Callback>>());
      return runtime().template add<Composed::closed>(typename Composed::known_events{},
                                                      std::forward<Given>(callback));
    }
  }

  /// Removes a callback added at run time. These functions throw `ArgumentError` if it isn't there.
  void remove_callback(CallbackHandle handle) { handle.remove(); }
  template <class Callback>
  void remove_callback() {
    runtime().template remove<Callback>();
  }
  /// Removes and returns a callback: the first of its type, or the one of a handle.
  template <class Callback>
  Callback pop_callback(const CallbackHandle& handle) {
    return runtime().template pop<Callback>(handle);
  }
  template <class Callback>
  Callback pop_callback() {
    return runtime().template pop<Callback>();
  }

  /// Lists each handled event with its callbacks in order, and marks those that may change it.
  std::string describe() const { return etude::describe(event_handlers()); }
  std::vector<EventHandlers> event_handlers() const {
    return etude::event_handlers(handler_, typename Composed::known_events{});
  }

  const TrainingArguments& args() const { return core_.args; }
  const TrainerState& state() const { return core_.state; }
  TrainerControl& control() { return core_.control; }
  Model& model() { return core_.model; }
  Optimizer* optimizer() { return core_.optimizers.current(); }
  /// One of several optimizers. Throws ArgumentError that lists their names for an unknown one, and before
  /// the first training.
  OptimizerHandle optimizer(std::string_view name) { return {core_, core_.optimizers.find(name)}; }
  LRScheduler* lr_scheduler() { return core_.optimizers.current_scheduler(); }
  Context context() { return core_.context(); }

  std::int64_t get_num_trainable_parameters() const { return core_.trainable_parameters(); }
  /// Calls backward on the loss of a training step: use it in a `training_step` of your own, since fp16
  /// scales the loss. If the step is made by hand, multiplies it by the micro-batch's share of its group.
  void backward(const torch::Tensor& loss) { core_.backward(loss); }
  /// The learning rate of each parameter group. Throws `ArgumentError` if the optimizer doesn't exist yet.
  std::vector<double> get_learning_rates() const { return core_.learning_rates(); }
  /// Writes the weights, and the processing class if any, to a folder.
  void save_model(const std::filesystem::path& directory) const { core_.save_model(directory); }
  /// Waits until the checkpoint started by `save_checkpoint` is on disk; rethrows the exception if writing it
  /// failed.
  void wait_for_checkpoint() { core_.checkpoint_writer.wait(); }
  /// Logs samples at once, by `LogSamples`: see `Context::log_text`.
  void log_text(std::string_view name, std::string_view text) { log_samples({text_sample(name, text)}); }
  void log_image(std::string_view name, const torch::Tensor& image, std::string_view caption = "") {
    log_samples({image_sample(name, image, caption)});
  }
  void log_audio(std::string_view name, const torch::Tensor& audio, std::int64_t sample_rate,
                 std::string_view caption = "") {
    log_samples({audio_sample(name, audio, sample_rate, caption)});
  }
  void log_samples(const std::vector<Sample>& samples) {
    const Calls::Scope call(core_.calls, Calls::log);
    raise(LogSamples{core_.context(), samples});
  }
  /// Prints metrics as a table.
  void log_metrics(std::string_view split, const Metrics& metrics) const {
    if (core_.state.is_world_process_zero) write_text(stdout, format_metrics(split, metrics));
  }
  /// Writes `output_dir/SPLIT_results.json`, and adds the metrics to `all_results.json` beside it.
  void save_metrics(std::string_view split, const Metrics& metrics, bool combined = true) const {
    if (core_.state.is_world_process_zero)
      etude::save_metrics(core_.options.files(), core_.args.output_dir, split, metrics, combined);
  }
  /// Batch sizes, steps per epoch, ... of the last training; empty before the first.
  const TrainerRunConfig& run_config() const { return core_.run_config; }
  /// The wall time by phase of the training under way, or of the last one.
  TimeByPhase time_by_phase() const { return core_.phase_clock.times(); }

  // Overridable.

  /// Evaluates on `eval_dataset`: {"eval_loss", the results of `compute_metrics`, "eval_runtime", ...}. With
  /// several datasets, the keys contain their names ("eval_news_loss"), and the result has the metrics of
  /// all. `train()` calls it without options when an evaluation is due, and uses the result to find the best
  /// model.
  Metrics evaluate(const EvaluateOptions& options = {}) {
    const Calls::Scope call(core_.calls, Calls::evaluate);
    const auto& datasets = options.eval_dataset.empty() ? core_.options.eval_dataset : options.eval_dataset;
    const auto evaluate_all = [&] {
      return EvaluationLoop<Source>::over(*this, datasets, options.metric_key_prefix, options.ignore_keys);
    };
    if (std::exchange(core_.evaluation_is_due, false)) return evaluate_all();
    return guarded([&] {
      if (core_.training) return evaluate_all();
      this->check_trackers();
      this->template open<EvaluationRunEnd>();
      raise(EvaluationRunBegin{core_.context()});
      return this->leave(EvaluationRunEnd{core_.context(), evaluate_all()}).metrics;
    });
  }

  std::unique_ptr<DataLoader> get_train_dataloader() { return core_.make_train_dataloader(); }
  std::unique_ptr<DataLoader> get_eval_dataloader(const Dataset& dataset) {
    return core_.make_eval_dataloader(dataset);
  }

  std::unique_ptr<Optimizer> create_optimizer() { return core_.make_optimizer(); }
  std::unique_ptr<LRScheduler> create_scheduler(std::int64_t max_steps) {
    return core_.make_scheduler(max_steps);
  }

  /// The loss of a batch, one element, and the model's outputs. `num_items_in_batch` is the number of labels
  /// in the whole accumulation group (other than -100); set `counts_items` if the loss is divided by it.
  LossOutput compute_loss(const Batch& batch, std::optional<double> num_items_in_batch = {}) {
    return etude::compute_loss(core_, batch, num_items_in_batch);
  }

  /// The results of the trainer's compute_loss() in the precision of the arguments, as float32.
  LossOutput compute_loss_in_precision(const Batch& batch, std::optional<double> num_items_in_batch) {
    std::optional<Batch> cast;
    const Batch& inputs = fitting(core_, batch, cast);
    const LossParts parts(core_);
    return parts.added_to(
        in_precision(core_, [&] { return LossOutput(derived().compute_loss(inputs, num_items_in_batch)); }));
  }

  /// The floating-point operations of the forward and backward pass of a micro-batch, for `state.total_flos`.
  double floating_point_ops(const Batch& batch) { return core_.token_counter.floating_point_ops(batch); }

  /// Runs forward and backward on one micro-batch; returns its share of the group's loss, detached.
  torch::Tensor training_step(Batch& batch) {
    auto computed = compute_loss_in_precision(batch, core_.group.num_items());
    log_parts(core_, computed);
    auto& [loss, outputs, counts_items, logs] = computed;
    core_.loss_check.before_backward(loss, batch);
    std::optional<double> share;
    if (!counts_items) {
      core_.unknown_divisor.note_mean();
      share = core_.group.share();
      loss = core_.group.share_of(std::move(loss), outputs);
    } else if (core_.group.is_padding()) {
      loss = loss * 0;
    }
    loss = raise(BackwardBegin{core_.context(), batch, std::move(outputs), std::move(loss)}).loss;
    backward(this->check_written(loss));
    loss = loss.variable_data();
    raise(BackwardEnd{core_.context(), batch, loss, share});
    return loss;
  }

  /// Runs forward on one evaluation or prediction batch, without gradients.
  PredictionStepOutput prediction_step(const Batch& batch, const std::vector<std::string>& ignore_keys) {
    auto computed = EvaluationLoop<Source>::outputs_of(*this, batch);
    auto parts = parts_of(computed);
    return {std::move(computed.loss), without_keys(computed.outputs, ignore_keys), batch.labels,
            std::move(parts), computed.counts_items};
  }

  /// Adds `epoch` and the values logged by callbacks to `logs`, appends them to `state.log_history` and
  /// raises `Log`.
  void log(Metrics& logs) {
    const Calls::Scope call(core_.calls, Calls::log);
    core_.complete_logs(logs);
    const auto line = core_.log_history.add(logs);  // A handler may call log() itself.
    logs = raise(Log{core_.context(), std::move(logs)}).logs;
    core_.log_history.set(line, logs);
  }

  /// Logs a value; a tensor is one element. In `compute_loss` it is a part of the loss, averaged as the loss
  /// is, and in an evaluation a metric under its prefix; elsewhere the next log has the mean of such values.
  void log(std::string_view name, double value) { core_.log(name, value); }
  void log(std::string_view name, const torch::Tensor& value) { core_.log(name, value); }

  /// Writes `output_dir/checkpoint-STEP` atomically, and returns its path.
  /// With `save_async`, writing may still be in progress when this returns.
  std::filesystem::path save_checkpoint() {
    const Calls::Scope call(core_.calls, Calls::save_checkpoint);
    auto tensors = raise(SaveBegin{core_.context()}).tensors;
    return write_checkpoint(core_, this->states(), std::move(tensors));
  }

  /// Writes `output_dir/trainer_state.json`: the current state, including the whole log history.
  void save_state() { write_trainer_state(core_, this->states()); }

 protected:
  Derived& derived() { return this->trainer(); }

 private:
  friend Derived;
  /// Protected: write struct Mine : etude::TrainerBase<Mine, ...>
  ~TrainerBase() {
    // The derived part is destroyed already.
    if constexpr (detail::has_name_on<Derived>() || overrides().log)
      if (host_loop_) host_loop_->leave();
  }

  void check_no_host_loop(const char* method) const {
    if (host_loop_)
      throw Error(std::string(method) + " was called before finish(): a training by step() is under way");
  }

  void begin_host_loop(const TrainOptions& options) {
    core_.prepare_machine();
    host_loop_ = std::make_unique<HostLoop<Source>>(static_cast<Source&>(*this));
    in_host_loop([&](auto& loop) { loop.begin(options); });
  }

  template <class Act>
  auto in_host_loop(Act act) {
    auto& loop = static_cast<HostLoop<Source>&>(*host_loop_);
    try {
      return guarded([&] { return act(loop); });
    } catch (...) {
      if (loop.has_failed()) host_loop_.reset();
      throw;
    }
  }

  static consteval Overrides overrides() {
    using Base = TrainerBase;
    // `&Derived::log` is ill-formed if `log` is overloaded or a template.
    constexpr bool inherits_compute_loss =
        requires { requires std::same_as<decltype(&Derived::compute_loss), decltype(&Base::compute_loss)>; };
    constexpr bool inherits_training_step =
        requires {
          requires std::same_as<decltype(&Derived::training_step), decltype(&Base::training_step)>;
        };
    constexpr bool inherits_get_eval_dataloader =
        requires {
          requires std::same_as<decltype(&Derived::get_eval_dataloader),
                                decltype(&Base::get_eval_dataloader)>;
        };
    constexpr bool inherits_log =
        requires {
          requires std::same_as<decltype(detail::owner_of(&Derived::log)), std::type_identity<Base>>;
        };
    constexpr bool inherits_create_optimizer =
        requires {
          requires std::same_as<decltype(&Derived::create_optimizer), decltype(&Base::create_optimizer)>;
        };
    return {!inherits_compute_loss, !inherits_training_step,    !inherits_get_eval_dataloader,
            !inherits_log,          !inherits_create_optimizer, detail::steps_by_hand<Derived, Base>()};
  }

  template <class Callback>
  Callback& find() {
    return handler_.template first<Callback>();
  }

  RuntimeCallbacks& runtime() {
    static_assert(
        detail::expect<Composed::has_runtime_callbacks,
                       mistake::add_callback_needs_RuntimeCallbacks_in_the_list_of_this_trainer<Derived>>());
    return find<RuntimeCallbacks>();
  }

  /// Trains with the largest micro-batches that fit in memory.
  TrainOutput train_in_memory(const TrainOptions& options) {
    const TrainingSnapshot before(core_);
    const auto callbacks_before = save_states(this->states());
    for (;;) {
      try {
        return TrainLoop<Source>(*this).run(options);
      } catch (...) {
        if (!core_.finds_batch_size(std::current_exception())) throw;
      }  // The exception, and any tensors it holds, are released only after its handler.
      core_.shrink_batches();
      before.restore();
      StateReport nothing_new;
      load_states(callbacks_before, this->states(), nothing_new);
    }
  }

  AnyTrainerOf<Source> any_{*this};
  std::unique_ptr<AnyHostLoop> host_loop_;  // while a training by step() is under way
};

/// Trains a model, and raises events to the callbacks in its type list:
/// `etude::Trainer<Announce, EarlyStoppingCallback> trainer({.model = net, ...}, Announce{});`
/// The list may also contain policies (`Raises`, `NoDefaultCallbacks`) and `RuntimeCallbacks`; see
/// `Composition`. To override a method, derive from TrainerBase instead.
template <class... List>
class Trainer final : public TrainerBase<Trainer<List...>, List...> {
 public:
  using TrainerBase<Trainer<List...>, List...>::TrainerBase;

  template <class First, class... Rest>
    requires(!std::convertible_to<First, TrainerOptions>)
  explicit Trainer(First, Rest...) : Trainer(TrainerOptions{}) {
    static_assert(
        detail::expect<false,
                       mistake::the_options_come_first_so_write_Trainer_options_callbacks<First, Trainer>>());
  }
};

template <class... Callbacks>
Trainer(TrainerOptions, Callbacks...) -> Trainer<Callbacks...>;
template <class First, class... Rest>
  requires(!std::convertible_to<First, TrainerOptions>)
Trainer(First, Rest...) -> Trainer<>;
Trainer(...)->Trainer<>;

}  // namespace etude::inline v0
