#pragma once

#include <etude.h>
#include <torch/types.h>

#include <string>

/// Converts between the C interface's tensors, which describe memory, and LibTorch's.
namespace etude::inline v0::c {

/// A tensor that shares the program's memory. Throws DataError, which begins with `title`, for a null
/// pointer, an unknown type or device, or an invalid shape.
torch::Tensor view_of(const etude_tensor& tensor, const std::string& title);

/// Whether `view` is what view_of(tensor) would return.
bool is_view_of(const torch::Tensor& view, const etude_tensor& tensor);

/// The same as view_of() for memory that is written. Throws DataError, too, for the stride 0.
torch::Tensor writable_view_of(const etude_tensor& tensor, const std::string& title);

/// Describes a tensor of the library; the result points to its memory and shape. `name` may be null. Throws
/// DataError for a type that the interface doesn't have.
etude_tensor described(const torch::Tensor& tensor, const char* name);

}  // namespace etude::inline v0::c
