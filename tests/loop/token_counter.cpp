#include "etude/loop/token_counter.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/printed.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/tensors.hpp"
#include "etude/model/model.hpp"
#include "etude/trainer_options.hpp"

namespace loop_token_counter_test {

/// Has 6 parameters in the embedding, and `outputs` times 3 in the layer after it.
struct ScoresImpl : torch::nn::Module {
  explicit ScoresImpl(std::int64_t outputs)
      : layer(register_module("layer", torch::nn::Linear(2, outputs))) {}
  torch::Tensor forward(torch::Tensor x) { return layer(embed(x)); }
  torch::nn::Embedding embed = register_module("embed", torch::nn::Embedding(3, 2));
  torch::nn::Linear layer;
};
TORCH_MODULE(Scores);

struct Counted {
  etude::TrainerOptions options;
  etude::TrainingArguments args;
  etude::Model model = Scores(1);
  etude::TokenCounter counter{options, args, model};
  explicit Counted(etude::InputTokens tokens = etude::InputTokens::no) {
    args.include_num_input_tokens_seen = tokens;
  }
};

/// 2 sentences of 4 tokens.
etude::Batch ids() { return {torch::ones({2, 4}, torch::kLong), {}, 2}; }

TEST_CASE("operations are 6 for each token and parameter, embeddings excluded") {
  Counted counted;
  CHECK(counted.counter.floating_point_ops(ids()) == 6 * 8 * 3);
  CHECK(counted.counter.floating_point_ops({torch::ones({2, 4}), {}, 2}) == 0);
  CHECK(counted.counter.floating_point_ops({}) == 0);
  counted.model = Scores(2);
  counted.counter.begin_training();
  CHECK(counted.counter.floating_point_ops(ids()) == 6 * 8 * 6);
}

/// Plain modules with the names of Python's classes, as in a model that Python exported; the head is tied to
/// the embedding.
struct NamedImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x; }
  NamedImpl() {
    const auto add = [&](const char* name, const char* type, const torch::Tensor& weight) {
      register_module(name, std::make_shared<torch::nn::Module>(type))->register_parameter("weight", weight);
    };
    const auto tied = torch::ones({3, 2});
    add("embed", "Embedding", tied);
    add("positions", "Embedding", torch::ones({4, 2}));
    add("layer", "Linear", torch::ones({5}));
    add("head", "Linear", tied);
  }
};

TEST_CASE("embeddings of an exported model are known by the name of their class") {
  Counted counted;
  counted.model = std::make_shared<NamedImpl>();
  counted.counter.begin_training();
  CHECK(counted.counter.floating_point_ops(ids()) == 6 * 8 * 5);
}

TEST_CASE("tokens are counted as include_num_input_tokens_seen specifies") {
  CHECK(Counted().counter.input_tokens(ids()) == 0);
  CHECK(Counted(etude::InputTokens::all).counter.input_tokens(ids()) == 8);
  const std::vector tensors{torch::tensor({1, 1, 0, 0}), torch::tensor({5, 6, 0, 0})};
  const etude::Batch masked{etude::Tensors(tensors, {"attention_mask", "input_ids"}), {}, 1};
  CHECK(Counted(etude::InputTokens::non_padding).counter.input_tokens(masked) == 2);
}

TEST_CASE("padding that can't be recognised is counted, with one warning") {
  Counted counted(etude::InputTokens::non_padding);
  const auto count = [&] {
    return toy::printed([&] { CHECK(counted.counter.input_tokens(ids()) == 8); }, STDERR_FILENO);
  };
  CHECK(count().find("padding can't be recognised") != std::string::npos);
  CHECK(count().empty());
}

}  // namespace loop_token_counter_test
