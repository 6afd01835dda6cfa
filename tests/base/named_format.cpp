#include "etude/base/named_format.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <optional>
#include <string_view>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace base_named_format_test {

const auto value_of = [](std::string_view name) -> std::optional<double> {
  if (name == "loss") return 0.125;
  if (name == "epoch") return 3;
  if (name == "grad_norm_2") return std::nan("");
  return std::nullopt;
};

TEST_CASE("named fields are replaced by numbers in the format that each asks for") {
  CHECK(etude::format_fields("epoch {epoch:.0f} loss {loss:.4f} ({loss})", value_of) ==
        "epoch 3 loss 0.1250 (0.125)");
  CHECK(etude::format_fields("{{loss}} {grad_norm_2:>5}|{loss:e}", value_of) == "{loss}   nan|1.250000e-01");
  CHECK(etude::format_fields("", value_of) == "");
  CHECK(etude::format_fields("no field", value_of) == "no field");
}

TEST_CASE("a field without a number leaves the format unused, also where another is known") {
  CHECK(etude::format_fields("{loss} {accuracy}", value_of) == std::nullopt);
  CHECK(etude::format_fields("{accuracy:.4f}", value_of) == std::nullopt);
}

TEST_CASE("a format that fmt refuses, or without names, is named in the error") {
  const auto fault = [](std::string_view format) {
    return toy::fault_of<etude::ArgumentError>([&] { etude::format_fields(format, value_of); });
  };
  CHECK(fault("loss {}") == "'loss {}' has a field without a name: must be such as {loss:.4f}");
  CHECK(fault("{0}") == "'{0}' has a field without a name: must be such as {loss:.4f}");
  CHECK(fault("{loss:.4f").starts_with("'{loss:.4f' isn't a format of numbers: "));
  CHECK(fault("{loss:s}").starts_with("'{loss:s}' isn't a format of numbers: "));
  CHECK(fault("loss}").starts_with("'loss}' isn't a format of numbers: "));
  CHECK(fault("loss {") == "'loss {' has a field without a name: must be such as {loss:.4f}");
}

}  // namespace base_named_format_test
