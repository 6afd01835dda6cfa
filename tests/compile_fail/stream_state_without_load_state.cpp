// EXPECT: etude: a stream dataset's state is only saved if it has
// NEEDS: torch
#include "etude/data/dataset.hpp"

struct Lines {
  std::optional<torch::Tensor> next();
  nlohmann::json state() const;
#ifndef ETUDE_MISTAKE
  void load_state(const nlohmann::json& state);
#endif
};

/// Has methods of these names that serve something else.
struct Named {
  std::optional<torch::Tensor> next();
  std::string state() const;
  void load_state(const std::string& file);
};

struct Buffered {
  std::optional<torch::Tensor> next();
  etude::DatasetState state() const;
  void load_state(const etude::DatasetState& state);
};

etude::Dataset make() { return Lines(); }
etude::Dataset make_named() { return Named(); }
etude::Dataset make_buffered() { return Buffered(); }
