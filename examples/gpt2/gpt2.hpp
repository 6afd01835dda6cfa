#pragma once

#include <fmt/ranges.h>

#include <etude/checkpoint/model_files.hpp>
#include <etude/etude.hpp>
#include <fstream>
#include <iterator>

/// GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"), with the
/// configuration, the names of parameters and the arithmetic of transformers' GPT2LMHeadModel.
namespace gpt2 {

struct Config {
  ETUDE_STRUCT(Config, (std::int64_t, vocab_size, "distinct tokens" | at_least(1), 50257),
               (std::int64_t, n_positions, "tokens that the model sees at most" | at_least(1), 1024),
               (std::int64_t, n_embd, "size of a token's vector" | at_least(1), 768),
               (std::int64_t, n_layer, "blocks" | at_least(1), 12),
               (std::int64_t, n_head, "attention heads of a block; divides n_embd" | at_least(1), 12),
               (std::optional<std::int64_t>, n_inner,
                "width of the feed-forward layers; unset: 4 * n_embd" | at_least(1)),
               (double, resid_pdrop, "dropout of what a block adds" | at_least(0).below(1), 0.1),
               (double, embd_pdrop, "dropout of the embeddings" | at_least(0).below(1), 0.1),
               (double, attn_pdrop, "dropout of the attention's weights" | at_least(0).below(1), 0.1),
               (double, layer_norm_epsilon, "added to the variance" | above(0), 1e-5),
               (double, initializer_range, "standard deviation of new weights" | at_least(0), 0.02));
};

/// A linear layer whose weight is [inputs, outputs], unlike torch::nn::Linear's.
struct Conv1DImpl : torch::nn::Module {
  Conv1DImpl(std::int64_t inputs, std::int64_t outputs, double deviation)
      : weight(register_parameter("weight", deviation * torch::randn({inputs, outputs}))),
        bias(register_parameter("bias", torch::zeros(outputs))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::addmm(bias, x.flatten(0, 1), weight).view({x.size(0), x.size(1), -1});
  }

  torch::Tensor weight, bias;
};
TORCH_MODULE(Conv1D);

/// The initial weights of layers that add to the residual stream are divided by the square root of their
/// number.
inline double residual_deviation(const Config& config) {
  return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.n_layer));
}

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const Config& config_)
      : config(config_),
        c_attn(register_module("c_attn", Conv1D(config.n_embd, 3 * config.n_embd, config.initializer_range))),
        c_proj(register_module("c_proj", Conv1D(config.n_embd, config.n_embd, residual_deviation(config)))) {}

  /// Like BlockImpl::forward.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& keys, const torch::Tensor& values) {
    const auto batch = x.size(0), length = x.size(1);
    auto parts = c_attn(x).view({batch, length, 3, config.n_head, -1}).permute({2, 0, 3, 1, 4}).unbind();
    if (keys.defined()) {
      keys.slice(2, -length).copy_(parts[1]);
      values.slice(2, -length).copy_(parts[2]);
      parts = {parts[0], keys, values};
    }
    const auto mixed = torch::scaled_dot_product_attention(
        parts[0], parts[1], parts[2], {}, is_training() ? config.attn_pdrop : 0.0, /*is_causal=*/length > 1);
    return c_proj(mixed.transpose(1, 2).reshape({batch, length, config.n_embd}));
  }

  Config config;
  Conv1D c_attn, c_proj;
};
TORCH_MODULE(Attention);

struct MLPImpl : torch::nn::Module {
  explicit MLPImpl(const Config& config) : MLPImpl(config, config.n_inner.value_or(4 * config.n_embd)) {}
  MLPImpl(const Config& config, std::int64_t inner)
      : c_fc(register_module("c_fc", Conv1D(config.n_embd, inner, config.initializer_range))),
        c_proj(register_module("c_proj", Conv1D(inner, config.n_embd, residual_deviation(config)))) {}

  torch::Tensor forward(const torch::Tensor& x) { return c_proj(torch::gelu(c_fc(x), "tanh")); }

  Conv1D c_fc, c_proj;
};
TORCH_MODULE(MLP);

inline torch::nn::LayerNorm layer_norm(const Config& config) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.n_embd}).eps(config.layer_norm_epsilon));
}

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const Config& config)
      : resid_pdrop(config.resid_pdrop),
        ln_1(register_module("ln_1", layer_norm(config))),
        attn(register_module("attn", Attention(config))),
        ln_2(register_module("ln_2", layer_norm(config))),
        mlp(register_module("mlp", MLP(config))) {}

  /// x is [batch, length, n_embd]. With `keys` and `values`, [batch, n_head, tokens so far, n_embd / n_head],
  /// writes the keys and values of x to the last positions and attends to all; either nothing precedes x, or
  /// x is one token.
  torch::Tensor forward(torch::Tensor x, torch::Tensor keys = {}, torch::Tensor values = {}) {
    x = x + torch::dropout(attn(ln_1(x), keys, values), resid_pdrop, is_training());
    return x + torch::dropout(mlp(ln_2(x)), resid_pdrop, is_training());
  }

  double resid_pdrop;
  torch::nn::LayerNorm ln_1;
  Attention attn;
  torch::nn::LayerNorm ln_2;
  MLP mlp;
};
TORCH_MODULE(Block);

/// The keys and values of each block for the tokens so far, so that each token is computed once.
struct Cache {
  Cache(const Config& config, std::int64_t batch, const torch::TensorOptions& options)
      : both(torch::empty(
            {config.n_layer, 2, batch, config.n_head, config.n_positions, config.n_embd / config.n_head},
            options)) {}

  torch::Tensor both;
  std::int64_t length = 0;  ///< tokens so far
};

struct TransformerImpl : torch::nn::Module {
  explicit TransformerImpl(const Config& config_)
      : config(config_),
        wte(register_module("wte", embedding(config.vocab_size))),
        wpe(register_module("wpe", embedding(config.n_positions))),
        h(register_module("h", etude::Units<Block>())),
        ln_f(register_module("ln_f", layer_norm(config))) {
    for (std::int64_t i = 0; i < config.n_layer; ++i) h->push_back(Block(config));
  }

  /// Tokens [batch, length] to vectors [batch, length, n_embd]. With a cache, the tokens follow those in it.
  torch::Tensor forward(const torch::Tensor& ids, Cache* cache) {
    const auto past = cache ? cache->length : 0, all = past + ids.size(1);
    if (all > config.n_positions)
      throw etude::DataError(
          fmt::format("{} tokens: must be at most n_positions, {}", all, config.n_positions));
    auto x = wte(ids) + wpe->weight.slice(0, past, all);
    x = torch::dropout(x, config.embd_pdrop, is_training());
    for (std::size_t i = 0; i < h->size(); ++i) {
      if (cache) {
        const auto seen = cache->both[static_cast<std::int64_t>(i)].slice(3, 0, all);
        x = (*h)[i](x, seen[0], seen[1]);
      } else {
        x = (*h)[i](x);
      }
    }
    if (cache) cache->length = all;
    return ln_f(x);
  }

  torch::nn::Embedding embedding(std::int64_t rows) const {
    return torch::nn::Embedding(torch::nn::EmbeddingOptions(rows, config.n_embd)
                                    ._weight(config.initializer_range * torch::randn({rows, config.n_embd})));
  }

  Config config;
  torch::nn::Embedding wte, wpe;
  etude::Units<Block> h;
  torch::nn::LayerNorm ln_f;
};
TORCH_MODULE(Transformer);

/// Fields whose values are the same in every supported configuration; other values would mean a different
/// model.
inline const nlohmann::ordered_json& fixed_settings() {
  static const nlohmann::ordered_json settings{
      {"model_type", "gpt2"},         {"activation_function", "gelu_new"},
      {"scale_attn_weights", true},   {"scale_attn_by_inverse_layer_idx", false},
      {"add_cross_attention", false}, {"tie_word_embeddings", true}};
  return settings;
}

inline std::string config_json(const Config& config) {
  nlohmann::ordered_json json{{"architectures", {"GPT2LMHeadModel"}}};
  json.update(fixed_settings());
  json.update(etude::to_json_value(config));
  json.update({{"bos_token_id", nullptr}, {"eos_token_id", nullptr}});
  return json.dump(2) + "\n";
}

struct GPT2Impl : torch::nn::Module {
  /// `files` are saved next to the weights; if there are none, config.json is.
  explicit GPT2Impl(const Config& config, etude::ModelFiles files = {})
      : files_(files.empty() ? etude::ModelFiles{{"config.json", config_json(config)}} : std::move(files)) {
    if (const auto faults = etude::field_faults(config); !faults.empty())
      throw etude::ArgumentError(fmt::format("{}", fmt::join(faults, "\n")));
    if (config.n_embd % config.n_head != 0)
      throw etude::ArgumentError(
          fmt::format("n_embd is {}: must be a multiple of n_head, {}", config.n_embd, config.n_head));
    transformer = register_module("transformer", Transformer(config));
  }

  /// Tokens [batch, length] to scores of the token after each, [batch, length, vocab_size].
  torch::Tensor forward(torch::Tensor ids) { return scores(transformer(ids, nullptr)); }

  /// The scores of the next token, [batch, vocab_size].
  torch::Tensor next(const torch::Tensor& ids, Cache& cache) {
    return scores(transformer(ids, &cache).select(1, -1));
  }

  const Config& config() const { return transformer->config; }
  const etude::ModelFiles& files() const { return files_; }

  Transformer transformer{nullptr};

 private:
  /// The head shares the embedding's weights, so it isn't a separate parameter, as in transformers' files.
  torch::Tensor scores(const torch::Tensor& x) { return torch::linear(x, transformer->wte->weight); }

  etude::ModelFiles files_;
};
TORCH_MODULE(GPT2);

/// The mean loss of the tokens `next` [batch, length] given scores [batch, length, vocab_size].
inline torch::Tensor loss(const torch::Tensor& scores, const torch::Tensor& next) {
  return torch::nn::functional::cross_entropy(scores.flatten(0, 1), next.flatten());
}

struct Sampling {
  ETUDE_STRUCT(Sampling, (std::int64_t, max_new_tokens, "tokens to generate" | at_least(0), 100),
               (double, temperature, "of sampling; 0: always the likeliest token" | at_least(0), 1.0),
               (std::int64_t, top_k, "sample from so many likeliest tokens; 0: from all" | at_least(0), 0));
};

/// Samples the next tokens [batch, 1] from scores [batch, vocab_size].
inline torch::Tensor sample(torch::Tensor scores, const Sampling& sampling) {
  if (sampling.temperature == 0) return scores.argmax(-1, /*keepdim=*/true);
  scores = scores.to(torch::kFloat) / sampling.temperature;
  if (sampling.top_k > 0 && sampling.top_k < scores.size(-1)) {
    const auto least = std::get<0>(scores.topk(sampling.top_k)).slice(-1, -1);
    scores = scores.masked_fill(scores < least, -std::numeric_limits<double>::infinity());
  }
  return torch::multinomial(scores.softmax(-1), 1);
}

/// Continues each row of `ids`, [batch, length] of at least one token, by `max_new_tokens`. When the tokens
/// exceed the model's context, continues with the last half of a context.
inline torch::Tensor generate(const etude::Model& model, torch::Tensor ids, const Sampling& sampling) {
  auto& gpt2 = model.as<GPT2>();
  const torch::NoGradGuard no_grad;
  const auto mode = model.eval_guard();
  const auto weight = gpt2.transformer->wte->weight;
  ids = ids.to(weight.device());
  Cache cache(gpt2.config(), ids.size(0), weight.options());
  auto fresh = ids;
  for (std::int64_t i = 0; i < sampling.max_new_tokens; ++i) {
    if (const auto most = gpt2.config().n_positions; cache.length + fresh.size(1) > most) {
      cache.length = 0;
      fresh = ids.slice(1, -std::max<std::int64_t>(1, most / 2));
    }
    fresh = sample(gpt2.next(fresh, cache), sampling);
    ids = torch::cat({ids, fresh}, 1);
  }
  return ids;
}

/// Loads the model in a folder that this program or transformers saved. Also accepts GPT-2's original
/// parameter names, which lack "transformer.". Keeps the tokenizer's files. Throws DataError for another kind
/// of model, and CheckpointError for weights that don't fit.
inline GPT2 load(const std::filesystem::path& folder) {
  etude::ModelFiles files;
  for (const auto* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json"})
    if (std::ifstream file(folder / name); file) files[name] = {std::istreambuf_iterator<char>(file), {}};
  const auto path = (folder / "config.json").string();
  if (!files.contains("config.json")) throw etude::DataError(path + " can't be read");
  Config config;
  try {
    const auto json = etude::from_json_text<nlohmann::ordered_json>(files["config.json"]);
    for (const auto& [name, value] : fixed_settings().items())
      if (json.contains(name) && json[name] != value)
        throw etude::DataError(fmt::format("{} is {}: must be {}", name, json[name].dump(), value.dump()));
    config = etude::from_json_value<Config>(json);
  } catch (const etude::Error& error) {
    throw etude::DataError(fmt::format("{}: {}", path, error.what()));
  }

  etude::StateDict state;
  torch::Tensor head;
  for (const auto& [name, tensor] : etude::load_model_files(folder)) {
    if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) continue;  // old files: the mask
    if (name == "lm_head.weight")
      head = tensor;
    else
      state.emplace_back(name.starts_with("transformer.") ? name : "transformer." + name, tensor);
  }
  GPT2 model(config, std::move(files));
  etude::Model(model).load_state_dict(state);
  if (head.defined() && !head.equal(model->transformer->wte->weight.to(head.dtype())))
    throw etude::CheckpointError(folder.string() + ": lm_head.weight differs from transformer.wte.weight");
  return model;
}

}  // namespace gpt2
