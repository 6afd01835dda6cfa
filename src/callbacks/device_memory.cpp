#include "etude/callbacks/device_memory.hpp"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "etude/callbacks/log_moment.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

torch::Device device_of_model(const Model& model) {
  const auto parameters = model.parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters.front().device();
}

void log_memory(const Context& e) {
  const auto gigabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  if (const auto device = device_memory(device_of_model(e.model))) {
    e.log("memory/current_allocated_mem", gigabytes(device->allocated));
    e.log("memory/peak_allocated_mem", gigabytes(device->peak_allocated));
    e.log("memory/current_reserved_mem", gigabytes(device->reserved));
    e.log("memory/peak_reserved_mem", gigabytes(device->peak_reserved));
  }
  e.log("memory/resident_mem", gigabytes(resident_memory()));
  e.log("memory/peak_resident_mem", gigabytes(peak_resident_memory()));
}

}  // namespace

}  // namespace detail

void DeviceMemoryMonitor::on(const StepEnd& e) {
  if (detail::log_goes_out(e, state.last_logged_step)) detail::log_memory(e);
}

void DeviceMemoryMonitor::on(const EpochEnd& e) {
  if (detail::log_goes_out(e, state.last_logged_step)) detail::log_memory(e);
}

MemoryMetricsCallback::Amount MemoryMetricsCallback::now(const Context& e) {
  Amount amount{.cpu = resident_memory()};
  if (const auto device = device_memory(detail::device_of_model(e.model))) amount.gpu = device->allocated;
  return amount;
}

void MemoryMetricsCallback::begin(const Context& e, std::string_view name) {
  stage = name;
  peak_before = reset_peak_resident_memory() ? 0 : peak_resident_memory();
  reset_peak_device_memory(detail::device_of_model(e.model));
  at_begin = now(e);
}

MemoryMetricsCallback::Deltas MemoryMetricsCallback::measure(const Context& e) const {
  const auto at_end = now(e);
  Deltas deltas;
  deltas.allocated.cpu = at_end.cpu - at_begin.cpu;
  if (const auto peak = peak_resident_memory(); peak > peak_before)
    deltas.peaked.cpu = std::max(std::int64_t{0}, peak - at_end.cpu);
  if (at_end.gpu) {
    deltas.allocated.gpu = *at_end.gpu - at_begin.gpu.value_or(0);
    const auto peak = device_memory(detail::device_of_model(e.model))->peak_allocated;
    deltas.peaked.gpu = std::max(std::int64_t{0}, peak - *at_end.gpu);
  }
  return deltas;
}

void MemoryMetricsCallback::on(const InitEnd& e) {
  at_begin = before_init;
  peak_before = peak_resident_memory();
  init = measure(e);
  reports_init = true;
}

void MemoryMetricsCallback::on(const TrainBegin& e) {
  is_training = reports_init = true;
  begin(e, "train");
}

void MemoryMetricsCallback::on(Log& e) {
  if (stage == "train" && e.logs.contains("train_runtime")) add_to(e.logs, e);
}

void MemoryMetricsCallback::on(const TrainEnd&) {
  is_training = false;
  stage.clear();
}

void MemoryMetricsCallback::begin_outside(const Context& e, std::string_view name) {
  if (!is_training) begin(e, name);
}

void MemoryMetricsCallback::end_outside() {
  if (!is_training) stage.clear();
}

void MemoryMetricsCallback::add_to(Metrics& metrics, const Context& e) {
  if (stage.empty() || (is_training && !metrics.contains("train_runtime"))) return;
  const auto add = [&](const std::string& name, const std::optional<std::int64_t>& value) {
    if (value) metrics[name] = static_cast<double>(*value);
  };
  const auto add_stage = [&](const std::string& name, const Deltas& deltas) {
    add(name + "_mem_cpu_alloc_delta", deltas.allocated.cpu);
    add(name + "_mem_gpu_alloc_delta", deltas.allocated.gpu);
    add(name + "_mem_cpu_peaked_delta", deltas.peaked.cpu);
    add(name + "_mem_gpu_peaked_delta", deltas.peaked.gpu);
  };
  const auto deltas = measure(e);
  if (std::exchange(reports_init, false)) {
    add("before_init_mem_cpu", before_init.cpu);
    if (init.allocated.gpu) add("before_init_mem_gpu", before_init.gpu.value_or(0));
    add_stage("init", init);
  }
  add_stage(stage, deltas);
}

}  // namespace etude::inline v0
