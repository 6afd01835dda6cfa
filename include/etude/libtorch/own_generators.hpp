#pragma once

#include "etude/libtorch/random_state.hpp"

namespace etude::inline v0 {

/// One trainer's states of LibTorch's default generators. While the trainer works, the default generators
/// have these states; afterwards they have the program's states again, so the program draws the same numbers
/// as without the trainer. All threads share the default generators: if several trainers work at the same
/// time, a trainer's numbers are reproducible only if no other trainer draws any.
class OwnGenerators {
 public:
  /// One call of the trainer, from its beginning to its end; a call within a call changes nothing.
  class Use {
   public:
    explicit Use(OwnGenerators& own);
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use();

   private:
    OwnGenerators& own_;
  };

 private:
  struct Program;
  static Program& program();

  RandomState state_;  // empty before the first use
  int uses_ = 0;
};

}  // namespace etude::inline v0
