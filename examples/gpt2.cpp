/// A GPT-2 (gpt2/gpt2.hpp) that learns from a file of tokens and continues a text. It shares folders with
/// transformers: `from_pretrained` loads what it saves, and --model takes what `save_pretrained` wrote.
///
///     gpt2 --data train.bin --eval_data val.bin --eval_strategy epoch
///     gpt2 --data train.bin --model gpt2-folder --context 256
///     gpt2 --data book.txt --token_type uint8 --vocab_size 256 --n_layer 4 --n_head 4 --n_embd 128
///         --n_positions 128 --prompt "The "
///     gpt2 --model gpt2_output/model --prompt 464,3290 --temperature 0.8 --top_k 200
///
/// The first learns from nanoGPT's files, the second fine-tunes, and in the third each byte is a token. With
/// torchrun, several processes share each batch; --bf16 true computes in bfloat16.

#include <etude/formats/safetensors.hpp>
#include <span>
#include <sstream>

#include "gpt2/gpt2.hpp"

struct Options {
  ETUDE_STRUCT(Options,
               (std::string, model,
                "folder of a model to start from, instead of a new one as --n_layer etc. say"),
               (std::string, data, "file of tokens to learn from; without it, nothing is learned"),
               (std::string, eval_data, "file of tokens to evaluate on"),
               (etude::TokenType, token_type,
                "numbers in these files; uint8 makes each byte of a text a token, as in the prompt",
                etude::TokenType::uint16),
               (std::optional<std::int64_t>, context,
                "tokens in an example; unset: as many as the model sees" | at_least(1)),
               (std::optional<std::int64_t>, stride,
                "tokens from the start of an example to the next; unset: context" | at_least(1)),
               (std::string, prompt,
                "tokens to continue after the training, such as 464,3290; a text if token_type is uint8"),
               (std::string, logits, "safetensors file for the prompt's scores [1, tokens, vocab_size]"));
};

/// Tokens [1, length].
torch::Tensor encode(const std::string& prompt, etude::TokenType type) {
  std::vector<std::int64_t> ids;
  if (type == etude::TokenType::uint8) {
    ids.assign(reinterpret_cast<const std::uint8_t*>(prompt.data()),
               reinterpret_cast<const std::uint8_t*>(prompt.data()) + prompt.size());
  } else {
    std::istringstream words(prompt);
    for (std::string word; std::getline(words, word, ',');) {
      if (word.empty() || word.size() > 9 || word.find_first_not_of("0123456789") != word.npos)
        throw etude::ArgumentError(fmt::format("prompt is {}: must be token ids such as 464,3290", prompt));
      ids.push_back(std::stol(word));
    }
  }
  return torch::tensor(ids).unsqueeze(0);
}

std::string decode(const torch::Tensor& ids, etude::TokenType type) {
  const std::span numbers(ids.data_ptr<std::int64_t>(), static_cast<std::size_t>(ids.numel()));
  return type == etude::TokenType::uint8 ? std::string(numbers.begin(), numbers.end())
                                         : fmt::format("{}", fmt::join(numbers, ","));
}

void run(const etude::TrainingArguments& args, const Options& options, const gpt2::Config& config,
         const gpt2::Sampling& sampling) {
  torch::manual_seed(static_cast<std::uint64_t>(args.seed));
  auto model = options.model.empty() ? gpt2::GPT2(config) : gpt2::load(options.model);
  if (!options.model.empty() && etude::to_json_value(config) != etude::to_json_value(gpt2::Config{}))
    throw etude::ArgumentError(fmt::format(
        "model is {}: its config.json has the options of the model, so none may be given", options.model));
  const auto windows = [&](const std::string& file) {
    return etude::TokenWindows(file, {.context = options.context.value_or(model->config().n_positions),
                                      .stride = options.stride,
                                      .type = options.token_type,
                                      .vocab_size = model->config().vocab_size});
  };

  // DistributedDataParallel in the list is all that makes it a program for several processes.
  etude::Trainer<etude::DistributedDataParallel> trainer(
      {.model = model,
       .args = args,
       .loss = gpt2::loss,
       .train_dataset = options.data.empty() ? etude::Dataset() : windows(options.data),
       .eval_dataset = options.eval_data.empty() ? etude::Dataset() : windows(options.eval_data)});
  if (!options.data.empty()) {
    trainer.train({.resume_from_checkpoint = etude::if_any});  // run the same command again to resume
    trainer.save_model(args.output_dir + "/model");
  }
  if (!options.eval_data.empty()) {
    const auto loss = trainer.evaluate().at("eval_loss");
    if (trainer.state().is_world_process_zero) fmt::print("perplexity {:.3f}\n", std::exp(loss));
  }
  if (options.prompt.empty() || !trainer.state().is_world_process_zero) return;

  const auto prompt = encode(options.prompt, options.token_type);
  if (prompt.max().item<std::int64_t>() >= model->config().vocab_size)
    throw etude::ArgumentError(fmt::format("prompt is {}: its tokens must be less than vocab_size, {}",
                                           options.prompt, model->config().vocab_size));
  if (!options.logits.empty()) {
    const auto mode = trainer.model().eval_guard();
    const auto device = trainer.model().parameters().front().device();
    const torch::NoGradGuard no_grad;
    etude::save_safetensors(options.logits, {{"logits", model->forward(prompt.to(device))}});
  }
  fmt::print("{}\n", decode(gpt2::generate(trainer.model(), prompt, sampling).cpu(), options.token_type));
}

int main(int argc, char** argv) {
  const etude::TrainingArguments defaults{.output_dir = "gpt2_output",
                                          .per_device_train_batch_size = 8,
                                          .learning_rate = 6e-4,
                                          .weight_decay = 0.1,
                                          .adam_beta2 = 0.95,
                                          .lr_scheduler_type = etude::SchedulerType::cosine,
                                          .warmup_steps = 100,
                                          .save_total_limit = 2};
  return etude::run(argc, argv, defaults, Options{}, gpt2::Config{}, gpt2::Sampling{}, run);
}
