#pragma once

#include "etude/libtorch/random_state.hpp"

namespace etude::inline v0 {

/// States of LibTorch's default generators that belong to one trainer. While it works, the default generators
/// have these states, and afterwards again those of the program, which so draws the same numbers as without
/// the trainer. All threads share the default generators: of trainers that work at the same time, each gets
/// its own numbers only if no other draws any.
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
