// Fits a linear model of three inputs and two outputs: program MODEL.pt2.
#include <etude.h>
#include <stdio.h>
#include <stdlib.h>

static void check(etude_status status) {
  if (status == ETUDE_OK) return;
  fprintf(stderr, "%s\n", etude_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  float inputs[8][3], labels[8][2];
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 3; ++j) inputs[i][j] = (float)((i >> j) & 1);
    labels[i][0] = inputs[i][0] + inputs[i][1];
    labels[i][1] = inputs[i][2] - 1;
  }
  const int64_t of_inputs[] = {8, 3}, of_labels[] = {8, 2};
  const etude_tensor batch[] = {{.name = "input", .data = inputs, .shape = of_inputs, .rank = 2},
                                {.name = "labels", .data = labels, .shape = of_labels, .rank = 2}};
  etude_options* options;
  check(etude_options_create(&options));
  check(etude_options_set_json(
      options, "{\"loss\": \"mse\", \"learning_rate\": 0.1, \"max_steps\": 300, \"save_strategy\": \"no\"}"));
  etude_trainer* trainer;
  check(etude_trainer_create(argv[1], options, &trainer));
  etude_options_destroy(options);
  check(etude_trainer_begin(trainer, NULL));
  for (int32_t should_stop = 0; !should_stop;) check(etude_trainer_step(trainer, batch, 2, &should_stop));
  double loss;
  check(etude_trainer_number(trainer, "loss", &loss));
  check(etude_trainer_finish(trainer));
  etude_trainer_destroy(trainer);
  if (!(loss < 1e-3)) {
    fprintf(stderr, "the loss is %g: should be below 1e-3\n", loss);
    return 1;
  }
  puts("fitted in C");
}
