/// The parts of a C program that docs/simulations.md shows, with the network of
/// simulation.py.

#include <etude.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { members = 16, cells = 40 };
static const int64_t shape[] = {members, 1, cells};
static float before[members][cells], field[members][cells];
static const etude_tensor batch[] = {
    {.name = "field", .data = before, .shape = shape, .rank = 3},
    {.name = "labels", .data = field, .shape = shape, .rank = 3}};

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

static etude_options* common_options(void) {
  etude_options* options;
  check(etude_options_create(&options));
  check(etude_options_set_json(
      options,
      "{\"loss\": \"mse\", \"optim\": \"sgd\", \"learning_rate\": 0.01, "
      "\"max_steps\": 20, \"save_strategy\": \"no\", "
      "\"lr_scheduler_type\": \"constant\", \"compute_metrics\": [\"mae\"]}"));
  return options;
}

// [stop_early]
// Ends the training once the loss of an evaluation is small enough.
static int32_t stop_early(const etude_event* event, void* user) {
  const double* limit = user;
  double loss;
  if (etude_event_number(event, "eval_loss", &loss) != ETUDE_OK) return 1;
  if (loss < *limit)
    etude_trainer_request(etude_event_trainer(event), ETUDE_STOP);
  return 0;
}
// [/stop_early]

static void evaluate(void) {
  etude_options* options = common_options();
  // [evaluate]
  // Examples that the training doesn't see.
  etude_dataset* held_out;
  check(etude_dataset_create(batch, 2, &held_out));
  check(etude_options_add_eval_dataset(options, NULL, held_out));
  check(etude_options_set(options, "eval_strategy", "steps"));
  check(etude_options_set(options, "eval_steps", "10"));
  check(etude_options_set(options, "compute_metrics", "mae"));
  // [/evaluate]
  etude_trainer* trainer;
  check(etude_trainer_create("model.pt2", options, &trainer));
  // [on]
  double limit = 1e9;
  check(etude_trainer_on(trainer, "Evaluate", stop_early, &limit));
  // [/on]
  check(etude_trainer_begin(trainer, NULL));
  int steps = 0;
  for (int32_t should_stop = 0; !should_stop; ++steps)
    check(etude_trainer_step(trainer, batch, 2, &should_stop));
  check(etude_trainer_finish(trainer));
  // [evaluate_now]
  check(etude_trainer_evaluate(trainer, held_out));
  printf("mean absolute error: %g\n", number(trainer, "eval_mae"));
  // [/evaluate_now]
  printf("stopped after %d steps\n", steps);
  etude_trainer_destroy(trainer);
  etude_options_destroy(options);
  etude_dataset_destroy(held_out);
}

// [descend]
// Gradient descent, which stands for the program's own algorithm.
static int32_t descend(
    etude_trainer* trainer, double learning_rate, void* user) {
  (void)user;
  int64_t count;
  check(etude_trainer_parameter_count(trainer, &count));
  for (int64_t i = 0; i < count; ++i) {
    const char* name;
    etude_tensor parameter, gradient;
    check(etude_trainer_parameter_name(trainer, i, &name));
    check(etude_trainer_parameter(trainer, name, &parameter));
    check(etude_trainer_gradient(trainer, name, &gradient));
    float* values = parameter.data;
    const float* slopes = gradient.data;
    int64_t size = 1;
    for (int32_t d = 0; d < parameter.rank; ++d) size *= parameter.shape[d];
    for (int64_t j = 0; j < size; ++j)
      values[j] -= (float)learning_rate * slopes[j];
  }
  return 0;
}
// [/descend]

// The loss after 20 steps.
static double train(int with_own_optimizer) {
  etude_options* options = common_options();
  if (with_own_optimizer) {
    // [own_optimizer]
    check(etude_options_set_optimizer(options, descend, NULL));
    // [/own_optimizer]
  }
  etude_trainer* trainer;
  check(etude_trainer_create("model.pt2", options, &trainer));
  etude_options_destroy(options);
  check(etude_trainer_begin(trainer, NULL));
  double largest = 0;
  for (int32_t should_stop = 0; !should_stop;) {
    // [gradient]
    check(etude_trainer_backward(trainer, batch, 2));
    etude_tensor gradient;
    check(etude_trainer_gradient(trainer, "change.0.weight", &gradient));
    const float* slopes = gradient.data;  // 32 x 1 x 5
    for (int i = 0; i < 32 * 5; ++i) largest = fmax(largest, fabs(slopes[i]));
    check(etude_trainer_update(trainer, &should_stop));
    // [/gradient]
  }
  const double loss = number(trainer, "loss");
  check(etude_trainer_finish(trainer));
  printf("largest gradient: %g\n", largest);
  etude_trainer_destroy(trainer);
  return loss;
}

static void predict_with_halos(void) {
  etude_trainer* trainer;
  check(etude_trainer_create("model.pt2", NULL, &trainer));
  // [strides]
  // Rows in double precision, with two cells of halo on either side.
  static double rows[members][cells + 4];
  const int64_t strides[] = {cells + 4, cells + 4, 1};
  const etude_tensor inner = {
      .name = "field",
      .data = &rows[0][2],
      .shape = shape,
      .strides = strides,
      .rank = 3,
      .dtype = ETUDE_FLOAT64};
  // [/strides]
  for (int i = 0; i < members; ++i)
    for (int j = 0; j < cells; ++j) rows[i][j + 2] = before[i][j];
  static float from_rows[members][cells], from_field[members][cells];
  const etude_tensor first = {.data = from_rows, .shape = shape, .rank = 3},
                     second = {.data = from_field, .shape = shape, .rank = 3};
  check(etude_trainer_predict(trainer, &inner, 1, &first, 1));
  check(etude_trainer_predict(trainer, batch, 1, &second, 1));
  int equal = 1;
  for (int i = 0; i < members; ++i)
    for (int j = 0; j < cells; ++j)
      equal &= from_rows[i][j] == from_field[i][j];
  printf("rows with halos: %s\n", equal ? "the same" : "different");
  etude_trainer_destroy(trainer);
}

int main(void) {
  for (int i = 0; i < members; ++i)
    for (int j = 0; j < cells; ++j) {
      before[i][j] = (float)(8 + sin(1 + i + 3 * j));
      field[i][j] = before[i][j] + 0.1F;
    }
  evaluate();
  const double theirs = train(0), ours = train(1);
  printf(
      "loss %.9g with sgd, %.9g with the program's own optimizer\n", theirs,
      ours);
  predict_with_halos();
}
