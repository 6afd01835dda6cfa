#pragma once

#ifndef ETUDE_TORCH_FILE
#error "etude/checkpoint/torch_to_safetensors.hpp needs a library: link etude::torch_file"
#endif

#include <filesystem>
#include <string_view>

#include "etude/checkpoint/model_files.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/formats/torch_file.hpp"

namespace etude::inline v0 {

/// Writes the tensors of a PyTorch file, as `load_torch_file` reads them, to one safetensors file, and
/// returns what was read. A tensor with several names is written once, and the metadata lists its other
/// names, as Python's safetensors.torch.save_model does. If it throws CheckpointError, an existing file stays
/// as it is.
TorchFile torch_to_safetensors(const std::filesystem::path& torch_file,
                               const std::filesystem::path& safetensors_file, std::string_view key = {});

}  // namespace etude::inline v0
