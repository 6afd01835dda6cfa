#include "etude/loop/calls.hpp"

#include <fmt/format.h>

#include <string_view>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

Calls::Scope::Scope(Calls& calls, Method method) : calls_(calls), method_(method) {
  static constexpr std::array<std::string_view, 8> names{
      "train", "step", "evaluate", "predict", "log", "save_checkpoint", "save_state", "save_model"};
  const auto self = std::this_thread::get_id();
  std::thread::id none;
  is_first_ = calls_.thread_.compare_exchange_strong(none, self);
  if (!is_first_ && none != self)
    throw Error(fmt::format(
        "{}() was called while another thread is in a method of the same trainer: a trainer serves "
        "one thread at a time",
        names[method]));
  if ((method == train || method == step) && calls_.depths_[train] + calls_.depths_[step] > 0)
    throw Error(fmt::format("{}() was called from inside a training", names[method]));
  if (calls_.depths_[method] == deepest)
    throw Error(
        fmt::format("{0}() was called from inside itself {1} times: a callback calls it in an event that "
                    "{0}() raises, and must not do so while its own call is under way",
                    names[method], deepest));
  ++calls_.depths_[method];
}

Calls::Scope::~Scope() {
  --calls_.depths_[method_];
  if (is_first_) calls_.thread_ = std::thread::id();
}

}  // namespace etude::inline v0
