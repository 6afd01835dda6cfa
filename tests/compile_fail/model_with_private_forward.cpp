// EXPECT: the model has no public forward that takes 1 to 8 torch::Tensor
// NEEDS: torch
#include "etude/model/model.hpp"

// Without any forward, it would be a module whose parts a compute_loss uses.
class Net : public torch::nn::Module {
#ifdef ETUDE_MISTAKE
  torch::Tensor forward(torch::Tensor pixels);
#endif
};

etude::Model model() { return std::make_shared<Net>(); }
