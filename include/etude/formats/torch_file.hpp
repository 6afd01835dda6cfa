#pragma once

#ifndef ETUDE_TORCH_FILE
#error "etude/formats/torch_file.hpp needs a library: link etude::torch_file"
#endif

#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <torch/types.h>

#include <bit>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/formats/safetensors_header.hpp"
#include "etude/formats/torch_archive.hpp"
#include "etude/io/entry_name.hpp"

namespace etude::inline v0 {

/// The content of a PyTorch file: tensors in file order, and the printable names of skipped entries that
/// aren't tensors (an epoch, a learning rate).
struct TorchFile {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  std::vector<std::string> skipped;
};

namespace detail {

static_assert(std::endian::native == std::endian::little, "only little-endian files are supported");

/// Loads the tensors that an archive's `state_dict` describes.
TorchFile load_described(const TorchArchive& archive, TorchStateDict state_dict);

}  // namespace detail

/// Loads the tensors of a file written by Python's `torch.save` (PyTorch 1.6 and later) into CPU memory.
/// Nothing in it is executed, and everything is validated. Tensors that share memory in Python share it here;
/// requires_grad isn't restored. Nested dicts, lists and tuples give dotted names. `key` selects a dict in
/// the file ("state_dict", "ema.model"); without it, the top-level tensors are loaded or, if there are none,
/// the tensors of the only entry that has any. Throws CheckpointError with the file and the problem; if
/// several entries have tensors, it lists their keys.
inline TorchFile load_torch_file(const std::filesystem::path& path, std::string_view key = {}) {
  const TorchArchive archive(path);
  return detail::load_described(archive, archive.state_dict(key));
}

}  // namespace etude::inline v0
