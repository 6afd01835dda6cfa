#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace etude::inline v0::detail {

struct TorchDtype {
  std::string_view python, libtorch, storage;
  std::uint64_t size;
  std::int64_t exported;  // its number in torch.export's files
};
// Newer dtypes have no typed storage.
inline constexpr std::array torch_dtypes = std::to_array<TorchDtype>({
    {"torch.float32", "Float", "torch.FloatStorage", 4, 7},
    {"torch.float64", "Double", "torch.DoubleStorage", 8, 8},
    {"torch.float16", "Half", "torch.HalfStorage", 2, 6},
    {"torch.bfloat16", "BFloat16", "torch.BFloat16Storage", 2, 13},
    {"torch.bool", "Bool", "torch.BoolStorage", 1, 12},
    {"torch.uint8", "Byte", "torch.ByteStorage", 1, 1},
    {"torch.int8", "Char", "torch.CharStorage", 1, 2},
    {"torch.int16", "Short", "torch.ShortStorage", 2, 3},
    {"torch.int32", "Int", "torch.IntStorage", 4, 4},
    {"torch.int64", "Long", "torch.LongStorage", 8, 5},
    {"torch.complex64", "ComplexFloat", "torch.ComplexFloatStorage", 8, 10},
    {"torch.complex128", "ComplexDouble", "torch.ComplexDoubleStorage", 16, 11},
    {"torch.complex32", "ComplexHalf", "", 4, 9},
    {"torch.uint16", "UInt16", "", 2, 28},
    {"torch.uint32", "UInt32", "", 4, 34},
    {"torch.uint64", "UInt64", "", 8, 35},
    {"torch.float8_e4m3fn", "Float8_e4m3fn", "", 1, 29},
    {"torch.float8_e5m2", "Float8_e5m2", "", 1, 30},
    {"torch.float8_e4m3fnuz", "Float8_e4m3fnuz", "", 1, 31},
    {"torch.float8_e5m2fnuz", "Float8_e5m2fnuz", "", 1, 32},
    {"torch.float8_e8m0fnu", "Float8_e8m0fnu", "", 1, 33},
});

// Functions that rebuild tensors; `unreadable` describes the result of an unsupported function.
struct TorchRebuilder {
  std::string_view name, unreadable;
};
inline constexpr std::array torch_rebuilders = std::to_array<TorchRebuilder>({
    {"torch._utils._rebuild_tensor_v2", ""},
    {"torch._utils._rebuild_tensor_v3", ""},
    {"torch._utils._rebuild_parameter", ""},
    {"torch._utils._rebuild_parameter_with_state", ""},
    {"torch._tensor._rebuild_from_type_v2", ""},
    {"torch._utils._rebuild_qtensor", "quantized"},
    {"torch._utils._rebuild_sparse_tensor", "sparse"},
    {"torch._utils._rebuild_nested_tensor", "nested"},
    {"torch._utils._rebuild_meta_tensor_no_storage", "on the meta device, which holds no values"},
    {"torch._utils._rebuild_device_tensor_from_cpu_tensor", "of a device without storages"},
    {"torch._utils._rebuild_wrapper_subclass", "of a custom class"},
});

// Other globals that `torch.load(weights_only=True)` accepts, since a file may contain such values next to
// tensors.
inline constexpr std::array torch_plain_globals = std::to_array<std::string_view>({
    "collections.OrderedDict",
    "collections.Counter",
    "torch.Size",
    "torch.device",
    "torch.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.storage.UntypedStorage",
    "torch.storage.TypedStorage",
    "torch.serialization._get_layout",
    "torch.QInt8Storage",
    "torch.QUInt8Storage",
    "torch.QInt32Storage",
    "torch.QUInt4x2Storage",
    "torch.QUInt2x4Storage",
    "torch.per_tensor_affine",
    "torch.per_tensor_symmetric",
    "torch.per_channel_affine",
    "torch.per_channel_symmetric",
    "torch.per_channel_affine_float_qparams",
    "torch.qint8",
    "torch.quint8",
    "torch.qint32",
    "torch.quint4x2",
    "torch.quint2x4",
    "torch.bits8",
    "torch.bits16",
    "torch.bits1x8",
    "torch.bits2x4",
    "torch.bits4x2",
    "torch.float4_e2m1fn_x2",
    "_codecs.encode",
    "builtins.bytearray",
    "builtins.set",
    "builtins.frozenset",
    "builtins.complex",
    "__builtin__.bytearray",
    "__builtin__.set",
    "__builtin__.frozenset",
    "__builtin__.complex",
});

std::vector<std::string_view> torch_globals();

}  // namespace etude::inline v0::detail
