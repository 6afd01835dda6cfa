// EXPECT: etude: a stream dataset's state is only saved if it has
// NEEDS: torch
#include "etude/data/dataset.hpp"

struct Lines {
  std::optional<torch::Tensor> next();
#ifdef ETUDE_MISTAKE
  etude::DatasetState state();
#else
  etude::DatasetState state() const;
#endif
  void load_state(const etude::DatasetState& state);
};

etude::Dataset make() { return Lines(); }
