// EXPECT: etude: no checkpoint can keep a variable of this type; use numbers
// NEEDS: torch
#include "etude/trainer_options.hpp"

struct Pole {
  torch::Tensor place;
#ifndef ETUDE_MISTAKE
  torch::Tensor state() const { return place; }
  void load_state(const torch::Tensor& state) { place = state; }
#endif
};

etude::ProgramState state_of(Pole& pole) { return {{"pole", pole}}; }
