#include "etude/formats/pickle.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "etude/base/byte_order.hpp"
#include "etude/base/error.hpp"
#include "etude/formats/pickle_document.hpp"
#include "etude/io/entry_name.hpp"

namespace etude::inline v0::pickle {

namespace {

class Unpickler {
 public:
  Unpickler(std::string_view bytes, std::span<const std::string_view> globals, std::string_view source)
      : bytes_(bytes), globals_(globals), source_(source) {}

  Document read() {
    document_.values = {None{}, true, false, Tuple{}};
    if (bytes_.size() > max_size) {
      throw fault("it has {} bytes; at most {} are allowed", bytes_.size(), max_size);
    }
    if (next() != proto) throw fault("it isn't a pickle of protocol 2 to 5");
    if (const auto version = next(); version < 2 || version > 5) {
      throw fault("its protocol is {}; supported are 2 to 5", version);
    }
    while (step()) {
    }
    if (position_ != bytes_.size()) throw fault("it continues after its end");
    document_.root = pop();
    if (!stack_.empty() || !marks_.empty()) throw fault("it ends with values left over");
    check_nesting(document_, source_);
    return std::move(document_);
  }

 private:
  // Limits memory: a value takes about forty times the memory of the byte that makes it.
  static constexpr std::size_t max_size = std::size_t{1} << 26;
  static constexpr Id none_id = 0, true_id = 1, false_id = 2, empty_tuple_id = 3;
  static constexpr unsigned char proto = 0x80, stop = '.';

  template <class... Args>
  CheckpointError fault(fmt::format_string<Args...> text, Args&&... args) const {
    return CheckpointError(fmt::format("{}: byte {} of the pickle: ", source_, position_) +
                           fmt::format(text, std::forward<Args>(args)...));
  }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - position_) {
      throw fault("{} bytes are needed but only {} are left", size, bytes_.size() - position_);
    }
    const auto taken = bytes_.substr(position_, size);
    position_ += size;
    return taken;
  }

  unsigned char next() { return static_cast<unsigned char>(take(1)[0]); }

  // An integer of at most eight bytes.
  std::uint64_t number(std::size_t size) { return etude::detail::little_endian(take(size)); }

  std::string_view line() {
    const auto end = bytes_.find('\n', position_);
    if (end == bytes_.npos) throw fault("a name isn't terminated");
    const auto text = bytes_.substr(position_, end - position_);
    position_ = end + 1;
    return text;
  }

  void push_id(Id id) { stack_.push_back(id); }
  void push(Value value) {
    stack_.push_back(static_cast<Id>(document_.values.size()));
    document_.values.push_back(std::move(value));
  }

  // Values above the last mark may be popped.
  std::size_t available() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  Id top() const {
    if (available() == 0) throw fault("a value is missing");
    return stack_.back();
  }
  Id pop() {
    const auto id = top();
    stack_.pop_back();
    return id;
  }
  std::vector<Id> pop_last(std::size_t count) {
    if (available() < count) throw fault("a value is missing");
    std::vector<Id> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  std::vector<Id> pop_to_mark() {
    if (marks_.empty()) throw fault("a mark is missing");
    auto items = pop_last(available());
    marks_.pop_back();
    return items;
  }

  template <class Container>
  void add(const std::vector<Id>& items, const char* what) {
    auto* container = std::get_if<Container>(&document_.values[top()]);
    if (!container) throw fault("items are added to something that isn't a {}", what);
    container->items.insert(container->items.end(), items.begin(), items.end());
  }
  void add_pairs(const std::vector<Id>& items) {
    if (items.size() % 2 != 0) throw fault("a key has no value");
    add<Dict>(items, "dict");
  }

  void push_integer(std::uint64_t size) {
    if (size > sizeof(std::int64_t)) {
      take(size);
      push(LargeInteger{});
      return;
    }
    auto bits = number(size);
    const bool negative = size > 0 && (bits >> (8 * size - 1)) != 0;
    if (negative && size < sizeof bits) bits |= ~std::uint64_t{0} << (8 * size);
    push(std::bit_cast<std::int64_t>(bits));
  }

  void push_global(std::string_view module, std::string_view name) {
    for (const auto allowed : globals_) {
      if (allowed.size() == module.size() + 1 + name.size() && allowed.starts_with(module) &&
          allowed[module.size()] == '.' && allowed.ends_with(name)) {
        push(Global{allowed});
        return;
      }
    }
    throw fault("it refers to {} of {}; only tensors and plain values can be read, and nothing is executed",
                etude::detail::in_quotes(name), etude::detail::in_quotes(module));
  }

  std::string_view popped_text() {
    const auto* text = document_.get<Text>(pop());
    return text ? text->utf8 : throw fault("a name isn't text");
  }

  void push_call() {
    const auto arguments = pop(), function = pop();
    const auto* global = document_.get<Global>(function);
    const auto* items = document_.get<Tuple>(arguments);
    if (!global || !items) throw fault("a call needs a function and a tuple");
    if (global->name == "collections.OrderedDict" && items->items.empty()) {
      push(Dict{});
    } else {
      push(Call{{function, arguments}});
    }
  }

  void put(std::uint64_t index) {
    if (index > memo_.size()) throw fault("memo {} precedes memo {}", index, memo_.size());
    if (index == memo_.size()) memo_.push_back(0);
    memo_[index] = top();
  }
  void get(std::uint64_t index) {
    push_id(index < memo_.size() ? memo_[index] : throw fault("memo {} doesn't exist", index));
  }

  void push_double() { push(std::bit_cast<double>(etude::detail::big_endian(take(8)))); }

  void check_frame() {
    if (number(8) > bytes_.size() - position_) throw fault("a frame goes past the end");
  }

  void push_line_global() {
    const auto module = line();
    push_global(module, line());
  }

  void push_stack_global() {
    const auto name = popped_text();
    push_global(popped_text(), name);
  }

  // The attributes of an OrderedDict: a state_dict keeps its modules' versions there.
  void set_attributes() {
    pop();
    if (!document_.get<Dict>(top())) throw fault("attributes are set on something that isn't an OrderedDict");
  }

  // Executes the next opcode; returns false at the end.
  bool step() {
    const auto opcode = next();
    if (opcode == stop) return false;
    const auto action = actions()[opcode];
    if (!action) throw fault("opcode {:#04x} isn't needed in a file of tensors", opcode);
    action(*this);
    return true;
  }

  using Action = void (*)(Unpickler&);

  // The actions by opcode; null for opcodes that aren't needed. The comments name them as Python's
  // pickletools does.
  static const std::array<Action, 256>& actions() {
    static const auto by_opcode = [] {
      constexpr std::pair<unsigned char, Action> known[] = {
          {0x95, [](Unpickler& u) { u.check_frame(); }},                     // FRAME
          {'(', [](Unpickler& u) { u.marks_.push_back(u.stack_.size()); }},  // MARK

          {'N', [](Unpickler& u) { u.push_id(none_id); }},                              // NONE
          {0x88, [](Unpickler& u) { u.push_id(true_id); }},                             // NEWTRUE
          {0x89, [](Unpickler& u) { u.push_id(false_id); }},                            // NEWFALSE
          {'J', [](Unpickler& u) { u.push_integer(4); }},                               // BININT
          {'K', [](Unpickler& u) { u.push(static_cast<std::int64_t>(u.number(1))); }},  // BININT1
          {'M', [](Unpickler& u) { u.push(static_cast<std::int64_t>(u.number(2))); }},  // BININT2
          {0x8a, [](Unpickler& u) { u.push_integer(u.number(1)); }},                    // LONG1
          {0x8b, [](Unpickler& u) { u.push_integer(u.number(4)); }},                    // LONG4
          {'G', [](Unpickler& u) { u.push_double(); }},                                 // BINFLOAT
          {0x8c, [](Unpickler& u) { u.push(Text{u.take(u.number(1))}); }},              // SHORT_BINUNICODE
          {'X', [](Unpickler& u) { u.push(Text{u.take(u.number(4))}); }},               // BINUNICODE
          {0x8d, [](Unpickler& u) { u.push(Text{u.take(u.number(8))}); }},              // BINUNICODE8
          {'C', [](Unpickler& u) { u.push(ByteString{u.take(u.number(1))}); }},         // SHORT_BINBYTES
          {'B', [](Unpickler& u) { u.push(ByteString{u.take(u.number(4))}); }},         // BINBYTES
          {0x8e, [](Unpickler& u) { u.push(ByteString{u.take(u.number(8))}); }},        // BINBYTES8
          {0x96, [](Unpickler& u) { u.push(ByteString{u.take(u.number(8))}); }},        // BYTEARRAY8

          {')', [](Unpickler& u) { u.push_id(empty_tuple_id); }},             // EMPTY_TUPLE
          {0x85, [](Unpickler& u) { u.push(Tuple{u.pop_last(1)}); }},         // TUPLE1
          {0x86, [](Unpickler& u) { u.push(Tuple{u.pop_last(2)}); }},         // TUPLE2
          {0x87, [](Unpickler& u) { u.push(Tuple{u.pop_last(3)}); }},         // TUPLE3
          {'t', [](Unpickler& u) { u.push(Tuple{u.pop_to_mark()}); }},        // TUPLE
          {']', [](Unpickler& u) { u.push(List{}); }},                        // EMPTY_LIST
          {'a', [](Unpickler& u) { u.add<List>(u.pop_last(1), "list"); }},    // APPEND
          {'e', [](Unpickler& u) { u.add<List>(u.pop_to_mark(), "list"); }},  // APPENDS
          {0x8f, [](Unpickler& u) { u.push(Set{}); }},                        // EMPTY_SET
          {0x90, [](Unpickler& u) { u.add<Set>(u.pop_to_mark(), "set"); }},   // ADDITEMS
          {0x91, [](Unpickler& u) { u.push(Set{u.pop_to_mark()}); }},         // FROZENSET
          {'}', [](Unpickler& u) { u.push(Dict{}); }},                        // EMPTY_DICT
          {'s', [](Unpickler& u) { u.add_pairs(u.pop_last(2)); }},            // SETITEM
          {'u', [](Unpickler& u) { u.add_pairs(u.pop_to_mark()); }},          // SETITEMS

          {0x94, [](Unpickler& u) { u.put(u.memo_.size()); }},  // MEMOIZE
          {'q', [](Unpickler& u) { u.put(u.number(1)); }},      // BINPUT
          {'r', [](Unpickler& u) { u.put(u.number(4)); }},      // LONG_BINPUT
          {'h', [](Unpickler& u) { u.get(u.number(1)); }},      // BINGET
          {'j', [](Unpickler& u) { u.get(u.number(4)); }},      // LONG_BINGET

          {'c', [](Unpickler& u) { u.push_line_global(); }},             // GLOBAL
          {0x93, [](Unpickler& u) { u.push_stack_global(); }},           // STACK_GLOBAL
          {'R', [](Unpickler& u) { u.push_call(); }},                    // REDUCE
          {'Q', [](Unpickler& u) { u.push(PersistentId{{u.pop()}}); }},  // BINPERSID
          {'b', [](Unpickler& u) { u.set_attributes(); }},               // BUILD
      };
      std::array<Action, 256> all{};
      for (const auto& [opcode, action] : known) all.at(opcode) = action;
      return all;
    }();
    return by_opcode;
  }

  std::string_view bytes_;
  std::span<const std::string_view> globals_;
  std::string_view source_;
  std::size_t position_ = 0;
  Document document_;
  std::vector<Id> stack_, memo_;
  std::vector<std::size_t> marks_;
};

}  // namespace

Document unpickle(std::string_view bytes, std::span<const std::string_view> globals,
                  std::string_view source) {
  return Unpickler(bytes, globals, source).read();
}

}  // namespace etude::inline v0::pickle
