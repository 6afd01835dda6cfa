#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/model/exported_numbers.hpp"

namespace etude::inline v0::detail {

/// A variable in an expression of sizes.
struct SizeVariable {
  enum class Kind { symbol, size, stride, storage_offset, other };
  Kind kind = Kind::symbol;
  std::string name = {};       ///< the symbol, or the input: Python's path to it, joined by "_"
  std::int64_t dimension = 0;  ///< for a size or stride
  bool operator==(const SizeVariable&) const = default;
};

/// An expression of sizes as a `.pt2` file writes it: Python ("L['x'].size()[0] % 8 == 0"), or the
/// constructors of SymPy ("Mul(Integer(2), Symbol('s0'))").
class SizeExpression {
 public:
  /// Throws a CheckpointError that begins with `where` for an expression that it can't read.
  SizeExpression(std::string_view text, std::string_view where);

  const std::vector<SizeVariable>& variables() const { return variables_; }

  /// Computes the expression from one value per variable. Throws DataError for a division by zero.
  c10::IValue evaluate(const std::vector<std::int64_t>& values) const;

  /// The expression as text, with variables such as "x.size(0)".
  const std::string& text() const { return text_; }

  /// True if the expression is a single symbol.
  bool is_symbol() const {
    return steps_.size() == 1 && !variables_.empty() && variables_.front().kind == SizeVariable::Kind::symbol;
  }

  /// True if the expression says that two variables are equal.
  bool is_equality() const;

 private:
  friend class SizeParser;

  struct Step {
    const NumberFunction* function = nullptr;  // if set, replaces its arguments on the stack
    std::optional<std::size_t> variable = {};
    c10::IValue constant = {};
  };

  std::vector<SizeVariable> variables_;
  std::vector<Step> steps_;  // in postfix order: arguments come before their function
  std::string text_;
};

}  // namespace etude::inline v0::detail
