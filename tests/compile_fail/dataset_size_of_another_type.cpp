// EXPECT: etude: a dataset's size\(\) must return an integer
// NEEDS: torch
#include "etude/data/dataset.hpp"

struct Squares {
#ifdef ETUDE_MISTAKE
  double size() const;
#else
  unsigned size() const;
#endif
  torch::Tensor get(std::size_t i) const;
};

etude::Dataset make(const Squares& squares) { return squares; }
