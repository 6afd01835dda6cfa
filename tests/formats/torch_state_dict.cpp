#include "etude/formats/torch_state_dict.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/pickle_bytes.hpp"
#include "etude/base/error.hpp"
#include "etude/formats/pickle.hpp"
#include "etude/formats/torch_names.hpp"

namespace formats_torch_state_dict_test {

using toy::contains;
using namespace std::string_literals;
namespace pickled = toy::pickled;
using Names = std::vector<std::string>;

etude::TorchStateDict read(const std::string& value, std::string_view key = {}) {
  static const auto globals = etude::detail::torch_globals();
  const auto bytes = pickled::file(value);
  const auto document = etude::pickle::unpickle(bytes, globals, "x.pt");
  return etude::read_torch_state_dict(document, bytes.size(), key, "x.pt");
}

std::string fault_of(const std::string& value, std::string_view key = {}) {
  return toy::fault_of<etude::CheckpointError>([&] { read(value, key); });
}

Names names_of(const std::string& value, std::string_view key = {}) {
  Names names;
  for (const auto& tensor : read(value, key).tensors) names.push_back(tensor.name);
  return names;
}

// The error for a file that has only this tensor.
std::string tensor_fault(const pickled::Tensor& tensor) {
  const auto fault = fault_of(pickled::dict({{"w", pickled::tensor(tensor)}}));
  CHECK((fault == "nothing was thrown" || fault.starts_with("x.pt: tensor 'w': ")));
  return fault;
}

constexpr auto largest = INT64_MAX;

TEST_CASE("a tensor is described as it was saved") {
  const auto state_dict = read(pickled::dict({{"w", pickled::tensor({.type = "DoubleStorage",
                                                                     .key = "7",
                                                                     .count = 12,
                                                                     .offset = 1,
                                                                     .sizes = {3, 2},
                                                                     .strides = {1, 4}})}}));
  REQUIRE(state_dict.tensors.size() == 1);
  const auto& tensor = state_dict.tensors[0];
  CHECK(tensor.name == "w");
  CHECK(tensor.dtype == "Double");
  CHECK(tensor.storage == "7");
  CHECK(tensor.storage_bytes == 96);
  CHECK(tensor.item_size == 8);
  CHECK(tensor.offset == 1);
  CHECK(tensor.sizes == std::vector<std::int64_t>{3, 2});
  CHECK(tensor.strides == std::vector<std::int64_t>{1, 4});
  CHECK(tensor.bytes() == 48);
  CHECK_FALSE(tensor.conjugate);
  CHECK_FALSE(tensor.negative);
}

TEST_CASE("parameters, tensors with attributes, lazy ones and new dtypes are tensors") {
  const auto tensor = pickled::tensor();
  const auto hooks = pickled::call(pickled::global("collections", "OrderedDict"), {});
  const auto parameter = pickled::call(pickled::global("torch._utils", "_rebuild_parameter"),
                                       {tensor, pickled::boolean(true), hooks});
  const auto noted = pickled::call(
      pickled::global("torch._tensor", "_rebuild_from_type_v2"),
      {pickled::global("torch._utils", "_rebuild_tensor_v2"), pickled::global("torch", "Tensor"),
       pickled::tuple({pickled::storage("IntStorage", "1", 1), pickled::integer(0), pickled::integers({}),
                       pickled::integers({}), pickled::boolean(false), hooks}),
       pickled::dict({{"note", pickled::text("n")}})});
  const auto lazy =
      pickled::call(pickled::global("torch._utils", "_rebuild_tensor_v2"),
                    {pickled::storage("ComplexFloatStorage", "2", 1), pickled::integer(0),
                     pickled::integers({1}), pickled::integers({1}), pickled::boolean(false), hooks,
                     pickled::dict({{"conj", pickled::boolean(true)}, {"neg", pickled::boolean(true)}})});
  const auto bytes =
      pickled::tuple({pickled::text("storage"), pickled::global("torch.storage", "UntypedStorage"),
                      pickled::text("3"), pickled::text("cpu"), pickled::integer(4)}) +
      "Q";
  const auto typed =
      pickled::call(pickled::global("torch._utils", "_rebuild_tensor_v3"),
                    {bytes, pickled::integer(1), pickled::integers({1}), pickled::integers({1}),
                     pickled::boolean(false), hooks, pickled::global("torch", "uint16")});
  const auto state_dict =
      read(pickled::dict({{"parameter", parameter}, {"noted", noted}, {"lazy", lazy}, {"typed", typed}}));
  REQUIRE(state_dict.tensors.size() == 4);
  CHECK(state_dict.tensors[0].storage == "0");
  CHECK(state_dict.tensors[1].dtype == "Int");
  CHECK(state_dict.tensors[1].sizes.empty());
  CHECK(state_dict.tensors[2].conjugate);
  CHECK(state_dict.tensors[2].negative);
  CHECK(state_dict.tensors[3].dtype == "UInt16");
  CHECK(state_dict.tensors[3].storage_bytes == 4);
}

TEST_CASE("names go through dicts and lists, and values that aren't tensors are listed") {
  const auto t = pickled::tensor();
  const auto optimizer = pickled::dict(
      {{"state", "}" + pickled::integer(0) + pickled::dict({{"exp_avg", t}, {"step", "K\1"}}) + "s"},
       {"groups", "](" + pickled::dict({{"lr", "K\1"}}) + "e"},
       {"list", "](" + t + "N" + t + "e"}});
  const auto state_dict = read(pickled::dict({{"optimizer", optimizer}, {"w", t}, {"epoch", "K\3"}}));
  Names names;
  for (const auto& tensor : state_dict.tensors) names.push_back(tensor.name);
  CHECK(names == Names{"optimizer.state.0.exp_avg", "optimizer.list.0", "optimizer.list.2", "w"});
  CHECK(state_dict.skipped ==
        Names{"optimizer.state.0.step", "optimizer.groups", "optimizer.list.1", "epoch"});
  CHECK(read(pickled::dict({{"w", t}, {"\x1b[2J", "K\1"}})).skipped == Names{"\\u001b[2J"});
}

TEST_CASE("an unambiguous dict of tensors is found, and an ambiguous one has to be named") {
  const auto t = pickled::tensor();
  const auto model = pickled::dict({{"w", t}, {"b", t}});
  CHECK(names_of(pickled::dict({{"model", model}, {"epoch", "K\3"}})) == Names{"w", "b"});
  const auto two =
      pickled::dict({{"model", model}, {"optimizer", pickled::dict({{"m", t}})}, {"epoch", "K\3"}});
  CHECK(contains(fault_of(two),
                 "several of its entries contain tensors: 'model', 'optimizer'; specify the key of one"));
  CHECK(names_of(two, "optimizer") == Names{"m"});
  CHECK(names_of(two, "model") == Names{"w", "b"});
  CHECK(contains(fault_of(two, "modle"),
                 "'modle' doesn't exist; entries with tensors are: 'model', 'optimizer'"));
  CHECK(contains(fault_of(two, "epoch"), "'epoch' isn't a dict of tensors"));
  CHECK(contains(fault_of(two, "model.w"), "'model.w' isn't a dict of tensors"));
  CHECK(contains(fault_of(two, "model.w.x"), "'model.w.x' doesn't exist"));
  CHECK(contains(fault_of(pickled::dict({{"a", "}"}, {"b", model}}), "a"), "'a' holds no tensors"));
  CHECK(contains(fault_of(pickled::dict({{"epoch", "K\3"}})), "it holds no tensors"));
  CHECK(contains(fault_of(t), "what it holds isn't a dict of tensors"));
  CHECK(names_of("](" + t + t + "e") == Names{"0", "1"});
  // Dots in keys and between them.
  const auto dotted = pickled::dict({{"a.b", pickled::dict({{"c", model}})}, {"d", model}});
  CHECK(names_of(dotted, "a.b.c") == Names{"w", "b"});
  CHECK(names_of(dotted, "a.b") == Names{"c.w", "c.b"});
}

TEST_CASE("ambiguous names are refused") {
  const auto t = pickled::tensor();
  CHECK(contains(fault_of(pickled::dict({{"w", t}, {"w", t}})), "'w' appears twice"));
  CHECK(contains(fault_of(pickled::dict({{"a", pickled::dict({{"b", t}})}, {"a.b", t}})),
                 "tensor 'a.b': the name is duplicate"));
  CHECK(contains(
      fault_of(pickled::dict({{"m", pickled::dict({{"w", t}})}, {"m", pickled::dict({{"w", t}})}}), "m"),
      "'m' appears twice"));
  CHECK(contains(fault_of("}N" + t + "s"), "a key that is neither text nor a whole number"));
  CHECK(contains(fault_of(pickled::dict({{"\xff", t}})), "its name isn't UTF-8"));
}

TEST_CASE("elements outside the storage are refused") {
  CHECK(tensor_fault({}) == "nothing was thrown");
  const auto outside = [](const pickled::Tensor& tensor) {
    return contains(tensor_fault(tensor), "outside its storage");
  };
  CHECK(outside({.count = 3}));
  CHECK(outside({.offset = 1}));
  CHECK(outside({.offset = -1}));
  CHECK(outside({.offset = largest}));
  CHECK(outside({.sizes = {2, 3}}));
  CHECK(outside({.strides = {3, 1}}));
  CHECK(outside({.count = 0}));
  CHECK(outside({.count = 4, .offset = 4, .sizes = {}, .strides = {}}));
  CHECK(outside({.count = 4, .offset = 5, .sizes = {0}, .strides = {1}}));
  CHECK(outside({.count = 0, .sizes = {}, .strides = {}}));
  CHECK(outside({.sizes = {largest / 8}, .strides = {4}}));
  // (2^62 - 1) * 4 + 1 would wrap around to a small number in 64 bits.
  CHECK(
      contains(tensor_fault({.type = "ByteStorage", .sizes = {std::int64_t{1} << 62, 2}, .strides = {4, 1}}),
               "too large"));
  CHECK(outside({.type = "ByteStorage", .sizes = {(std::int64_t{1} << 62) + 1}, .strides = {4}}));
  CHECK(tensor_fault({.count = 4, .offset = 3, .sizes = {}, .strides = {}}) == "nothing was thrown");
  CHECK(tensor_fault({.count = 0, .sizes = {0, 3}, .strides = {3, 1}}) == "nothing was thrown");
  CHECK(tensor_fault({.count = 4, .sizes = {1, 4}, .strides = {4, 1}}) == "nothing was thrown");
  CHECK(tensor_fault({.count = 1, .sizes = {3, 5}, .strides = {0, 0}}) == "nothing was thrown");
  CHECK(tensor_fault({.count = 3, .offset = 2, .sizes = {3}, .strides = {0}}) == "nothing was thrown");
}

TEST_CASE("numbers that no tensor can have are refused") {
  CHECK(contains(tensor_fault({.sizes = {-2, -2}}), "size: it must have whole numbers from 0"));
  CHECK(contains(tensor_fault({.strides = {-2, 1}}), "stride: it must have whole numbers from 0"));
  CHECK(contains(tensor_fault({.count = -1}), "storage: an invalid number of elements, -1"));
  CHECK(contains(tensor_fault({.count = largest}), "an invalid number of elements"));
  CHECK(contains(tensor_fault({.sizes = {largest, largest, 0}, .strides = {0, 0, 0}}),
                 "size: it is too large"));
  CHECK(contains(tensor_fault({.sizes = {largest}, .strides = {0}}), "size: it is too large"));
  CHECK(contains(tensor_fault({.sizes = {0}, .strides = {largest}}), "stride: it is too large"));
  CHECK(contains(tensor_fault({.sizes = {1}, .strides = {largest}}), "stride: it is too large"));
  CHECK(contains(tensor_fault({.sizes = {2, 2}, .strides = {1}}), "it has 2 sizes and 1 strides"));
  CHECK(contains(
      tensor_fault({.sizes = std::vector<std::int64_t>(65, 1), .strides = std::vector<std::int64_t>(65, 1)}),
      "size: it has 65 dimensions; at most 64"));
}

TEST_CASE("storage names that aren't plain names are refused") {
  for (const auto& key : {"../0"s, "a/b"s, ".."s, "."s, ""s, "0\0"s, "\\"s, "/etc/passwd"s}) {
    CAPTURE(key);
    CHECK(contains(tensor_fault({.key = key}), "isn't a valid storage name"));
  }
}

TEST_CASE("tensors that aren't dense are refused by name") {
  const auto hooks = pickled::call(pickled::global("collections", "OrderedDict"), {});
  const auto fault = [](const std::string& value) { return fault_of(pickled::dict({{"q", value}})); };
  const auto made_by = [&](const std::string& function) {
    return fault(pickled::call(pickled::global("torch._utils", function), {}));
  };
  CHECK(contains(made_by("_rebuild_qtensor"), "tensor 'q': it is quantized; only dense tensors"));
  CHECK(contains(made_by("_rebuild_sparse_tensor"), "tensor 'q': it is sparse"));
  CHECK(contains(made_by("_rebuild_nested_tensor"), "tensor 'q': it is nested"));
  CHECK(contains(made_by("_rebuild_meta_tensor_no_storage"), "tensor 'q': it is on the meta device"));
  CHECK(contains(made_by("_rebuild_tensor_v2"), "it has 0 arguments; 6 or 7 are allowed"));
  CHECK(contains(made_by("_rebuild_tensor_v3"), "it has 0 arguments; 7 or 8 are allowed"));
  CHECK(contains(made_by("_rebuild_parameter"), "a parameter without a tensor"));
  CHECK(contains(tensor_fault({.type = "QInt8Storage"}), "storage: torch.QInt8Storage can't be read"));
  CHECK(contains(tensor_fault({.type = "Size"}), "storage: torch.Size can't be read"));
  CHECK(contains(fault(pickled::call(pickled::global("torch._tensor", "_rebuild_from_type_v2"),
                                     {pickled::global("torch._utils", "_rebuild_tensor_v2"),
                                      pickled::global("torch", "Size"), pickled::tuple({}), "}"})),
                 "it is of a custom tensor class"));
  const auto with = [&](const std::string& storage, const std::string& metadata) {
    return fault(pickled::call(pickled::global("torch._utils", "_rebuild_tensor_v2"),
                               {storage, pickled::integer(0), pickled::integers({1}), pickled::integers({1}),
                                pickled::boolean(false), hooks, metadata}));
  };
  const auto storage = pickled::storage("FloatStorage", "0", 1);
  CHECK(with(storage, "N") == "nothing was thrown");
  CHECK(with(storage, "}") == "nothing was thrown");
  CHECK(contains(with(storage, pickled::dict({{"conj", pickled::boolean(true)}})),
                 "conj is only for complex numbers"));
  CHECK(contains(with(storage, pickled::dict({{"other", pickled::boolean(true)}})), "'other' is unknown"));
  CHECK(contains(with(storage, pickled::dict({{"conj", "K\1"}})), "'conj' is unknown"));
  CHECK(contains(with("N", "}"), "it doesn't refer to a storage"));
  CHECK(contains(with(pickled::text("0") + "Q", "}"), "it doesn't refer to a storage"));
}

TEST_CASE("a small file can't expand much by repetition") {
  // Thirty levels, each a dict that holds the previous one twice: 2^30 tensors.
  std::string value = pickled::dict({{"w", pickled::tensor()}}) + "q\0"s;
  for (char level = 1; level <= 30; ++level) {
    value = "}(" + pickled::text("a") + value + pickled::text("b") + "h"s + static_cast<char>(level - 1) +
            "uq"s + level;
  }
  CHECK(contains(fault_of(value, "a"), "repeats values too often"));
  // A long name in many dicts.
  std::string wide = "}(" + pickled::text("w") + pickled::tensor();
  wide += pickled::text("first") + "}" + pickled::text(std::string(100'000, 'n')) + "q\0"s +
          pickled::tensor() + "q\1s"s;
  for (int i = 0; i < 10'000; ++i) wide += pickled::text(std::to_string(i)) + "}h\0h\1s"s;
  CHECK(contains(fault_of(wide + "u"), "repeats values too often"));
}

}  // namespace formats_torch_state_dict_test
