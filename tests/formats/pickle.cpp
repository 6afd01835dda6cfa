#include "etude/formats/pickle.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/pickle_bytes.hpp"
#include "etude/base/error.hpp"

namespace formats_pickle_test {

using toy::contains;
using namespace std::string_literals;
namespace pickle = etude::pickle;
namespace pickled = toy::pickled;

constexpr std::array<std::string_view, 2> globals = {"collections.OrderedDict", "some.module.make"};

pickle::Document read(const std::string& bytes) { return pickle::unpickle(bytes, globals, "x.pt"); }

std::string fault_of(const std::string& bytes) {
  return toy::fault_of<etude::CheckpointError>([&] { read(bytes); });
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// The document's text, roughly as Python prints it.
std::string text_of(const pickle::Document& document, pickle::Id id) {
  const auto joined = [&](const std::vector<pickle::Id>& items) {
    std::string text;
    for (const auto item : items) text += (text.empty() ? "" : ", ") + text_of(document, item);
    return text;
  };
  struct {
    const pickle::Document& document;
    decltype(joined)& join;
    std::string operator()(const pickle::None&) const { return "None"; }
    std::string operator()(bool value) const { return value ? "True" : "False"; }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return fmt::format("{}", value); }
    std::string operator()(const pickle::LargeInteger&) const { return "large"; }
    std::string operator()(const pickle::Text& value) const { return fmt::format("'{}'", value.utf8); }
    std::string operator()(const pickle::ByteString& value) const {
      return fmt::format("b'{}'", value.bytes);
    }
    std::string operator()(const pickle::List& value) const { return "[" + join(value.items) + "]"; }
    std::string operator()(const pickle::Tuple& value) const { return "(" + join(value.items) + ")"; }
    std::string operator()(const pickle::Set& value) const { return "set(" + join(value.items) + ")"; }
    std::string operator()(const pickle::Dict& value) const { return "{" + join(value.items) + "}"; }
    std::string operator()(const pickle::Global& value) const { return std::string(value.name); }
    std::string operator()(const pickle::Call& value) const {
      return text_of(document, value.function_and_arguments[0]) +
             text_of(document, value.function_and_arguments[1]);
    }
    std::string operator()(const pickle::PersistentId& value) const {
      return "@" + text_of(document, value.id[0]);
    }
  } visitor{document, joined};
  return std::visit(visitor, document[id]);
}
std::string text_of(const std::string& bytes) {
  const auto document = read(bytes);
  return text_of(document, document.root);
}

// `levels` nested lists.
std::string nested(unsigned levels) {
  return pickled::file(std::string(levels, ']') + std::string(levels - 1, 'a'));
}

TEST_CASE("files of Python's pickle with protocols 2 to 5 are read") {
  // pickle.dumps([1, -2, 300, 70000, -70000, 2**40, -2**63, 2**70, 1.5, None, True, False, 'é', (), (1,), (1,
  // 2, 3, 4),
  //               {'k': {}}], protocol)
  const auto early = from_hex(
      "5d7100284b014afeffffff4d2c014a701101004a90eefeff8a060000000000018a0800000000000000808a0900000000"
      "0000000040473ff80000000000004e88895802000000c3a97101294b01857102284b014b024b034b047471037d710458"
      "010000006b71057d710673652e");
  const auto late = from_hex(
      "9560000000000000005d94284b014afeffffff4d2c014a701101004a90eefeff8a060000000000018a08000000000000"
      "00808a09000000000000000040473ff80000000000004e88898c02c3a994294b018594284b014b024b034b0474947d94"
      "8c016b947d9473652e");
  const std::string expected =
      "[1, -2, 300, 70000, -70000, 1099511627776, -9223372036854775808, large, 1.5, None, True, False, 'é', "
      "(), (1), "
      "(1, 2, 3, 4), {'k', {}}]";
  CHECK(text_of("\x80\x02"s + early) == expected);
  CHECK(text_of("\x80\x03"s + early) == expected);
  CHECK(text_of("\x80\x04"s + late) == expected);
  CHECK(text_of("\x80\x05"s + late) == expected);
}

TEST_CASE("every opcode of a plain value gives that value") {
  CHECK(text_of("\x80\x04\x8d\x02\0\0\0\0\0\0\0ab."s) == "'ab'");
  CHECK(text_of("\x80\x04"s + "C\x02" + "ab.") == "b'ab'");
  CHECK(text_of("\x80\x04"s + "B\x02\0\0\0ab."s) == "b'ab'");
  CHECK(text_of("\x80\x04\x8e\x02\0\0\0\0\0\0\0ab."s) == "b'ab'");
  CHECK(text_of("\x80\x05\x96\x02\0\0\0\0\0\0\0ab."s) == "b'ab'");
  CHECK(text_of("\x80\x04\x8f(K\x01K\x02\x90."s) == "set(1, 2)");
  CHECK(text_of("\x80\x04(K\x01\x91."s) == "set(1)");
  CHECK(text_of("\x80\x02K\x01K\x02\x86."s) == "(1, 2)");
  CHECK(text_of("\x80\x02K\x01K\x02K\x03\x87."s) == "(1, 2, 3)");
  CHECK(text_of("\x80\x02\x8a\x00."s) == "0");
  CHECK(text_of("\x80\x02\x8b\x01\0\0\0\xff."s) == "-1");
}

TEST_CASE("a value that is referenced again is the same value") {
  const auto document = read(pickled::file("]q\0(]q\1h\1K\7ae"s));
  CHECK(text_of(document, document.root) == "[[7], [7]]");
  const auto& items = document.get<pickle::List>(document.root)->items;
  CHECK(items[0] == items[1]);
}

TEST_CASE("calls stay names, and an OrderedDict keeps its items but not its attributes") {
  CHECK(text_of(pickled::file(pickled::call(pickled::global("some.module", "make"),
                                            {pickled::integer(3)}))) == "some.module.make(3)");
  const auto ordered = pickled::call(pickled::global("collections", "OrderedDict"), {});
  CHECK(text_of(pickled::file(ordered + "(" + pickled::text("w") + "K\1u" + "}" + pickled::text("_metadata") +
                              "}sb")) == "{'w', 1}");
  CHECK(text_of("\x80\x04\x8c\x0bsome.module\x8c\x04make\x93."s) == "some.module.make");
  CHECK(text_of(pickled::file(pickled::text("0") + "Q")) == "@'0'");
}

TEST_CASE("anything not on the list is refused by name") {
  for (const auto& [module, name] :
       std::vector<std::pair<std::string, std::string>>{{"os", "system"},
                                                        {"posix", "system"},
                                                        {"builtins", "eval"},
                                                        {"__builtin__", "getattr"},
                                                        {"subprocess", "Popen"},
                                                        {"collections", "OrderedDict.fromkeys"},
                                                        {"some", "module"},
                                                        {"", ""}}) {
    const auto call = pickled::call(pickled::global(module, name), {pickled::text("touch /tmp/owned")});
    const auto fault = fault_of(pickled::file(call));
    CAPTURE(fault);
    CHECK(contains(fault, "x.pt: byte "));
    CHECK(contains(fault, fmt::format("it refers to '{}' of '{}'", name, module)));
  }
  CHECK(contains(fault_of("\x80\x04\x8c\x02os\x8c\x06system\x93."s), "it refers to 'system' of 'os'"));
  CHECK(contains(fault_of(pickled::file(pickled::global("os\x1b[2J", "a"))), "'os\\u001b[2J'"));
  for (const std::string opcode :
       {"i", "o", "\x81", "\x92", "\x82", "P", "d", "l", "0", "1", "2", "p", "I", "V", "\x97", "\x98"}) {
    CAPTURE(opcode);
    CHECK(contains(fault_of(pickled::file("(" + opcode)), "opcode 0x"));
  }
}

TEST_CASE("wrong lengths are refused") {
  for (const auto& value :
       {"X\xff\xff\xff\xff"s, "X\5\0\0\0abc"s, "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s, "\x8c\xff"s,
        "\x8a\xff"s, "\x8b\xff\xff\xff\xff"s, "\x8b\xff\xff\xff\x7f"s, "B\xff\xff\xff\xff"s,
        "\x8e\0\0\0\0\0\0\0\x80"s, "C\xff"s, "K"s, "M\1"s, "J\1\1\1"s, "G\1"s}) {
    CHECK(contains(fault_of("\x80\x04" + value), "bytes are needed but only"));
  }
  CHECK(contains(fault_of("\x80\x04\x95\xff\0\0\0\0\0\0\0N."s), "a frame goes past the end"));
  CHECK(contains(fault_of(pickled::file("cos")), "a name isn't terminated"));
  CHECK(contains(fault_of("\x80\x02" + std::string((std::size_t{1} << 26) - 1, 'N')),
                 "at most 67108864 are allowed"));
}

TEST_CASE("a pickle that ends anywhere but at its end is refused") {
  const auto whole = pickled::file(pickled::dict({{"a", "]q\0(K\1K\2e"s}, {"b", pickled::tensor()}}));
  // The other tests' list lacks the functions that this pickle names.
  const std::array<std::string_view, 3> more = {"collections.OrderedDict", "torch._utils._rebuild_tensor_v2",
                                                "torch.FloatStorage"};
  CHECK_NOTHROW(pickle::unpickle(whole, more, "x.pt"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK_THROWS_AS(pickle::unpickle(whole.substr(0, size), more, "x.pt"), etude::CheckpointError);
  }
  CHECK(contains(fault_of(pickled::file("N") + "N"), "it continues after its end"));
  CHECK(contains(fault_of(pickled::file("NN")), "values left over"));
  CHECK(contains(fault_of(pickled::file("(N")), "values left over"));
}

TEST_CASE("only protocols 2 to 5 are read") {
  CHECK(contains(fault_of(""), "bytes are needed"));
  CHECK(contains(fault_of("(dp0\n."), "it isn't a pickle of protocol"));
  CHECK(contains(fault_of("\x80\x01N."), "its protocol is 1"));
  CHECK(contains(fault_of("\x80\x06N."), "its protocol is 6"));
}

TEST_CASE("opcodes with the wrong operands are refused") {
  CHECK(contains(fault_of(pickled::file("")), "a value is missing"));
  CHECK(contains(fault_of(pickled::file("N\x86")), "a value is missing"));
  CHECK(contains(fault_of(pickled::file("]N(a")), "a value is missing"));  // values below a mark don't count
  CHECK(contains(fault_of(pickled::file("Nt")), "a mark is missing"));
  CHECK(contains(fault_of(pickled::file("NNa")), "isn't a list"));
  CHECK(contains(fault_of(pickled::file("}Na")), "isn't a list"));
  CHECK(contains(fault_of(pickled::file("]NNs")), "isn't a dict"));
  CHECK(contains(fault_of(pickled::file("](N\x90")), "isn't a set"));
  CHECK(contains(fault_of(pickled::file("}(Nu")), "a key has no value"));
  CHECK(contains(fault_of(pickled::file("N)R")), "a call needs a function and a tuple"));
  CHECK(contains(fault_of(pickled::file(pickled::global("some.module", "make") + "NR")), "a call needs"));
  CHECK(contains(fault_of(pickled::file("N}b")), "isn't an OrderedDict"));
  CHECK(contains(fault_of("\x80\x04K\1K\1\x93."s), "a name isn't text"));
}

TEST_CASE("the memo can't be abused") {
  CHECK(contains(fault_of(pickled::file("Nr\xff\xff\xff\xff")), "memo 4294967295 precedes memo 0"));
  CHECK(contains(fault_of(pickled::file("h\0"s)), "memo 0 doesn't exist"));
  CHECK(contains(fault_of(pickled::file("Nq\0j\1\0\0\0"s)), "memo 1 doesn't exist"));
  CHECK(contains(fault_of(pickled::file("q\0"s)), "a value is missing"));
}

TEST_CASE("a value that contains itself is refused") {
  CHECK(contains(fault_of(pickled::file("]q\0h\0a"s)), "contains itself"));
  CHECK(contains(fault_of(pickled::file("]q\0](h\0ea"s)), "contains itself"));
  CHECK(contains(fault_of(pickled::file("}q\0X\1\0\0\0ah\0s"s)), "contains itself"));
  CHECK(contains(fault_of(pickled::file("]q\0h\0\x85"s
                                        "a")),
                 "contains itself"));
}

TEST_CASE("nesting is bounded, shared values included") {
  CHECK_NOTHROW(read(nested(pickle::Document::max_depth)));
  CHECK(contains(fault_of(nested(pickle::Document::max_depth + 1)), "nested deeper than 100"));
  CHECK(contains(fault_of(nested(1'000'000)), "nested deeper than 100"));
  // [x, [[x]]], where x is 99 deep: the second path to x is too long.
  const std::string x = std::string(99, ']') + std::string(98, 'a') + "q\0"s;
  CHECK_NOTHROW(read(pickled::file("](" + x + "h\0e"s)));
  CHECK(contains(fault_of(pickled::file("](" + x + "]]h\0aae"s)), "nested deeper than 100"));
}

TEST_CASE("a value that doubles at each level is read in linear time") {
  // Ninety levels, each a list that holds the previous one twice: copying would make 2^90 values.
  std::string bytes = "]q\0"s;
  for (char level = 0; level < 90; ++level) {
    bytes += "](h"s + level + "h"s + level + "eq"s + static_cast<char>(level + 1);
  }
  // The lower levels are still on the stack, so a tuple collects them.
  CHECK_NOTHROW(read(pickled::file("(" + bytes + "t")));
}

}  // namespace formats_pickle_test
