#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"

/// Reads Python's pickles as data. Nothing is executed: a call in a pickle becomes a `Call` that names its
/// function.
namespace etude::inline v0::pickle {

/// The index of a value in its document. A value held by several others occurs once.
using Id = std::uint32_t;

struct None {};
/// An integer of more than 64 bits.
struct LargeInteger {};
struct Text {
  std::string_view utf8;
};
struct ByteString {
  std::string_view bytes;
};
struct List {
  std::vector<Id> items;
};
struct Tuple {
  std::vector<Id> items;
};
struct Set {
  std::vector<Id> items;
};
/// A dict or an OrderedDict: alternating keys and values, as written (keys may repeat).
struct Dict {
  std::vector<Id> items;
};
/// A class or function: one of the allowed names.
struct Global {
  std::string_view name;
};
/// A call of a function; the second member is the tuple of its arguments.
struct Call {
  std::array<Id, 2> function_and_arguments;
};
/// Refers to an object stored elsewhere.
struct PersistentId {
  std::array<Id, 1> id;
};

using Value = std::variant<None, bool, std::int64_t, double, LargeInteger, Text, ByteString, List, Tuple, Set,
                           Dict, Global, Call, PersistentId>;

/// The values of a pickle. Strings are views of its bytes, which must outlive it. The values have no cycles
/// and are nested at most `max_depth` deep.
struct Document {
  static constexpr unsigned max_depth = 100;

  std::vector<Value> values;
  Id root = 0;

  const Value& operator[](Id id) const { return values[id]; }

  /// The value if it is a T, otherwise null.
  template <class T>
  const T* get(Id id) const {
    return std::get_if<T>(&values[id]);
  }
};

/// The values directly inside a value: items, keys and values, function and arguments.
std::span<const Id> children(const Value& value);

/// Throws a CheckpointError that begins with `source` if a value reachable from the root contains itself, or
/// if values are nested deeper than `Document::max_depth`. Takes linear time: each value is visited once.
void check_nesting(const Document& document, std::string_view source);

}  // namespace etude::inline v0::pickle
