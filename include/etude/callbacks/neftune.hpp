#pragma once

#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// An embedding whose output is noisy in training mode while a NEFTuneCallback is at work: uniform noise from
/// -m to m with m = alpha / sqrt(L * D), where L is the length of a sequence and D the size of an embedding
/// (Jain et al. 2023, arXiv:2310.05914). Takes numbers of tokens [..., L] and gives [..., L, D]. LibTorch has
/// no forward hooks, by which Python adds this to any embedding; so it is an embedding of its own.
class NEFTuneEmbeddingImpl : public torch::nn::EmbeddingImpl {
 public:
  using torch::nn::EmbeddingImpl::EmbeddingImpl;

  torch::Tensor forward(const torch::Tensor& tokens);

  double neftune_noise_alpha = 0;  ///< 0 is off
};
TORCH_MODULE(NEFTuneEmbedding);

/// Adds noise to the output of every NEFTuneEmbedding of the model for as long as a training lasts:
/// `neftune_noise_alpha` of Hugging Face's arguments. Throws ArgumentError before training if the model has
/// none, and for a value that is no finite number above 0.
struct NEFTuneCallback {
  using this_callback = NEFTuneCallback;
  ETUDE_STRUCT(NEFTuneCallback,
               (double, neftune_noise_alpha, "scale of the noise; the paper has 5 to 15", 5.0));

  void on(const TrainBegin& e) const;
  void on(const TrainEnd& e) const;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/neftune.ipp"
#endif
