#include "etude/optimizer_names.hpp"

#include <string>

namespace etude::inline v0 {

std::string optimizers_with(bool OptimizerTraits::*trait) {
  std::string names;
  for (std::size_t i = 0; i < optimizer_traits.size(); ++i) {
    if (!(optimizer_traits[i].*trait)) continue;
    if (!names.empty()) names += ", ";
    names += enum_names<OptimizerNames>[i];
  }
  return names;
}

}  // namespace etude::inline v0
