/* A training in the program's own loop. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

static void by_hand(void) {
  etude_trainer* trainer = made(linear, descent(5));
  struct line line = first_line();
  int32_t should_stop = -1;
  OK(etude_trainer_begin(trainer, NULL));
  for (int i = 0; i < 5; ++i) {
    OK(etude_trainer_step(trainer, batch(i), 2, &should_stop));
    NEAR(number(trainer, "loss"), line_step(&line, i, 0.25));
    CHECK(should_stop == (i == 4));
    CHECK(number(trainer, "global_step") == i + 1);
    check_line(trainer, &line);
  }
  OK(etude_trainer_finish(trainer));
  check_line(trainer, &line);
  CHECK(number(trainer, "global_step") == 5);
  CHECK(number(trainer, "max_steps") == 5);
  CHECK(number(trainer, "epoch") == 1);
  CHECK(number(trainer, "train_runtime") > 0);
  etude_trainer_destroy(trainer);
}

/* batch() overwrites its arrays, so the first batch of a group must have been copied. */
static void accumulation(void) {
  etude_options* options = descent(2);
  set(options, "gradient_accumulation_steps", "2");
  etude_trainer* trainer = made(linear, options);
  struct line line = first_line();
  OK(etude_trainer_begin(trainer, NULL));
  for (int update = 0; update < 2; ++update) {
    struct line halves[2] = {line, line};
    double loss = 0;
    for (int i = 0; i < 2; ++i) {
      loss += line_step(&halves[i], 2 * update + i, 0.25) / 2;
      OK(etude_trainer_step(trainer, batch(2 * update + i), 2, NULL));
      CHECK(number(trainer, "global_step") == update + i);
    }
    for (int j = 0; j < 2; ++j) {
      for (int k = 0; k < 3; ++k) line.w[j][k] = (halves[0].w[j][k] + halves[1].w[j][k]) / 2;
      line.b[j] = (halves[0].b[j] + halves[1].b[j]) / 2;
    }
    NEAR(number(trainer, "loss"), loss);
    check_line(trainer, &line);
  }
  OK(etude_trainer_finish(trainer));
  etude_trainer_destroy(trainer);
}

static void not_copied(void) {
  etude_trainer* trainer = made(linear, descent(2));
  OK(etude_trainer_begin(trainer, NULL));
  float* x = malloc(12 * sizeof *x);
  float* y = malloc(8 * sizeof *y);
  example_batch(0, x, y);
  etude_tensor tensors[2] = {matrix("input", x, ETUDE_FLOAT32, 4, 3),
                             matrix("labels", y, ETUDE_FLOAT32, 4, 2)};
  OK(etude_trainer_step(trainer, tensors, 2, NULL));
  /* A sanitizer or valgrind finds a use of freed memory. */
  free(x);
  free(y);
  OK(etude_trainer_step(trainer, batch(1), 2, NULL));
  OK(etude_trainer_finish(trainer));
  struct line line = first_line();
  line_step(&line, 0, 0.25);
  line_step(&line, 1, 0.25);
  check_line(trainer, &line);
  etude_trainer_destroy(trainer);
}

/* A dropout model, so that both must draw the same random numbers. */
static void by_halves(void) {
  float weights[2], losses[2];
  for (int halves = 0; halves < 2; ++halves) {
    etude_options* options = descent(20);
    set(options, "max_grad_norm", "0.5");
    set(options, "optim", "adamw_torch");
    etude_trainer* trainer = made(model_file("dropout.pt2"), options);
    OK(etude_trainer_begin(trainer, NULL));
    for (int i = 0; i < 20; ++i) {
      float x[12], y[8];
      example_batch(i, x, y);
      const etude_tensor tensors[3] = {matrix("a", x, ETUDE_FLOAT32, 4, 2),
                                       matrix("b", x + 4, ETUDE_FLOAT32, 4, 2),
                                       matrix("labels", y, ETUDE_FLOAT32, 4, 2)};
      if (halves) {
        int32_t should_stop = -1;
        OK(etude_trainer_backward(trainer, tensors, 3));
        OK(etude_trainer_update(trainer, &should_stop));
        CHECK(should_stop == (i == 19));
      } else {
        OK(etude_trainer_step(trainer, tensors, 3, NULL));
      }
    }
    losses[halves] = (float)number(trainer, "loss");
    OK(etude_trainer_finish(trainer));
    etude_tensor weight;
    OK(etude_trainer_parameter(trainer, "w", &weight));
    weights[halves] = *(float*)weight.data;
    etude_trainer_destroy(trainer);
  }
  CHECK(weights[0] != 2);
  CHECK(weights[0] == weights[1]);
  CHECK(losses[0] == losses[1]);
}

/* The mean of the gradients of two batches, which is that of a batch of both. */
static void backward_twice(void) {
  etude_options* options = descent(1);
  set(options, "gradient_accumulation_steps", "2");
  etude_trainer* trainer = made(linear, options);
  OK(etude_trainer_begin(trainer, NULL));
  OK(etude_trainer_backward(trainer, batch(0), 2));
  OK(etude_trainer_update(trainer, NULL));
  OK(etude_trainer_backward(trainer, batch(1), 2));
  OK(etude_trainer_update(trainer, NULL));
  OK(etude_trainer_finish(trainer));
  struct line halves[2] = {first_line(), first_line()}, line;
  line_step(&halves[0], 0, 0.25);
  line_step(&halves[1], 1, 0.25);
  for (int j = 0; j < 2; ++j) {
    for (int k = 0; k < 3; ++k) line.w[j][k] = (halves[0].w[j][k] + halves[1].w[j][k]) / 2;
    line.b[j] = (halves[0].b[j] + halves[1].b[j]) / 2;
  }
  check_line(trainer, &line);
  etude_trainer_destroy(trainer);
}

TESTS(steps) = {{"losses and weights are those of a loop by hand", by_hand},
                {"accumulated batches are copied, and their gradients averaged", accumulation},
                {"a batch's memory may be freed after its step", not_copied},
                {"backward and update make the same step, bit for bit", by_halves},
                {"the halves of a step add up to an update", backward_twice},
                {NULL, NULL}};
