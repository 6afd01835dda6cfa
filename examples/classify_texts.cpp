#include <etude/etude.hpp>
#include <etude/formats/stored_tensors.hpp>
#include <etude/model/load_exported.hpp>

void train(const etude::TrainingArguments& args) {
  etude::Trainer<> trainer({.model = etude::load_exported("model.pt2"),
                            .args = args,
                            .train_dataset = etude::stored_tensors("train.safetensors"),
                            .eval_dataset = etude::stored_tensors("test.safetensors")});
  trainer.train({.resume_from_checkpoint = etude::if_any});
  fmt::print("loss on texts that it hasn't seen: {:.3f}\n", trainer.evaluate().at("eval_loss"));
  trainer.save_model("trained");
}

int main(int argc, char** argv) {
  return etude::run(argc, argv, etude::TrainingArguments{.learning_rate = 5e-4}, train);
}
