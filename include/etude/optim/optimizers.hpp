#pragma once

/// All optimizers: see `ETUDE_OPTIMIZERS`.
#include "etude/optim/rules/adafactor.hpp"
#include "etude/optim/rules/adagrad.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/optim/rules/adamw_8bit.hpp"
#include "etude/optim/rules/galore_adamw.hpp"
#include "etude/optim/rules/lamb.hpp"
#include "etude/optim/rules/lars.hpp"
#include "etude/optim/rules/lbfgs.hpp"
#include "etude/optim/rules/lion.hpp"
#include "etude/optim/rules/lion_8bit.hpp"
#include "etude/optim/rules/muon.hpp"
#include "etude/optim/rules/rmsprop.hpp"
#include "etude/optim/rules/sgd.hpp"
#include "etude/optim/rules/soap.hpp"
#include "etude/optim/rules/sparse_adam.hpp"
#include "etude/optim/rules/stable_adamw.hpp"
