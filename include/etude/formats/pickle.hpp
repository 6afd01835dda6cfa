#pragma once

#ifndef ETUDE_TORCH_FILE
#error "etude/formats/pickle.hpp needs a library: link etude::torch_file"
#endif

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/formats/pickle_document.hpp"
#include "etude/io/entry_name.hpp"

namespace etude::inline v0::pickle {

namespace detail {

enum Opcode : unsigned char {
  mark = '(',
  stop = '.',
  binint = 'J',
  binint1 = 'K',
  binint2 = 'M',
  none = 'N',
  binpersid = 'Q',
  reduce = 'R',
  binunicode = 'X',
  append = 'a',
  build = 'b',
  global = 'c',
  empty_dict = '}',
  appends = 'e',
  binget = 'h',
  long_binget = 'j',
  empty_list = ']',
  binput = 'q',
  long_binput = 'r',
  setitem = 's',
  tuple = 't',
  empty_tuple = ')',
  setitems = 'u',
  binfloat = 'G',
  binbytes = 'B',
  short_binbytes = 'C',
  proto = 0x80,
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  newtrue = 0x88,
  newfalse = 0x89,
  long1 = 0x8a,
  long4 = 0x8b,
  short_binunicode = 0x8c,
  binunicode8 = 0x8d,
  binbytes8 = 0x8e,
  empty_set = 0x8f,
  additems = 0x90,
  frozenset = 0x91,
  stack_global = 0x93,
  memoize = 0x94,
  frame = 0x95,
  bytearray8 = 0x96,
};

class Unpickler {
 public:
  Unpickler(std::string_view bytes, std::span<const std::string_view> globals, std::string_view source)
      : bytes_(bytes), globals_(globals), source_(source) {}

  Document read();

 private:
  // Limits memory: a value takes about forty times the memory of the byte that makes it.
  static constexpr std::size_t max_size = std::size_t{1} << 26;
  static constexpr Id none_id = 0, true_id = 1, false_id = 2, empty_tuple_id = 3;

  template <class... Args>
  CheckpointError fault(fmt::format_string<Args...> text, Args&&... args) const {
    return CheckpointError(fmt::format("{}: byte {} of the pickle: ", source_, position_) +
                           fmt::format(text, std::forward<Args>(args)...));
  }

  std::string_view take(std::uint64_t size);

  unsigned char next() { return static_cast<unsigned char>(take(1)[0]); }

  // A little-endian integer of at most eight bytes.
  std::uint64_t number(std::size_t size);

  std::string_view line();

  void push_id(Id id) { stack_.push_back(id); }
  void push(Value value);

  // Values above the last mark may be popped.
  std::size_t available() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  Id top() const;
  Id pop();
  std::vector<Id> pop_last(std::size_t count);
  std::vector<Id> pop_to_mark();

  template <class Container>
  void add(const std::vector<Id>& items, const char* what) {
    auto* container = std::get_if<Container>(&document_.values[top()]);
    if (!container) throw fault("items are added to something that isn't a {}", what);
    container->items.insert(container->items.end(), items.begin(), items.end());
  }
  void add_pairs(const std::vector<Id>& items);

  void push_integer(std::uint64_t size);

  void push_global(std::string_view module, std::string_view name);

  std::string_view popped_text();

  void push_call();

  void put(std::uint64_t index);
  void get(std::uint64_t index) {
    push_id(index < memo_.size() ? memo_[index] : throw fault("memo {} doesn't exist", index));
  }

  // Executes the next opcode; returns false at the end.
  bool step();

  std::string_view bytes_;
  std::span<const std::string_view> globals_;
  std::string_view source_;
  std::size_t position_ = 0;
  Document document_;
  std::vector<Id> stack_, memo_;
  std::vector<std::size_t> marks_;
};

}  // namespace detail

/// Parses a pickle of protocol 2 to 5, supporting the opcodes of plain values and tensors. Only the classes
/// and functions in `globals` ("collections.OrderedDict") are accepted, and they remain names. Time and
/// memory are proportional to the number of bytes, whatever they contain. For anything else, for values that
/// contain themselves, and for nesting deeper than `Document::max_depth`, throws CheckpointError that begins
/// with `source`.
inline Document unpickle(std::string_view bytes, std::span<const std::string_view> globals,
                         std::string_view source) {
  return detail::Unpickler(bytes, globals, source).read();
}

}  // namespace etude::inline v0::pickle
