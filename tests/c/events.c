/* Callbacks as functions of the program. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

struct heard {
  int count;
  int steps_seen[16];
  double losses[16];
  char last_text[256];
  int32_t result;
};

static int32_t count(const etude_event* event, void* user) {
  struct heard* heard = user;
  double step = -1;
  OK(etude_event_number(event, "global_step", &step));
  heard->steps_seen[heard->count++ % 16] = (int)step;
  return heard->result;
}

static int32_t note_loss(const etude_event* event, void* user) {
  struct heard* heard = user;
  CHECK(!strcmp(etude_event_name(event), "StepEnd"));
  OK(etude_event_number(event, "loss", &heard->losses[heard->count++ % 16]));
  return 0;
}

static void by_either_name(void) {
  etude_trainer* trainer = made(linear, descent(4));
  struct heard ours = {0}, theirs = {0}, losses = {0}, ends = {0}, substeps = {0};
  OK(etude_trainer_on(trainer, "StepEnd", count, &ours));
  OK(etude_trainer_on(trainer, "on_step_end", count, &theirs));
  OK(etude_trainer_on(trainer, "StepEnd", note_loss, &losses));
  OK(etude_trainer_on(trainer, "TrainEnd", count, &ends));
  OK(etude_trainer_on(trainer, "on_substep_end", count, &substeps));
  OK(etude_trainer_begin(trainer, NULL));
  struct line line = first_line();
  double expected[4];
  for (int i = 0; i < 4; ++i) expected[i] = line_step(&line, i, 0.25);
  steps(trainer, 0, 4);
  CHECK(ends.count == 0);
  OK(etude_trainer_finish(trainer));
  CHECK(ours.count == 4 && theirs.count == 4 && ends.count == 1 && substeps.count == 0);
  for (int i = 0; i < 4; ++i) {
    CHECK(ours.steps_seen[i] == i + 1);
    NEAR(losses.losses[i], expected[i]);
  }
  etude_trainer_destroy(trainer);
}

static void wrong_events(void) {
  etude_trainer* trainer = made(linear, descent(4));
  FAILS(etude_trainer_on(trainer, "StepEn", count, NULL), ETUDE_INVALID_ARGUMENT, "did you mean 'StepEnd'?");
  FAILS(etude_trainer_on(trainer, "on_step_ended", count, NULL), ETUDE_INVALID_ARGUMENT,
        "did you mean 'StepEnd'?");
  FAILS(etude_trainer_on(trainer, "on_init_end", count, NULL), ETUDE_INVALID_ARGUMENT,
        "TrainBegin comes next");
  FAILS(etude_trainer_on(trainer, "StepEnd", NULL, NULL), ETUDE_INVALID_ARGUMENT, "callback is null");
  etude_trainer_destroy(trainer);
}

/* A number and a text of an event, and some that it doesn't have. */
static int32_t read_log(const etude_event* event, void* user) {
  struct heard* heard = user;
  double loss = -1, none = -1;
  if (etude_event_number(event, "loss", &loss) == ETUDE_OK) heard->losses[heard->count++ % 16] = loss;
  FAILS(etude_event_number(event, "eval_los", &none), ETUDE_INVALID_ARGUMENT,
        "there is no number 'eval_los'");
  const char* text = NULL;
  FAILS(etude_event_text(event, "checkpoint", &text), ETUDE_INVALID_ARGUMENT, "Log has no text 'checkpoint'");
  return 0;
}

static int32_t read_checkpoint(const etude_event* event, void* user) {
  struct heard* heard = user;
  const char* text = NULL;
  OK(etude_event_text(event, "checkpoint", &text));
  strncpy(heard->last_text, text, sizeof heard->last_text - 1);
  ++heard->count;
  return 0;
}

static int32_t read_reason(const etude_event* event, void* user) {
  struct heard* heard = user;
  const char* text = NULL;
  OK(etude_event_text(event, "reason", &text));
  strncpy(heard->last_text, text, sizeof heard->last_text - 1);
  ++heard->count;
  return 0;
}

static int32_t ask(const etude_event* event, void* user) {
  const int32_t* requests = user;
  double step = 0;
  OK(etude_event_number(event, "global_step", &step));
  if (requests[(int)step] >= 0) OK(etude_trainer_request(etude_event_trainer(event), requests[(int)step]));
  return 0;
}

static void requests(void) {
  etude_options* options = descent(10);
  const char* folder = new_folder();
  set(options, "output_dir", folder);
  set(options, "save_strategy", "steps");
  set(options, "save_steps", "1000");
  set(options, "logging_steps", "1000");
  etude_dataset* dataset = NULL;
  OK(etude_dataset_create(batch(0), 2, &dataset));
  OK(etude_options_add_eval_dataset(options, NULL, dataset));
  etude_dataset_destroy(dataset);
  etude_trainer* trainer = made(linear, options);
  int32_t at[11] = {-1, ETUDE_SAVE, ETUDE_EVALUATE, ETUDE_LOG, ETUDE_STOP, -1, -1, -1, -1, -1, -1};
  struct heard logs = {0}, saves = {0}, evaluations = {0}, stops = {0};
  OK(etude_trainer_on(trainer, "StepEnd", ask, at));
  OK(etude_trainer_on(trainer, "Log", read_log, &logs));
  OK(etude_trainer_on(trainer, "Save", read_checkpoint, &saves));
  OK(etude_trainer_on(trainer, "on_evaluate", count, &evaluations));
  OK(etude_trainer_on(trainer, "Stop", read_reason, &stops));
  OK(etude_trainer_begin(trainer, NULL));
  int32_t should_stop = 0;
  for (int i = 0; i < 4; ++i) {
    CHECK(!should_stop);
    OK(etude_trainer_step(trainer, batch(i), 2, &should_stop));
    CHECK(saves.count == 1);
    CHECK(evaluations.count == (i >= 1));
    CHECK(logs.count == (i >= 1) + (i >= 2)); /* that of the evaluation, and that of the losses */
  }
  CHECK(should_stop);
  CHECK(strstr(saves.last_text, "checkpoint-1") != NULL);
  CHECK(exists(saves.last_text));
  struct line line = first_line();
  double loss = 0;
  for (int i = 0; i < 3; ++i) loss += line_step(&line, i, 0.25) / 3;
  NEAR(logs.losses[1], loss);
  FAILS(etude_trainer_step(trainer, batch(5), 2, NULL), ETUDE_WRONG_CALL, "must be etude_trainer_finish");
  OK(etude_trainer_finish(trainer));
  CHECK(stops.count == 1 && !strcmp(stops.last_text, "the program requested it"));
  FAILS(etude_trainer_request(trainer, 5), ETUDE_INVALID_ARGUMENT, "request is 5");
  etude_trainer_destroy(trainer);
}

static int32_t note_error(const etude_event* event, void* user) {
  struct heard* heard = user;
  const char* text = NULL;
  OK(etude_event_text(event, "error", &text));
  strncpy(heard->last_text, text, sizeof heard->last_text - 1);
  ++heard->count;
  return 0;
}

static void failing(void) {
  etude_trainer* trainer = made(linear, descent(4));
  struct heard fails = {0}, errors = {0}, ends = {0};
  OK(etude_trainer_on(trainer, "OptimizerStep", count, &fails));
  OK(etude_trainer_on(trainer, "TrainError", note_error, &errors));
  OK(etude_trainer_on(trainer, "TrainEnd", count, &ends));
  OK(etude_trainer_begin(trainer, NULL));
  steps(trainer, 0, 1);
  fails.result = 42;
  FAILS(etude_trainer_step(trainer, batch(1), 2, NULL), ETUDE_FAILED,
        "callback of OptimizerStep returned 42");
  CHECK(errors.count == 1 && strstr(errors.last_text, "returned 42"));
  CHECK(ends.count == 1);
  FAILS(etude_trainer_step(trainer, batch(1), 2, NULL), ETUDE_WRONG_CALL, "no training is under way");
  FAILS(etude_trainer_finish(trainer), ETUDE_WRONG_CALL, "no training is under way");
  fails.result = 0;
  OK(etude_trainer_begin(trainer, NULL));
  steps(trainer, 0, 4);
  OK(etude_trainer_finish(trainer));
  CHECK(ends.count == 2);
  etude_trainer_destroy(trainer);
}

static int32_t call_others(const etude_event* event, void* user) {
  struct heard* heard = user;
  etude_trainer* trainer = etude_event_trainer(event);
  double value;
  const char* text;
  etude_tensor tensor;
  int64_t parameters = 0;
  OK(etude_trainer_number(trainer, "max_steps", &value));
  OK(etude_trainer_state(trainer, &text));
  OK(etude_trainer_parameter_count(trainer, &parameters));
  CHECK(parameters == 2);
  OK(etude_trainer_parameter_name(trainer, 0, &text));
  CHECK(!strcmp(text, "weight"));
  OK(etude_trainer_parameter(trainer, "bias", &tensor));
  OK(etude_trainer_gradient(trainer, "bias", &tensor));
  OK(etude_trainer_save_model(trainer, heard->last_text));
#define REFUSED(call) FAILS(call, ETUDE_WRONG_CALL, "was called in a callback of the same trainer")
  REFUSED(etude_trainer_step(trainer, batch(0), 2, NULL));
  REFUSED(etude_trainer_backward(trainer, batch(0), 2));
  REFUSED(etude_trainer_update(trainer, NULL));
  REFUSED(etude_trainer_begin(trainer, NULL));
  REFUSED(etude_trainer_finish(trainer));
  REFUSED(etude_trainer_train(trainer, NULL));
  REFUSED(etude_trainer_evaluate(trainer, NULL));
  REFUSED(etude_trainer_predict(trainer, batch(0), 1, NULL, 0));
  REFUSED(etude_trainer_save_checkpoint(trainer));
  etude_trainer_destroy(trainer);
  ++heard->count;
  return 0;
}

static void calls_in_callbacks(void) {
  etude_trainer* trainer = made(linear, descent(2));
  struct heard heard = {0};
  strncpy(heard.last_text, new_folder(), sizeof heard.last_text - 1);
  OK(etude_trainer_on(trainer, "OptimizerStep", call_others, &heard));
  OK(etude_trainer_begin(trainer, NULL));
  steps(trainer, 0, 2);
  OK(etude_trainer_finish(trainer));
  CHECK(heard.count == 2);
  CHECK(exists(path_in(heard.last_text, "model.safetensors")));
  struct line line = first_line();
  for (int i = 0; i < 2; ++i) line_step(&line, i, 0.25);
  check_line(trainer, &line);
  etude_trainer_destroy(trainer);
}

/* A trainer that is being destroyed is still whole, and can't be destroyed a second time. */
static int32_t look_and_destroy(const etude_event* event, void* user) {
  etude_trainer* trainer = etude_event_trainer(event);
  const char* json = NULL;
  struct heard* heard = user;
  heard->losses[heard->count++ % 16] = number(trainer, "loss");
  OK(etude_trainer_state(trainer, &json));
  CHECK(strstr(json, "\"global_step\": 1") != NULL);
  FAILS(etude_trainer_finish(trainer), ETUDE_WRONG_CALL, "in a callback of the same trainer");
  etude_trainer_destroy(trainer);
  return 0;
}

static void destroyed(void) {
  etude_trainer* trainer = made(linear, descent(4));
  struct heard ends = {0};
  OK(etude_trainer_on(trainer, "TrainEnd", look_and_destroy, &ends));
  OK(etude_trainer_begin(trainer, NULL));
  steps(trainer, 0, 1);
  etude_trainer_destroy(trainer);
  CHECK(ends.count == 1);
  struct line line = first_line();
  NEAR(ends.losses[0], line_step(&line, 0, 0.25));
  etude_trainer_destroy(NULL);
}

TESTS(events) = {{"callbacks are called by Etude's names of events and by Hugging Face's", by_either_name},
                 {"wrong events are refused", wrong_events},
                 {"requests are honoured, and events have numbers and texts", requests},
                 {"a callback that fails ends the training, and another can begin", failing},
                 {"callbacks may read and save, but not train", calls_in_callbacks},
                 {"a trainer that is destroyed raises the end events", destroyed},
                 {NULL, NULL}};
