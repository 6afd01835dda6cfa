#include "etude/callbacks/profiler.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include "etude/base/message.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void ProfilerCallback::on(const TrainBegin& e) {
  detail::check_fields(*this);
  detail::log_path(e.args, path);
  has_written = false;
}

void ProfilerCallback::on(const BatchFetchBegin& e) {
  const auto step = e.state.global_step + 1;
  range.reset();
  if (step < first_step || step >= first_step + num_steps || has_written) return;
  if (!profiler) {
    const auto parameters = e.model.parameters();
    profiler = std::make_unique<Profiler>(
        ProfilerDetails{.shapes = record_shapes,
                        .memory = profile_memory,
                        .cuda = !parameters.empty() && parameters.front().is_cuda()});
  }
  range = std::make_unique<ProfilerRange>(fmt::format("ProfilerStep#{}", step));
}

void ProfilerCallback::on(const StepEnd& e) {
  range.reset();
  if (profiler && e.state.global_step + 1 >= first_step + num_steps) finish(e);
}

void ProfilerCallback::on(const EpochEnd&) { range.reset(); }

void ProfilerCallback::on(const TrainEnd& e) {
  range.reset();
  if (profiler) finish(e);
  if (!has_written)
    message(e.args, LogLevel::warning,
            "ProfilerCallback has written no trace: the training did none of the steps {} to {}", first_step,
            first_step + num_steps - 1);
}

void ProfilerCallback::finish(const Context& e) {
  const auto done = std::move(profiler);
  has_written = true;
  auto file = detail::log_path(e.args, path);
  if (const auto rank = e.args.process_index(); rank > 0)
    file.replace_filename(fmt::format("rank{}.{}", rank, file.filename().string()));
  done->save(file);
}

}  // namespace etude::inline v0
