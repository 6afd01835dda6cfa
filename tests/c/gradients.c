/* Parameters and gradients as memory, and optimizers of the program. */
#include <math.h>
#include <string.h>

#include "check.h"

static void parameters(void) {
  etude_trainer* trainer = made(linear, descent(2));
  int64_t count = 0;
  const char *first = NULL, *second = NULL;
  OK(etude_trainer_parameter_count(trainer, &count));
  CHECK(count == 2);
  OK(etude_trainer_parameter_name(trainer, 0, &first));
  OK(etude_trainer_parameter_name(trainer, 1, &second));
  CHECK(!strcmp(first, "weight") && !strcmp(second, "bias"));
  FAILS(etude_trainer_parameter_name(trainer, 2, &first), ETUDE_INVALID_ARGUMENT, "index is 2");
  FAILS(etude_trainer_parameter_name(trainer, -1, &first), ETUDE_INVALID_ARGUMENT, "index is -1");
  etude_tensor weight;
  FAILS(etude_trainer_parameter(trainer, "weigh", &weight), ETUDE_INVALID_ARGUMENT, "did you mean 'weight'?");
  OK(etude_trainer_parameter(trainer, "weight", &weight));
  CHECK(weight.rank == 2 && weight.shape[0] == 2 && weight.shape[1] == 3 && weight.dtype == ETUDE_FLOAT32);
  CHECK(((float*)weight.data)[5] == 0.625f);

  /* What the program writes is what the model computes with. */
  OK(etude_trainer_begin(trainer, NULL));
  OK(etude_trainer_parameter(trainer, "weight", &weight));
  ((float*)weight.data)[5] = -1;
  struct line line = first_line();
  line.w[1][2] = -1;
  steps(trainer, 0, 1);
  NEAR(number(trainer, "loss"), line_step(&line, 0, 0.25));
  check_line(trainer, &line);
  etude_trainer_destroy(trainer);
}

static void check_gradients(etude_trainer* trainer, const struct line* expected) {
  etude_tensor weight, bias;
  OK(etude_trainer_gradient(trainer, "weight", &weight));
  OK(etude_trainer_gradient(trainer, "bias", &bias));
  CHECK(weight.data && bias.data);
  if (!weight.data || !bias.data) return;
  for (int k = 0; k < 6; ++k) NEAR(((float*)weight.data)[k], expected->w[k / 3][k % 3]);
  for (int k = 0; k < 2; ++k) NEAR(((float*)bias.data)[k], expected->b[k]);
}

static void between_halves(void) {
  etude_trainer* trainer = made(linear, descent(3));
  etude_tensor gradient;
  OK(etude_trainer_begin(trainer, NULL));
  struct line line = first_line();
  for (int i = 0; i < 3; ++i) {
    OK(etude_trainer_gradient(trainer, "weight", &gradient));
    CHECK(gradient.data == NULL && gradient.rank == 2);
    float x[12], y[8];
    struct line expected;
    example_batch(i, x, y);
    line_loss(&line, x, y, &expected);
    OK(etude_trainer_backward(trainer, batch(i), 2));
    check_gradients(trainer, &expected);
    /* The program takes out the gradient of the bias. */
    OK(etude_trainer_gradient(trainer, "bias", &gradient));
    ((float*)gradient.data)[0] = ((float*)gradient.data)[1] = 0;
    OK(etude_trainer_update(trainer, NULL));
    line_step(&line, i, 0.25);
    line.b[0] = 0.5, line.b[1] = -0.25;
    check_line(trainer, &line);
  }
  OK(etude_trainer_finish(trainer));
  etude_trainer_destroy(trainer);
}

struct optimizer {
  float momentum[8];
  double factor;
  int steps;
  int32_t result;
  double last_rate;
};

/* Gradient descent with momentum, in torch.optim.SGD's order of operations. */
static int32_t descend(etude_trainer* trainer, double learning_rate, void* user) {
  struct optimizer* own = user;
  static const char* const names[2] = {"weight", "bias"};
  for (int p = 0, k = 0; p < 2; ++p) {
    etude_tensor parameter, gradient;
    OK(etude_trainer_parameter(trainer, names[p], &parameter));
    OK(etude_trainer_gradient(trainer, names[p], &gradient));
    const int size = p == 0 ? 6 : 2;
    for (int i = 0; i < size; ++i, ++k) {
      own->momentum[k] = (float)own->factor * own->momentum[k] + ((float*)gradient.data)[i];
      ((float*)parameter.data)[i] -= (float)learning_rate * own->momentum[k];
    }
  }
  ++own->steps;
  own->last_rate = learning_rate;
  FAILS(etude_trainer_step(trainer, batch(0), 2, NULL), ETUDE_WRONG_CALL, "in a callback");
  return own->result;
}

static etude_options* scheduled(int max_steps) {
  etude_options* options = descent(max_steps);
  set(options, "lr_scheduler_type", "linear");
  set(options, "max_grad_norm", "0.3");
  return options;
}

/* The program's optimizer gets clipped gradients and scheduled rates. */
static void own_descent(void) {
  float etudes[8], programs[8];
  etude_trainer* trainer = made(linear, scheduled(10));
  OK(etude_trainer_begin(trainer, NULL));
  steps(trainer, 0, 10);
  OK(etude_trainer_finish(trainer));
  read_line(trainer, etudes);
  etude_trainer_destroy(trainer);

  struct optimizer own = {0};
  etude_options* options = scheduled(10);
  OK(etude_options_set_optimizer(options, descend, &own));
  trainer = made(linear, options);
  OK(etude_trainer_begin(trainer, NULL));
  steps(trainer, 0, 10);
  OK(etude_trainer_finish(trainer));
  read_line(trainer, programs);
  CHECK(own.steps == 10);
  NEAR(own.last_rate, 0.025);
  for (int k = 0; k < 8; ++k) NEAR(programs[k], etudes[k]);
  CHECK(fabs((double)etudes[0]) > 1e-3);
  etude_trainer_destroy(trainer);
}

static etude_trainer* with_momentum(struct optimizer* own, const char* folder) {
  etude_options* options = scheduled(10);
  set(options, "output_dir", folder);
  set(options, "save_strategy", "steps");
  set(options, "save_steps", "2");
  OK(etude_options_set_optimizer(options, descend, own));
  static const int64_t shape[1] = {8};
  etude_tensor momentum = {0};
  momentum.name = "momentum";
  momentum.data = own->momentum;
  momentum.shape = shape;
  momentum.rank = 1;
  OK(etude_options_add_state(options, &momentum));
  return made(linear, options);
}

static void resumed_momentum(void) {
  float whole[8], parts[8];
  for (int is_broken = 0; is_broken < 2; ++is_broken) {
    const char* folder = new_folder();
    struct optimizer own = {{0}, 0.75, 0, 0, 0};
    etude_trainer* trainer = with_momentum(&own, folder);
    OK(etude_trainer_begin(trainer, "newest"));
    if (is_broken) {
      steps(trainer, 0, 5);
      etude_trainer_destroy(trainer);
      memset(own.momentum, 0, sizeof own.momentum);
      trainer = with_momentum(&own, folder);
      OK(etude_trainer_begin(trainer, "newest"));
      CHECK(number(trainer, "global_step") == 4);
      steps(trainer, 4, 10);
    } else {
      steps(trainer, 0, 10);
    }
    OK(etude_trainer_finish(trainer));
    read_line(trainer, is_broken ? parts : whole);
    etude_trainer_destroy(trainer);
  }
  CHECK(!memcmp(whole, parts, sizeof whole));
}

static void failing(void) {
  struct optimizer own = {0};
  etude_options* options = descent(10);
  OK(etude_options_set_optimizer(options, descend, &own));
  etude_trainer* trainer = made(linear, options);
  OK(etude_trainer_begin(trainer, NULL));
  steps(trainer, 0, 1);
  own.result = -1;
  FAILS(etude_trainer_step(trainer, batch(1), 2, NULL), ETUDE_FAILED, "the program's optimizer returned -1");
  etude_trainer_destroy(trainer);
}

TESTS(gradients) = {
    {"parameters have names, shapes and memory", parameters},
    {"gradients between the halves of a step are those computed by hand, and may be changed", between_halves},
    {"the program's optimizer trains as Etude's does, clipped and scheduled", own_descent},
    {"its state goes into checkpoints with the program's", resumed_momentum},
    {"an optimizer that fails ends the training", failing},
    {NULL, NULL}};
