/* Options by name and by JSON. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

static etude_options* new_options(void) {
  etude_options* options = NULL;
  OK(etude_options_create(&options));
  return options;
}

static void wrong_options(void) {
  etude_options* options = new_options();
  FAILS(etude_options_set(options, "learning_rat", "1"), ETUDE_INVALID_ARGUMENT,
        "there is no option 'learning_rat'; did you mean 'learning_rate'?");
  FAILS(etude_options_set(options, "learning_rate", "fast"), ETUDE_INVALID_ARGUMENT,
        "learning_rate is 'fast': must be a number");
  FAILS(etude_options_set(options, "optim", "sgdd"), ETUDE_INVALID_ARGUMENT, "did you mean 'sgd'?");
  FAILS(etude_options_set(options, "loss", "mae"), ETUDE_INVALID_ARGUMENT,
        "loss is 'mae': must be one of model, ");
  FAILS(etude_options_set(options, "output_dir", "\xff"), ETUDE_INVALID_ARGUMENT, "value isn't UTF-8");
  FAILS(etude_options_set_json(options, "{"), ETUDE_INVALID_ARGUMENT, "");
  FAILS(etude_options_set_json(options, "[]"), ETUDE_INVALID_ARGUMENT, "must be like {");
  FAILS(etude_options_set_json(options, "{\"seeed\": 1}"), ETUDE_INVALID_ARGUMENT, "did you mean 'seed'?");
  FAILS(etude_options_set_json(options, "{\"seed\": 3, \"max_steps\": \"many\"}"), ETUDE_INVALID_ARGUMENT,
        "max_steps");
  etude_options_destroy(options);
}

/* Combinations of options are checked when a trainer is created. */
static void wrong_together(void) {
  struct {
    const char *json, *part;
  } cases[] = {{"{\"learning_rate\": -1}", "learning_rate is -1"},
               {"{\"load_best_model_at_end\": true}", "load_best_model_at_end"},
               {"{\"compute_metrics\": [\"accuracy\", \"speed\"]}", "speed"},
               {"{\"callback\": [\"EarlyStopping\"]}", "callback is 'EarlyStopping': must be one of"},
               {"{\"callback\": [\"EarlyStoppingCallback: patience=1\"]}", "there is no option 'patience'"},
               {"{\"compiled_graph\": \"required\"}", "run_compiled_code must be true"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    etude_options* options = new_options();
    etude_trainer* trainer = (etude_trainer*)options;
    OK(etude_options_set_json(options, cases[i].json));
    FAILS(etude_trainer_create(linear, options, &trainer), ETUDE_INVALID_ARGUMENT, cases[i].part);
    CHECK(trainer == NULL);
    etude_options_destroy(options);
  }
}

static void same_by_name_and_json(void) {
  etude_options* by_json = new_options();
  OK(etude_options_set_json(
      by_json,
      formatted("{\"output_dir\": \"%s\", \"optim\": \"sgd\", \"learning_rate\": 0.25, \"max_steps\": 3,"
                "\"lr_scheduler_type\": \"constant\", \"max_grad_norm\": 0, \"loss\": \"mse\","
                "\"save_strategy\": \"no\", \"callback\": [\"GradientNormMonitor\"]}",
                new_folder())));
  etude_trainer* trainers[2] = {made(linear, by_json), made(linear, descent(3))};
  float lines[2][8];
  for (int i = 0; i < 2; ++i) {
    OK(etude_trainer_begin(trainers[i], NULL));
    steps(trainers[i], 0, 3);
    OK(etude_trainer_finish(trainers[i]));
    read_line(trainers[i], lines[i]);
    etude_trainer_destroy(trainers[i]);
  }
  CHECK(!memcmp(lines[0], lines[1], sizeof lines[0]));
}

static void several_trainers(void) {
  etude_options* options = descent(2);
  etude_trainer *first = NULL, *second = NULL;
  OK(etude_trainer_create(linear, options, &first));
  set(options, "learning_rate", "0.5");
  OK(etude_trainer_create(linear, options, &second));
  etude_options_destroy(options);
  CHECK(number(first, "learning_rate") == 0.25);
  CHECK(number(second, "learning_rate") == 0.5);
  struct line line = first_line();
  OK(etude_trainer_begin(first, NULL));
  steps(first, 0, 1);
  line_step(&line, 0, 0.25);
  check_line(first, &line);
  etude_trainer_destroy(first);
  etude_trainer_destroy(second);
}

TESTS(options) = {{"a wrong option is reported by name, and changes nothing", wrong_options},
                  {"options that don't fit together are refused by the trainer", wrong_together},
                  {"options mean the same by name and by JSON", same_by_name_and_json},
                  {"options make several trainers, and may change in between", several_trainers},
                  {NULL, NULL}};
