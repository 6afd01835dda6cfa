#pragma once

#include <array>
#include <string_view>

namespace etude::inline v0::detail {

/// LibTorch's namespaces besides aten. Their operators are made for compilers and process groups, and trust
/// their arguments.
inline constexpr std::array<std::string_view, 22> internal_namespaces{"_c10d_functional",
                                                                      "_c10d_functional_autograd",
                                                                      "_native",
                                                                      "_quantized",
                                                                      "_test",
                                                                      "c10d",
                                                                      "cuda",
                                                                      "inductor",
                                                                      "mkl",
                                                                      "mkldnn",
                                                                      "mkldnn_prepacked",
                                                                      "onednn",
                                                                      "prepacked",
                                                                      "prim",
                                                                      "profiler",
                                                                      "quantization",
                                                                      "quantized",
                                                                      "sparse",
                                                                      "symm_mem",
                                                                      "static_runtime",
                                                                      "streams",
                                                                      "xnnpack"};

/// Parts of the names of aten's operators that open files, change the memory under a tensor, or continue a
/// computation without checking its state. No model's forward pass consists of them.
inline constexpr std::array<std::string_view, 10> unchecked_operators{
    "from_file",      "::set_",   "resize",    "_backward",      "_tensor_unsafe",
    "_reshape_alias", "_nested_", "quantized", "_cummax_helper", "_cummin_helper"};

/// True if an exported graph must not call the operator of this name, such as "aten::from_file".
bool is_refused(std::string_view name);

}  // namespace etude::inline v0::detail
