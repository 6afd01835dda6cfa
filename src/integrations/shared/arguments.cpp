#include "etude/integrations/shared/arguments.hpp"

namespace etude::inline v0::detail {

TrainingArguments tracked_arguments(const Context& e) {
  auto args = e.args;
  args.output_dir = normalized(e.trainer.options().args).output_dir;
  return args;
}

}  // namespace etude::inline v0::detail
