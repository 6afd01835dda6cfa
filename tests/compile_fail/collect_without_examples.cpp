// EXPECT: etude: collect\(\) of an OnPolicyDataset returns stacked examples
// NEEDS: torch
#include "etude/data/on_policy.hpp"

#include "etude/data/dataset.hpp"

struct Collect {
#ifdef ETUDE_MISTAKE
  double operator()() { return 1; }
#else
  torch::Tensor operator()() { return torch::ones({8, 1}); }
#endif
};

etude::Dataset make() { return etude::OnPolicyDataset(Collect{}, {.examples = 8}); }
