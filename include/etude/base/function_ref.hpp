#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace etude::inline v0::detail {

/// Refers to a callable, which must outlive it, like the std::function_ref of C++26. std::function costs ten
/// times as many instantiations in each trainer.
template <class Signature>
class FunctionRef;

template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <class Function>
    requires(!std::same_as<std::remove_cvref_t<Function>, FunctionRef> &&
             std::is_invocable_r_v<Result, Function&, Args...>)
  FunctionRef(Function&& function)
      : function_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* self, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Function>*>(self))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(function_, std::forward<Args>(args)...); }

 private:
  void* function_;
  Result (*call_)(void*, Args...);
};

}  // namespace etude::inline v0::detail
