#include "etude/data/dataset_state.hpp"

namespace etude::inline v0::detail {

DatasetState copy_of(DatasetState state) {
  for (auto& [name, tensor] : state.tensors) tensor = tensor.detach().clone();
  return state;
}

}  // namespace etude::inline v0::detail
