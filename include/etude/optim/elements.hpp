#pragma once

#include <torch/types.h>

#include <cstddef>
#include <optional>
#include <utility>

/// Update formulas over LibTorch's tensors.
namespace etude::inline v0::detail {

class Elements;

/// The value of an operation on `Elements`: a sum of at most two terms, each a tensor times a number, or a
/// product or quotient of two tensors. LibTorch adds such a term in one operation (`add`, `addcmul`,
/// `addcdiv`), as torch::optim does, so results are bit-identical. A formula must use it at once or assign it
/// to an `Elements`, since its operands may change; the operators therefore take only rvalues.
class Expression {
 public:
  Expression(const Elements& elements);
  Expression(double everywhere);
  Expression(Expression&&) = default;
  Expression& operator=(Expression&&) = default;

  /// Computes it. The result may share memory with an operand, unless `is_temporary`.
  torch::Tensor evaluate();
  bool is_temporary() const { return first_.is_temporary; }

  /// Computes it in the memory of `home` and returns true, if it is `home` times a number plus something
  /// without `home`.
  bool evaluate_in(const torch::Tensor& home);

  /// The number of references to this tensor.
  std::size_t uses_of(const torch::Tensor& tensor) const;

  /// Computes the sum, if there are two terms.
  Expression& as_one_term();
  Expression& operator*=(double factor);
  Expression& operator*=(Expression&& factor);
  Expression& operator/=(double divisor);
  Expression& operator/=(Expression&& divisor);
  Expression& operator+=(double summand);
  Expression& operator+=(Expression&& summand);
  /// Replaces it with `in_place(tensor)` or `elsewhere(tensor)`, whichever is possible.
  Expression& apply(torch::Tensor& (torch::Tensor::*in_place)() const,
                    torch::Tensor (torch::Tensor::*elsewhere)() const);

 private:
  struct Term {
    enum class Kind { scaled, product, quotient };

    torch::Tensor a, b = {};
    double factor = 1;
    Kind kind = Kind::scaled;
    bool is_temporary = false;  ///< nothing else refers to `a`, so it may be overwritten

    bool uses(const torch::Tensor& tensor) const { return a.is_same(tensor) || b.is_same(tensor); }
    bool is_zero() const { return kind == Kind::scaled && factor == 0; }
    torch::Tensor added_to(const torch::Tensor& sum, bool in_place) const;
    /// Reduces it to `a`.
    void evaluate();
  };

  Term first_;
  std::optional<Term> second_;
};

inline Expression operator+(Expression&& a, Expression&& b) { return std::move(a += std::move(b)); }
inline Expression operator+(Expression&& a, double b) { return std::move(a += b); }
inline Expression operator+(double a, Expression&& b) { return std::move(b += a); }
inline Expression operator-(Expression&& a) { return std::move(a *= -1); }
inline Expression operator-(Expression&& a, Expression&& b) { return std::move(a += std::move(b *= -1)); }
inline Expression operator-(Expression&& a, double b) { return std::move(a += -b); }
inline Expression operator-(double a, Expression&& b) { return std::move((b *= -1) += a); }
inline Expression operator*(Expression&& a, Expression&& b) { return std::move(a *= std::move(b)); }
inline Expression operator*(Expression&& a, double b) { return std::move(a *= b); }
inline Expression operator*(double a, Expression&& b) { return std::move(b *= a); }
inline Expression operator/(Expression&& a, Expression&& b) { return std::move(a /= std::move(b)); }
inline Expression operator/(Expression&& a, double b) { return std::move(a /= b); }

Expression sqrt(Expression&& a);
Expression abs(Expression&& a);
/// -1, 0 or 1, like torch.sign.
Expression sign(Expression&& a);
/// The larger or the smaller element of each pair; NaN if either is NaN.
Expression max(Expression&& a, Expression&& b);
Expression min(Expression&& a, Expression&& b);
/// The elements of `yes` where `a` is above 0, and those of `no` elsewhere.
Expression if_positive(Expression&& a, Expression&& yes, Expression&& no);

/// A tensor in an update formula, with the operators of `Lanes`.
class Elements {
 public:
  /// A local variable, the gradient or a number of the step. Assignments don't change the tensor.
  explicit Elements(torch::Tensor tensor) : now_(std::move(tensor)) {}
  Elements(Expression&& expression) : now_(expression.evaluate()) {}
  Elements(const Elements& other) : now_(other.now_) {}

  /// A value or moment, to which assignments write: in place where nothing else refers to the old elements,
  /// and otherwise in `store`.
  static Elements stored_in(const torch::Tensor& tensor);
  void store() const;

  Elements& operator=(const Elements& other) { return *this = Expression(other); }
  Elements& operator=(Expression&& expression);

  const torch::Tensor& tensor() const { return now_; }

 private:
  Elements(torch::Tensor now, torch::Tensor home) : now_(std::move(now)), home_(std::move(home)) {}

  torch::Tensor now_;
  torch::Tensor home_ = {};  // undefined for a local variable
};

}  // namespace etude::inline v0::detail
