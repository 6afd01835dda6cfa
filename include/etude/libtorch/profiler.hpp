#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace etude {

/// What a Profiler records beside names and times.
struct ProfilerDetails {
  bool shapes = false;  ///< of each operator's inputs
  bool memory = false;  ///< what is allocated and freed
  bool cuda = false;    ///< what runs on CUDA
};

/// Records the operators that LibTorch runs on this thread, and those of their backward passes, for as long
/// as it lives. Where LibTorch was built without Kineto, it records what runs on the CPU only. Throws
/// Error where another profiler is at work.
class Profiler {
 public:
  explicit Profiler(const ProfilerDetails& details);
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  ~Profiler();

  /// Ends the recording, and writes it in Chrome's trace format. Throws Error where the file can't be
  /// written.
  void save(const std::filesystem::path& path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A stretch of time under a name in what is recorded, from its construction to its end.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name);
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/libtorch/impl/profiler.ipp"
#endif
