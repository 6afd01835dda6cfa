#pragma once

/// All of Etude but the integrations, each of which is an include of its own, and LibTorch with it.

#include <fmt/format.h>
#include <torch/torch.h>

#include "etude/callbacks/default_flow.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/callbacks/mixup.hpp"
#include "etude/callbacks/printer.hpp"
#include "etude/callbacks/progress.hpp"
#include "etude/data/idx.hpp"
#include "etude/data/npy.hpp"
#include "etude/data/padding.hpp"
#include "etude/data/samplers.hpp"
#include "etude/data/stored_tensors.hpp"
#include "etude/events.hpp"
#include "etude/filters.hpp"
#include "etude/metrics/accuracy.hpp"
#include "etude/optim/adafactor.hpp"
#include "etude/optim/adagrad.hpp"
#include "etude/optim/adam.hpp"
#include "etude/optim/clipping.hpp"
#include "etude/optim/lbfgs.hpp"
#include "etude/optim/lion.hpp"
#include "etude/optim/rmsprop.hpp"
#include "etude/optim/sgd.hpp"
#include "etude/reflect/command_line.hpp"
#include "etude/runtime_callbacks.hpp"
#include "etude/stop_training.hpp"
#include "etude/trainer.hpp"
#include "etude/trainer_options.hpp"
#include "etude/version.hpp"
