#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/base/message.hpp"
#include "etude/callbacks/checkpoint_copies.hpp"
#include "etude/io/copy_folder.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/manifest.hpp"

namespace etude {

ETUDE_INLINE void CheckpointCopies::want(const Context& e, const std::string& name) {
  wanted[name] = e.state.global_step;
  e.control.should_save = true;
}

ETUDE_INLINE void CheckpointCopies::on(const SaveBegin& e) {
  for (const auto& [name, step] : wanted) {
    if (step == e.state.global_step)
      begun[name] = step;
    else
      message(e.args, LogLevel::warning, "there is no {}: no checkpoint of step {} was written", name, step);
  }
  wanted.clear();
}

ETUDE_INLINE std::vector<std::string> CheckpointCopies::make(const Save& e,
                                                             const std::filesystem::path& folder) {
  std::vector<std::string> names;
  if (begun.empty()) return names;
  const auto of = read_manifest(e.checkpoint).global_step;
  for (const auto& [name, step] : std::exchange(begun, {})) {
    if (step != of) continue;  // that was one that nobody was told of
    if (e.state.is_world_process_zero)
      copy_checkpoint(e.trainer.options().files(), e.checkpoint, folder / name);
    names.push_back(name);
  }
  return names;
}

ETUDE_INLINE void remove_copy(const Context& e, const std::filesystem::path& copy) try {
  if (e.state.is_world_process_zero) remove_checkpoint(e.trainer.options().files(), copy);
} catch (const CheckpointError& error) {
  message(e.args, LogLevel::warning, "an old checkpoint is still there: {}", error.what());
}

ETUDE_INLINE std::filesystem::path folder_of_copies(const Context& e, const std::string& folder,
                                                    std::string_view name) {
  return folder.empty() ? std::filesystem::path(e.args.output_dir) / name : std::filesystem::absolute(folder);
}

}  // namespace etude
