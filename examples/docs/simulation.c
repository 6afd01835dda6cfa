/// A simulation that trains a network in its time loop; docs/simulations.md
/// explains it. The network of simulation.py learns to take a time step of the
/// Lorenz 96 system, whose solver needs ten small ones.

#include <etude.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { members = 16, cells = 40 };
static float before[members][cells], field[members][cells];

static void check(etude_status status) {
  if (status == ETUDE_OK) return;
  fprintf(stderr, "%s\n", etude_last_error());
  exit(EXIT_FAILURE);
}

static double number(etude_trainer* trainer, const char* name) {
  double value;
  check(etude_trainer_number(trainer, name, &value));
  return value;
}

// Each process has its own ensemble.
static void initialize(double rank) {
  for (int i = 0; i < members; ++i)
    for (int j = 0; j < cells; ++j)
      field[i][j] = (float)(8 + sin(1 + members * rank + i + 3 * j));
}

static void time_step(void) {
  memcpy(before, field, sizeof field);
  for (int i = 0; i < members; ++i)
    for (int small = 0; small < 10; ++small) {
      float x[cells];
      memcpy(x, field[i], sizeof x);
      for (int j = 0; j < cells; ++j) {
        const float next = x[(j + 1) % cells],
                    last = x[(j + cells - 1) % cells],
                    second_last = x[(j + cells - 2) % cells];
        field[i][j] = x[j] + 0.005F * ((next - second_last) * last - x[j] + 8);
      }
    }
}

int main(void) {
  etude_options* options;
  check(etude_options_create(&options));
  check(etude_options_set(options, "loss", "mse"));
  check(etude_options_set(options, "learning_rate", "3e-3"));
  check(etude_options_set(options, "max_steps", "600"));
  check(etude_options_set(options, "save_steps", "100"));
  check(etude_options_set(options, "output_dir", "training"));

  // These describe the program's memory. Nothing is copied.
  const int64_t shape[] = {members, 1, cells};
  const etude_tensor batch[] = {
      {.name = "field", .data = before, .shape = shape, .rank = 3},
      {.name = "labels", .data = field, .shape = shape, .rank = 3}};
  const etude_tensor state = {
      .name = "field", .data = field, .shape = shape, .rank = 3};
  check(etude_options_add_state(options, &state));

  etude_trainer* trainer;
  check(etude_trainer_create("model.pt2", options, &trainer));
  etude_options_destroy(options);

  initialize(number(trainer, "rank"));
  // Resumes from the newest checkpoint if there is one, which also restores
  // `field`.
  check(etude_trainer_begin(trainer, "newest"));
  for (int32_t should_stop = 0; !should_stop;) {
    time_step();
    check(etude_trainer_step(trainer, batch, 2, &should_stop));
    const double step = number(trainer, "global_step");
    if (fmod(step, 100) == 0 && number(trainer, "rank") == 0)
      printf("step %g: loss %.9g\n", step, number(trainer, "loss"));
  }
  check(etude_trainer_finish(trainer));
  check(etude_trainer_save_model(trainer, "trained"));

  // [predict]
  float predicted[members][cells];
  time_step();
  const etude_tensor output = {.data = predicted, .shape = shape, .rank = 3};
  // The first tensor of the batch is the input, `field`.
  check(etude_trainer_predict(trainer, batch, 1, &output, 1));
  double error = 0;
  for (int i = 0; i < members; ++i)
    for (int j = 0; j < cells; ++j)
      error += pow(predicted[i][j] - field[i][j], 2) / (members * cells);
  // [/predict]
  if (number(trainer, "rank") == 0)
    printf("error of a time step: %.9g\n", sqrt(error));
  etude_trainer_destroy(trainer);
}
