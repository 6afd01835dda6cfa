#include "etude/loop/token_counter.hpp"

#include <torch/nn/modules/embedding.h>
#include <torch/types.h>

#include <unordered_set>
#include <utility>

#include "etude/base/message.hpp"

namespace etude::inline v0 {

TokenCounter::TokenCounter(const TrainerOptions& options, const TrainingArguments& args, const Model& model)
    : options_(options), args_(args), model_(model) {}

namespace detail {

namespace {

const torch::Tensor* token_input(const Batch& batch) {
  if (const auto* named = batch.inputs.find("input_ids")) return named;
  return batch.inputs.empty() ? nullptr : &batch.inputs[0];
}

}  // namespace

}  // namespace detail

double TokenCounter::floating_point_ops(const Batch& batch) {
  const auto* tokens = detail::token_input(batch);
  if (!tokens || (tokens->scalar_type() != torch::kLong && tokens->scalar_type() != torch::kInt)) return 0;
  if (!dense_parameters_) {
    std::unordered_set<const void*> embeddings;  // a tied one has several names
    if (const auto module = model_.module())
      for (const auto& part : module->modules())
        if (part->as<torch::nn::Embedding>() ||
            part->name() == "Embedding")  // of a model that Python exported
          for (const auto& weight : part->parameters(/*recurse=*/false))
            embeddings.insert(weight.unsafeGetTensorImpl());
    double count = 0;
    for (const auto& parameter : model_.parameters())
      if (!embeddings.contains(parameter.unsafeGetTensorImpl()))
        count += static_cast<double>(parameter.numel());
    dense_parameters_ = count;
  }
  return 6 * static_cast<double>(tokens->numel()) * *dense_parameters_;
}

std::int64_t TokenCounter::input_tokens(const Batch& batch) {
  if (args_.include_num_input_tokens_seen == InputTokens::no) return 0;
  const auto* tokens = detail::token_input(batch);
  if (args_.include_num_input_tokens_seen == InputTokens::non_padding) {
    if (const auto* mask = batch.inputs.find("attention_mask")) return mask->sum().item<std::int64_t>();
    if (const auto padding = options_.processing_class.pad_token_id(); padding && tokens)
      return tokens->ne(*padding).sum().item<std::int64_t>();
    if (!std::exchange(warned_of_padding_, true))
      message(args_, LogLevel::warning,
              "include_num_input_tokens_seen is non_padding, but padding can't be recognised: all input "
              "tokens are counted. Name an input attention_mask, or give a processing_class that has a "
              "pad_token_id");
  }
  return tokens ? tokens->numel() : 0;
}

}  // namespace etude::inline v0
