#pragma once

#ifndef ETUDE_TORCH_FILE
#error "etude/formats/pickle.hpp needs a library: link etude::torch_file"
#endif

#include <span>
#include <string_view>

#include "etude/formats/pickle_document.hpp"

namespace etude::inline v0::pickle {

/// Parses a pickle of protocol 2 to 5, supporting the opcodes of plain values and tensors. Only the classes
/// and functions in `globals` ("collections.OrderedDict") are accepted, and they stay names. Time and memory
/// are proportional to the number of bytes, whatever they contain. For anything else, for values that contain
/// themselves, and for nesting deeper than `Document::max_depth`, throws a CheckpointError that begins with
/// `source`.
Document unpickle(std::string_view bytes, std::span<const std::string_view> globals, std::string_view source);

}  // namespace etude::inline v0::pickle
