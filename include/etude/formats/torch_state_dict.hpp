#pragma once

#ifndef ETUDE_TORCH_FILE
#error "etude/formats/torch_state_dict.hpp needs a library: link etude::torch_file"
#endif

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "etude/formats/pickle_document.hpp"

namespace etude::inline v0 {

/// The description of one tensor in a PyTorch file. Its elements lie within its storage.
struct TorchTensorRecord {
  std::string name;
  std::string dtype;            ///< LibTorch's name: "Float"
  std::string storage;          ///< the key of its storage; tensors that share memory have the same one
  std::uint64_t item_size = 0;  ///< size of an element in bytes
  std::uint64_t storage_bytes = 0;
  std::int64_t offset = 0;  ///< position of the first element, in elements
  std::vector<std::int64_t> sizes, strides;
  bool conjugate = false, negative = false;  ///< lazy flags: the storage holds the conjugate or negated value

  /// The size of its elements in bytes; shared elements count each time.
  std::uint64_t bytes() const;
};

namespace detail {

/// True if the elements with these sizes and strides are among the first `capacity` elements of a storage.
/// The sizes and strides aren't negative.
bool lies_within(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                 std::int64_t offset, std::uint64_t capacity);

}  // namespace detail

/// The tensors in a PyTorch file, and the printable names of skipped entries that aren't tensors.
struct TorchStateDict {
  std::vector<TorchTensorRecord> tensors;
  std::vector<std::string> skipped;
};

/// Finds the tensors in a file's pickle, `pickle_bytes` long. Nested dicts, lists and tuples give dotted
/// names ("optimizer.state.0.exp_avg"). `key` selects the dict whose tensors are returned, with names
/// relative to it; if `key` is empty, that is the root if it directly contains tensors, otherwise the only
/// entry with tensors. Throws a CheckpointError that begins with `source` for a key that doesn't exist, for
/// an empty key if several entries have tensors (both list the keys), for tensors that aren't dense, and for
/// elements outside their storage.
TorchStateDict read_torch_state_dict(const pickle::Document& document, std::size_t pickle_bytes,
                                     std::string_view key, std::string_view source);

/// The tensors of all dicts in a file's pickle, with names from its root.
TorchStateDict read_all_torch_tensors(const pickle::Document& document, std::size_t pickle_bytes,
                                      std::string_view source);

}  // namespace etude::inline v0
