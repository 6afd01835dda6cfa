/* Wrong calls: each gets a status, and nothing else happens. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static void nulls(void) {
  etude_trainer* trainer = made(linear, descent(2));
  etude_options* options = descent(2);
  etude_tensor tensor;
  double value;
  int64_t count;
  const char* text;
#define NULLED(call, part) FAILS(call, ETUDE_INVALID_ARGUMENT, part " is null")
  NULLED(etude_options_create(NULL), "options");
  NULLED(etude_options_set(NULL, "seed", "1"), "options");
  NULLED(etude_options_set(options, NULL, "1"), "name");
  NULLED(etude_options_set(options, "seed", NULL), "value");
  NULLED(etude_options_set_json(NULL, "{}"), "options");
  NULLED(etude_options_set_json(options, NULL), "json");
  NULLED(etude_options_set_train_dataset(NULL, NULL), "options");
  NULLED(etude_options_set_train_dataset(options, NULL), "dataset");
  NULLED(etude_options_add_eval_dataset(NULL, "a", NULL), "options");
  NULLED(etude_options_add_eval_dataset(options, "a", NULL), "dataset");
  NULLED(etude_options_add_state(NULL, NULL), "options");
  NULLED(etude_options_add_state(options, NULL), "state");
  NULLED(etude_options_set_optimizer(NULL, NULL, NULL), "options");
  NULLED(etude_dataset_create(batch(0), 2, NULL), "dataset");
  NULLED(etude_dataset_set_divided(NULL, 1), "dataset");
  NULLED(etude_trainer_create(linear, options, NULL), "trainer");
  etude_trainer* none = trainer;
  NULLED(etude_trainer_create(NULL, options, &none), "model");
  CHECK(none == NULL);
  NULLED(etude_trainer_train(NULL, NULL), "trainer");
  NULLED(etude_trainer_begin(NULL, NULL), "trainer");
  NULLED(etude_trainer_step(NULL, batch(0), 2, NULL), "trainer");
  NULLED(etude_trainer_backward(NULL, batch(0), 2), "trainer");
  NULLED(etude_trainer_update(NULL, NULL), "trainer");
  NULLED(etude_trainer_finish(NULL), "trainer");
  NULLED(etude_trainer_evaluate(NULL, NULL), "trainer");
  NULLED(etude_trainer_predict(NULL, batch(0), 1, NULL, 0), "trainer");
  NULLED(etude_trainer_output(NULL, 0, &tensor), "trainer");
  NULLED(etude_trainer_output(trainer, 0, NULL), "output");
  NULLED(etude_trainer_save_model(NULL, "x"), "trainer");
  NULLED(etude_trainer_save_model(trainer, NULL), "folder");
  NULLED(etude_trainer_save_checkpoint(NULL), "trainer");
  NULLED(etude_trainer_pause(NULL), "trainer");
  NULLED(etude_trainer_resume(NULL), "trainer");
  NULLED(etude_trainer_cancel(NULL, NULL), "trainer");
  NULLED(etude_trainer_number(NULL, "loss", &value), "trainer");
  NULLED(etude_trainer_number(trainer, NULL, &value), "name");
  NULLED(etude_trainer_number(trainer, "rank", NULL), "value");
  NULLED(etude_trainer_state(NULL, &text), "trainer");
  NULLED(etude_trainer_state(trainer, NULL), "json");
  NULLED(etude_trainer_parameter_count(NULL, &count), "trainer");
  NULLED(etude_trainer_parameter_count(trainer, NULL), "count");
  NULLED(etude_trainer_parameter_name(NULL, 0, &text), "trainer");
  NULLED(etude_trainer_parameter_name(trainer, 0, NULL), "name");
  NULLED(etude_trainer_parameter(NULL, "bias", &tensor), "trainer");
  NULLED(etude_trainer_parameter(trainer, NULL, &tensor), "name");
  NULLED(etude_trainer_parameter(trainer, "bias", NULL), "parameter");
  NULLED(etude_trainer_gradient(NULL, "bias", &tensor), "trainer");
  NULLED(etude_trainer_gradient(trainer, NULL, &tensor), "name");
  NULLED(etude_trainer_gradient(trainer, "bias", NULL), "gradient");
  NULLED(etude_trainer_on(NULL, "StepEnd", NULL, NULL), "trainer");
  NULLED(etude_event_number(NULL, "loss", &value), "event");
  NULLED(etude_event_text(NULL, "reason", &text), "event");
  NULLED(etude_trainer_request(NULL, ETUDE_STOP), "trainer");
  CHECK(etude_event_trainer(NULL) == NULL);
  CHECK(!strcmp(etude_event_name(NULL), ""));
  OK(etude_set_message_handler(NULL, NULL));
  etude_options_destroy(options);
  etude_options_destroy(NULL);
  etude_dataset_destroy(NULL);
  etude_trainer_destroy(trainer);
}

static void order(void) {
  etude_trainer* trainer = made(linear, descent(3));
#define EARLY(call) FAILS(call, ETUDE_WRONG_CALL, "no training is under way")
  EARLY(etude_trainer_step(trainer, batch(0), 2, NULL));
  EARLY(etude_trainer_backward(trainer, batch(0), 2));
  EARLY(etude_trainer_update(trainer, NULL));
  EARLY(etude_trainer_finish(trainer));
  EARLY(etude_trainer_save_checkpoint(trainer));
  EARLY(etude_trainer_cancel(trainer, "why not"));
  OK(etude_trainer_begin(trainer, NULL));
  FAILS(etude_trainer_begin(trainer, NULL), ETUDE_WRONG_CALL, "while a training is under way");
  FAILS(etude_trainer_train(trainer, NULL), ETUDE_WRONG_CALL, "while a training is under way");
  FAILS(etude_trainer_update(trainer, NULL), ETUDE_WRONG_CALL, "must come after etude_trainer_backward");
  steps(trainer, 0, 1);
  FAILS(etude_trainer_backward(trainer, batch(1), 2), ETUDE_WRONG_CALL,
        "in a training that uses etude_trainer_step");
  steps(trainer, 1, 3);
  FAILS(etude_trainer_step(trainer, batch(3), 2, NULL), ETUDE_WRONG_CALL, "must be etude_trainer_finish");
  OK(etude_trainer_finish(trainer));
  FAILS(etude_trainer_finish(trainer), ETUDE_WRONG_CALL, "no training is under way");
  OK(etude_trainer_begin(trainer, NULL));
  FAILS(etude_trainer_step(trainer, batch(0), 1, NULL), ETUDE_INVALID_DATA, "labels is missing");
  etude_tensor few[2] = {batch(0)[0], matrix("labels", batch(0)[1].data, ETUDE_FLOAT32, 3, 2)};
  FAILS(etude_trainer_step(trainer, few, 2, NULL), ETUDE_INVALID_DATA, "first dimension");
  OK(etude_trainer_backward(trainer, batch(0), 2)); /* the steps that failed have decided nothing */
  FAILS(etude_trainer_step(trainer, batch(0), 2, NULL), ETUDE_WRONG_CALL,
        "in a training that uses etude_trainer_backward and etude_trainer_update");
  OK(etude_trainer_update(trainer, NULL));
  etude_trainer_destroy(trainer);
}

static void files(void) {
  etude_trainer* trainer = NULL;
  FAILS(etude_trainer_create("/nowhere/model.pt2", NULL, &trainer), ETUDE_INVALID_FILE, "/nowhere/model.pt2");
  FAILS(etude_trainer_create(model_file("newer.pt2"), NULL, &trainer), ETUDE_INVALID_FILE,
        "schema_version is 9.1: must be 8.8 (torch 2.8) or a later 8");
  const char* folder = new_folder();
  size_t size = 0;
  char* bytes = read_bytes(linear, &size);
  const char* broken = path_in(folder, "broken.pt2");
  for (size_t length = 0; length < size; length += size / 7) {
    write_bytes(broken, bytes, length);
    FAILS(etude_trainer_create(linear, NULL, NULL), ETUDE_INVALID_ARGUMENT, "trainer is null");
    FAILS(etude_trainer_create(broken, NULL, &trainer), ETUDE_INVALID_FILE, "broken.pt2");
  }
  free(bytes);
  CHECK(trainer == NULL);
}

static void no_loss(void) {
  etude_trainer* trainer = made(linear, NULL);
  FAILS(etude_trainer_begin(trainer, NULL), ETUDE_INVALID_ARGUMENT,
        "loss is model, but the model takes no labels (it takes input)");
  FAILS(etude_trainer_train(trainer, NULL), ETUDE_INVALID_ARGUMENT, "loss is model");
  etude_trainer_destroy(trainer);
}

/* Exceptions from LibTorch and the loss within a step end the training with their text. */
static void inside(void) {
  etude_options* options = descent(3);
  set(options, "loss", "cross_entropy");
  etude_trainer* trainer = made(linear, options);
  OK(etude_trainer_begin(trainer, NULL));
  int64_t wrong_classes[4] = {0, 1, 2, 0};
  static const int64_t four[1] = {4};
  etude_tensor tensors[2] = {batch(0)[0], {0}};
  tensors[1].name = "labels";
  tensors[1].data = wrong_classes;
  tensors[1].shape = four;
  tensors[1].rank = 1;
  tensors[1].dtype = ETUDE_INT64;
  FAILS(etude_trainer_step(trainer, tensors, 2, NULL), ETUDE_FAILED, "2");
  FAILS(etude_trainer_step(trainer, tensors, 2, NULL), ETUDE_WRONG_CALL, "no training is under way");
  CHECK(strstr(etude_last_error(), "exception raised from") == NULL);
  etude_trainer_destroy(trainer);

  trainer = made(linear, descent(3));
  OK(etude_trainer_begin(trainer, NULL));
  float y[12] = {0};
  tensors[1] = matrix("labels", y, ETUDE_FLOAT32, 4, 3);
  FAILS(etude_trainer_step(trainer, tensors, 2, NULL), ETUDE_INVALID_DATA, "must have the same shape");
  OK(etude_trainer_begin(trainer, NULL));
  steps(trainer, 0, 3);
  OK(etude_trainer_finish(trainer));
  etude_trainer_destroy(trainer);
}

/* With a stride of 0, the input takes no memory, but the model's output would take terabytes. */
static void too_much_memory(void) {
  etude_trainer* trainer = made(linear, NULL);
  float x[3] = {1, 2, 3}, y[2];
  static const int64_t strides[2] = {0, 1};
  etude_tensor input = matrix("input", x, ETUDE_FLOAT32, (int64_t)1 << 41, 3);
  input.strides = strides;
  FAILS(etude_trainer_predict(trainer, &input, 1, NULL, 0), ETUDE_OUT_OF_MEMORY, "memory");
  input = matrix("input", x, ETUDE_FLOAT32, 1, 3);
  const etude_tensor output = matrix(NULL, y, ETUDE_FLOAT32, 1, 2);
  OK(etude_trainer_predict(trainer, &input, 1, &output, 1));
  NEAR(y[0], 0.5 + (0 * 1 + 1 * 2 + 2 * 3) / 8.0);
  etude_trainer_destroy(trainer);
}

struct meeting {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int is_inside, may_leave;
};

static void wait_until(struct meeting* meeting, const int* flag) {
  while (!*flag) pthread_cond_wait(&meeting->changed, &meeting->mutex);
}

static int32_t stay(const etude_event* event, void* user) {
  struct meeting* meeting = user;
  (void)event;
  pthread_mutex_lock(&meeting->mutex);
  meeting->is_inside = 1;
  pthread_cond_broadcast(&meeting->changed);
  wait_until(meeting, &meeting->may_leave);
  pthread_mutex_unlock(&meeting->mutex);
  return 0;
}

static void* step_once(void* trainer) {
  int32_t should_stop = 0;
  OK(etude_trainer_step(trainer, batch(0), 2, &should_stop));
  CHECK(should_stop); /* it was cancelled meanwhile */
  return NULL;
}

static void two_threads(void) {
  etude_trainer* trainer = made(linear, descent(5));
  struct meeting meeting = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
  OK(etude_trainer_on(trainer, "StepBegin", stay, &meeting));
  OK(etude_trainer_begin(trainer, NULL));
  pthread_t thread;
  pthread_create(&thread, NULL, step_once, trainer);
  pthread_mutex_lock(&meeting.mutex);
  wait_until(&meeting, &meeting.is_inside);
  pthread_mutex_unlock(&meeting.mutex);
  double value = -1;
  etude_tensor tensor;
  FAILS(etude_trainer_step(trainer, NULL, 2, NULL), ETUDE_BUSY,
        "another thread is in a call with the same trainer");
  FAILS(etude_trainer_finish(trainer), ETUDE_BUSY, "etude_trainer_finish");
  FAILS(etude_trainer_number(trainer, "loss", &value), ETUDE_BUSY, "etude_trainer_number");
  FAILS(etude_trainer_parameter(trainer, "bias", &tensor), ETUDE_BUSY, "etude_trainer_parameter");
  FAILS(etude_trainer_request(trainer, ETUDE_STOP), ETUDE_BUSY, "etude_trainer_request");
  CHECK(value == -1);
  OK(etude_trainer_cancel(trainer, "another thread wants it"));
  pthread_mutex_lock(&meeting.mutex);
  meeting.may_leave = 1;
  pthread_cond_broadcast(&meeting.changed);
  pthread_mutex_unlock(&meeting.mutex);
  pthread_join(thread, NULL);
  struct line line = first_line();
  line_step(&line, 0, 0.25);
  check_line(trainer, &line);
  FAILS(etude_trainer_step(trainer, batch(1), 2, NULL), ETUDE_WRONG_CALL, "but the training has stopped");
  OK(etude_trainer_finish(trainer));
  check_line(trainer, &line);
  etude_trainer_destroy(trainer);
}

struct own_training {
  int offset;
  float line[8];
};

static void* train_alone(void* user) {
  struct own_training* own = user;
  float x[12], y[8];
  const etude_tensor tensors[2] = {matrix("input", x, ETUDE_FLOAT32, 4, 3),
                                   matrix("labels", y, ETUDE_FLOAT32, 4, 2)};
  etude_trainer* trainer = NULL;
  FAILS(etude_trainer_create(formatted("/nowhere/%d.pt2", own->offset), NULL, &trainer), ETUDE_INVALID_FILE,
        formatted("/nowhere/%d.pt2", own->offset));
  trainer = made(linear, descent(20));
  OK(etude_trainer_begin(trainer, NULL));
  for (int i = 0; i < 20; ++i) {
    example_batch(own->offset + i, x, y);
    OK(etude_trainer_step(trainer, tensors, 2, NULL));
  }
  OK(etude_trainer_finish(trainer));
  read_line(trainer, own->line);
  etude_trainer_destroy(trainer);
  return NULL;
}

/* Each thread has its trainer, and its last error. */
static void two_trainers(void) {
  struct own_training both[2] = {{100, {0}}, {200, {0}}}, alone[2] = {{100, {0}}, {200, {0}}};
  pthread_t thread;
  pthread_create(&thread, NULL, train_alone, &both[0]);
  train_alone(&both[1]);
  pthread_join(thread, NULL);
  for (int i = 0; i < 2; ++i) {
    train_alone(&alone[i]);
    CHECK(!memcmp(both[i].line, alone[i].line, sizeof alone[i].line));
  }
}

TESTS(misuse) = {{"null pointers are refused by name", nulls},
                 {"calls out of order are refused", order},
                 {"models that can't be read are refused with the file's name", files},
                 {"a training without a loss is refused", no_loss},
                 {"exceptions inside a step end the training", inside},
                 {"a lack of memory has its own status, and the trainer can still be used", too_much_memory},
                 {"a second thread's calls return ETUDE_BUSY, but it may cancel", two_threads},
                 {"two threads train as each would alone, and have their own errors", two_trainers},
                 {NULL, NULL}};
