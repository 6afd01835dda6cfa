#include "trainer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "etude/base/message.hpp"
#include "etude/callbacks/named_callbacks.hpp"
#include "etude/checkpoint/load_weights.hpp"
#include "etude/integrations/report_to.hpp"
#include "etude/metrics/named_metrics.hpp"
#include "etude/model/load_exported.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/nearest.hpp"
#include "program_optimizer.hpp"
#include "tensors.hpp"

namespace etude::inline v0::c {

void ProgramMemory::load_state(const torch::Tensor& saved) {
  if (saved.sizes() != memory_.sizes() || saved.scalar_type() != memory_.scalar_type())
    throw CheckpointError(fmt::format("the state '{}' is {} in the checkpoint: must be {}", name_,
                                      describe(saved), describe(memory_)));
  memory_.copy_(saved);
}

ProgramTrainer::ProgramTrainer(TrainerOptions options, std::function<void(double)> step)
    : TrainerBase(std::move(options)), step_(std::move(step)) {}

std::unique_ptr<Optimizer> ProgramTrainer::create_optimizer() {
  if (!step_) return TrainerBase::create_optimizer();
  return std::make_unique<ProgramOptimizer>(model().named_parameters(), args().learning_rate, step_);
}

Tensors ProgramTrainer::outputs_of(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  const AveragedWeightsInUse weights(core().optimizers);
  const auto mode = model().eval_guard();
  std::optional<Batch> cast;
  const auto& inputs = in_type_of_weights(core(), batch, cast).inputs;
  const auto lower = autocast();
  return model().forward(inputs).transform(as_float32);
}

namespace {

std::vector<std::string> label_names_of(const ExportedModuleImpl& model, const TrainingArguments& args) {
  if (args.label_names) return *args.label_names;
  std::vector<std::string> names;
  for (const auto& input : model.inputs())
    if (input.is_label) names.push_back(input.name);
  return names.empty() ? std::vector<std::string>{"labels"} : names;
}

/// Throws ArgumentError for invalid options.
Options checked(Options options) {
  etude::detail::check_fields(options.model);
  if (options.args.compiled_graph == CompiledGraphMode::required && !options.model.run_compiled_code)
    throw ArgumentError(
        "compiled_graph is required: run_compiled_code must be true, which runs native code from the model's "
        "file");
  return options;
}

ExportedModule loaded(const std::string& file, const Options& options) {
  auto model = load_exported(file, {.run_compiled_code = options.model.run_compiled_code});
  if (options.model.weights.empty()) return model;
  const auto report = load_weights(*model, options.model.weights);
  if (!report.is_complete())
    message(options.args, LogLevel::warning, "{}: {}", options.model.weights, report.text());
  return model;
}

std::deque<ProgramMemory> memory_of(const Options& options) {
  std::deque<ProgramMemory> memory;
  for (const auto& [name, tensors] : options.states)
    memory.emplace_back(view_of(tensors->tensors().front(), "the state '" + name + "'"), name);
  return memory;
}

std::function<void(double)> step_of(etude_trainer& trainer) {
  if (!trainer.options.optimizer.step) return {};
  return [&trainer, program = trainer.options.optimizer](double learning_rate) {
    if (const auto result = program.step(&trainer, learning_rate, program.user))
      throw Error(fmt::format("the program's optimizer returned {}", result));
  };
}

TrainerOptions trainer_options_of(etude_trainer& trainer) {
  const auto& options = trainer.options;
  TrainerOptions result{
      .model = trainer.model,
      .args = options.args,
      .loss = named_loss(options.model.loss),
      .compute_metrics = named_metrics(options.model.compute_metrics,
                                       trainer.model->loss_items() == LossItems::shifted_labels)};
  result.args.label_names = label_names_of(*trainer.model, options.args);
  if (options.train_dataset) result.train_dataset = trainer.dataset_of(*options.train_dataset);
  std::map<std::string, Dataset> named;
  for (const auto& [name, tensors] : options.eval_datasets) named.emplace(name, trainer.dataset_of(*tensors));
  if (named.size() == 1 && named.begin()->first.empty())
    result.eval_dataset = named.begin()->second;
  else if (!named.empty())
    result.eval_dataset = named;
  for (std::size_t i = 0; i < trainer.memory.size(); ++i)
    result.program_state.emplace_back(options.states[i].first, trainer.memory[i]);
  return result;
}

}  // namespace

}  // namespace etude::inline v0::c

etude_trainer::etude_trainer(const std::string& file, etude::c::Options given)
    : options(etude::c::checked(std::move(given))),
      model(etude::c::loaded(file, options)),
      fields(*model, options.model.loss, etude::c::label_names_of(*model, options.args)),
      memory(etude::c::memory_of(options)),
      trainer(etude::c::trainer_options_of(*this), etude::c::step_of(*this)) {
  etude::add_named_callbacks(trainer, options.model.callback);
  etude::add_trackers(trainer);
}

void etude_trainer::check_loss() const {
  const auto inputs = model->inputs();
  etude::check_loss(options.model.loss, model->input_names(),
                    std::ranges::any_of(inputs, [](const auto& input) { return input.is_label; }));
}

etude::Dataset etude_trainer::dataset_of(const etude::c::ProgramTensors& tensors) const {
  return etude::c::dataset_of(tensors, fields, etude::c::Fields::Labels::optional);
}

double etude_trainer::number(std::string_view name) {
  const auto& state = trainer.state();
  const auto& args = trainer.args();
  const auto read = [](const torch::Tensor& tensor) { return tensor.item<double>(); };
  if (name == "loss") {
    const auto now = trainer.step_loss();
    if (now.defined()) return read(now);
    if (loss.defined()) return read(loss);
  }
  if (name == "learning_rate")
    return trainer.optimizer() ? trainer.get_learning_rates().front() : args.learning_rate;
  if (name == "rank") return static_cast<double>(args.process_index());
  if (name == "world_size") return static_cast<double>(args.world_size());
  std::set<std::string, std::less<>> names{"learning_rate", "rank", "world_size"};
  std::optional<double> found;
  etude::for_each_field(state, [&]<class Value>(std::string_view field, const auto&, const Value& value) {
    const auto take = [&](auto number) {
      names.emplace(field);
      if (field == name) found = static_cast<double>(number);
    };
    if constexpr (std::is_arithmetic_v<Value>) {
      take(value);
    } else if constexpr (requires {
                           requires std::is_arithmetic_v<typename Value::value_type>;
                           value.has_value();
                         }) {
      if (value) take(*value);
    }
  });
  if (found) return *found;
  // Those of an evaluation after the training, which are newer than the history.
  if (const auto metric = metrics.find(std::string(name)); metric != metrics.end()) return metric->second;
  const auto& history = state.log_history;
  for (auto line = history.rbegin(); line != history.rend(); ++line)
    for (const auto& [key, value] : *line) {
      names.emplace(key);
      if (key == name && value.is_number()) return value.get<double>();
    }
  for (const auto& [key, value] : metrics) names.emplace(key);
  const std::vector<std::string_view> all(names.begin(), names.end());
  etude::c::refuse(ETUDE_INVALID_ARGUMENT, "there is no number '{}' now: must be one of {}{}", name,
                   fmt::join(all, ", "), etude::did_you_mean(name, all));
}

const std::vector<etude::NamedTensor>& etude_trainer::parameters() {
  if (parameters_.empty()) {
    parameters_ = trainer.model().named_parameters();
    for (std::size_t i = 0; i < parameters_.size(); ++i) places_.emplace(parameters_[i].first, i);
  }
  return parameters_;
}

const etude::NamedTensor& etude_trainer::parameter(const std::string& name) {
  const auto& all = parameters();
  if (const auto place = places_.find(name); place != places_.end()) return all[place->second];
  std::vector<std::string_view> names;
  for (const auto& [each, tensor] : all) names.push_back(each);
  etude::c::refuse(ETUDE_INVALID_ARGUMENT, "the model has no parameter '{}'{}", name,
                   etude::did_you_mean(name, names));
}

torch::Tensor etude_trainer::gradient(const etude::NamedTensor& parameter) {
  auto* optimizer = trainer.optimizer();
  if (!optimizer) return {};
  auto& flat = optimizer->flat_parameters();
  if (layout_ != flat.layout()) {
    layout_ = flat.layout();
    slots_.clear();
    for (std::size_t i = 0; i < layout_->slots.size(); ++i) slots_.emplace(layout_->slots[i].name, i);
  }
  const auto slot = slots_.find(parameter.first);
  if (slot == slots_.end() || !flat.has_gradient(slot->second)) return {};
  return parameter.second.grad();
}
