/* How the program's memory becomes tensors of the model. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* The loss of the first step on these tensors. */
static double first_loss(const etude_tensor* tensors, int32_t count) {
  etude_trainer* trainer = made(linear, descent(10));
  OK(etude_trainer_begin(trainer, NULL));
  OK(etude_trainer_step(trainer, tensors, count, NULL));
  const double loss = number(trainer, "loss");
  etude_trainer_destroy(trainer);
  return loss;
}

static double expected_loss(int i) {
  float x[12], y[8];
  struct line gradient;
  const struct line line = first_line();
  example_batch(i, x, y);
  return line_loss(&line, x, y, &gradient);
}

static void names_and_positions(void) {
  const etude_tensor* two = batch(0);
  NEAR(first_loss(two, 2), expected_loss(0));
  etude_tensor swapped[2] = {two[1], two[0]};
  NEAR(first_loss(swapped, 2), expected_loss(0));
  etude_tensor unnamed[2] = {two[0], two[1]};
  unnamed[0].name = unnamed[1].name = NULL;
  NEAR(first_loss(unnamed, 2), expected_loss(0));
}

static void other_types(void) {
  float x[12], y[8];
  double wide_x[12], wide_y[8];
  example_batch(1, x, y);
  for (int k = 0; k < 12; ++k) wide_x[k] = x[k];
  for (int k = 0; k < 8; ++k) wide_y[k] = y[k];
  const etude_tensor tensors[2] = {matrix("input", wide_x, ETUDE_FLOAT64, 4, 3),
                                   matrix("labels", wide_y, ETUDE_FLOAT64, 4, 2)};
  NEAR(first_loss(tensors, 2), expected_loss(1));
}

static void columns_first(void) {
  float x[12], y[8], fortran_x[12], fortran_y[8];
  example_batch(2, x, y);
  for (int n = 0; n < 4; ++n) {
    for (int k = 0; k < 3; ++k) fortran_x[n + 4 * k] = x[3 * n + k];
    for (int j = 0; j < 2; ++j) fortran_y[n + 4 * j] = y[2 * n + j];
  }
  static const int64_t strides[2] = {1, 4};
  etude_tensor tensors[2] = {matrix("input", fortran_x, ETUDE_FLOAT32, 4, 3),
                             matrix("labels", fortran_y, ETUDE_FLOAT32, 4, 2)};
  tensors[0].strides = tensors[1].strides = strides;
  NEAR(first_loss(tensors, 2), expected_loss(2));
}

/* Pairs of steps on the same memory with other contents. Each pair describes the memory differently. With
 * copied, each step has memory of its own. */
static void steps_on_memory(int copied, double losses[12]) {
  static const int64_t columns_first[2] = {1, 4}, few[2] = {2, 2};
  float x[12][16], y[12][8];
  double wide[12][8];
  etude_trainer* trainer = made(model_file("dropout.pt2"), descent(20));
  OK(etude_trainer_begin(trainer, NULL));
  for (int i = 0; i < 12; ++i) {
    float* a = x[copied ? i : 0];
    float* labels = y[copied ? i : 0];
    double* wide_a = wide[copied ? i : 0];
    for (int k = 0; k < 16; ++k) a[k] = (float)(k * k % 7 + i) / 8;
    for (int k = 0; k < 8; ++k) wide_a[k] = (double)(k + 2 * i) / 8;
    for (int k = 0; k < 8; ++k) labels[k] = (float)(k % 3) / 2;
    etude_tensor tensors[3] = {matrix("a", a, ETUDE_FLOAT32, 4, 2), matrix("b", a + 8, ETUDE_FLOAT32, 4, 2),
                               matrix("labels", labels, ETUDE_FLOAT32, 4, 2)};
    const int pair = i / 2;
    if (pair == 1) {
      tensors[0].name = "b";
      tensors[1].name = "a";
    }
    if (pair == 2) tensors[0].strides = columns_first;
    if (pair == 3) tensors[0].shape = tensors[1].shape = tensors[2].shape = few;
    if (pair == 4) tensors[0].name = tensors[1].name = tensors[2].name = NULL;
    if (pair == 5) tensors[0] = matrix("a", wide_a, ETUDE_FLOAT64, 4, 2);
    OK(etude_trainer_step(trainer, tensors, 3, NULL));
    losses[i] = number(trainer, "loss");
  }
  etude_trainer_destroy(trainer);
}

static void described_differently(void) {
  double losses[2][12];
  steps_on_memory(0, losses[0]);
  steps_on_memory(1, losses[1]);
  CHECK(memcmp(losses[0], losses[1], sizeof losses[0]) == 0);
  for (int i = 1; i < 12; ++i) CHECK(losses[0][i] != losses[0][i - 1]);
}

/* Tries one wrong tensor after another in the same training, after a step on valid ones in the same memory.
 * The training learns as by hand. */
static void wrong_tensors(void) {
  etude_trainer* trainer = made(linear, descent(100));
  struct line line = first_line();
  OK(etude_trainer_begin(trainer, NULL));
  etude_tensor t[3] = {batch(0)[0]};
  FAILS(etude_trainer_step(trainer, t, 0, NULL), ETUDE_INVALID_DATA, "input, labels are missing");
#define WRONG(count, change, part)                          \
  memcpy(t, batch(0), 2 * sizeof *t);                       \
  OK(etude_trainer_step(trainer, t, 2, NULL));              \
  NEAR(number(trainer, "loss"), line_step(&line, 0, 0.25)); \
  t[2] = t[1];                                              \
  change;                                                   \
  FAILS(etude_trainer_step(trainer, t, count, NULL), ETUDE_INVALID_DATA, part)
  static int64_t rows[2] = {4, 4}, few[2] = {3, 2}, negative[2] = {-4, 3}, huge[2] = {INT64_MAX / 2, 3};
  static int64_t back[2] = {-3, 1};
  WRONG(2, t[0].name = "inputs",
        "tensors[0] has the name 'inputs': must be one of input, labels; did you mean 'input'?");
  WRONG(1, , "labels is missing: the tensors must be input, labels");
  WRONG(0, , "input, labels are missing");
  WRONG(3, , "label 'labels' is given twice");
  WRONG(3, t[2].name = NULL, "there are more than 2 tensors: they must be input, labels");
  WRONG(2, t[0].shape = rows, "input 'input' is float32 [4, 4]: must be float32 [*, 3]");
  WRONG(2, t[0].rank = 1, "input 'input' is float32 [4]: must be float32 [*, 3]");
  WRONG(2, t[0].rank = -1, "has the rank -1");
  WRONG(2, t[0].rank = 65, "has the rank 65");
  WRONG(2, t[0].shape = NULL, "input 'input' has no shape");
  WRONG(2, t[0].data = NULL, "input 'input' has no data");
  WRONG(2, t[0].shape = negative, "has the size -4");
  WRONG(2, t[0].shape = huge, "too large for memory");
  WRONG(2, t[0].strides = back, "has the stride -3");
  WRONG(2, t[1].shape = few, "3");
  WRONG(2, t[0].dtype = ETUDE_INT32,
        "input 'input' is int32 [4, 3]: must be float32, or another floating-point type");
  WRONG(2, t[0].dtype = 10, "has the dtype 10");
  WRONG(2, t[0].device_type = 2, "has the device_type 2");
  WRONG(2, (t[0].device_type = ETUDE_CUDA, t[0].device_index = 1000), "is on GPU 1000");
  WRONG(2, t[0].name = "a\xff", "tensors[0] has the name 'a\xef\xbf\xbd': must be one of input, labels");
  FAILS(etude_trainer_step(trainer, NULL, 2, NULL), ETUDE_INVALID_ARGUMENT, "tensors is null");
  FAILS(etude_trainer_step(trainer, batch(0), -1, NULL), ETUDE_INVALID_ARGUMENT, "count is -1");

  OK(etude_trainer_step(trainer, batch(0), 2, NULL));
  NEAR(number(trainer, "loss"), line_step(&line, 0, 0.25));
  check_line(trainer, &line);
  etude_trainer_destroy(trainer);
}

/* Classes of every integer type are classes; the loss is then -log softmax. */
static void classes(void) {
  int8_t narrow[4] = {0, 1, 1, 0};
  int32_t usual[4] = {0, 1, 1, 0};
  int64_t wide[4] = {0, 1, 1, 0};
  struct {
    void* data;
    int32_t dtype;
  } each[3] = {{narrow, ETUDE_INT8}, {usual, ETUDE_INT32}, {wide, ETUDE_INT64}};
  double losses[3];
  for (int i = 0; i < 3; ++i) {
    etude_options* options = descent(10);
    set(options, "loss", "cross_entropy");
    etude_trainer* trainer = made(linear, options);
    OK(etude_trainer_begin(trainer, NULL));
    etude_tensor tensors[2] = {batch(0)[0], matrix("labels", each[i].data, each[i].dtype, 4, 1)};
    tensors[1].rank = 1;
    OK(etude_trainer_step(trainer, tensors, 2, NULL));
    losses[i] = number(trainer, "loss");
    etude_trainer_destroy(trainer);
  }
  CHECK(losses[0] == losses[2]);
  CHECK(losses[1] == losses[2]);
  CHECK(losses[2] > 0);
}

TESTS(tensors) = {
    {"inputs and labels are found by name, in any order, or by position", names_and_positions},
    {"float64 is converted to the model's float32", other_types},
    {"Fortran's order is given by strides", columns_first},
    {"steps see what the tensors describe, even if it is the last step's memory", described_differently},
    {"a wrong tensor is named, and the training continues as if it hadn't been passed", wrong_tensors},
    {"integers of any size are classes", classes},
    {NULL, NULL}};
