#include "etude/model/loss_divisor.hpp"

#include <torch/enum.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>

#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

LossDivisor::LossDivisor(const torch::Tensor& element) {
  if (element.is_cpu())
    number_ = element.item<double>();
  else
    element_ = element.detach();
}

double LossDivisor::read() const { return number_ ? *number_ : element_.item<double>(); }

torch::Tensor LossDivisor::tensor() const {
  return number_ ? torch::scalar_tensor(*number_, torch::kDouble) : element_;
}

LossDivisor& LossDivisor::operator+=(const LossDivisor& other) {
  if (number_ && other.number_) {
    *number_ += *other.number_;
  } else {
    element_ = number_ ? other.element_ + *number_
                       : (other.number_ ? element_ + *other.number_ : element_ + other.element_);
    number_.reset();
  }
  return *this;
}

namespace detail {

template <class T, class... Types>
constexpr bool is_one_of = (std::same_as<T, Types> || ...);

namespace {

/// Calls `visit` with a LibTorch loss module, cast to its type. Returns false for any other module.
template <class Visit>
bool visit_loss(const torch::nn::Module& loss, Visit visit) {
  using namespace torch::nn;  // NOLINT(google-build-using-namespace): a list of its types
  const auto among = [&]<class... Known>(std::type_identity<std::tuple<Known...>>) {
    const auto is = [&]<class One>(std::type_identity<One>) {
      if (typeid(loss) != typeid(One)) return false;  // a derived class may compute anything
      visit(dynamic_cast<const One&>(loss));
      return true;
    };
    return (is(std::type_identity<Known>()) || ...);
  };
  return among(
      std::type_identity<std::tuple<
          L1LossImpl, MSELossImpl, SmoothL1LossImpl, HuberLossImpl, BCELossImpl, BCEWithLogitsLossImpl,
          KLDivLossImpl, PoissonNLLLossImpl, SoftMarginLossImpl, HingeEmbeddingLossImpl,
          MarginRankingLossImpl, CrossEntropyLossImpl, NLLLossImpl, MultiMarginLossImpl,
          MultiLabelMarginLossImpl, MultiLabelSoftMarginLossImpl, CosineEmbeddingLossImpl,
          TripletMarginLossImpl, TripletMarginWithDistanceLossImpl, CTCLossImpl>>());
}

/// The number of labels that aren't `ignored`, each weighted by its class.
LossDivisor divisor_of_classes(const torch::Tensor& labels, std::int64_t ignored,
                               const torch::Tensor& class_weights) {
  const torch::NoGradGuard no_grad;
  const auto classes = labels.to(torch::kLong).flatten();  // uint8 can't hold -100
  const auto counted = classes.ne(ignored);
  if (!class_weights.defined()) return LossDivisor(counted.sum());
  const auto weights = class_weights.gather(0, classes.clamp(0, class_weights.numel() - 1));
  return LossDivisor((weights * counted).sum());
}

/// The number of elements of `tensor`, where all elements along `dim` count as one.
std::int64_t elements_without(const torch::Tensor& tensor, std::int64_t dim) {
  return tensor.dim() > 0 && tensor.size(dim) > 0 ? tensor.numel() / tensor.size(dim) : tensor.numel();
}

template <class M>
LossDivisor divisor_of_mean(const M& loss, const Tensors& labels, const torch::Tensor& class_weights) {
  using namespace torch::nn;  // NOLINT(google-build-using-namespace): names of its types
  const auto& last = labels[labels.size() - 1];
  std::int64_t items = 0;
  if constexpr (is_one_of<M, CrossEntropyLossImpl, NLLLossImpl>) {
    if (!last.is_floating_point())
      return divisor_of_classes(last, loss.options.ignore_index(), class_weights);
    items = elements_without(last, last.dim() > 1 ? 1 : 0);  // the labels are probabilities, one per class
  } else if constexpr (is_one_of<M, MultiLabelMarginLossImpl>) {
    items = last.dim() > 1 ? last.size(0) : 1;
  } else if constexpr (is_one_of<M, MultiLabelSoftMarginLossImpl, TripletMarginLossImpl,
                                 TripletMarginWithDistanceLossImpl>) {
    items = elements_without(last, -1);
  } else if constexpr (std::same_as<M, KLDivLossImpl>) {
    const bool is_by_rows = torch::enumtype::get_enum_name(loss.options.reduction()) == "kBatchMean";
    items = is_by_rows ? last.size(0) : last.numel();
  } else {
    items = last.numel();  // for CTCLoss, these are the lengths of the targets
  }
  return LossDivisor(static_cast<double>(items));
}

}  // namespace

torch::Tensor zero_loss(const torch::Tensor& loss, const Tensors& outputs) {
  const auto zero = [](const torch::Tensor& from) {
    return from.masked_fill(torch::ones({}, from.options().dtype(torch::kBool).requires_grad(false)), 0)
        .sum();
  };
  torch::Tensor sum;
  for (const auto& output : outputs)
    if (output.defined() && output.requires_grad())
      sum = sum.defined() ? sum + zero(output).to(sum.options()) : zero(output).to(loss.options());
  return sum.defined() ? sum : zero(loss);
}

torch::Tensor share_of_mean(const torch::Tensor& loss, const Tensors& outputs, const LossDivisor& part,
                            const LossDivisor& whole) {
  const auto here = part.number(), all = whole.number();
  if (here && all) {
    if (*here == *all) return loss;
    if (*here == 0) return zero_loss(loss, outputs);
    return loss / (*all / *here);
  }
  const auto divisor = part.tensor().to(loss.device());
  const auto share = divisor / whole.tensor().to(loss.device());
  return (loss * share.to(loss.scalar_type())).masked_fill(divisor <= 0, 0);
}

}  // namespace detail

LossReduction reduction_of(const torch::nn::Module& loss) {
  auto result = LossReduction::unknown;
  detail::visit_loss(loss, [&](const auto& known) {
    const std::string name = torch::enumtype::get_enum_name(known.options.reduction());
    if (name == "kSum") result = LossReduction::sum;
    if (name == "kMean" || name == "kBatchMean") result = LossReduction::mean;
  });
  return result;
}

LossDivisor divisor_of(const torch::nn::Module& loss, const Tensors& labels,
                       const torch::Tensor& class_weights) {
  LossDivisor result(0);
  detail::visit_loss(
      loss, [&](const auto& known) { result = detail::divisor_of_mean(known, labels, class_weights); });
  return result;
}

torch::Tensor class_weights_of(const torch::nn::Module& loss) {
  if (const auto* known = dynamic_cast<const torch::nn::CrossEntropyLossImpl*>(&loss)) return known->weight;
  if (const auto* known = dynamic_cast<const torch::nn::NLLLossImpl*>(&loss)) return known->weight;
  return {};
}

}  // namespace etude::inline v0
