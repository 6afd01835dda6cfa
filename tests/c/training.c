/* Whole trainings, evaluations, predictions and saved models. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* The examples of two batches as a dataset. */
static float all_x[24], all_y[16];
static etude_dataset* two_batches(void) {
  for (int i = 0; i < 2; ++i) example_batch(i, all_x + 12 * i, all_y + 8 * i);
  const etude_tensor tensors[2] = {matrix(NULL, all_x, ETUDE_FLOAT32, 8, 3),
                                   matrix(NULL, all_y, ETUDE_FLOAT32, 8, 2)};
  etude_dataset* dataset = NULL;
  OK(etude_dataset_create(tensors, 2, &dataset));
  return dataset;
}

static double mean_loss(const struct line* line) {
  float x[12], y[8];
  struct line gradient;
  double loss = 0;
  for (int i = 0; i < 2; ++i) {
    example_batch(i, x, y);
    loss += line_loss(line, x, y, &gradient) / 2;
  }
  return loss;
}

static void datasets(void) {
  etude_options* options = descent(-1);
  set(options, "num_train_epochs", "3");
  set(options, "per_device_train_batch_size", "4");
  set(options, "train_sampling_strategy", "sequential");
  etude_dataset* dataset = two_batches();
  OK(etude_options_set_train_dataset(options, dataset));
  OK(etude_options_add_eval_dataset(options, "same", dataset));
  OK(etude_options_add_eval_dataset(options, "again", dataset));
  FAILS(etude_options_add_eval_dataset(options, "same", dataset), ETUDE_INVALID_ARGUMENT, "'same'");
  FAILS(etude_options_add_eval_dataset(options, NULL, dataset), ETUDE_INVALID_ARGUMENT, "without a name");
  etude_dataset_destroy(dataset);
  etude_trainer* trainer = made(linear, options);
  OK(etude_trainer_train(trainer, NULL));
  struct line line = first_line();
  for (int step = 0; step < 6; ++step) line_step(&line, step % 2, 0.25);
  check_line(trainer, &line);
  CHECK(number(trainer, "global_step") == 6);
  CHECK(number(trainer, "epoch") == 3);
  OK(etude_trainer_evaluate(trainer, NULL));
  NEAR(number(trainer, "eval_same_loss"), mean_loss(&line));
  NEAR(number(trainer, "eval_again_loss"), mean_loss(&line));
  const char* json = NULL;
  OK(etude_trainer_state(trainer, &json));
  CHECK(strstr(json, "\"global_step\": 6") != NULL);
  CHECK(strstr(json, "train_runtime") != NULL);
  etude_trainer_destroy(trainer);
}

static void evaluations(void) {
  etude_options* options = descent(2);
  set(options, "compute_metrics", "mae");
  etude_trainer* trainer = made(linear, options);
  FAILS(etude_trainer_evaluate(trainer, NULL), ETUDE_INVALID_ARGUMENT, "the options have no eval dataset");
  etude_dataset* dataset = two_batches();
  OK(etude_trainer_evaluate(trainer, dataset));
  struct line line = first_line();
  NEAR(number(trainer, "eval_loss"), mean_loss(&line));
  CHECK(number(trainer, "eval_mae") > 0);
  OK(etude_trainer_begin(trainer, NULL));
  steps(trainer, 0, 1);
  OK(etude_trainer_evaluate(trainer, dataset));
  line_step(&line, 0, 0.25);
  NEAR(number(trainer, "eval_loss"), mean_loss(&line));
  steps(trainer, 1, 2);
  OK(etude_trainer_finish(trainer));
  etude_dataset_destroy(dataset);
  etude_trainer_destroy(trainer);
}

/* The newest evaluation counts, whether the program or the training made it. */
static void newest_evaluation(void) {
  etude_options* options = descent(2);
  set(options, "eval_strategy", "steps");
  set(options, "eval_steps", "2");
  etude_dataset* dataset = two_batches();
  OK(etude_options_add_eval_dataset(options, NULL, dataset));
  etude_trainer* trainer = made(linear, options);
  struct line line = first_line();
  OK(etude_trainer_evaluate(trainer, NULL));
  OK(etude_trainer_begin(trainer, NULL));
  for (int i = 0; i < 2; ++i) {
    steps(trainer, i, i + 1);
    line_step(&line, i, 0.25);
    if (i == 0) OK(etude_trainer_evaluate(trainer, NULL));
    NEAR(number(trainer, "eval_loss"), mean_loss(&line));
  }
  OK(etude_trainer_finish(trainer));
  NEAR(number(trainer, "eval_loss"), mean_loss(&line));
  etude_tensor bias;
  OK(etude_trainer_parameter(trainer, "bias", &bias));
  ((float*)bias.data)[0] = 7, line.b[0] = 7;
  OK(etude_trainer_evaluate(trainer, NULL));
  NEAR(number(trainer, "eval_loss"), mean_loss(&line));
  etude_dataset_destroy(dataset);
  etude_trainer_destroy(trainer);
}

static void predictions(void) {
  etude_trainer* trainer = made(linear, NULL);
  float x[12], y[8], output[8];
  double columns[8];
  example_batch(0, x, y);
  const etude_tensor input = matrix(NULL, x, ETUDE_FLOAT32, 4, 3);
  static const int64_t strides[2] = {1, 4};
  etude_tensor outputs[1] = {matrix(NULL, output, ETUDE_FLOAT32, 4, 2)};
  OK(etude_trainer_predict(trainer, &input, 1, outputs, 1));
  outputs[0] = matrix(NULL, columns, ETUDE_FLOAT64, 4, 2);
  outputs[0].strides = strides;
  OK(etude_trainer_predict(trainer, &input, 1, outputs, 1));
  etude_tensor kept;
  OK(etude_trainer_output(trainer, 0, &kept));
  CHECK(kept.rank == 2 && kept.shape[0] == 4 && kept.shape[1] == 2 && kept.dtype == ETUDE_FLOAT32);
  const struct line line = first_line();
  for (int n = 0; n < 4; ++n)
    for (int j = 0; j < 2; ++j) {
      double expected = line.b[j];
      for (int k = 0; k < 3; ++k) expected += line.w[j][k] * (double)x[3 * n + k];
      NEAR(output[2 * n + j], expected);
      NEAR(columns[n + 4 * j], expected);
      NEAR(((const float*)kept.data)[2 * n + j], expected);
    }
  FAILS(etude_trainer_output(trainer, 1, &kept), ETUDE_INVALID_ARGUMENT, "index is 1");
  outputs[0] = matrix(NULL, output, ETUDE_FLOAT32, 2, 4);
  FAILS(etude_trainer_predict(trainer, &input, 1, outputs, 1), ETUDE_INVALID_DATA,
        "output 0 is float32 [2, 4]: must have the shape of the output, float32 [4, 2]");
  etude_tensor two[2] = {matrix(NULL, output, ETUDE_FLOAT32, 4, 2),
                         matrix(NULL, output, ETUDE_FLOAT32, 4, 2)};
  memset(output, 0, sizeof output);
  FAILS(etude_trainer_predict(trainer, &input, 1, two, 2), ETUDE_INVALID_DATA, "the model has 1");
  static const int64_t repeated[2] = {0, 1};
  two[0].strides = repeated;
  FAILS(etude_trainer_predict(trainer, &input, 1, two, 1), ETUDE_INVALID_DATA, "output 0 has the stride 0");
  for (int k = 0; k < 8; ++k) CHECK(output[k] == 0);
  FAILS(etude_trainer_predict(trainer, two, 1, NULL, 0), ETUDE_INVALID_DATA, "must be float32 [*, 3]");
  etude_trainer_destroy(trainer);
}

/* Dropout is off in a prediction, which draws no random numbers and leaves the training as it is. */
static void predictions_in_training(void) {
  float weights[2];
  for (int predicts = 0; predicts < 2; ++predicts) {
    etude_trainer* trainer = made(model_file("dropout.pt2"), descent(4));
    OK(etude_trainer_begin(trainer, NULL));
    for (int i = 0; i < 4; ++i) {
      float x[12], y[8], output[8];
      example_batch(i, x, y);
      const etude_tensor tensors[3] = {matrix("a", x, ETUDE_FLOAT32, 4, 2),
                                       matrix("b", x + 4, ETUDE_FLOAT32, 4, 2),
                                       matrix("labels", y, ETUDE_FLOAT32, 4, 2)};
      const etude_tensor result = matrix(NULL, output, ETUDE_FLOAT32, 4, 2);
      etude_tensor weight;
      OK(etude_trainer_parameter(trainer, "w", &weight));
      if (predicts) {
        OK(etude_trainer_predict(trainer, tensors, 2, &result, 1));
        for (int k = 0; k < 8; ++k)
          NEAR(output[k], (double)x[k] * (double)*(float*)weight.data + (double)x[4 + k]);
        FAILS(etude_trainer_predict(trainer, tensors, 3, &result, 1), ETUDE_INVALID_DATA,
              "tensors[2] has the name 'labels': must be one of a, b");
      }
      OK(etude_trainer_step(trainer, tensors, 3, NULL));
      weights[predicts] = *(float*)weight.data;
    }
    etude_trainer_destroy(trainer);
  }
  CHECK(weights[0] != 2);
  CHECK(weights[0] == weights[1]);
}

static void saved_models(void) {
  etude_trainer* trainer = made(linear, descent(3));
  OK(etude_trainer_begin(trainer, NULL));
  steps(trainer, 0, 3);
  OK(etude_trainer_finish(trainer));
  const char* folder = new_folder();
  OK(etude_trainer_save_model(trainer, folder));
  CHECK(exists(path_in(folder, "model.safetensors")));
  float saved[8], loaded[8];
  read_line(trainer, saved);
  etude_trainer_destroy(trainer);

  etude_options* options = descent(3);
  set(options, "weights", folder);
  trainer = made(linear, options);
  read_line(trainer, loaded);
  CHECK(!memcmp(saved, loaded, sizeof saved));
  FAILS(etude_trainer_save_model(trainer, "/dev/null/folder"), ETUDE_INVALID_FILE, "/dev/null");
  etude_trainer_destroy(trainer);

  etude_options* wrong = descent(3);
  set(wrong, "weights", "/nowhere/model.safetensors");
  trainer = NULL;
  FAILS(etude_trainer_create(linear, wrong, &trainer), ETUDE_INVALID_FILE, "/nowhere/model.safetensors");
  etude_options_destroy(wrong);
}

static void wrong_datasets(void) {
  etude_dataset* dataset = NULL;
  etude_tensor tensor = matrix("input", NULL, ETUDE_FLOAT32, 4, 3);
  FAILS(etude_dataset_create(&tensor, 1, &dataset), ETUDE_INVALID_DATA, "has no data");
  FAILS(etude_dataset_create(NULL, 0, &dataset), ETUDE_INVALID_ARGUMENT, "count is 0");
  float x[16] = {0};
  const etude_tensor wide = matrix("input", x, ETUDE_FLOAT32, 4, 4);
  OK(etude_dataset_create(&wide, 1, &dataset));
  etude_trainer* trainer = made(linear, descent(1));
  FAILS(etude_trainer_evaluate(trainer, dataset), ETUDE_INVALID_DATA, "must be float32 [*, 3]");
  etude_trainer_destroy(trainer);
  etude_options* options = descent(1);
  OK(etude_options_set_train_dataset(options, dataset));
  FAILS(etude_trainer_create(linear, options, &trainer), ETUDE_INVALID_DATA, "must be float32 [*, 3]");
  etude_options_destroy(options);
  etude_dataset_destroy(dataset);
  trainer = made(linear, descent(1));
  FAILS(etude_trainer_train(trainer, NULL), ETUDE_INVALID_ARGUMENT, "train_dataset is not set");
  etude_trainer_destroy(trainer);
}

TESTS(training) = {
    {"a dataset trains as its batches do, and is evaluated by name", datasets},
    {"an evaluation between steps has the loss and metrics of the current weights", evaluations},
    {"eval_loss is that of the newest evaluation", newest_evaluation},
    {"predictions are written to memory of any type and order", predictions},
    {"predictions leave a training as it is", predictions_in_training},
    {"a saved model is read back", saved_models},
    {"wrong datasets are refused", wrong_datasets},
    {NULL, NULL}};
