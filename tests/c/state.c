/* Trainings that end before they are finished, and resume from their checkpoint. */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* A field that the program advances, and from which it makes its batches. */
struct field {
  double values[6];
  int64_t steps;
};

static void advance(struct field* field) {
  const double first = field->values[0];
  for (int k = 0; k < 5; ++k) field->values[k] = 0.75 * field->values[k] + 0.25 * field->values[k + 1];
  field->values[5] = 0.75 * field->values[5] + 0.25 * first + 0.01;
  ++field->steps;
}

/* A step with dropout on a batch made from the field. */
static etude_status step_on(etude_trainer* trainer, const struct field* field, int32_t* should_stop) {
  double labels[4];
  for (int k = 0; k < 4; ++k) labels[k] = field->values[k] * field->values[k + 1];
  const etude_tensor tensors[3] = {matrix("a", (void*)field->values, ETUDE_FLOAT64, 2, 2),
                                   matrix("b", (void*)(field->values + 2), ETUDE_FLOAT64, 2, 2),
                                   matrix("labels", labels, ETUDE_FLOAT64, 2, 2)};
  return etude_trainer_step(trainer, tensors, 3, should_stop);
}

static etude_trainer* trainer_with(struct field* field, const char* folder) {
  etude_options* options = descent(40);
  set(options, "optim", "adamw_torch");
  set(options, "output_dir", folder);
  set(options, "save_strategy", "steps");
  set(options, "save_steps", "3");
  set(options, "save_total_limit", "2");
  static const int64_t shape[1] = {6};
  etude_tensor values = {0}, count = {0};
  values.name = "field";
  values.data = field->values;
  values.shape = shape;
  values.rank = 1;
  values.dtype = ETUDE_FLOAT64;
  count.name = "steps";
  count.data = &field->steps;
  count.dtype = ETUDE_INT64;
  OK(etude_options_add_state(options, &values));
  OK(etude_options_add_state(options, &count));
  return made(model_file("dropout.pt2"), options);
}

static const struct field first_field = {{1, -0.5, 0.25, 2, -1, 0.75}, 0};

/* Trains to the end, or to `last`, and writes a line for each step. */
static void run(const char* folder, int last, int writes, struct field* field, float* weight) {
  *field = first_field;
  etude_trainer* trainer = trainer_with(field, folder);
  OK(etude_trainer_begin(trainer, "newest"));
  CHECK((double)field->steps == number(trainer, "global_step"));
  for (int32_t should_stop = 0; !should_stop && field->steps < last;) {
    advance(field);
    OK(step_on(trainer, field, &should_stop));
    if (writes && write(1, ".", 1) != 1) abort();
  }
  etude_tensor parameter;
  OK(etude_trainer_parameter(trainer, "w", &parameter));
  *weight = *(float*)parameter.data;
  if (last == 40) OK(etude_trainer_finish(trainer));
  etude_trainer_destroy(trainer);
}

int stepped_with_field(const char* folder) {
  struct field field;
  float weight;
  run(folder, 40, 1, &field, &weight);
  write_bytes(path_in(folder, "result"), (const char*)&weight, sizeof weight);
  write_bytes(path_in(folder, "field"), (const char*)&field, sizeof field);
  return 0;
}

static void resumed(void) {
  struct field whole, parts;
  float weight, resumed_weight;
  run(new_folder(), 40, 0, &whole, &weight);
  CHECK(weight != 2);
  const char* folder = new_folder();
  run(folder, 10, 0, &parts, &resumed_weight);
  CHECK(parts.steps == 10);
  run(folder, 23, 0, &parts, &resumed_weight);
  run(folder, 40, 0, &parts, &resumed_weight);
  CHECK(!memcmp(&whole, &parts, sizeof whole));
  CHECK(weight == resumed_weight);
}

/* ETUDE_KILLS in the environment: how often. */
static void killed(void) {
  const char* many = getenv("ETUDE_KILLS");
  const int kills = many ? atoi(many) : 3;
  struct field whole;
  float weight;
  run(new_folder(), 40, 0, &whole, &weight);
  const char* folder = new_folder();
  for (int i = 0; i < kills; ++i) {
    int output;
    char dot;
    const int child = again("stepped_with_field", folder, &output);
    /* Past the next checkpoint, at a moment of the step that depends on the machine. */
    for (int k = 0; k < 5 + i % 3 && read(output, &dot, 1) == 1; ++k) {
    }
    usleep((unsigned)(i * 137 % 1500));
    kill(child, SIGKILL);
    close(output);
    waitpid(child, NULL, 0);
  }
  int output, status = -1;
  char dot;
  const int child = again("stepped_with_field", folder, &output);
  while (read(output, &dot, 1) == 1) {
  }
  waitpid(child, &status, 0);
  close(output);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  size_t size = 0;
  char* result = read_bytes(path_in(folder, "result"), &size);
  char* field = read_bytes(path_in(folder, "field"), &size);
  CHECK(result && !memcmp(result, &weight, sizeof weight));
  CHECK(field && !memcmp(field, &whole, sizeof whole));
  free(result);
  free(field);
}

static void wrong_checkpoints(void) {
  struct field field = first_field;
  const char* folder = new_folder();
  etude_trainer* trainer = trainer_with(&field, folder);
  FAILS(etude_trainer_begin(trainer, "/nowhere/checkpoint-3"), ETUDE_INVALID_FILE, "/nowhere/checkpoint-3");
  FAILS(etude_trainer_begin(trainer, ""), ETUDE_INVALID_ARGUMENT, "checkpoint is ''");
  OK(etude_trainer_begin(trainer, NULL));
  for (int i = 0; i < 3; ++i) OK(step_on(trainer, &field, NULL));
  etude_trainer_destroy(trainer);

  etude_options* options = descent(40);
  set(options, "output_dir", folder);
  static const int64_t shape[1] = {5};
  double fewer[5] = {1, 2, 3, 4, 5};
  int64_t steps_done = 7;
  etude_tensor state = {0};
  state.name = "steps";
  state.data = &steps_done;
  state.dtype = ETUDE_INT64;
  OK(etude_options_add_state(options, &state));
  FAILS(etude_options_add_state(options, &state), ETUDE_INVALID_ARGUMENT,
        "a state 'steps' was already added");
  state.name = "field";
  state.data = fewer;
  state.shape = shape;
  state.rank = 1;
  state.dtype = ETUDE_FLOAT64;
  static const int64_t no_stride[1] = {0};
  state.strides = no_stride;
  FAILS(etude_options_add_state(options, &state), ETUDE_INVALID_DATA, "the state 'field' has the stride 0");
  state.strides = NULL;
  OK(etude_options_add_state(options, &state));
  state.name = NULL;
  FAILS(etude_options_add_state(options, &state), ETUDE_INVALID_ARGUMENT, "name is null");
  trainer = made(model_file("dropout.pt2"), options);
  FAILS(etude_trainer_begin(trainer, "newest"), ETUDE_INVALID_FILE,
        "'field' is float64 [6] in the checkpoint: must be float64 [5]");
  CHECK(fewer[0] == 1);
  etude_trainer_destroy(trainer);
}

static void asked_for(void) {
  struct field field = first_field;
  const char* folder = new_folder();
  etude_trainer* trainer = trainer_with(&field, folder);
  OK(etude_trainer_begin(trainer, NULL));
  advance(&field);
  OK(step_on(trainer, &field, NULL));
  OK(etude_trainer_save_checkpoint(trainer));
  CHECK(exists(path_in(folder, "checkpoint-1/trainer_state.json")));
  const struct field then = field;
  advance(&field);
  etude_trainer_destroy(trainer);
  trainer = trainer_with(&field, folder);
  OK(etude_trainer_begin(trainer, path_in(folder, "checkpoint-1")));
  CHECK(!memcmp(&field, &then, sizeof then));
  etude_trainer_destroy(trainer);
}

TESTS(state) = {
    {"a training in parts equals an unbroken one, with the program's field, bit for bit", resumed},
    {"a killed training resumes to the same end, bit for bit", killed},
    {"wrong checkpoints and states are refused", wrong_checkpoints},
    {"a checkpoint that the program requests has its state", asked_for},
    {NULL, NULL}};
