// EXPECT: etude: a stream dataset's reset\(\) must not take arguments
// NEEDS: torch
#include "etude/data/dataset.hpp"

struct Lines {
  std::optional<torch::Tensor> next();
#ifdef ETUDE_MISTAKE
  void reset(std::size_t line);
#else
  void reset();
#endif
};

etude::Dataset make() { return Lines(); }
