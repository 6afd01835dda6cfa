// EXPECT: etude: the state of a dataset with an index isn't saved
// NEEDS: torch
#include "etude/data/dataset.hpp"

struct Numbers {
  std::size_t size() const;
  torch::Tensor get(std::size_t index);
#ifdef ETUDE_MISTAKE
  nlohmann::json state() const;
  void load_state(const nlohmann::json& state);
#else
  // They serve something else.
  std::string state() const;
  void load_state(const std::string& file);
#endif
};

etude::Dataset make() { return Numbers(); }
