#pragma once

#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// An embedding whose output is noisy in training mode while a NEFTuneCallback is active: uniform noise from
/// -m to m with m = alpha / sqrt(L * D), where L is the sequence length and D the embedding size (Jain et al.
/// 2023, arXiv:2310.05914). Takes token ids [..., L] and returns [..., L, D]. This needs a separate class
/// because LibTorch lacks the forward hooks with which Python adds noise to any embedding.
class NEFTuneEmbeddingImpl : public torch::nn::EmbeddingImpl {
 public:
  using torch::nn::EmbeddingImpl::EmbeddingImpl;

  torch::Tensor forward(const torch::Tensor& tokens);

  double neftune_noise_alpha = 0;  ///< 0 is off
};
TORCH_MODULE(NEFTuneEmbedding);

/// Adds noise to the output of every NEFTuneEmbedding in the model during training, like the argument
/// `neftune_noise_alpha` of Hugging Face's Trainer. Throws ArgumentError before training if the model has no
/// NEFTuneEmbedding, or if the value isn't finite and above 0.
struct NEFTuneCallback {
  ETUDE_STRUCT(NEFTuneCallback,
               (double, neftune_noise_alpha, "scale of the noise; the paper uses 5 to 15" | above(0), 5.0));

  void on(const TrainBegin& e) const;
  void on(const TrainEnd& e) const;
};

}  // namespace etude::inline v0
