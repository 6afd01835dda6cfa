#pragma once

#include "etude/libtorch/device_graph.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "etude/libtorch/generators.hpp"

/// Emulates a GPU's graphs on the CPU: a capture changes nothing, and a replay runs the operators again on
/// the same tensors and numbers, and writes their results to the same memory. Include it in one file of a
/// program.
namespace tape {

class Tape : public etude::GraphCapture {
 public:
  void begin() override {
    recording() = this;
    c10::impl::tls_set_dispatch_key_included(mode, true);
  }
  void end() override {
    c10::impl::tls_set_dispatch_key_included(mode, false);
    recording() = nullptr;
    before_.restore();
    for (const auto& [storage, copies] : changed_) copies.first.copy_(copies.second);
    changed_.clear();
    ++captures();
  }
  void replay() override {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    for (const auto& [op, arguments, results] : calls_) {
      torch::jit::Stack stack = arguments;
      op.callBoxed(stack);
      for (std::size_t i = 0; i < results.size(); ++i) write(results[i], stack[i]);
    }
    ++replays();
  }

  static std::int64_t& captures() { return count<0>(); }
  static std::int64_t& replays() { return count<1>(); }

  static void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, mode);
    // A composite operator is recorded as its parts, as autograd sees it.
    if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
      return op.redispatchBoxed(below, stack);
    const auto& schema = op.schema();
    const auto arguments = torch::jit::last(*stack, schema.arguments().size()).vec();
    // Keeps all tensors, not only those that the schema marks as changed: it doesn't mark a batch norm's
    // statistics.
    for (const auto& argument : arguments)
      for (const auto& tensor : tensors_of(argument)) recording()->keep(tensor);
    const c10::impl::ExcludeDispatchKeyGuard not_inside(mode);
    op.redispatchBoxed(below, stack);
    recording()->calls_.push_back({op, arguments, torch::jit::last(*stack, schema.returns().size()).vec()});
  }

 private:
  static constexpr auto mode = c10::DispatchKey::TESTING_ONLY_GenericMode;

  struct Call {
    c10::OperatorHandle op;
    torch::jit::Stack arguments, results;
  };

  static Tape*& recording() {
    static Tape* tape = nullptr;
    return tape;
  }
  template <int>
  static std::int64_t& count() {
    static std::int64_t number = 0;
    return number;
  }

  static std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
    if (value.isTensor())
      return value.toTensor().defined() ? std::vector{value.toTensor()} : std::vector<at::Tensor>();
    return value.isTensorList() ? value.toTensorVector() : std::vector<at::Tensor>();
  }

  /// Copies the memory of a tensor before an operator may change it.
  void keep(const at::Tensor& tensor) {
    const c10::impl::ExcludeDispatchKeyGuard not_recorded(mode);
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    const auto all = at::empty({0}, tensor.options()).set_(tensor.storage());
    if (!changed_.contains(tensor.storage().unsafeGetStorageImpl()))
      changed_.emplace(tensor.storage().unsafeGetStorageImpl(), std::pair(all, all.clone()));
  }

  static void write(const c10::IValue& to, const c10::IValue& from) {
    const auto there = tensors_of(to), here = tensors_of(from);
    for (std::size_t i = 0; i < there.size(); ++i)
      if (there[i].data_ptr() != here[i].data_ptr()) there[i].copy_(here[i]);
  }

  std::vector<Call> calls_;
  std::map<const void*, std::pair<at::Tensor, at::Tensor>>
      changed_;  // storages that existed before, each with a copy
  etude::DefaultRandomState before_{torch::kCPU};
};

/// Registers Tape for the CPU, for the rest of the process.
inline void register_for_cpu() {
  etude::register_graph_capture(
      torch::kCPU, []() -> std::unique_ptr<etude::GraphCapture> { return std::make_unique<Tape>(); });
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Tape::record>());
}

}  // namespace tape
