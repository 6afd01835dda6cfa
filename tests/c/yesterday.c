/* A program of version 1 of the interface: its header is tests/c/version_1/etude.h, whatever etude.h says
 * today. */
#include <etude.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int losses_heard;

static void must(etude_status status, const char* what) {
  if (status == ETUDE_OK) return;
  fprintf(stderr, "%s: %d: %s\n", what, (int)status, etude_last_error());
  exit(1);
}

static int32_t hear(const etude_event* event, void* user) {
  double loss = -1;
  must(etude_event_number(event, "loss", &loss), "etude_event_number");
  losses_heard += !strcmp(etude_event_name(event), "StepEnd") && loss >= 0 && !strcmp(user, "user");
  return 0;
}

/* Gradient descent by the program. */
static int32_t descend(etude_trainer* trainer, double learning_rate, void* user) {
  int64_t count = 0;
  must(etude_trainer_parameter_count(trainer, &count), "etude_trainer_parameter_count");
  for (int64_t i = 0; i < count; ++i) {
    const char* name = NULL;
    etude_tensor parameter, gradient;
    must(etude_trainer_parameter_name(trainer, i, &name), "etude_trainer_parameter_name");
    must(etude_trainer_parameter(trainer, name, &parameter), "etude_trainer_parameter");
    must(etude_trainer_gradient(trainer, name, &gradient), "etude_trainer_gradient");
    int64_t size = 1;
    for (int32_t k = 0; k < parameter.rank; ++k) size *= parameter.shape[k];
    for (int64_t k = 0; k < size; ++k)
      ((float*)parameter.data)[k] -= (float)learning_rate * ((float*)gradient.data)[k];
  }
  ++*(int*)user;
  return 0;
}

int main(void) {
  float x[12], labels[8], outputs[8];
  for (int k = 0; k < 12; ++k) x[k] = (float)(k % 5) / 4;
  for (int k = 0; k < 8; ++k) labels[k] = 1;
  const int64_t x_shape[2] = {4, 3}, labels_shape[2] = {4, 2};
  etude_tensor tensors[2], output;
  memset(tensors, 0, sizeof tensors);
  tensors[0].name = "input";
  tensors[0].data = x;
  tensors[0].shape = x_shape;
  tensors[1].name = "labels";
  tensors[1].data = labels;
  tensors[1].shape = labels_shape;
  tensors[0].rank = tensors[1].rank = 2;
  output = tensors[1];
  output.name = NULL;
  output.data = outputs;

  int own_steps = 0;
  etude_options* options = NULL;
  must(etude_options_create(&options), "etude_options_create");
  must(etude_options_set_json(options,
                              "{\"loss\": \"mse\", \"learning_rate\": 0.25, \"max_steps\": 2000,"
                              " \"lr_scheduler_type\": \"constant\"}"),
       "etude_options_set_json");
  must(etude_options_set(options, "save_strategy", "no"), "etude_options_set");
  must(etude_options_set_optimizer(options, descend, &own_steps), "etude_options_set_optimizer");
  etude_trainer* trainer = NULL;
  must(etude_trainer_create(MODELS "/linear_by_torch_2_13.pt2", options, &trainer), "etude_trainer_create");
  etude_options_destroy(options);
  must(etude_trainer_on(trainer, "StepEnd", hear, "user"), "etude_trainer_on");
  must(etude_trainer_begin(trainer, NULL), "etude_trainer_begin");
  int32_t should_stop = 0;
  while (!should_stop) must(etude_trainer_step(trainer, tensors, 2, &should_stop), "etude_trainer_step");
  must(etude_trainer_finish(trainer), "etude_trainer_finish");
  must(etude_trainer_predict(trainer, tensors, 1, &output, 1), "etude_trainer_predict");
  double largest = 0;
  for (int k = 0; k < 8; ++k) {
    const double error = (double)outputs[k] - 1;
    if (error * error > largest) largest = error * error;
  }
  /* Each status has its number, which programs may have stored. */
  const int is_busy_five = ETUDE_BUSY == 5 && etude_trainer_step(trainer, tensors, 2, NULL) == 4;
  etude_trainer_destroy(trainer);
  printf("%d steps, %d events, largest error squared %g\n", own_steps, losses_heard, largest);
  return own_steps == 2000 && losses_heard == 2000 && largest < 1e-3 && is_busy_five ? 0 : 1;
}
