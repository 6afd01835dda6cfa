#pragma once

#include "etude/loop/event_source.hpp"

namespace etude::inline v0::detail {

/// Throws ArgumentError for options and callbacks that need the batches, which a program that computes the
/// losses doesn't pass on: see `TrainerBase::backward`.
void check_given_losses(const EventSource& events);

}  // namespace etude::inline v0::detail
