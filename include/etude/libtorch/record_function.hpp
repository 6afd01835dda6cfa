#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

/// What operators are observed through.
namespace etude::libtorch {

#ifndef NDEBUG
namespace detail {

template <class Tag, typename Tag::type Member>
struct Reveal {
  friend typename Tag::type reveal(Tag) { return Member; }
};

struct RecordedInputs {
  using type = c10::ArrayRef<const c10::IValue> at::RecordFunction::*;
  friend type reveal(RecordedInputs);
};

template struct Reveal<RecordedInputs, &at::RecordFunction::inputs_>;

}  // namespace detail
#endif

/// The inputs of an operator that begins. LibTorch's own function asks a flag that exists where NDEBUG
/// isn't defined only; the LibTorch that people install was built with NDEBUG, and never sets it.
inline c10::ArrayRef<const c10::IValue> inputs_of(const at::RecordFunction& function) {
#ifdef NDEBUG
  return function.inputs();
#else
  return function.*reveal(detail::RecordedInputs());
#endif
}

}  // namespace etude::libtorch
