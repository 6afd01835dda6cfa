// EXPECT: the model's loss_items must be a method `etude::LossItems loss_items\(\) const`
// NEEDS: torch
#include "etude/model/model.hpp"

struct Net : torch::nn::Module {
  torch::Tensor forward(torch::Tensor pixels, torch::Tensor labels);
#ifdef ETUDE_MISTAKE
  etude::LossItems loss_items = etude::LossItems::labels;
#else
  etude::LossItems loss_items() const { return etude::LossItems::labels; }
#endif
};

etude::Model model() { return std::make_shared<Net>(); }
