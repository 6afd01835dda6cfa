#include <doctest/doctest.h>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/printed.hpp"
#include "common/toy.hpp"

namespace loop_counts_test {

// The counts of a training other than steps: batches of a limited loader, tokens, floating-point operations.

/// Has 6 parameters in the embedding, and 2 + 1 in the layer after it.
struct TokensImpl : torch::nn::Module {
  torch::nn::Embedding embed = register_module("embed", torch::nn::Embedding(3, 2));
  torch::nn::Linear score = register_module("score", torch::nn::Linear(2, 1));
  torch::Tensor forward(torch::Tensor input_ids, torch::Tensor mask) {
    return (score(embed(input_ids)).squeeze(-1) * mask).sum(1);
  }
};
TORCH_MODULE(Tokens);

struct Sentence {
  torch::Tensor input_ids, attention_mask, labels;
};

struct Sentences {
  std::size_t size() const { return 5; }
  std::map<std::string, torch::Tensor> get(std::size_t i) const {
    const auto length = static_cast<std::int64_t>(i % 4) + 1;  // 1, 2, 3, 4, 1 of 4 tokens
    return {{"attention_mask", (torch::arange(4) < length).to(torch::kFloat)},
            {"input_ids", torch::ones({4}, torch::kLong)},
            {"labels", torch::ones({})}};
  }
};

struct SentenceModelImpl : torch::nn::Module {
  Tokens inner = register_module("inner", Tokens());
  torch::Tensor forward(const etude::Tensors& inputs) {
    return inner->forward(inputs.at("input_ids"), inputs.at("attention_mask"));
  }
};
TORCH_MODULE(SentenceModel);

etude::TrainerOptions sentences(etude::InputTokens count) {
  auto args = toy::arguments();
  args.per_device_train_batch_size = 2;
  args.include_num_input_tokens_seen = count;
  return {.model = SentenceModel(), .args = args, .loss = torch::nn::MSELoss(), .train_dataset = Sentences()};
}

template <class... Callbacks>
using Bare = etude::Trainer<etude::NoDefaultCallbacks, Callbacks...>;

struct Limit {
  std::int64_t train = 0, evaluate = 0;
  std::vector<etude::LoaderUse> uses = {};
  void on(etude::DataLoaderCreated& e) {
    uses.push_back(e.use);
    e.max_batches = e.use == etude::LoaderUse::train ? train : evaluate;
  }
};

TEST_CASE("input tokens are counted in state and logs, all or without padding") {
  Bare<> all(sentences(etude::InputTokens::all));
  all.train();
  CHECK(all.state().num_input_tokens_seen == 5 * 4);
  CHECK(all.state().log_history.back().at("num_input_tokens_seen") == 20.0);
  Bare<> real(sentences(etude::InputTokens::non_padding));
  real.train();
  CHECK(real.state().num_input_tokens_seen == 1 + 2 + 3 + 4 + 1);
  Bare<> none(sentences(etude::InputTokens::no));
  none.train();
  CHECK(none.state().num_input_tokens_seen == 0);
  CHECK_FALSE(none.state().log_history.back().contains("num_input_tokens_seen"));
}

TEST_CASE("a log of steps has this run's tokens per second, counted from where it resumed") {
  const toy::Folder folder;
  auto options = sentences(etude::InputTokens::all);
  toy::save_to(folder, options.args);
  options.args.logging_strategy = etude::IntervalStrategy::steps;
  options.args.logging_steps = 1;
  const auto tokens = [](const etude::TrainerState& state, std::size_t line) {
    const auto& log = state.log_history.at(line);
    // Rounded: the runtime to 1e-4 seconds, the speed to 1e-3.
    return log.at("train_tokens_per_second").get<double>() * log.at("train_runtime").get<double>();
  };
  struct Takes {
    void on(const etude::StepEnd&) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }
  };
  Bare<Takes, etude::DefaultFlowCallback> trainer(options);
  trainer.train();
  CHECK(tokens(trainer.state(), 0) == doctest::Approx(8).epsilon(0.05));
  CHECK(tokens(trainer.state(), 2) == doctest::Approx(20).epsilon(0.05));
  Bare<Takes, etude::DefaultFlowCallback> resumed(options);
  resumed.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  CHECK(resumed.state().num_input_tokens_seen == 20);
  CHECK(tokens(resumed.state(), 2) == doctest::Approx(4).epsilon(0.05));
  CHECK_FALSE(resumed.state().log_history.back().contains("train_tokens_per_second"));
}

/// Two sentences of four tokens. Token 0 is padding.
etude::TrainerOptions padded_sentences(etude::ProcessingClass tokenizer) {
  auto options = sentences(etude::InputTokens::non_padding);
  struct Scores : torch::nn::Module {
    Scores() { register_module("inner", inner); }
    torch::Tensor forward(torch::Tensor ids) { return inner->forward(ids, torch::ones_like(ids)); }
    Tokens inner;
  };
  options.model = std::make_shared<Scores>();
  options.train_dataset = {torch::tensor({{1, 2, 0, 0}, {2, 2, 1, 0}}), torch::ones({2})};
  options.processing_class = std::move(tokenizer);
  options.args.log_level = etude::LogLevel::warning;
  return options;
}

TEST_CASE("without a mask, tokens other than the tokenizer's padding token count") {
  struct Member {
    std::optional<int> pad_token_id;
    void save(const std::filesystem::path&) {}
  };
  struct Function {
    std::int64_t pad_token_id() const { return 2; }
    void save(const std::filesystem::path&) {}
  };
  const auto counted = [](etude::ProcessingClass tokenizer, bool warns) {
    std::int64_t tokens = 0;
    auto options = padded_sentences(std::move(tokenizer));
    options.args.num_train_epochs = 2;
    const auto text = toy::printed(
        [&] {
          Bare<> trainer(options);
          trainer.train();
          tokens = trainer.state().num_input_tokens_seen;
        },
        STDERR_FILENO);
    const auto at =
        text.find("include_num_input_tokens_seen is non_padding, but padding can't be recognised");
    CHECK((at != std::string::npos) == warns);
    if (warns) CHECK(text.find("include_num_input_tokens_seen", at + 1) == std::string::npos);  // said once
    return tokens / 2;
  };
  CHECK(counted(Member{0}, false) == 5);
  CHECK(counted(Function(), false) == 5);
  CHECK(counted(Member{}, true) == 8);
  CHECK(counted({}, true) == 8);
}

TEST_CASE("floating-point operations are 6 per token and parameter outside embeddings") {
  Bare<> trainer(sentences(etude::InputTokens::no));
  const auto output = trainer.train();
  CHECK(trainer.state().total_flos == 6 * 20 * 3);
  CHECK(output.metrics.at("total_flos") == 6 * 20 * 3);
  Bare<> no_tokens(toy::options(toy::arguments()));
  CHECK(no_tokens.train().metrics.at("total_flos") == 0);
  CHECK(no_tokens.state().log_history.back().at("total_flos") == 0.0);
}

struct OwnCount : etude::TrainerBase<OwnCount> {
  using TrainerBase::TrainerBase;
  double floating_point_ops(const etude::Batch& batch) { return 10.0 * static_cast<double>(batch.size); }
};

TEST_CASE("a custom trainer counts floating-point operations in its own way") {
  OwnCount trainer(toy::options(toy::arguments(), 7));
  trainer.train();
  CHECK(trainer.state().total_flos == 70);
}

TEST_CASE("the plan includes a limited loader, and its last group is flushed") {
  auto args = toy::arguments();
  args.gradient_accumulation_steps = 2;
  args.num_train_epochs = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<Limit> trainer(toy::options(args, 10, 9), Limit{3, 4});
  CHECK(trainer.train().global_step == 4);  // (2 + 1 batches) twice
  CHECK(trainer.state().epoch == 2);
  CHECK(trainer.state().max_steps == 4);
  using etude::LoaderUse;
  CHECK((trainer.callback<Limit>().uses ==
         std::vector<LoaderUse>{LoaderUse::train, LoaderUse::evaluate, LoaderUse::evaluate}));
  CHECK(trainer.predict(toy::dataset(9)).predictions.single().size(0) == 4);
}

struct Merged {
  std::string heard = {};
  void on(const etude::Evaluate& e) { heard += fmt::format("Evaluate({}) ", e.metrics.size() > 3); }
  void on(etude::EvaluateAll& e) {
    heard += fmt::format("EvaluateAll({}) ",
                         e.metrics.contains("eval_a_loss") && e.metrics.contains("eval_b_loss"));
    e.metrics["eval_loss"] = 7;
  }
};

TEST_CASE("the metrics of several datasets are combined in one event, which decides the best model") {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.metric_for_best_model = "loss";
  auto options = toy::options(args);
  options.eval_dataset = {{"a", toy::dataset(1)}, {"b", toy::dataset(2)}};
  etude::Trainer<Merged> trainer(std::move(options));
  trainer.train();
  CHECK(trainer.callback<Merged>().heard == "Evaluate(true) Evaluate(true) EvaluateAll(true) ");
  CHECK(trainer.state().best_metric == 7);
}

}  // namespace loop_counts_test
