#include "etude/libtorch/own_generators.hpp"

#include <mutex>

#include "etude/libtorch/random_state.hpp"

namespace etude::inline v0 {

/// The program's states from before the first of the trainers that are now working.
struct OwnGenerators::Program {
  std::mutex mutex;
  int trainers = 0;
  RandomState state;
};

OwnGenerators::Program& OwnGenerators::program() {
  static Program& instance = *new Program;  // Never destroyed: a trainer may be a static object.
  return instance;
}

OwnGenerators::Use::Use(OwnGenerators& own) : own_(own) {
  if (own_.uses_++ > 0) return;
  auto& program = OwnGenerators::program();
  {
    const std::lock_guard lock(program.mutex);
    if (program.trainers++ == 0) program.state = random_state({});
  }
  if (!own_.state_.empty()) load_random_state(own_.state_, {});
}

OwnGenerators::Use::~Use() {
  if (--own_.uses_ > 0) return;
  own_.state_ = random_state({});
  auto& program = OwnGenerators::program();
  const std::lock_guard lock(program.mutex);
  if (--program.trainers == 0) load_random_state(program.state, {});
}

}  // namespace etude::inline v0
