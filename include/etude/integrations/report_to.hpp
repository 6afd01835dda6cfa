#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "etude/callback.hpp"
#include "etude/dispatch/runtime_callbacks.hpp"
#include "etude/reflect/type_name.hpp"
#include "etude/training_arguments.hpp"

#ifdef ETUDE_TENSORBOARD
#include "etude/integrations/tensorboard.hpp"
#endif
#ifdef ETUDE_WANDB
#include "etude/integrations/wandb.hpp"
#endif
#ifdef ETUDE_COMET
#include "etude/integrations/comet.hpp"
#endif
#ifdef ETUDE_MLFLOW
#include "etude/integrations/mlflow.hpp"
#endif
#ifdef ETUDE_AZUREML
#include "etude/integrations/azureml.hpp"
#endif
#ifdef ETUDE_CODECARBON
#include "etude/integrations/codecarbon.hpp"
#endif

namespace etude::inline v0 {

#define ETUDE_DETAIL_TRACKER(name, callback, option) struct callback;  // complete if built in
ETUDE_DETAIL_FOR_TRACKERS(ETUDE_DETAIL_TRACKER)
#undef ETUDE_DETAIL_TRACKER

/// Adds the trackers named in `args.report_to`, with default options, to a trainer that has RuntimeCallbacks,
/// and returns their handles. "all" adds the trackers that this program was built with and that the
/// environment is ready for (`Callback::is_available()`), except those that the trainer already has. A
/// tracker that this program wasn't built with causes an ArgumentError when training begins.
template <class Trainer>
std::vector<CallbackHandle> add_trackers(Trainer& trainer) {
  std::vector<CallbackHandle> handles;
  const auto& report_to = trainer.args().report_to;
  const auto names = trainer.callback_names();
  const auto add = [&]<class Callback>() {
    if constexpr (requires { sizeof(Callback); }) {
      const auto* tracker = std::ranges::find(trackers, short_type_name<Callback>(), &TrackerName::callback);
      const bool named = std::ranges::find(report_to, tracker->name) != report_to.end();
      const bool of_all = report_to == std::vector<std::string>{"all"} && Callback::is_available();
      if constexpr (!Trainer::template lists<Callback>)
        if ((named || of_all) && std::ranges::find(names, tracker->callback) == names.end())
          handles.push_back(trainer.add_callback(Callback()));
    }
  };
#define ETUDE_DETAIL_TRACKER(name, callback, option) add.template operator()<callback>();
  ETUDE_DETAIL_FOR_TRACKERS(ETUDE_DETAIL_TRACKER)
#undef ETUDE_DETAIL_TRACKER
  return handles;
}

}  // namespace etude::inline v0
