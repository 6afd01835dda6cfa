#include "etude/model/exported_sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/formats/exported_json.hpp"
#include "etude/io/entry_name.hpp"

namespace etude::inline v0::detail {

namespace {

/// One of Python's operators or SymPy's constructors, and the name of the same function in graphs.
struct SizeFunction {
  std::string_view name, function;
};

constexpr auto size_functions = std::to_array<SizeFunction>({
    {"Add", "_operator.add"},
    {"CeilToInt", "math.ceil"},
    {"CleanDiv", "_operator.floordiv"},
    {"FloatPow", "_operator.pow"},
    {"FloatTrueDiv", "_operator.truediv"},
    {"FloorDiv", "_operator.floordiv"},
    {"FloorToInt", "math.floor"},
    {"IntTrueDiv", "_operator.truediv"},
    {"Max", "torch.sym_max"},
    {"Min", "torch.sym_min"},
    {"Mod", "_operator.mod"},
    {"Mul", "_operator.mul"},
    {"Pow", "_operator.pow"},
    {"PowByNatural", "_operator.pow"},
    {"PythonMod", "_operator.mod"},
    {"Rational", "_operator.truediv"},
    {"ToFloat", "torch.sym_float"},
    {"TruncToInt", "math.trunc"},
    {"abs", "_operator.abs"},
    {"ceiling", "math.ceil"},
    {"floor", "math.floor"},
    {"max", "torch.sym_max"},
    {"min", "torch.sym_min"},
});

/// An operator between two operands; operators of a higher level bind tighter.
struct BinaryOperator {
  int level;
  std::string_view sign, function;
};

constexpr auto binary_operators = std::to_array<BinaryOperator>({
    {0, "or", "_operator.or_"},
    {1, "and", "_operator.and_"},
    {2, "==", "_operator.eq"},
    {2, "!=", "_operator.ne"},
    {2, "<=", "_operator.le"},
    {2, ">=", "_operator.ge"},
    {2, "<", "_operator.lt"},
    {2, ">", "_operator.gt"},
    {3, "+", "_operator.add"},
    {3, "-", "_operator.sub"},
    {4, "//", "_operator.floordiv"},
    {4, "*", "_operator.mul"},
    {4, "/", "_operator.truediv"},
    {4, "%", "_operator.mod"},
});
constexpr int level_of_comparisons = 2;  // and of `not` before them
constexpr int tightest_level = binary_operators.back().level;

}  // namespace

/// A recursive descent parser, with one function for each level of Python's precedence. LibTorch's parser of
/// TorchScript recurses without a limit, so a hostile file would overflow the stack.
class SizeParser {
 public:
  SizeParser(std::string_view text, std::string_view where, SizeExpression& result)
      : text_(text), where_(where), result_(result) {
    constexpr std::size_t longest = 100'000;
    if (text.size() > longest) throw fault("it is longer than {} bytes", longest);
    read_choice();
    if (skip_space(); at_ != text_.size()) throw unexpected();
    result_.text_ += printable(std::string(text_.substr(copied_)));
  }

 private:
  using Variable = SizeVariable;

  template <class... Args>
  CheckpointError fault(fmt::format_string<Args...> why, Args&&... args) const {
    constexpr std::size_t shown = 200;
    return exported_fault(where_, "can't read the condition of sizes '{}': {}",
                          printable(std::string(text_.substr(0, shown))),
                          fmt::format(why, std::forward<Args>(args)...));
  }
  CheckpointError unexpected() const {
    return fault("unexpected {}",
                 at_ < text_.size() ? "'" + printable(std::string(text_.substr(at_, 20))) + "'" : "end");
  }

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  static bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

  /// Skips `token` and returns true if it comes next: an operator that isn't the start of a longer one, or a
  /// word.
  bool take(std::string_view token) {
    skip_space();
    if (!text_.substr(at_).starts_with(token)) return false;
    const char after = at_ + token.size() < text_.size() ? text_[at_ + token.size()] : ' ';
    if (is_letter(token.front()) ? is_letter(after)
                                 : (after == '=' || after == '*' || after == '/') && after != ' ' &&
                                       (token == "*" || token == "/" || token == "<" || token == ">"))
      return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) throw unexpected();
  }

  void call(std::string_view function) {
    const auto* found = find_number_function(function);
    if (!found) throw fault("'{}' isn't supported", printable(std::string(function)));
    result_.steps_.push_back({.function = found});
  }
  void push(c10::IValue constant) { result_.steps_.push_back({.constant = std::move(constant)}); }
  void push(Variable variable) {
    auto& known = result_.variables_;
    const auto found = std::ranges::find(known, variable);
    const auto place = static_cast<std::size_t>(found - known.begin());
    if (found == known.end()) known.push_back(std::move(variable));
    result_.steps_.push_back({.variable = place});
  }

  struct Nesting {
    explicit Nesting(SizeParser& parser) : depth(parser.depth_) {
      if (++depth > 100) throw parser.fault("it is nested more than 100 deep");
    }
    ~Nesting() { --depth; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    int& depth;
  };

  void read_choice() {  // a if condition else b
    const Nesting nesting(*this);
    const auto begin = static_cast<std::ptrdiff_t>(result_.steps_.size());
    read_operands(0);
    if (!take("if")) return;
    const auto condition = static_cast<std::ptrdiff_t>(result_.steps_.size());
    read_operands(0);
    // torch.sym_ite takes the condition first, so move it to the front.
    std::rotate(result_.steps_.begin() + begin, result_.steps_.begin() + condition, result_.steps_.end());
    expect("else");
    read_choice();
    call("torch.sym_ite");
  }
  /// Reads operands of the next level, joined by operators of this level.
  void read_operands(int level) {
    if (level > tightest_level) return read_sign();
    if (level == level_of_comparisons) {
      const Nesting nesting(*this);
      if (take("not")) {
        read_operands(level);
        return call("torch.sym_not");
      }
    }
    read_operands(level + 1);
    for (;;) {
      const auto found = std::ranges::find_if(
          binary_operators, [&](const auto& each) { return each.level == level && take(each.sign); });
      if (found == binary_operators.end()) return;
      read_operands(level + 1);
      call(found->function);
      if (level == level_of_comparisons) return;  // Python's a < b < c isn't (a < b) < c
    }
  }
  void read_sign() {
    const Nesting nesting(*this);
    if (take("+")) return read_sign();
    if (!take("-")) return read_power();
    read_sign();
    call("_operator.neg");
  }
  void read_power() {
    read_atom();
    if (!take("**")) return;
    read_sign();
    call("_operator.pow");
  }

  void read_atom() {
    if (take("(")) {
      read_choice();
      return expect(")");
    }
    skip_space();
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) return read_number();
    const auto begin = at_;
    const auto name = read_name();
    if (name == "L" && at_ < text_.size() && text_[at_] == '[') return read_input(begin);
    if (name == "math.inf" || name == "inf" || name == "oo")
      return push(std::numeric_limits<double>::infinity());
    if (name == "Symbol") {
      expect("(");
      push(Variable{.name = read_string()});
      while (!take(")")) {  // assumptions: positive=True
        expect(",");
        read_name();
        expect("=");
        read_name();
      }
      return;
    }
    if (!take("(")) {
      if (name.find('.') != name.npos) throw unexpected();
      return push(Variable{.name = name});
    }
    read_call(name);
  }

  void read_call(const std::string& name) {
    std::size_t count = 0;
    do {
      read_choice();
      ++count;
    } while (take(","));
    expect(")");
    if ((name == "Integer" || name == "Float" || name == "Identity") && count == 1) return;
    const auto known = std::ranges::find(size_functions, name, &SizeFunction::name);
    const std::string_view function =
        known == size_functions.end() ? std::string_view(name) : known->function;
    const auto* found = find_number_function(function);
    const bool takes_more = function == "_operator.add" || function == "_operator.mul" ||
                            function == "torch.sym_max" || function == "torch.sym_min";
    if (!found || count < found->arguments || (count > found->arguments && !takes_more))
      throw fault("'{}' of {} arguments isn't supported", printable(name), count);
    for (auto more = count - found->arguments + 1; more > 0; --more) call(function);
  }

  void read_number() {
    const auto begin = at_;
    bool is_real = false;
    while (at_ < text_.size() && (is_letter(text_[at_]) || text_[at_] == '.' ||
                                  ((text_[at_] == '+' || text_[at_] == '-') && text_[at_ - 1] == 'e')))
      is_real = is_real || text_[at_] == '.' || text_[at_] == 'e', ++at_;
    const auto* first = text_.data() + begin;
    const auto* last = text_.data() + at_;
    std::int64_t integer = 0;
    double real = 0;
    const auto read = is_real ? std::from_chars(first, last, real) : std::from_chars(first, last, integer);
    if (read.ec != std::errc() || read.ptr != last) throw fault("it has a number of more than 64 bits");
    if (is_real)
      push(real);
    else
      push(integer);
  }

  /// Reads a word, or several separated by dots.
  std::string read_name() {
    skip_space();
    const auto begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || (at_ > begin && text_[at_] == '.'))) ++at_;
    if (at_ == begin) throw unexpected();
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string read_string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    const auto end = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : text_.npos;
    if (end == text_.npos) throw unexpected();
    auto string = std::string(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return string;
  }

  std::int64_t read_dimension() {
    expect("[");
    read_number();
    expect("]");
    const auto number = result_.steps_.back().constant;
    result_.steps_.pop_back();
    if (!number.isInt()) throw unexpected();
    return number.toInt();
  }

  /// Reads "L['a'][0].b.size()[1]": the path to an input, and its size, stride or offset.
  void read_input(std::size_t begin) {
    Variable variable{.kind = Variable::Kind::other, .name = {}};
    const auto add_to_path = [&](const std::string& part) {
      variable.name += (variable.name.empty() ? "" : "_") + part;
    };
    while (at_ < text_.size() && variable.kind == Variable::Kind::other) {
      if (text_[at_] == '[') {
        const bool is_number =
            at_ + 1 < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_ + 1]));
        if (is_number) {
          add_to_path(std::to_string(read_dimension()));
          continue;
        }
        expect("[");
        add_to_path(read_string());
        expect("]");
      } else if (text_[at_] == '.') {
        ++at_;
        const auto end = std::ranges::find_if_not(text_.substr(at_), is_letter) - text_.begin();
        const auto name = std::string(text_.substr(at_, static_cast<std::size_t>(end) - at_));
        at_ = static_cast<std::size_t>(end);
        if (!take("(")) {
          add_to_path(name);
          continue;
        }
        expect(")");
        if (name == "storage_offset") {
          variable.kind = Variable::Kind::storage_offset;
        } else if (name == "size" || name == "stride") {
          variable.kind = name == "size" ? Variable::Kind::size : Variable::Kind::stride;
          variable.dimension = read_dimension();
        } else {
          throw fault("'{}' of an input isn't supported", printable(name));
        }
      } else {
        break;
      }
    }
    result_.text_ += printable(std::string(text_.substr(copied_, begin - copied_)));
    copied_ = at_;
    constexpr std::array forms{"{}", "{}.size({})", "{}.stride({})", "{}.storage_offset()", "{}"};
    result_.text_ += fmt::format(fmt::runtime(forms[static_cast<std::size_t>(variable.kind)]),
                                 printable(variable.name), variable.dimension);
    push(std::move(variable));
  }

  std::string_view text_;
  std::string_view where_;
  SizeExpression& result_;
  std::size_t at_ = 0;
  std::size_t copied_ = 0;  // the text before this is already in the result
  int depth_ = 0;
};

SizeExpression::SizeExpression(std::string_view text, std::string_view where) {
  SizeParser(text, where, *this);
}

c10::IValue SizeExpression::evaluate(const std::vector<std::int64_t>& values) const {
  torch::jit::Stack stack, arguments;
  for (const auto& step : steps_) {
    if (!step.function) {
      stack.push_back(step.variable ? c10::IValue(values[*step.variable]) : step.constant);
      continue;
    }
    const auto first = stack.end() - static_cast<std::ptrdiff_t>(step.function->arguments);
    arguments.assign(first, stack.end());
    stack.erase(first, stack.end());
    step.function->call(arguments);
    stack.push_back(arguments.front());
  }
  return stack.front();
}

bool SizeExpression::is_equality() const {
  return steps_.size() == 3 && steps_[0].variable && steps_[1].variable && steps_[2].function &&
         steps_[2].function->name == "_operator.eq";
}

}  // namespace etude::inline v0::detail
