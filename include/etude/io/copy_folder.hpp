#pragma once

#include <filesystem>

#include "etude/io/file_system.hpp"

namespace etude::inline v0 {

/// Copies the checkpoint `from` to `to` atomically, with hard links where the file system supports them, so
/// that the copy takes no space while `from` exists. Replaces an existing checkpoint; copying to itself does
/// nothing. Throws CheckpointError if that fails, or if `to` exists and isn't a checkpoint.
void copy_checkpoint(FileSystem& files, const std::filesystem::path& from, const std::filesystem::path& to);

/// Renames a checkpoint and then removes it, so that a half-removed one isn't taken for a checkpoint. Does
/// nothing if it doesn't exist. Throws CheckpointError if that fails, or if the path isn't a checkpoint.
void remove_checkpoint(FileSystem& files, const std::filesystem::path& checkpoint);

}  // namespace etude::inline v0
