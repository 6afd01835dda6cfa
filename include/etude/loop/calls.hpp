#pragma once

#include <array>
#include <atomic>
#include <thread>

namespace etude::inline v0 {

/// The trainer's methods that are running. All must run on one thread, and none may be nested too deeply in
/// itself, as happens if a callback evaluates whenever an evaluation begins.
class Calls {
 public:
  enum Method { train, step, evaluate, predict, log, save_checkpoint, save_state, save_model };

  /// One call, from its beginning to its end. Throws Error if it is refused.
  class Scope {
   public:
    Scope(Calls& calls, Method method);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    Calls& calls_;
    Method method_;
    bool is_first_;
  };

 private:
  static constexpr int deepest = 8;

  std::atomic<std::thread::id> thread_{};
  std::array<int, 8> depths_{};
};

}  // namespace etude::inline v0
