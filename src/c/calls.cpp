#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/checkpoint/trainer_state_text.hpp"
#include "etude/data/tensors.hpp"
#include "tensors.hpp"
#include "trainer.hpp"

namespace etude::inline v0::c {

namespace {

TrainOptions resume_from(const char* checkpoint) {
  if (!checkpoint) return {};
  const auto folder = required_text(checkpoint, "checkpoint");
  if (folder == "newest") return {.resume_from_checkpoint = if_any};
  if (folder.empty()) refuse(ETUDE_INVALID_ARGUMENT, "checkpoint is '': must be null, newest, or a folder");
  return {.resume_from_checkpoint = folder};
}

void check_is_stepping(const etude_trainer& it, const char* function) {
  if (!it.trainer.is_stepping())
    refuse(ETUDE_WRONG_CALL,
           "{} was called, but no training is under way: must come after etude_trainer_begin", function);
}

void check_is_idle(const etude_trainer& it, const char* function) {
  if (it.trainer.is_stepping())
    refuse(ETUDE_WRONG_CALL,
           "{} was called while a training is under way: must come after etude_trainer_finish", function);
}

/// Refuses the call if the training has stopped, or if its steps are made by other calls.
void check_goes_on(etude_trainer& it, const char* function, bool is_half) {
  check_is_stepping(it, function);
  if (it.has_stopped)
    refuse(ETUDE_WRONG_CALL, "{} was called, but the training has stopped: must be etude_trainer_finish",
           function);
  if (it.halves.value_or(is_half) != is_half)
    refuse(ETUDE_WRONG_CALL,
           "{} was called in a training that uses {}: must be one or the other until finish", function,
           is_half ? "etude_trainer_step" : "etude_trainer_backward and etude_trainer_update");
}

void note(etude_trainer& it, const StepOutput& output, std::int32_t* should_stop) {
  if (output.loss.defined()) it.loss = output.loss;
  it.has_stopped = output.should_stop;
  if (should_stop) *should_stop = output.should_stop ? 1 : 0;
}

void begin_anew(etude_trainer& it) {
  it.has_stopped = it.has_gradients = false;
  it.halves.reset();
  it.loss = torch::Tensor();
  it.metrics.clear();
}

/// Memory of the program for an output.
torch::Tensor memory_for(const torch::Tensor& output, const etude_tensor& into, const std::string& title) {
  auto memory = writable_view_of(into, title);
  if (memory.sizes() != output.sizes())
    throw DataError(fmt::format("{} is {}: must have the shape of the output, {}", title, describe(memory),
                                describe(output)));
  return memory;
}

void copy_outputs(const Tensors& outputs, const etude_tensor* into, std::int32_t count) {
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies;
  for (std::int32_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::size_t>(i);
    if (!into[i].name && place >= outputs.size())
      throw DataError(
          fmt::format("there are {} outputs to write, but the model has {}", count, outputs.size()));
    const auto title =
        into[i].name ? fmt::format("output '{}'", into[i].name) : fmt::format("output {}", place);
    const auto& output = into[i].name ? outputs.at(into[i].name) : outputs[place];
    copies.emplace_back(memory_for(output, into[i], title), output);
  }
  for (const auto& [memory, output] : copies) memory.copy_(output);
}

}  // namespace

}  // namespace etude::inline v0::c

using namespace etude::c;

extern "C" {

etude_status etude_trainer_create(const char* model, const etude_options* options, etude_trainer** trainer) {
  return guarded([&] {
    auto& result = required(trainer, "trainer");
    result = nullptr;
    const auto file = required_text(model, "model");
    result = std::make_unique<etude_trainer>(file, options ? options->content : Options()).release();
  });
}

void etude_trainer_destroy(etude_trainer* trainer) {
  if (!trainer) return;
  // Fails if the trainer is in a call, which would go on without it. Callbacks of TrainEnd find it whole.
  const auto status =
      call(trainer, __func__, not_in_callbacks, [](etude_trainer& it) { it.trainer.abandon(); });
  if (status == ETUDE_OK) delete trainer;
}

etude_status etude_trainer_train(etude_trainer* trainer, const char* checkpoint) {
  return call(trainer, __func__, not_in_callbacks, [&](etude_trainer& it) {
    check_is_idle(it, "etude_trainer_train");
    it.check_loss();
    begin_anew(it);
    it.trainer.train(resume_from(checkpoint));
  });
}

etude_status etude_trainer_begin(etude_trainer* trainer, const char* checkpoint) {
  return call(trainer, __func__, not_in_callbacks, [&](etude_trainer& it) {
    check_is_idle(it, "etude_trainer_begin");
    it.check_loss();
    begin_anew(it);
    it.trainer.begin(resume_from(checkpoint));
  });
}

etude_status etude_trainer_step(etude_trainer* trainer, const etude_tensor* tensors, int32_t count,
                                int32_t* should_stop) {
  return call(trainer, __func__, not_in_callbacks, [&](etude_trainer& it) {
    check_goes_on(it, "etude_trainer_step", /*is_half=*/false);
    // The program may change its memory while a batch waits for the rest of its update.
    const auto output =
        it.trainer.step(it.trainer.batches_per_update() > 1
                            ? it.fields.batch(tensors, count, Fields::Labels::required,
                                              Fields::Memory::copied, it.trainer.device())
                            : it.fields.batch(tensors, count, it.trainer.device(), it.shared));
    it.halves = false;
    note(it, output, should_stop);
  });
}

etude_status etude_trainer_backward(etude_trainer* trainer, const etude_tensor* tensors, int32_t count) {
  return call(trainer, __func__, not_in_callbacks, [&](etude_trainer& it) {
    check_goes_on(it, "etude_trainer_backward", /*is_half=*/true);
    it.trainer.backward(it.fields.batch(tensors, count, it.trainer.device(), it.shared));
    it.halves = it.has_gradients = true;
  });
}

etude_status etude_trainer_update(etude_trainer* trainer, int32_t* should_stop) {
  return call(trainer, __func__, not_in_callbacks, [&](etude_trainer& it) {
    check_goes_on(it, "etude_trainer_update", /*is_half=*/true);
    if (!it.has_gradients)
      refuse(ETUDE_WRONG_CALL,
             "etude_trainer_update was called without gradients: must come after "
             "etude_trainer_backward");
    it.has_gradients = false;
    note(it, it.trainer.update(), should_stop);
  });
}

etude_status etude_trainer_finish(etude_trainer* trainer) {
  return call(trainer, __func__, not_in_callbacks, [&](etude_trainer& it) {
    check_is_stepping(it, "etude_trainer_finish");
    if (const auto last = it.trainer.step_loss(); last.defined()) it.loss = last;
    it.trainer.finish();
  });
}

etude_status etude_trainer_evaluate(etude_trainer* trainer, const etude_dataset* dataset) {
  return call(trainer, __func__, not_in_callbacks, [&](etude_trainer& it) {
    it.check_loss();
    if (!dataset && it.options.eval_datasets.empty())
      refuse(ETUDE_INVALID_ARGUMENT, "dataset is null, and the options have no eval dataset");
    etude::EvaluateOptions how;
    if (dataset) how.eval_dataset = it.dataset_of(*dataset->tensors);
    const auto found = it.trainer.evaluate(how);
    if (!it.trainer.is_stepping()) it.metrics = found;
  });
}

etude_status etude_trainer_predict(etude_trainer* trainer, const etude_tensor* inputs, int32_t input_count,
                                   const etude_tensor* outputs, int32_t output_count) {
  return call(trainer, __func__, not_in_callbacks, [&](etude_trainer& it) {
    if (output_count < 0 || (output_count > 0 && !outputs))
      refuse(ETUDE_INVALID_ARGUMENT, "output_count is {}: must be the number of outputs, or 0", output_count);
    const auto batch = it.fields.batch(inputs, input_count, Fields::Labels::refused,
                                       Fields::Memory::of_program, it.trainer.device());
    const auto computed = it.trainer.outputs_of(batch);
    copy_outputs(computed, outputs, output_count);
    // An output may be a view of an input, whose memory the program may change.
    it.outputs = computed.transform([&](const torch::Tensor& each) {
      const auto is_source = [&](const torch::Tensor& input) { return input.is_alias_of(each); };
      return std::ranges::any_of(batch.inputs, is_source) ? each.clone() : each;
    });
  });
}

etude_status etude_trainer_output(etude_trainer* trainer, int32_t index, etude_tensor* output) {
  return call(trainer, __func__, in_callbacks, [&](etude_trainer& it) {
    auto& result = required(output, "output");
    const auto& all = it.outputs;
    if (index < 0 || static_cast<std::size_t>(index) >= all.size())
      refuse(ETUDE_INVALID_ARGUMENT, "index is {}, but the last prediction has {} outputs", index,
             all.size());
    const auto place = static_cast<std::size_t>(index);
    result = described(all[place], all.names().empty() ? nullptr : all.names()[place].c_str());
  });
}

etude_status etude_trainer_save_model(etude_trainer* trainer, const char* folder) {
  return call(trainer, __func__, in_callbacks,
              [&](etude_trainer& it) { it.trainer.save_model(required_text(folder, "folder")); });
}

etude_status etude_trainer_save_checkpoint(etude_trainer* trainer) {
  return call(trainer, __func__, not_in_callbacks, [&](etude_trainer& it) {
    check_is_stepping(it, "etude_trainer_save_checkpoint");
    it.trainer.save_checkpoint();
    it.trainer.wait_for_checkpoint();
  });
}

etude_status etude_trainer_pause(etude_trainer* trainer) {
  return guarded([&] { required(trainer, "trainer").trainer.pause(); });
}

etude_status etude_trainer_resume(etude_trainer* trainer) {
  return guarded([&] { required(trainer, "trainer").trainer.resume(); });
}

etude_status etude_trainer_cancel(etude_trainer* trainer, const char* reason) {
  return guarded([&] {
    auto& it = required(trainer, "trainer").trainer;
    if (!(reason ? it.cancel(required_text(reason, "reason")) : it.cancel()))
      refuse(ETUDE_WRONG_CALL, "etude_trainer_cancel was called, but no training is under way");
  });
}

etude_status etude_trainer_number(etude_trainer* trainer, const char* name, double* value) {
  return call(trainer, __func__, in_callbacks,
              [&](etude_trainer& it) { required(value, "value") = it.number(required_text(name, "name")); });
}

etude_status etude_trainer_state(etude_trainer* trainer, const char** json) {
  return call(trainer, __func__, in_callbacks, [&](etude_trainer& it) {
    auto& result = required(json, "json");
    it.state_text = etude::trainer_state_text(it.trainer.state());
    result = it.state_text.c_str();
  });
}

etude_status etude_trainer_parameter_count(etude_trainer* trainer, int64_t* count) {
  return call(trainer, __func__, in_callbacks, [&](etude_trainer& it) {
    required(count, "count") = static_cast<int64_t>(it.parameters().size());
  });
}

etude_status etude_trainer_parameter_name(etude_trainer* trainer, int64_t index, const char** name) {
  return call(trainer, __func__, in_callbacks, [&](etude_trainer& it) {
    auto& result = required(name, "name");
    const auto& all = it.parameters();
    if (index < 0 || static_cast<std::size_t>(index) >= all.size())
      refuse(ETUDE_INVALID_ARGUMENT, "index is {}, but the model has {} parameters", index, all.size());
    result = all[static_cast<std::size_t>(index)].first.c_str();
  });
}

etude_status etude_trainer_parameter(etude_trainer* trainer, const char* name, etude_tensor* parameter) {
  return call(trainer, __func__, in_callbacks, [&](etude_trainer& it) {
    auto& result = required(parameter, "parameter");
    const auto& found = it.parameter(required_text(name, "name"));
    result = described(found.second, found.first.c_str());
  });
}

etude_status etude_trainer_gradient(etude_trainer* trainer, const char* name, etude_tensor* gradient) {
  return call(trainer, __func__, in_callbacks, [&](etude_trainer& it) {
    auto& result = required(gradient, "gradient");
    const auto& found = it.parameter(required_text(name, "name"));
    const auto now = it.gradient(found);
    if (now.defined() && now.is_sparse())
      refuse(ETUDE_WRONG_CALL, "the gradient of '{}' is sparse: only dense ones can be read", found.first);
    result = described(now.defined() ? now : found.second, found.first.c_str());
    if (!now.defined()) result.data = nullptr;
  });
}

etude_status etude_trainer_request(etude_trainer* trainer, int32_t request) {
  return call(trainer, __func__, in_callbacks, [&](etude_trainer& it) {
    auto& control = it.trainer.control();
    switch (request) {
      case ETUDE_STOP:
        return control.request_stop("the program requested it");
      case ETUDE_STOP_EPOCH:
        control.should_epoch_stop = true;
        return;
      case ETUDE_SAVE:
        control.should_save = true;
        return;
      case ETUDE_EVALUATE:
        control.should_evaluate = true;
        return;
      case ETUDE_LOG:
        control.should_log = true;
        return;
    }
    refuse(ETUDE_INVALID_ARGUMENT, "request is {}: must be one of ETUDE_STOP (0) to ETUDE_LOG (4)", request);
  });
}

}  // extern "C"
