#include "etude/callbacks/neftune.hpp"

#include <ATen/ops/rand_like.h>
#include <fmt/format.h>

#include <cmath>

#include "etude/base/error.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Sets the noise of every NEFTuneEmbedding; returns how many there are.
int set_neftune_noise(const Model& model, double alpha) {
  int count = 0;
  if (const auto module = model.module())
    for (const auto& part : module->modules())
      if (auto* embedding = dynamic_cast<NEFTuneEmbeddingImpl*>(part.get())) {
        embedding->neftune_noise_alpha = alpha;
        ++count;
      }
  return count;
}

}  // namespace

}  // namespace detail

torch::Tensor NEFTuneEmbeddingImpl::forward(const torch::Tensor& tokens) {
  auto embedded = EmbeddingImpl::forward(tokens);
  if (!is_training() || neftune_noise_alpha == 0) return embedded;
  const auto length = embedded.dim() > 1 ? embedded.size(-2) : 1;
  const double magnitude = neftune_noise_alpha / std::sqrt(static_cast<double>(length * embedded.size(-1)));
  return embedded + (at::rand_like(embedded) * 2 - 1) * magnitude;
}

void NEFTuneCallback::on(const TrainBegin& e) const {
  detail::check_fields(*this);
  if (detail::set_neftune_noise(e.model, neftune_noise_alpha) == 0)
    throw ArgumentError(fmt::format(
        "neftune_noise_alpha is {}: the model must have an etude::NEFTuneEmbedding for its input tokens",
        neftune_noise_alpha));
}

void NEFTuneCallback::on(const TrainEnd& e) const { detail::set_neftune_noise(e.model, 0); }

}  // namespace etude::inline v0
