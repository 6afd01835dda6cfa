// EXPECT: dataset_by_pointer.cpp:.*: pass the dataset by value, not as a pointer
// NEEDS: torch
#include "etude/data/dataset.hpp"

struct Squares {
  std::size_t size() const;
  torch::Tensor get(std::size_t i) const;
};

#ifdef ETUDE_MISTAKE
etude::Dataset make() { return std::make_shared<Squares>(); }
#else
etude::Dataset make() { return Squares(); }
#endif
