#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace etude::inline v0 {

/// Optional details that a Profiler records besides names and times.
struct ProfilerDetails {
  bool shapes = false;  ///< the shapes of each operator's inputs
  bool memory = false;  ///< allocations and deallocations
  bool cuda = false;    ///< CUDA activity
};

/// Records the operators that LibTorch runs on this thread, and their backward passes, while it lives. If
/// LibTorch was built without Kineto, it records only the CPU. Throws Error if another profiler is running.
class Profiler {
 public:
  explicit Profiler(const ProfilerDetails& details);
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  ~Profiler();

  /// Stops recording and writes a Chrome trace. Throws Error if the file can't be written.
  void save(const std::filesystem::path& path);

 private:
  bool runs_ = true;
};

/// A named range in the recorded trace, from construction to destruction.
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

}  // namespace etude::inline v0
