/// A recommender with sparse embedding tables and a small tower, each with its optimizer.
/// `loops/recommend.cpp` is the loop that it replaces, with the same losses.

#include <etude/etude.hpp>

#include "data/recommend.hpp"

int main(int argc, char** argv) {
  auto args = etude::plain_loop();
  args.output_dir = "recommend_output";
  args.per_device_train_batch_size = args.per_device_eval_batch_size = batch_size;
  args.num_train_epochs = epochs;
  args.eval_strategy = args.logging_strategy = etude::IntervalStrategy::epoch;
  args.save_strategy = etude::SaveStrategy::epoch;
  args.save_total_limit = 1;
  args.log_lines = {"epoch {epoch:.0f} loss {loss:.9f}", "epoch {epoch:.0f} mse {eval_mse:.6f}"};
  return etude::run(argc, argv, args, [](const etude::TrainingArguments& given) {
    const auto data = ratings();
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      const auto of = [&](const torch::Tensor& all) { return all.slice(0, begin, end); };
      return etude::Dataset({of(data.user), of(data.item)}, of(data.rating));
    };
    etude::Trainer<> trainer(
        {.model_init = [] { return Recommender(); },
         .args = given,
         .compute_loss = [&](Recommender& model, const etude::Batch& batch) -> etude::LossOutput {
           const auto [tags_of_all, begins] = bags(data, batch.inputs[1]);
           const auto output = model(batch.inputs[0], batch.inputs[1], tags_of_all, begins);
           return {.loss = torch::mse_loss(output, batch.labels), .outputs = output};
         },
         .train_dataset = part(0, train_ratings),
         .eval_dataset = part(train_ratings, train_ratings + test_ratings),
         .compute_metrics = etude::metrics::streaming(etude::metrics::MeanSquaredError()),
         // LibTorch's Adam takes no sparse gradients; Adagrad does.
         .optimizers = {{"tables",
                         {.parameters = {"user", "item", "tag"},
                          .learning_rate = table_rate,
                          .optim = etude::OptimizerNames::adagrad,
                          .optim_args = "fused=false"}},
                        {"tower",
                         {.learning_rate = tower_rate,
                          .optim = etude::OptimizerNames::adam,
                          .optim_args = "fused=false"}}}});
    trainer.train({.resume_from_checkpoint = etude::if_any});
  });
}
