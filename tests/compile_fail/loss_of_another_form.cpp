// EXPECT: a loss is called as \(output, target\) or \(output, target, num_items\)
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
