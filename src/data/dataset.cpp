#include "etude/data/dataset.hpp"

namespace etude::inline v0 {

Dataset Dataset::copy_for_worker() const {
  Dataset copy = *this;
  copy.source_ = source_->copy();
  return copy;
}

Dataset already_divided(Dataset part) {
  part.is_divided_ = true;
  return part;
}

}  // namespace etude::inline v0
