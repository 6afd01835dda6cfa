#pragma once

#include "etude/loop/event_source.hpp"
#include "etude/loop/run_settings.hpp"
#include "etude/loop/trained.hpp"

/// Checks for settings that don't work together. Each function throws ArgumentError that lists them.
namespace etude::inline v0 {

/// Checks for arguments that don't work on the device, or with several processes.
void check_device(const RunSettings& run);

/// Checks for settings that don't work with the optimizers of a training, or with how they share a step.
void check_optimizers(const RunSettings& run, const Trained& trained);

/// Checks for settings and callbacks that don't work with the model, its shards, or the loss. Called once the
/// optimizers exist.
void check_model(const EventSource& events);

/// Checks for settings and callbacks that need the batches, which a program that computes the losses itself
/// doesn't pass on: see `TrainerBase::backward`.
void check_given_losses(const EventSource& events);

}  // namespace etude::inline v0
