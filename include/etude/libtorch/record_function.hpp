#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <string_view>

/// Tools for observing operators.
namespace etude::inline v0::libtorch {

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

/// The inputs of an operator that is starting. LibTorch's function checks a flag that exists only without
/// NDEBUG; official LibTorch builds are compiled with NDEBUG and never set it.
c10::ArrayRef<const c10::IValue> inputs_of(const at::RecordFunction& function);

/// Whether the output of an operator is uninitialised memory.
bool gives_raw_memory(std::string_view name);

}  // namespace etude::inline v0::libtorch
