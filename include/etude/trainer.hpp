#pragma once

#include <boost/hana/unpack.hpp>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
#include "etude/dispatch/event_table.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/optimizer_handle.hpp"
#include "etude/loop/sharded_parameters.hpp"
#include "etude/loop/stepped_training.hpp"
#include "etude/loop/trainer_checks.hpp"
#include "etude/loop/trainer_methods.hpp"
#include "etude/loop/trainer_table.hpp"
#include "etude/loop/write_checkpoint.hpp"
#include "etude/metrics/report.hpp"
#include "etude/parallel/processes.hpp"

namespace etude::inline v0 {

template <class... List>
class Trainer;

namespace detail {
/// The callbacks that every trainer has by default; args.report disables one of the last two, or both.
struct TrainerDefaults {
  using events = Vocabulary;
  using first = callbacks<DefaultFlowCallback>;
  using last = callbacks<ProgressCallback, PrinterCallback>;
};

template <>
inline constexpr bool leaves_out<Quiet, ProgressCallback> = true;
template <>
inline constexpr bool leaves_out<Quiet, PrinterCallback> = true;
}  // namespace detail

template <class... List>
using TrainerComposition = Composition<detail::TrainerDefaults, List...>;

/// The base of custom trainers: derive as `struct MyTrainer : etude::TrainerBase<MyTrainer, Callbacks...>`,
/// with `using TrainerBase::TrainerBase;`, and redefine any method under "Overridable". Overrides are called
/// statically, and may call the base's methods. If the derived class has `on(const Event&)`, it receives that
/// event before its callbacks. Classes derived further can't override anything, so make it final.
/// `Trainer<Callbacks...>` overrides nothing.
template <class Derived, class... List>
class TrainerBase {
  using Composed = TrainerComposition<List...>;
  using Processes = typename detail::processes_of<List...>::type;
  static_assert(Composed::checks::passed());
  using Callbacks = typename Composed::callbacks_list;
  using Handler = typename Composed::handler;

 public:
  /// Builds the trainer from `options` and the given callbacks; callbacks of the list that aren't given are
  /// default constructed. Throws `ArgumentError` that lists every invalid option, or for a callback that is
  /// given as its base. Also throws `DataError`, and exceptions of callbacks in `InitEnd`.
  template <class... Given>
  explicit TrainerBase(TrainerOptions options, Given&&... given)
      : handler_(Composed::maker::make(detail::take_given(std::forward<Given>(given)...))) {
    static_assert(detail::check_given<Derived, callbacks<List...>, std::remove_cvref_t<Given>...>());
    if constexpr (!std::same_as<Derived, Trainer<List...>>)
      static_assert(
          detail::check_trainer<Derived, TrainerBase, Composed::closed>(typename Composed::known_events{}));
    events_.connect(TrainerRef(*this), table<Derived>);
    boost::hana::unpack(handler_.callbacks(), [&](auto&... each) { (events_.list(each), ...); });
    detail::initialise(events_, std::move(options),
                       {.overrides = detail::overrides_of<Derived, TrainerBase>(),
                        .is_quiet = (std::same_as<List, Quiet> || ...),
                        .shard_stage = shard_stage(),
                        .join = [](const TrainingArguments& args) -> std::shared_ptr<Communicator> {
                          return Processes::join(args);
                        }});
  }
  /// Chosen if the braces can't initialize TrainerOptions: an option is misspelt, or a value has the wrong
  /// type.
  template <class Mistake =
                mistake::braces_are_no_TrainerOptions_so_write_etude_TrainerOptions_before_them_to_see_why>
  explicit TrainerBase(...) = delete;
  TrainerBase(const TrainerBase&) = delete;
  TrainerBase& operator=(const TrainerBase&) = delete;

  /// Trains the model on `train_dataset` according to the arguments. A second call continues with the current
  /// weights and optimizer (with `model_init`, it starts from scratch).
  TrainOutput train(const TrainOptions& options = {}) { return detail::train(events_, stepped_, options); }

  /// Begins a training that the program's own loop drives: `step` gives it batches, `finish` ends it. It
  /// raises the same events and writes the same checkpoints and logs as `train()`, with one epoch that lasts
  /// until `finish` or until `should_epoch_stop` is set. `train_dataset` isn't used. `max_steps` may be left
  /// out if the schedule has no end (`constant`) and no interval is a fraction of it; otherwise throws
  /// `ArgumentError`. A resumed training has the weights, optimizer, schedule, generators, callbacks and step
  /// of the checkpoint; the program decides which batches come next. With several processes, all must make
  /// the same calls.
  void begin(const TrainOptions& options = {}) { stepped_.begin(options); }

  /// Trains on a micro-batch, on any device; the first call begins the training. Every
  /// `gradient_accumulation_steps` calls make one update, which runs entirely in the last call, because a
  /// loss may be divided by the number of labels in the whole group. Throws `DataError` for tensors that
  /// aren't a valid batch, and ignores them. Throws `Error` if an earlier call has returned `should_stop`.
  /// Any other exception ends the training as it does in `train()`.
  StepOutput step(Batch batch) { return stepped_.step(std::move(batch)); }
  StepOutput step(Tensors inputs, Tensors labels) {
    return step(Batch{std::move(inputs), std::move(labels)});
  }

  /// After `begin`, ends a micro-batch of a training whose losses the program computes itself. The last of
  /// every `gradient_accumulation_steps` calls makes the update with the gradients of `backward`: it steps
  /// each optimizer that has gradients and that `update(optimizer)` hasn't stepped already. Logs, evaluations
  /// and checkpoints that are due follow. Throws `Error` if there is no loss, in a training by `step(batch)`,
  /// and if an earlier call has returned `should_stop`. Any other exception ends the training as it does in
  /// `train()`.
  StepOutput update() { return stepped_.update(); }
  /// Steps one optimizer before `update()`, and clears the gradients of its parameters. In a group of several
  /// micro-batches, only the call for the last one does so.
  void update(std::string_view optimizer) { stepped_.update(optimizer); }
  /// `backward` and `update` in one call.
  StepOutput update(const torch::Tensor& loss) {
    backward(loss);
    return update();
  }
  void update(const torch::Tensor& loss, std::string_view optimizer) {
    backward(loss, optimizer);
    update(optimizer);
  }

  /// While the result lives, this thread computes in the precision of the arguments (`bf16`, `fp16`), as in
  /// the trainer's own forward passes. Use it for forward passes whose loss the program computes, and destroy
  /// it before `update()`.
  [[nodiscard]] AutocastGuard autocast() const {
    return AutocastGuard(core().device.type(), autocast_dtype(core().args));
  }

  /// Ends a training by steps: makes an update with the remaining micro-batches, if any, then the last
  /// evaluation and checkpoint, and raises `TrainEnd`. If `finish` wasn't called, the trainer's destructor
  /// ends the training without an evaluation, a checkpoint or an exception; the handlers of a class derived
  /// from TrainerBase aren't called then, only its callbacks.
  TrainOutput finish() { return stepped_.finish(); }

  /// These methods may be called from any thread. A paused training waits before its next step. A cancelled
  /// one stops after the current step, as if a callback had requested it, with the last evaluation and
  /// checkpoint; an evaluation under way is finished first. `cancel` returns false if no training is under
  /// way. If one process is paused, the others wait for at most `ddp_timeout`; if one is cancelled, all stop.
  void pause() { core().remote.pause(); }
  void resume() { core().remote.resume(); }
  bool is_paused() const { return core().remote.is_paused(); }
  bool cancel(std::string_view reason = "the training was cancelled") { return core().remote.cancel(reason); }

  /// The model's outputs for every example of `dataset`, in order, and metrics if it has labels.
  PredictionOutput predict(const Dataset& dataset, const PredictOptions& options = {}) {
    return detail::predict(events_, dataset, options);
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
    if constexpr (handles_itself<Plain>()) detail::deliver(derived(), event);
    handler_.call_event(std::forward<Event>(event));
  }

  /// How the loop raises each of its events to this trainer: a constant.
  static constexpr const EventTable& event_table() { return table<Derived>.events; }

  /// Whether any callback of the list handles `Event`.
  template <class Event>
  static constexpr bool handles = Handler::template handles<Event>;

  /// Whether the list contains a callback of this type.
  template <class Callback>
  static constexpr bool lists = []<class... Static>(callbacks<Static...>) {
    return (std::same_as<Static, Callback> || ...);
  }(Callbacks{});

  /// The types of all callbacks: first the list, then those added at run time.
  std::vector<std::string_view> callback_names() const { return events_.callback_names(); }

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

  /// Adds a callback at run time; it runs after those of the list. It doesn't receive `InitEnd`. During a
  /// training with ShardedDataParallel<3>, throws `ArgumentError` for a callback that reads the parameters.
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
      if (core().sharded_units && detail::reads_parameters(std::as_const(callback)))
        detail::refuse_reader(short_type_name<Callback>());
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
  std::vector<EventHandlers> event_handlers() const { return events_.event_handlers(); }

  const TrainingArguments& args() const { return core().args; }
  const TrainerState& state() const { return core().state; }
  TrainerControl& control() { return core().control; }
  Model& model() { return core().model; }
  Optimizer* optimizer() { return core().optimizers.current(); }
  /// One of several optimizers. Throws ArgumentError for an unknown name, listing the valid ones, and before
  /// the first training.
  OptimizerHandle optimizer(std::string_view name) { return {core(), core().optimizers.find(name)}; }
  LRScheduler* lr_scheduler() { return core().optimizers.current_scheduler(); }
  Context context() { return core().context(); }

  std::int64_t get_num_trainable_parameters() const { return core().trainable_parameters(); }
  /// Calls backward on a loss of one element; use it instead of `loss.backward()`. It scales the loss for
  /// fp16, and divides it by the number of micro-batches and processes unless something else does.
  ///
  /// In an overridden `training_step`, `loss` is the loss of the step; if that method steps the optimizers by
  /// hand, `backward` also multiplies the loss by the micro-batch's share of its group. In a program's own
  /// loop, after `begin`, it replaces `step(batch)`: gradients and losses add up until `update`. Throws
  /// `DataError` for a loss that can't be differentiated, and `ArgumentError` for options and callbacks that
  /// need the batches; the training continues after either. Any other exception ends it as it does in
  /// `train()`.
  void backward(const torch::Tensor& loss) { backward(LossOutput{.loss = loss}); }
  /// The same, and adds `computed.logs`, the parts of the loss, to the next log.
  void backward(const LossOutput& computed) {
    stepped_.takes_losses() ? stepped_.backward(computed) : core().backward(computed.loss);
  }
  /// The same in a program's own loop, but computes gradients only for one optimizer's parameters. With
  /// several optimizers, the loss is logged under the optimizer's name: "critic_loss".
  void backward(const torch::Tensor& loss, std::string_view optimizer) {
    backward(LossOutput{.loss = loss}, optimizer);
  }
  void backward(const LossOutput& computed, std::string_view optimizer) {
    stepped_.backward(computed, optimizer);
  }
  /// In a program's own loop, computes the loss of a batch as `step(batch)` does, and its gradients: the
  /// first half of a step, which `update` completes. The loss is the mean over the labels of this batch
  /// alone.
  template <std::same_as<Batch> B>
  void backward(B batch) {
    stepped_.backward(std::move(batch));
  }
  /// The learning rate of each parameter group. Throws `ArgumentError` if the optimizer doesn't exist yet.
  std::vector<double> get_learning_rates() const { return core().learning_rates(); }
  /// Writes the weights, and the processing class if any, to a folder.
  void save_model(const std::filesystem::path& directory) const { core().save_model(directory); }
  /// Waits until the checkpoint started by `save_checkpoint` is on disk; rethrows the exception if writing it
  /// failed.
  void wait_for_checkpoint() { core().checkpoint_writer.wait(); }
  /// Logs samples immediately by raising `LogSamples`: see `Context::log_text`.
  void log_text(std::string_view name, std::string_view text) { log_samples({text_sample(name, text)}); }
  void log_image(std::string_view name, const torch::Tensor& image, std::string_view caption = "") {
    log_samples({image_sample(name, image, caption)});
  }
  void log_audio(std::string_view name, const torch::Tensor& audio, std::int64_t sample_rate,
                 std::string_view caption = "") {
    log_samples({audio_sample(name, audio, sample_rate, caption)});
  }
  void log_samples(const std::vector<Sample>& samples) { detail::log_samples(events_, samples); }
  /// Prints metrics as a table.
  void log_metrics(std::string_view split, const Metrics& metrics) const {
    if (core().state.is_world_process_zero) write_text(stdout, format_metrics(split, metrics));
  }
  /// Writes `output_dir/SPLIT_results.json`, and adds the metrics to `all_results.json` next to it.
  void save_metrics(std::string_view split, const Metrics& metrics, bool combined = true) const {
    if (core().state.is_world_process_zero)
      etude::save_metrics(core().options.files(), core().args.output_dir, split, metrics, combined);
  }
  /// Batch sizes, steps per epoch, ... of the last training; empty before the first.
  const TrainerRunConfig& run_config() const { return core().run_config; }
  /// The wall time by activity of the training under way, or of the last one.
  TimeByActivity time_by_activity() const { return core().activity_clock.times(); }

  // Overridable.

  /// Evaluates on `eval_dataset`: {"eval_loss", the results of `compute_metrics`, "eval_runtime", ...}. With
  /// several datasets, the keys contain their names ("eval_news_loss"), and the result has the metrics of
  /// all. `train()` calls it without options when an evaluation is due, and uses the result to find the best
  /// model.
  Metrics evaluate(const EvaluateOptions& options = {}) { return detail::evaluate(events_, options); }

  std::unique_ptr<DataLoader> get_train_dataloader() { return core().make_train_dataloader(); }
  std::unique_ptr<DataLoader> get_eval_dataloader(const Dataset& dataset) {
    return core().make_eval_dataloader(dataset);
  }

  std::unique_ptr<Optimizer> create_optimizer() { return core().make_optimizer(); }
  std::unique_ptr<LRScheduler> create_scheduler(std::int64_t max_steps) {
    return core().make_scheduler(max_steps);
  }

  /// The loss of a batch, one element, and the model's outputs. `num_items_in_batch` is the number of labels
  /// in the whole accumulation group (other than -100); set `counts_items` if the loss is divided by it.
  LossOutput compute_loss(const Batch& batch, std::optional<double> num_items_in_batch = {}) {
    return etude::compute_loss(core(), batch, num_items_in_batch);
  }

  /// Calls the trainer's compute_loss() in the precision of the arguments, and returns its results as
  /// float32.
  LossOutput compute_loss_in_precision(const Batch& batch, std::optional<double> num_items_in_batch) {
    return detail::compute_loss_in_precision(events_, batch, num_items_in_batch);
  }

  /// The floating-point operations of the forward and backward pass of a micro-batch, for `state.total_flos`.
  double floating_point_ops(const Batch& batch) { return core().token_counter.floating_point_ops(batch); }

  /// Runs forward and backward on one micro-batch; returns its share of the group's loss, detached.
  torch::Tensor training_step(Batch& batch) { return detail::training_step(events_, batch); }

  /// Runs forward on one evaluation or prediction batch, without gradients.
  PredictionStepOutput prediction_step(const Batch& batch, const std::vector<std::string>& ignore_keys) {
    return detail::prediction_step(events_, batch, ignore_keys);
  }

  /// Adds `epoch` and the values logged by callbacks to `logs`, appends them to `state.log_history` and
  /// raises `Log`.
  void log(Metrics& logs) { detail::log(events_, logs); }

  /// Logs a value; a tensor must have one element. In `compute_loss`, the value is a part of the loss and is
  /// averaged like the loss. In an evaluation, it is a metric and gets the evaluation's prefix. Elsewhere,
  /// the next log has the mean of the values.
  void log(std::string_view name, double value) { core().log(name, value); }
  void log(std::string_view name, const torch::Tensor& value) { core().log(name, value); }

  /// Writes `output_dir/checkpoint-STEP` atomically, and returns its path.
  /// With `save_async`, writing may still be in progress when this returns.
  std::filesystem::path save_checkpoint() { return detail::save_checkpoint(events_); }

  /// Writes `output_dir/trainer_state.json`: the current state, including the whole log history.
  void save_state() { write_trainer_state(core(), events_.states()); }

 protected:
  Derived& derived() { return static_cast<Derived&>(*this); }

 private:
  friend Derived;
  friend struct detail::EventTables;

  /// Protected: write struct Mine : etude::TrainerBase<Mine, ...>
  ~TrainerBase() {
    // The derived part is destroyed already.
    if constexpr (!std::same_as<Derived, Trainer<List...>>) {
      derived_is_gone_ = true;
      events_.connect(TrainerRef(*this), table<TrainerBase>);
    }
  }

  TrainerCore& core() { return events_.core(); }
  const TrainerCore& core() const { return events_.core(); }

  /// Whether the trainer itself may have handlers.
  static consteval bool has_handlers() {
    if constexpr (std::same_as<Derived, Trainer<List...>>)
      return false;
    else
      return detail::has_name_on<Derived>() || std::is_final_v<Derived>;
  }

  /// Whether the trainer itself handles `Event`.
  template <class Event>
  static consteval bool handles_itself() {
    if constexpr (has_handlers()) {
      static_assert(detail::check_event<Event, Derived>());
      return Handles<Derived, Event>;
    } else {
      return false;
    }
  }

  // For the event table: the trainer itself comes before its callbacks.

  template <class Event>
  static consteval bool hears() {
    static_assert(Handler::template may_raise<Event>());
    return handles_itself<Event>() || Handler::template handles<Event>;
  }
  template <class Event>
  static consteval bool is_written() {
    if constexpr (handles_itself<Event>())
      return Writes<Derived, Event> || Handler::template writes<Event>;
    else
      return Handler::template writes<Event>;
  }
  template <class Event>
  [[gnu::always_inline]] void deliver(Event& event) {
    if constexpr (handles_itself<Event>())
      if (!derived_is_gone_) detail::deliver(derived(), event);
    handler_.call_event(event);
  }
  template <class Event>
  void deliver_to_all(Event& event, detail::OnError on_error, detail::TracedCallbacks& traced) {
    if constexpr (handles_itself<Event>())
      if (!derived_is_gone_) detail::deliver_to_all(derived(), event, on_error, traced);
    handler_.call_event_to_all(event, on_error, traced);
  }

  static consteval const detail::Handling* own_handling() {
    if constexpr (has_handlers())
      return detail::handlings_of<Derived>(Vocabulary{});
    else
      return nullptr;
  }

  /// The handlers of all events; null if the trainer has no events besides the loop's.
  static consteval auto handlers_of_own_events() -> std::vector<EventHandlers> (*)(TrainerRef) {
    using Known = typename Composed::known_events;
    if constexpr (std::same_as<Known, Vocabulary>)
      return nullptr;
    else
      return [](TrainerRef trainer) {
        return etude::event_handlers(trainer.as<TrainerBase>().handler_, Known{});
      };
  }

  /// Has the methods of `Whose`: the derived class or, in the destructor, this one.
  template <class Whose>
  static constexpr TrainerTable table{detail::EventTables::make<TrainerBase>(Vocabulary{}),
                                      detail::methods_of<TrainerBase, Whose>(), short_type_name<Derived>(),
                                      own_handling(), handlers_of_own_events()};

  static consteval std::optional<ShardStage> shard_stage() {
    if constexpr (requires { Processes::stage; })
      return Processes::stage;
    else
      return {};
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

  Handler handler_;
  EventSource events_;
  SteppedTraining stepped_{events_};
  bool derived_is_gone_ = false;
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
