#pragma once

#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/autograd/profiler_legacy.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <system_error>

#include "etude/error.hpp"
#include "etude/libtorch/profiler.hpp"
#include "etude/linkage.hpp"

namespace etude {

namespace detail {

/// Whether Kineto records now; false where this LibTorch has none.
inline bool begin_kineto(const ProfilerDetails& details) {
  using namespace torch::profiler::impl;
  const ProfilerConfig config(ProfilerState::KINETO, details.shapes, details.memory);
  std::set<ActivityType> activities{ActivityType::CPU};
  if (details.cuda) activities.insert(ActivityType::CUDA);
  try {
    torch::autograd::profiler::prepareProfiler(config, activities);
    torch::autograd::profiler::enableProfiler(config, activities);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace detail

struct Profiler::State {
  bool is_kineto = false;
  std::ostringstream trace;
  std::unique_ptr<torch::autograd::profiler::RecordProfile> legacy;
};

ETUDE_INLINE Profiler::Profiler(const ProfilerDetails& details) : state_(std::make_unique<State>()) {
  state_->is_kineto = detail::begin_kineto(details);
  if (!state_->is_kineto)
    state_->legacy = std::make_unique<torch::autograd::profiler::RecordProfile>(state_->trace);
}

ETUDE_INLINE Profiler::~Profiler() {
  try {
    if (state_->is_kineto) torch::autograd::profiler::disableProfiler();
  } catch (...) {  // It is over, one way or the other.
  }
}

ETUDE_INLINE void Profiler::save(const std::filesystem::path& path) {
  auto partial = path;
  partial += ".partial";
  std::error_code fault;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), fault);
  if (state_->is_kineto) {
    state_->is_kineto = false;
    torch::autograd::profiler::disableProfiler()->save(partial.string());
  } else {
    state_->legacy.reset();
    std::ofstream(partial, std::ios::binary) << state_->trace.str();
  }
  std::filesystem::rename(partial, path, fault);
  if (fault) throw Error(fmt::format("the trace can't be written to {}: {}", path.string(), fault.message()));
}

struct ProfilerRange::State {
  at::RecordFunction function{at::RecordScope::USER_SCOPE};
};

ETUDE_INLINE ProfilerRange::ProfilerRange(const std::string& name) : state_(std::make_unique<State>()) {
  if (state_->function.isActive()) state_->function.before(name);
}

ETUDE_INLINE ProfilerRange::~ProfilerRange() = default;

}  // namespace etude
