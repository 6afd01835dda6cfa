// EXPECT: etude: a loss takes output and target by value or as const reference
// NEEDS: torch
#include "etude/model/loss.hpp"

#ifdef ETUDE_MISTAKE
etude::Loss loss() {
  return [](torch::Tensor& output, torch::Tensor& target) { return (output - target).square().mean(); };
}
#else
etude::Loss loss() {
  return [](const torch::Tensor& output, torch::Tensor target) { return (output - target).square().mean(); };
}
#endif
