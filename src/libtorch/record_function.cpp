#include "etude/libtorch/record_function.hpp"

#include <string_view>

namespace etude::inline v0::libtorch {

c10::ArrayRef<const c10::IValue> inputs_of(const at::RecordFunction& function) {
#ifdef NDEBUG
  return function.inputs();
#else
  return function.*reveal(detail::RecordedInputs());
#endif
}

bool gives_raw_memory(std::string_view name) {
  for (const std::string_view prefix :
       {"aten::empty", "aten::_empty", "aten::new_empty", "aten::resize", "aten::set_"})
    if (name.starts_with(prefix)) return true;
  return false;
}

}  // namespace etude::inline v0::libtorch
