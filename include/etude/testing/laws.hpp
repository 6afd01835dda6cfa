#pragma once

#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/type_name.hpp"
#include "etude/testing/laws/permissions.hpp"
#include "etude/testing/laws/subject.hpp"
#include "etude/testing/laws/trials.hpp"

/// The rules that every callback must follow towards other callbacks and the trainer. `check` tests any
/// callback, with any test framework or none:
///
///     etude::laws::check<MyCallback>();
///     etude::laws::check<MyCallback>([] { return MyCallback(3); });
///
/// - Law 1: Every begin has an end. Wherever and however the training is stopped or fails, the callback
/// itself throws nothing, an evaluation doesn't change the weights, the model's modes are the same as without
/// the callback, and another `train()` runs as if it were the first.
/// - Law 2: Restored state continues identically. A run resumed from any checkpoint ends with the same
/// weights, logs and state as an uninterrupted one.
/// - Law 3: A callback that only reads changes nothing. Until it requests a stop, weights, modes and random
/// numbers are the same as in a run without it.
/// - Law 4: Two instances share nothing, whether they are in one trainer, in a trainer that trains inside
/// another, or used one after the other.
///
/// If torchrun starts the test program in several processes, `check` also tests that the laws hold in all of
/// them, and that all end with the same weights. Each process reports the breaches that it sees.
///
/// The callback runs on a small built-in problem on the CPU: images [1, 4, 4] of three classes, a model with
/// dropout and batch norm, accumulated gradients, two epochs of three steps, and an evaluation and a
/// checkpoint at each step. Files are in temporary folders.
namespace etude::inline v0::laws {

/// Thrown by `check`. `what()` has a line for each breach: the law, the place, and the difference.
struct LawBroken : Error {
  using Error::Error;
};

/// Returns the breaches as text; the callback passes if the list is empty. `make()` returns an equal callback
/// at each call; `make(folder)` returns one that writes its files to `folder`.
template <class Callback, class Make>
  requires std::is_invocable_r_v<Callback, Make&> ||
           std::is_invocable_r_v<Callback, Make&, const std::filesystem::path&>
std::vector<std::string> broken(Make make, const Options& options = {}) {
  return detail::broken_laws(detail::trial_of<Callback>(std::move(make)), options);
}
template <class Callback>
std::vector<std::string> broken(const Options& options = {}) {
  return broken<Callback>([] { return Callback{}; }, options);
}

/// Throws LawBroken if there is a breach. Throws Error if the callback can't run on the built-in problem
/// without further Options.
template <class Callback, class Make>
  requires std::is_invocable_r_v<Callback, Make&> ||
           std::is_invocable_r_v<Callback, Make&, const std::filesystem::path&>
void check(Make make, const Options& options = {}) {
  const auto lines = broken<Callback>(std::move(make), options);
  if (lines.empty()) return;
  std::string text(short_type_name<Callback>());
  text += " breaks the laws of callbacks:";
  for (const auto& line : lines) text += "\n- " + line;
  throw LawBroken(text);
}
template <class Callback>
void check(const Options& options = {}) {
  check<Callback>([] { return Callback{}; }, options);
}

}  // namespace etude::inline v0::laws
