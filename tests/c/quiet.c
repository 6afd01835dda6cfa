/* A training leaves the program's standard output and signals alone. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { SIGNALS = 32 };

static volatile sig_atomic_t handled;
static void handler(int signal) { handled = signal; }

/* The number of signals whose handling has changed. */
static int changed_signals(const struct sigaction before[SIGNALS]) {
  int changed = 0;
  for (int i = 1; i < SIGNALS; ++i) {
    struct sigaction after;
    if (sigaction(i, NULL, &after)) continue;
    if (after.sa_handler == before[i].sa_handler && after.sa_flags == before[i].sa_flags) continue;
    fprintf(stderr, "signal %d has another handler\n", i);
    ++changed;
  }
  return changed;
}

/* The whole life of a trainer, with logs, evaluations, checkpoints and a prediction. */
int quiet_training(const char* folder) {
  struct sigaction own, before[SIGNALS];
  memset(&own, 0, sizeof own);
  own.sa_handler = handler;
  sigaction(SIGTERM, &own, NULL);
  sigaction(SIGINT, &own, NULL);
  int changed = 0;
  sigset_t mask_before, mask_after;
  sigprocmask(SIG_SETMASK, NULL, &mask_before);
  for (int i = 1; i < SIGNALS; ++i) sigaction(i, NULL, &before[i]);

  etude_options* options = descent(4);
  set(options, "output_dir", folder);
  set(options, "save_strategy", "steps");
  set(options, "save_steps", "2");
  set(options, "eval_strategy", "steps");
  set(options, "eval_steps", "2");
  set(options, "logging_steps", "1");
  etude_dataset* dataset = NULL;
  OK(etude_dataset_create(batch(0), 2, &dataset));
  OK(etude_options_set_train_dataset(options, dataset));
  OK(etude_options_add_eval_dataset(options, NULL, dataset));
  etude_trainer* trainer = made(linear, options);
  OK(etude_trainer_begin(trainer, NULL));
  steps(trainer, 0, 3);
  changed += changed_signals(before);
  raise(SIGTERM); /* the program's own handler gets it, and the training goes on */
  CHECK(handled == SIGTERM);
  steps(trainer, 3, 4);
  OK(etude_trainer_finish(trainer));
  OK(etude_trainer_train(trainer, NULL));
  OK(etude_trainer_evaluate(trainer, NULL));
  OK(etude_trainer_predict(trainer, batch(0), 1, NULL, 0));
  FAILS(etude_trainer_train(trainer, "/nowhere"), ETUDE_INVALID_FILE, "/nowhere");
  changed += changed_signals(before);
  etude_trainer_destroy(trainer);
  etude_dataset_destroy(dataset);
  changed += changed_signals(before);
  sigprocmask(SIG_SETMASK, NULL, &mask_after);
  for (int i = 1; i < SIGNALS; ++i) changed += sigismember(&mask_before, i) != sigismember(&mask_after, i);
  CHECK(changed == 0);
  fflush(NULL);
  return changed;
}

static void says_nothing(void) {
  const char* folder = new_folder();
  int output, status = -1;
  char text[256];
  const int child = again("quiet_training", folder, &output);
  const ssize_t size = read(output, text, sizeof text);
  CHECK(size == 0);
  if (size > 0) fprintf(stderr, "stdout: %.*s\n", (int)size, text);
  close(output);
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(exists(path_in(folder, "checkpoint-4/model.safetensors")));
}

struct messages {
  int count;
  int32_t level;
  char text[512];
};

static void receive(int32_t level, const char* text, void* user) {
  struct messages* messages = user;
  ++messages->count;
  messages->level = level;
  strncpy(messages->text, text, sizeof messages->text - 1);
}

/* Weights that lack a parameter are a warning. */
static void messages_are_received(void) {
  struct messages messages = {0};
  OK(etude_set_message_handler(receive, &messages));
  etude_trainer* trainer = made(model_file("dropout.pt2"), descent(1));
  const char* folder = new_folder();
  OK(etude_trainer_save_model(trainer, folder));
  etude_trainer_destroy(trainer);
  CHECK(messages.count == 0);
  etude_options* options = descent(1);
  set(options, "weights", folder);
  trainer = NULL;
  const etude_status status = etude_trainer_create(linear, options, &trainer);
  CHECK(status == ETUDE_OK ? messages.count > 0 && messages.level == ETUDE_WARNING
                           : status == ETUDE_INVALID_FILE);
  etude_options_destroy(options);
  etude_trainer_destroy(trainer);

  trainer = made(linear, descent(2));
  messages.count = 0;
  OK(etude_trainer_begin(trainer, NULL));
  float x[12], y[8];
  example_batch(0, x, y);
  x[0] = 1e30f;
  const etude_tensor tensors[2] = {matrix("input", x, ETUDE_FLOAT32, 4, 3),
                                   matrix("labels", y, ETUDE_FLOAT32, 4, 2)};
  OK(etude_trainer_step(trainer, tensors, 2, NULL));
  steps(trainer, 1, 2);
  OK(etude_trainer_finish(trainer));
  CHECK(messages.count > 0 && messages.level == ETUDE_WARNING);
  etude_trainer_destroy(trainer);
  OK(etude_set_message_handler(NULL, NULL));
}

static void versions(void) {
  CHECK(etude_version() >= 100);
  CHECK(etude_last_error() != NULL);
}

TESTS(quiet) = {{"a training writes nothing to standard output and leaves signals alone", says_nothing},
                {"messages go to the program's handler", messages_are_received},
                {"the library reports its version", versions},
                {NULL, NULL}};
