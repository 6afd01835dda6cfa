#include <etude/etude.hpp>
#include <etude/model/load_exported.hpp>
#include <fstream>
#include <iterator>

void train(const etude::TrainingArguments& args) {
  std::ifstream file("README.md", std::ios::binary);
  const std::vector<std::uint8_t> bytes(std::istreambuf_iterator<char>(file), {});
  const auto text = torch::tensor(bytes).to(torch::kLong);  // each byte is a token
  const auto ids = text.narrow(0, 0, text.size(0) / 64 * 64).view({-1, 64});

  // The inputs of the model's forward in Python, by name. The model computes its loss.
  const etude::Tensors examples({ids, torch::ones_like(ids), ids}, {"input_ids", "attention_mask", "labels"});
  etude::Trainer<> trainer({.model = etude::load_exported("model.pt2"),
                            .args = args,
                            .train_dataset = examples,
                            .eval_dataset = examples});
  trainer.train({.resume_from_checkpoint = etude::if_any});
  fmt::print("perplexity of a byte: {:.2f}\n", std::exp(trainer.evaluate().at("eval_loss")));
  trainer.save_model("fine-tuned");  // in Python: GPT2LMHeadModel.from_pretrained("fine-tuned")
}

int main(int argc, char** argv) {
  return etude::run(argc, argv, etude::TrainingArguments{.learning_rate = 3e-3}, train);
}
