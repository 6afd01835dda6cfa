#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Builds pickles by hand: each function returns the opcodes that leave a value on the stack.
namespace toy::pickled {

inline std::string little_endian(std::uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

/// A whole pickle of protocol 2.
inline std::string file(const std::string& value) { return "\x80\x02" + value + "."; }

inline std::string text(const std::string& value) { return "X" + little_endian(value.size(), 4) + value; }
inline std::string integer(std::int64_t value) {
  return "\x8a\x08" + little_endian(static_cast<std::uint64_t>(value), 8);
}
inline std::string boolean(bool value) { return value ? "\x88" : "\x89"; }
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}

inline std::string tuple(const std::vector<std::string>& items) {
  std::string bytes = "(";
  for (const auto& item : items) bytes += item;
  return bytes + "t";
}
inline std::string integers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const auto value : values) items.push_back(integer(value));
  return tuple(items);
}
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string bytes = "}(";
  for (const auto& [key, value] : items) bytes += text(key) + value;
  return bytes + "u";
}
inline std::string call(const std::string& function, const std::vector<std::string>& arguments) {
  return function + tuple(arguments) + "R";
}

inline std::string storage(const std::string& type, const std::string& key, std::int64_t count) {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), integer(count)}) + "Q";
}

/// A tensor as `torch.save` writes it.
struct Tensor {
  std::string type = "FloatStorage", key = "0";
  std::int64_t count = 4, offset = 0;
  std::vector<std::int64_t> sizes = {2, 2}, strides = {2, 1};
};
inline std::string tensor(const Tensor& t = {}) {
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {storage(t.type, t.key, t.count), integer(t.offset), integers(t.sizes), integers(t.strides),
               boolean(false), call(global("collections", "OrderedDict"), {})});
}

}  // namespace toy::pickled
