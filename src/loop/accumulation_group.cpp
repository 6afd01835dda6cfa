#include "etude/loop/accumulation_group.hpp"

#include <cstddef>

namespace etude::inline v0 {

void AccumulationGroup::begin(std::int64_t size) {
  size_ = size;
  tokens = 0;
  floating_point_ops = 0;
  num_items_.reset();
  reduction_ = LossReduction::unknown;
  divisor_.reset();
  part_divisor_.reset();
  arrive_ = nullptr;
}

torch::Tensor AccumulationGroup::loss() const {
  if (losses_.empty()) return {};
  auto sum = losses_.front();
  for (std::size_t i = 1; i < losses_.size(); ++i) sum = sum + losses_[i];
  return sum;
}

std::optional<double> AccumulationGroup::share() const {
  if (adds_up()) return is_padding() ? 0 : 1;
  const auto& whole = divisor();
  if (!whole || !part_divisor_) return share_of_examples();
  const auto here = part_divisor_->number(), all = whole->number();
  if (!here || !all) return {};
  return *all > 0 ? *here / *all : share_of_examples();
}

torch::Tensor AccumulationGroup::share_of(torch::Tensor loss, const Tensors& outputs) const {
  if (adds_up()) return is_padding() ? detail::zero_loss(loss, outputs) : loss;
  if (const auto& whole = divisor(); whole && part_divisor_)
    return detail::share_of_mean(loss, outputs, *part_divisor_, *whole);
  if (size_ > 1) loss = loss / size_;
  if (const double part = batch_share_ * part_share_; part < 1) loss = loss * part;
  return loss;
}

std::optional<double> AccumulationGroup::num_items() const {
  settle();
  return num_items_;
}

const std::optional<LossDivisor>& AccumulationGroup::divisor() const {
  settle();
  return divisor_;
}

void AccumulationGroup::set_batch(double share, std::optional<LossDivisor> divisor) {
  batch_share_ = share;
  part_divisor_ = std::move(divisor);
}

}  // namespace etude::inline v0
