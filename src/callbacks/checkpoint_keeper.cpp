#include "etude/callbacks/checkpoint_keeper.hpp"

#include <utility>

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/io/copy_folder.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/manifest.hpp"

namespace etude::inline v0 {

bool CheckpointKeeper::begin(const Context& e, const std::string& save_dir, std::string_view name) {
  folder = save_dir.empty() ? std::filesystem::path(e.args.output_dir) / name
                            : std::filesystem::absolute(save_dir);
  if (e.state.global_step > 0) return false;
  wanted.clear();
  begun.clear();
  return true;
}

void CheckpointKeeper::want(const Context& e, const std::string& name) {
  wanted[name] = e.state.global_step;
  e.control.should_save = true;
}

void CheckpointKeeper::on(const SaveBegin& e) {
  for (const auto& [name, step] : wanted) {
    if (step == e.state.global_step)
      begun[name] = step;
    else
      message(e.args, LogLevel::warning, "{} is missing: no checkpoint of step {} was written", name, step);
  }
  wanted.clear();
}

std::vector<std::string> CheckpointKeeper::make(const Save& e) {
  std::vector<std::string> names;
  if (begun.empty()) return names;
  const auto of = read_manifest(e.checkpoint).global_step;
  for (const auto& [name, step] : std::exchange(begun, {})) {
    if (step != of) continue;  // that one was never reported
    if (e.state.is_world_process_zero)
      copy_checkpoint(e.trainer.options().files(), e.checkpoint, folder / name);
    names.push_back(name);
  }
  return names;
}

void CheckpointKeeper::remove(const Context& e, const std::string& name) const try {
  if (e.state.is_world_process_zero) remove_checkpoint(e.trainer.options().files(), folder / name);
} catch (const CheckpointError& error) {
  message(e.args, LogLevel::warning, "an old checkpoint couldn't be removed: {}", error.what());
}

}  // namespace etude::inline v0
