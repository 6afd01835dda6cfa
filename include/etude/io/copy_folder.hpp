#pragma once

#include <filesystem>

#include "etude/base/linkage.hpp"
#include "etude/io/file_system.hpp"

namespace etude {

/// Makes `to` a copy of the checkpoint `from`, whole or not at all: of hard links where the file system has
/// them, so that it takes no room while `from` is there. A checkpoint that is there is replaced; a copy to
/// itself changes nothing. Throws CheckpointError, also where `to` is something else than a checkpoint.
void copy_checkpoint(FileSystem& files, const std::filesystem::path& from, const std::filesystem::path& to);

/// Removes a checkpoint, so that one that is removed half way looks like none. One that isn't there is no
/// error. Throws CheckpointError, also where there is something else than a checkpoint.
void remove_checkpoint(FileSystem& files, const std::filesystem::path& checkpoint);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/io/impl/copy_folder.ipp"
#endif
