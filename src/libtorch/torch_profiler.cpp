#include "etude/libtorch/torch_profiler.hpp"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// When an event started and how long it took, in microseconds; older LibTorch doesn't count nanoseconds.
template <class Event>
std::pair<double, double> profiler_times(const Event& event) {
  if constexpr (requires { event.startNs(); })
    return {static_cast<double>(event.startNs()) / 1e3, static_cast<double>(event.durationNs()) / 1e3};
  else
    return {static_cast<double>(event.startUs()), static_cast<double>(event.durationUs())};
}

/// The CPU operators in the form that Kineto writes.
nlohmann::ordered_json chrome_trace(const torch::autograd::profiler::ProfilerResult& result) {
  auto events = nlohmann::ordered_json::array();
  for (const auto& event : result.events()) {
    const auto [begin, duration] = profiler_times(event);
    const bool is_range = event.scope() == static_cast<std::uint8_t>(at::RecordScope::USER_SCOPE);
    nlohmann::ordered_json args = nlohmann::ordered_json::object();
    if (event.hasShapes()) args["Input Dims"] = event.shapes().vec();
    events.push_back({{"ph", "X"},
                      {"cat", is_range ? "user_annotation" : "cpu_op"},
                      {"name", event.name()},
                      {"pid", 0},
                      {"tid", event.startThreadId()},
                      {"ts", begin},
                      {"dur", duration},
                      {"args", args}});
  }
  return {{"schemaVersion", 1}, {"traceEvents", events}};
}

}  // namespace

}  // namespace detail

Profiler::Profiler(const ProfilerDetails& details) {
  using namespace torch::profiler::impl;
  if (profilerEnabled()) throw Error("another LibTorch profiler is already running");
  const ProfilerConfig config(ProfilerState::KINETO, details.shapes, details.memory);
  std::set<ActivityType> activities{ActivityType::CPU};
  if (details.cuda) activities.insert(ActivityType::CUDA);
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
}

Profiler::~Profiler() {
  try {
    if (runs_) torch::autograd::profiler::disableProfiler();
  } catch (...) {  // The profiler has ended either way.
  }
}

void Profiler::save(const std::filesystem::path& path) {
  runs_ = false;
  const auto result = torch::autograd::profiler::disableProfiler();
  if (!result) throw Error("the trace can't be written: the profiler was stopped elsewhere");
  auto partial = path;
  partial += ".partial";
  std::error_code fault;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), fault);
  try {
    result->save(partial.string());
  } catch (const c10::Error&) {  // This LibTorch was built without Kineto.
    std::ofstream(partial, std::ios::binary) << detail::chrome_trace(*result);
  }
  std::filesystem::rename(partial, path, fault);
  if (fault) throw Error(fmt::format("the trace can't be written to {}: {}", path.string(), fault.message()));
}

struct ProfilerRange::State {
  at::RecordFunction function{at::RecordScope::USER_SCOPE};
};

ProfilerRange::ProfilerRange(const std::string& name) : state_(std::make_unique<State>()) {
  if (state_->function.isActive()) state_->function.before(name);
}

ProfilerRange::~ProfilerRange() = default;

}  // namespace etude::inline v0
