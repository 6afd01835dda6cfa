// EXPECT: loss_of_another_form.cpp:.*: a loss is called as \(output, target\) or \(output, target
// NEEDS: torch
#include "etude/model/loss.hpp"

#ifdef ETUDE_MISTAKE
etude::Loss loss() {
  return [](torch::Tensor output) { return output.mean(); };
}
#else
etude::Loss loss() {
  return [](torch::Tensor output, torch::Tensor) { return output.mean(); };
}
#endif
