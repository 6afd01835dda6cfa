// EXPECT: option_is_a_function_so_declare_yours_as<etude::Batch ?\(std::vector<etude::Example
// NEEDS: torch
#include "etude/trainer_options.hpp"

struct Trainer {
  explicit Trainer(etude::TrainerOptions options);
};

#ifdef ETUDE_MISTAKE
using Examples = std::vector<torch::Tensor>;
#else
using Examples = std::vector<etude::Example>;
#endif

Trainer make() {
  return Trainer({.data_collator = [](const Examples&) { return etude::Batch(); }});
}
