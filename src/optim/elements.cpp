#include "etude/optim/elements.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <torch/types.h>

#include <cstddef>
#include <utility>

namespace etude::inline v0::detail {

Expression::Expression(const Elements& elements) : first_{elements.tensor()} {}

Expression::Expression(double everywhere) : first_{at::scalar_tensor(everywhere, at::kDouble)} {}

torch::Tensor Expression::Term::added_to(const torch::Tensor& sum, bool in_place) const {
  // Numbers of a captured step are 0-dim tensors.
  in_place = in_place && sum.dim() >= a.dim() && (!b.defined() || sum.dim() >= b.dim());
  switch (kind) {
    case Kind::product:
      return in_place ? sum.addcmul_(a, b, factor) : at::addcmul(sum, a, b, factor);
    case Kind::quotient:
      return in_place ? sum.addcdiv_(a, b, factor) : at::addcdiv(sum, a, b, factor);
    case Kind::scaled:
      break;
  }
  return in_place ? sum.add_(a, factor) : at::add(sum, a, factor);
}

void Expression::Term::evaluate() {
  if (kind != Kind::scaled) {
    const bool in_place = is_temporary && a.dim() >= b.dim();
    if (kind == Kind::product)
      a = in_place ? a.mul_(b) : a.mul(b);
    else
      a = in_place ? a.div_(b) : a.div(b);
    b.reset();
    kind = Kind::scaled;
    is_temporary = true;
  }
  if (factor == 1) return;
  a = is_temporary ? a.mul_(factor) : a.mul(factor);
  factor = 1;
  is_temporary = true;
}

Expression& Expression::as_one_term() {
  if (!second_) return *this;
  first_.evaluate();
  first_.a = second_->added_to(first_.a, first_.is_temporary);
  first_.is_temporary = true;
  second_.reset();
  return *this;
}

torch::Tensor Expression::evaluate() {
  as_one_term().first_.evaluate();
  return first_.a;
}

bool Expression::evaluate_in(const torch::Tensor& home) {
  const auto is_home = [&](const Term& term) {
    return term.kind == Term::Kind::scaled && term.a.is_same(home);
  };
  if (second_ && is_home(*second_)) std::swap(first_, *second_);
  if (!is_home(first_)) return false;
  if (second_ && second_->uses(home)) return false;
  if (first_.factor != 1) home.mul_(first_.factor);
  if (second_) second_->added_to(home, /*in_place=*/true);
  return true;
}

std::size_t Expression::uses_of(const torch::Tensor& tensor) const {
  const auto in = [&](const Term& term) {
    return std::size_t{term.a.is_same(tensor)} + std::size_t{term.b.is_same(tensor)};
  };
  return in(first_) + (second_ ? in(*second_) : 0);
}

Expression& Expression::operator*=(double factor) {
  as_one_term().first_.factor *= factor;
  return *this;
}

Expression& Expression::operator*=(Expression&& factor) {
  as_one_term();
  factor.as_one_term();
  if (first_.kind != Term::Kind::scaled) first_.evaluate();
  if (factor.first_.kind != Term::Kind::scaled) factor.first_.evaluate();
  first_.b = factor.first_.a;
  first_.factor *= factor.first_.factor;
  first_.kind = Term::Kind::product;
  return *this;
}

Expression& Expression::operator/=(double divisor) {
  as_one_term().first_.evaluate();
  first_.a = first_.is_temporary ? first_.a.div_(divisor) : first_.a.div(divisor);
  first_.is_temporary = true;
  return *this;
}

Expression& Expression::operator/=(Expression&& divisor) {
  as_one_term();
  divisor.as_one_term().first_.evaluate();
  if (first_.kind != Term::Kind::scaled) first_.evaluate();
  first_.b = divisor.first_.a;
  first_.kind = Term::Kind::quotient;
  return *this;
}

Expression& Expression::operator+=(double summand) {
  as_one_term().first_.evaluate();
  first_.a = first_.is_temporary ? first_.a.add_(summand) : first_.a.add(summand);
  first_.is_temporary = true;
  return *this;
}

Expression& Expression::operator+=(Expression&& summand) {
  as_one_term();
  summand.as_one_term();
  if (summand.first_.is_zero()) return *this;
  if (first_.is_zero()) return *this = std::move(summand);
  second_ = std::move(summand.first_);
  return *this;
}

Expression& Expression::apply(torch::Tensor& (torch::Tensor::*in_place)() const,
                              torch::Tensor (torch::Tensor::*elsewhere)() const) {
  as_one_term().first_.evaluate();
  first_.a = first_.is_temporary ? (first_.a.*in_place)() : (first_.a.*elsewhere)();
  first_.is_temporary = true;
  return *this;
}

Expression sqrt(Expression&& a) { return std::move(a.apply(&torch::Tensor::sqrt_, &torch::Tensor::sqrt)); }

Expression abs(Expression&& a) { return std::move(a.apply(&torch::Tensor::abs_, &torch::Tensor::abs)); }

Expression sign(Expression&& a) { return std::move(a.apply(&torch::Tensor::sign_, &torch::Tensor::sign)); }

Expression max(Expression&& a, Expression&& b) { return Elements(at::maximum(a.evaluate(), b.evaluate())); }

Expression min(Expression&& a, Expression&& b) { return Elements(at::minimum(a.evaluate(), b.evaluate())); }

Expression if_positive(Expression&& a, Expression&& yes, Expression&& no) {
  const torch::Tensor given = a.evaluate();
  const auto like = [&](Expression& value) {
    const torch::Tensor tensor = value.evaluate();
    // A captured step can't copy a number to the device, but can create it there.
    if (tensor.is_cpu() && !given.is_cpu()) return at::full({}, tensor.item<double>(), given.options());
    return tensor.to(given.options());
  };
  return Elements(at::where(given > 0, like(yes), like(no)));
}

Elements Elements::stored_in(const torch::Tensor& tensor) {
  const torch::Tensor home = tensor.detach();
  return {home, home};
}

Elements& Elements::operator=(Expression&& expression) {
  if (!home_.defined()) {
    now_ = expression.evaluate();
    return *this;
  }
  // `now_`, `home_` and the expression refer to it; any further reference needs the old elements.
  const auto references = 2 + expression.uses_of(home_);
  const bool in_place = now_.is_same(home_) && home_.use_count() == references;
  if (in_place && expression.evaluate_in(home_)) return *this;
  now_ = expression.evaluate();
  // The elements of another moment may be overwritten before `store`.
  if (!expression.is_temporary()) now_ = now_.clone();
  return *this;
}

void Elements::store() const {
  if (!now_.is_same(home_)) home_.copy_(now_);
}

}  // namespace etude::inline v0::detail
